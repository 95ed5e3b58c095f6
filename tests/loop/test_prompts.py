"""What the model is sent: in turn, as strict providers want it, and never changed; and work in rounds."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_openai_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import Decision, Ended, Question, Session, build_graph, go_on, sqlite_storage, standard_controls
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import (
    FINISH,
    READ,
    TEXTS,
    THINK,
    THREAD,
    WRITE,
    Bench,
    Play,
    ai,
    assert_in_turn,
    check,
    done,
    play,
    user,
)

LINE = "Here I stopped."
WORDS = replace(
    TEXTS,
    between={"assistant": LINE, "user": "And then?"},
    note_down="<note_down>",
    history_summary="<summary>\n{lines}",
)
DOWN = ConnectionError("heron: the key sk-123 is not known")


class Appending(AgentMiddleware[Any, Any, Any]):
    """Says something more at the end of each prompt."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=[*request.messages, HumanMessage("It is noon.")]))


@dataclass(frozen=True)
class Talk:
    """The model's replies, the inputs, and who says what at the end of the last prompt."""

    script: Sequence[Any]
    sent: Sequence[Any]
    ends: Sequence[tuple[str, str]] = ()
    turns: int = 20
    middleware: Sequence[Any] = ()


IMPORTED = [user("Read."), ai(("read", "w")), done("w", "y"), user("Once more.")]
NOON = ("human", "It is noon.")
NAMED = [HumanMessage("I am for it.", name="ann"), HumanMessage("I am not.", name="bob")]
TALKS = {
    "a second task": Talk([READ, FINISH, FINISH], ["one", "two"], [("ai", "All of it."), ("human", "two")]),
    "an empty reply": Talk([READ, reply(""), FINISH], ["one"], [("ai", LINE), ("human", "<empty>")]),
    "words, and a reminder": Talk(["I will.", FINISH], ["one"], [("ai", "I will."), ("human", "<talked>")]),
    "a limit": Talk([READ, FINISH], ["one", go_on(5)], [("ai", LINE), ("human", "<resumed>")], turns=1),
    "an error, a new task": Talk([READ, DOWN, FINISH], ["one", "two"], [("ai", LINE), ("human", "two")]),
    "an import that begins with the assistant": Talk([FINISH], [[ai("Hello?"), user("Read.")]]),
    "an import": Talk([FINISH], [IMPORTED], [("tool", "y"), ("ai", LINE), ("human", "Once more.")]),
    "two messages at once": Talk([READ, FINISH], [[user("This."), user("That.")]], [("tool", "read 0")]),
    "messages of two people": Talk([FINISH], [NAMED], [("ai", LINE), ("human", "I am not.")]),
    "a middleware appends": Talk([READ, FINISH], ["one"], [("ai", LINE), NOON], middleware=[Appending()]),
}


def machine(talk: Talk, model: Any) -> Any:
    policy = {"texts": WORDS, "model_retries": None}
    options: Any = {"middleware": [*talk.middleware], "policy": policy, "checkpointer": InMemorySaver()}
    return build_graph(model, Bench().tools[1:2], limits={"turns": talk.turns}, **options)


def under_guards(talk: Talk, model: Any) -> Any:
    middleware = [Guards({"turns": talk.turns}, policy={"texts": WORDS}), *talk.middleware]
    agent = create_agent(model, Bench().tools[1:2], middleware=middleware, checkpointer=InMemorySaver())
    # Only a guarded agent takes go_on().
    return guarded(agent) if any(isinstance(one, Command) for one in talk.sent) else agent


DRIVERS: dict[str, Callable[[Talk, Any], Any]] = {"build_graph": machine, "Guards": under_guards}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
def test_the_roles_alternate_and_what_was_sent_stands(talk: Talk, driver: str) -> None:
    model = ScriptedModel(talk.script)
    graph = DRIVERS[driver](talk, model)
    for given in talk.sent:
        graph.invoke(given if isinstance(given, Command) else {"messages": given}, THREAD)
    assert graph.get_state(THREAD).values["outcome"]["status"] == "success"
    prompts = [seen.messages for seen in model.seen]
    for prompt in prompts:
        assert_in_turn(prompt)
        assert prompt[-1].type in ("human", "tool")
        assert not any("heron" in message.text for message in prompt)
    told = [(message.type, message.text) for message in prompts[-1]]
    assert told[len(told) - len(talk.ends) :] == list(talk.ends)
    shown = [[(message.type, message.content) for message in prompt] for prompt in prompts]
    if not talk.middleware:
        assert all(after[: len(before)] == before for before, after in pairwise(shown))


def test_system_messages_join_the_prompt_in_order() -> None:
    given = [("system", "Be kind."), ("user", "do it"), ("system", "Be brief.")]
    played = check(play([FINISH], sent=[given], options={"system_prompt": "You are Ada."}))
    system = played.model.seen[0].messages[0].text
    assert system.startswith("You are Ada.")
    assert system.endswith("Be kind.\n\nBe brief.")
    assert "finish_task" in system


# Threads are driven at random through all that a run meets, by graphs that are built anew from the database
# in between: a provider's cache is of prefixes, so whatever changes at the front is paid in full again.

MOVES = 12
REPLIES: list[Callable[[random.Random], Any]] = [
    # Talk in a row climbs the ladder, so it comes more often.
    *[lambda draw: reply(f"Words {draw.random()}."), lambda _: reply("More words.")] * 5,
    lambda draw: reply(call("look", where=str(draw.random()))),
    lambda draw: reply("I look.", call("look", where=str(draw.random())), call("pay", amount=3)),
    lambda _: reply(call("think", thought="Hm.", approach="Slowly.")),
    lambda _: reply(call("ask_user", question="Which?")),
    lambda _: reply("Cut of", call("look", where="cut"), finish_reason="length"),
    lambda _: reply(""),
    lambda _: reply(call("finish_task", summary="")),
    lambda _: reply(call("pay", amount="x"), FINISH),
    lambda _: reply("Done.", FINISH),
]


def look(where: str) -> str:
    """Look."""
    return f"{where}: {'something ' * 60}"


def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid"


def moved(session: Session, before: Decision | None, draw: random.Random, number: int) -> Decision:
    if isinstance(before, Question) and draw.random() < 0.7:
        return session.resume(f"This one, {number}.")
    if isinstance(before, Ended) and before.outcome.status == "limit" and draw.random() < 0.5:
        return session.go_on(turns=3)
    return session.run(f"Task {number}.")


def drive(seed: int, file: Path, policy: dict[str, Any]) -> ScriptedModel:
    draw, decision = random.Random(seed), None
    model = ScriptedModel(lambda _: draw.choice(REPLIES)(draw))
    for number in range(MOVES):
        with sqlite_storage(file) as storage:
            graph = build_graph(
                model,
                [look, pay],
                storage=storage,
                system_prompt="Be kind.",
                limits={"turns": 9},
                policy={"texts": WORDS, **policy},
            )
            decision = moved(Session(graph, "t"), decision, draw, number)
    return model


def summary_in(prompt: Sequence[BaseMessage]) -> str:
    return next((message.text for message in prompt if "<summary>" in message.text), "")


def sent(prompt: list[BaseMessage]) -> list[Any]:
    """The messages as a provider gets them."""
    return list(convert_to_openai_messages(prompt))


COMPACTIONS: dict[str, dict[str, Any]] = {
    "none": {"prompt_tokens": 100_000},
    "by lines": {"prompt_tokens": 2_000, "compaction": "lines"},
    "by the model": {"prompt_tokens": 2_000, "compaction": "model"},
}


@pytest.mark.parametrize(
    "name", ["by lines", "by the model", pytest.param("none", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_request_begins_with_the_one_before(seed: int, name: str, tmp_path: Path) -> None:
    model = drive(seed, tmp_path / "t.sqlite", COMPACTIONS[name])
    assert len(model.seen) > MOVES
    for seen in model.seen:
        assert_in_turn(seen.messages)
    for before, after in pairwise(model.seen):
        assert json.dumps(after.tools) == json.dumps(before.tools)
        # Notes that the model was asked for may be word for word those of before, of more turns.
        if (
            summary_in(after.messages) == summary_in(before.messages)
            and before.messages[-1].text != "<note_down>"
        ):
            assert sent(after.messages)[: len(before.messages)] == sent(before.messages)
    assert any(summary_in(seen.messages) for seen in model.seen) == (name != "none")


# Plan, execute, think: after each batch of calls the model is asked what they show.

TWO_TURNS = {"turns": 2}
ROUNDS: dict[str, tuple[Play, int]] = {
    # And how often it is asked.
    "the first reply is free": (play([FINISH]), 0),
    "after a batch it is asked once": (play([[READ, WRITE], THINK, FINISH], ran="read write"), 1),
    "a thought opens the next round": (play([READ, THINK, WRITE, FINISH], ran="read write"), 2),
    "who works on instead is asked again": (play([READ, WRITE, READ, FINISH], ran="read write read"), 3),
    "a finish comes first": (play([[WRITE, FINISH]], ran="write"), 0),
    "a call that cannot run is no batch": (play([call("write", raw='{"a": '), FINISH]), 0),
    "near a limit, too": (play([READ, FINISH], limits=TWO_TURNS, ran="read", told="<near_limit>"), 1),
    "of a batch eight run": (play([[THINK, *[READ] * 9], FINISH], ran="read " * 8, told="<too_many>"), 1),
}


@pytest.mark.parametrize(("case", "asked"), ROUNDS.values(), ids=ROUNDS)
def test_in_rounds(case: Play, asked: int) -> None:
    played = check(replace(case, options={"control_tools": standard_controls(rounds=True)}))
    texts = [message.text for message in played.result["messages"] if message.type == "human"]
    assert sum("<round>" in text for text in texts) == asked
    # The same tools in every call: a provider's cache of the prompt holds.
    assert {(len(seen.tools), seen.tool_choice) for seen in played.model.seen} == {(6, None)}
