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
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import (
    Decision,
    Ended,
    Question,
    Session,
    build_graph,
    go_on,
    outcome_of,
    sqlite_storage,
    standard_controls,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, TaggedText, call, reply
from tests.support.plays import (
    ASK,
    FINISH,
    GO,
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


class Choosing(AgentMiddleware[Any, Any, Any]):
    """Asks another model than the agent's."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model=self.model))


@dataclass(frozen=True)
class Talk:
    """The model's replies, the inputs, and who says what at the end of the last prompt."""

    script: Sequence[Any]
    sent: Sequence[Any]
    ends: Sequence[tuple[str, str]] = ()
    turns: int = 20
    middleware: Sequence[Any] = ()


BLOCKED = call("finish_task", summary="No key.", outcome="blocked")
IMPORTED = [user("Read."), ai(("read", "w")), done("w", "y"), user("Once more.")]
NAMED = [HumanMessage("I am for it.", name="ann"), HumanMessage("I am not.", name="bob")]
TALKS = {
    "a second task after a finish": Talk(
        [READ, FINISH, FINISH],
        ["one", "two"],
        [("tool", "<accepted>"), ("ai", "All of it."), ("human", "two")],
    ),
    "a second task after a finish that claims less": Talk(
        [BLOCKED, FINISH], ["one", "two"], [("human", "two")]
    ),
    "an empty reply after a result": Talk(
        [READ, reply(""), FINISH], ["one"], [("ai", LINE), ("human", "<empty>")]
    ),
    "an empty reply at once": Talk(
        [reply(""), FINISH], ["one"], [("human", "one"), ("ai", LINE), ("human", "<empty>")]
    ),
    "words, and a reminder": Talk(["I will.", FINISH], ["one"], [("ai", "I will."), ("human", "<talked>")]),
    "a reminder near a limit": Talk([call("read", n=at) for at in range(5)] + [FINISH], ["one"], turns=6),
    "a limit, and going on": Talk(
        [READ, FINISH], ["one", go_on(5)], [("tool", "read 0"), ("ai", LINE), ("human", "<resumed>")], turns=1
    ),
    "a limit, and another task": Talk(
        [READ, FINISH], ["one", "two"], [("ai", LINE), ("human", "two")], turns=1
    ),
    "an error, and another task": Talk(
        [READ, DOWN, FINISH], ["one", "two"], [("tool", "read 0"), ("ai", LINE), ("human", "two")]
    ),
    "an error at once": Talk(
        [DOWN, FINISH], ["one", "two"], [("human", "one"), ("ai", LINE), ("human", "two")]
    ),
    "an import that begins with the assistant": Talk([FINISH], [[ai("Hello?"), user("Read.")]]),
    "an import with two of the assistant in a row": Talk(
        [FINISH], [[user("Hello."), ai("Hello."), ai("What is it?"), user("Read.")]]
    ),
    "an import with a message after a result": Talk(
        [FINISH], [IMPORTED], [("ai", LINE), ("human", "Once more.")]
    ),
    "two messages at once": Talk(
        [READ, FINISH], [[user("First this."), user("Then that.")]], [("tool", "read 0")]
    ),
    "messages of two people": Talk([FINISH], [NAMED], [("ai", LINE), ("human", "I am not.")]),
    "a middleware that appends": Talk(
        [READ, FINISH],
        ["one"],
        [("tool", "read 0"), ("ai", LINE), ("human", "It is noon.")],
        middleware=[Appending()],
    ),
}


def machine(talk: Talk, model: Any) -> Any:
    policy = {"texts": WORDS, "model_retries": None}
    options: Any = {"middleware": [*talk.middleware], "policy": policy, "checkpointer": InMemorySaver()}
    return build_graph(model, Bench().tools[1:2], limits={"turns": talk.turns}, **options)


def under_guards(talk: Talk, model: Any, *more: Any) -> Any:
    middleware = [Guards({"turns": talk.turns}, policy={"texts": WORDS}), *more, *talk.middleware]
    given = ScriptedModel([]) if more else model
    agent = create_agent(given, Bench().tools[1:2], middleware=middleware, checkpointer=InMemorySaver())
    # Only a guarded agent takes go_on().
    return guarded(agent) if any(isinstance(one, Command) for one in talk.sent) else agent


DRIVERS: dict[str, Callable[[Talk, Any], Any]] = {
    "build_graph": machine,
    "Guards": under_guards,
    "Guards, with a model that another middleware chooses": lambda talk, model: under_guards(
        talk, model, Choosing(model)
    ),
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", TALKS)
def test_the_roles_alternate_and_what_was_sent_stands(name: str, driver: str) -> None:
    talk = TALKS[name]
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


def test_two_messages_at_once_are_two_blocks_of_one() -> None:
    played = check(play([FINISH], sent=[[user("First this."), user("Then that.")]]))
    blocks: Any = played.model.seen[0].messages[1].content
    assert [block["text"] for block in blocks] == ["First this.", "Then that."]


def test_system_messages_join_the_prompt_in_order() -> None:
    given = [("system", "Be kind."), ("user", "do it"), ("system", "Be brief.")]
    played = check(play([FINISH], sent=[given], options={"system_prompt": "You are Ada."}))
    system = played.model.seen[0].messages[0].text
    assert system.startswith("You are Ada.")
    assert system.endswith("Be kind.\n\nBe brief.")
    assert "finish_task" in system


def large(text: str) -> str:
    """Look."""
    return f"begins {'y' * 50_000} ends"


LARGE = StructuredTool.from_function(large, metadata={"kind": "read"})


def test_a_large_result_before_a_reminder_is_cut_to_the_budget() -> None:
    model = ScriptedModel([*(call("read", n=at) for at in range(4)), call("large", text="x"), FINISH])
    policy = {"texts": WORDS, "prompt_tokens": 4_000, "result_chars": 10**6}
    graph = build_graph(model, [*Bench().tools, LARGE], limits={"turns": 6}, policy=policy)
    assert outcome_of(graph.invoke(GO)).status == "success"
    prompt = model.seen[-1].messages
    assert_in_turn(prompt)
    assert tokens(prompt) <= 4_000
    *_, result, line, reminder = prompt
    assert (line.text, reminder.text) == (LINE, "<near_limit> 1 turn(s)")
    assert (result.text[:7], result.text[-5:], len(result.text) < 20_000) == ("begins ", " ends", True)


def test_a_model_of_text_is_shown_the_whole_of_it_and_no_line() -> None:
    steps: list[Any] = ['<CALL name="large">{"text": "x"}</CALL>', "", "<PLAN>[FINALIZE] All of it.</PLAN>"]
    inner = ScriptedModel(steps)
    graph = build_graph(TaggedText(inner), [LARGE], policy={"result_chars": 10**6, "texts": WORDS})
    assert outcome_of(graph.invoke(GO)).status == "success"
    last = inner.seen[2].messages
    assert_in_turn(last)
    assert "y" * 50_000 in last[-1].text
    assert "<empty>" in last[-1].text
    assert not any(LINE in message.text for message in last)


# Threads are driven at random through all that a run meets, by graphs that are built anew from the database
# in between: a provider's cache is of prefixes, so whatever changes at the front is paid in full again.

MOVES = 12
REPLIES: list[Callable[[random.Random], Any]] = [
    # Talk in a row climbs the ladder, so it comes more often.
    *[lambda draw: reply(f"Words {draw.random()}."), lambda _: reply("More words.")] * 5,
    lambda draw: reply(call("look", where=str(draw.random()))),
    lambda draw: reply("I look.", call("look", where=str(draw.random())), call("pay", amount=3)),
    lambda _: reply(call("look", where="the same")),
    lambda _: reply(call("think", thought="Hm.", approach="Slowly.")),
    lambda _: reply(call("ask_user", question="Which?")),
    lambda _: reply(call("look")),
    lambda _: reply(call("no_such_tool", x=1)),
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


@pytest.mark.parametrize("name", COMPACTIONS)
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 7))]
)
def test_a_request_begins_with_the_one_before(seed: int, name: str, tmp_path: Path) -> None:
    model = drive(seed, tmp_path / "t.sqlite", COMPACTIONS[name])
    assert len(model.seen) > MOVES
    for before, after in pairwise(model.seen):
        assert json.dumps(after.tools) == json.dumps(before.tools)
        # Notes that the model was asked for may be word for word those of before, of more turns.
        if (
            summary_in(after.messages) == summary_in(before.messages)
            and before.messages[-1].text != "<note_down>"
        ):
            assert sent(after.messages)[: len(before.messages)] == sent(before.messages)
    assert any(summary_in(seen.messages) for seen in model.seen) == (name != "none")


def test_a_summary_by_the_model_is_asked_for_in_turn() -> None:
    steps = iter([*(call("look", where=f"{at} " + "x" * 900) for at in range(8)), FINISH])

    def step(messages: list[BaseMessage]) -> Any:
        return "Four notes." if messages[-1].text == "<note_down>" else next(steps)

    model = ScriptedModel(step, profile={"max_input_tokens": 200_000})
    policy = {"prompt_tokens": 2_500, "compaction": "model", "texts": WORDS}
    reading = StructuredTool.from_function(look, metadata={"kind": "read"})
    assert outcome_of(build_graph(model, [reading], policy=policy).invoke(GO)).status == "success"
    asked = [seen.messages for seen in model.seen if seen.messages[-1].text == "<note_down>"]
    assert asked
    assert all(prompt[-2].text == LINE for prompt in asked)
    for seen in model.seen:
        assert_in_turn(seen.messages)
    assert any("Four notes." in message.text for message in model.seen[-1].messages)


# Plan, execute, think: after each batch of calls the model is asked what they show.

ROUNDS: dict[str, tuple[Play, int]] = {
    # And how often it is asked.
    "the first reply is free": (play([FINISH]), 0),
    "after a batch it is asked once": (play([[READ, WRITE], THINK, FINISH], ran="read write"), 1),
    "a thought opens the next round": (play([READ, THINK, WRITE, FINISH], ran="read write"), 2),
    "a thought beside the batch has not seen it": (play([[THINK, READ], FINISH], ran="read"), 1),
    "who works on instead is asked again": (play([READ, WRITE, READ, FINISH], ran="read write read"), 3),
    "a finish comes first": (play([[WRITE, FINISH]], ran="write"), 0),
    "so does a question": (play([[WRITE, ASK]], ran="write", reason=None), 0),
    "so does the limit": (play([READ], limits={"turns": 1}, ran="read", reason="turns"), 0),
    "a call that cannot run is no batch": (play([call("write", raw='{"a": '), FINISH]), 0),
    "nor is a tool that does not exist": (play([call("xyz"), FINISH]), 0),
    "nor are words": (play(["Hello.", FINISH]), 0),
    "near the limit both are said": (
        play([READ, FINISH], limits={"turns": 2}, ran="read", told="<near_limit> 1 turn"),
        1,
    ),
    "of a batch eight calls run": (
        play([[THINK, *[READ] * 9], FINISH], ran="read " * 8, told="<too_many> 8 read"),
        1,
    ),
    "or as many as are set": (play([[READ] * 3, FINISH], limits={"calls_per_reply": 2}, ran="read read"), 1),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_in_rounds(name: str) -> None:
    case, asked = ROUNDS[name]
    played = check(replace(case, options={"control_tools": standard_controls(rounds=True)}))
    texts = [message.text for message in played.result["messages"] if message.type == "human"]
    assert sum("<round>" in text for text in texts) == asked
    # The same tools in every call: a provider's cache of the prompt holds.
    assert {(len(seen.tools), seen.tool_choice) for seen in played.model.seen} == {(6, None)}


def test_the_model_is_told_that_it_works_in_rounds() -> None:
    told = [
        check(play([FINISH], options={"control_tools": standard_controls(rounds=rounds)}))
        for rounds in (True, False)
    ]
    in_rounds, without = [played.model.seen[0].messages[0].text for played in told]
    assert TEXTS.rounds in in_rounds
    assert TEXTS.rounds not in without
