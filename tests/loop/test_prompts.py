"""What the model is sent: in turn, as strict providers want it, and never changed; and work in rounds."""

from collections.abc import Callable, Iterator, Sequence
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

from signoff import build_graph, go_on, sqlite_storage, standard_controls
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


def look(where: str) -> str:
    """Look."""
    return f"{where}: {'something ' * 60}"


def answer(messages: Sequence[BaseMessage], steps: Iterator[Any]) -> Any:
    """The next step, or notes where they are asked for."""
    return "What was seen so far." if messages[-1].text == "<note_down>" else next(steps)


def summary_in(prompt: Sequence[BaseMessage]) -> str:
    return next((message.text for message in prompt if "<summary>" in message.text), "")


@pytest.mark.parametrize("compaction", ["lines", "model"])
def test_a_prompt_begins_with_the_one_before_until_more_is_summarised(
    compaction: str, tmp_path: Path
) -> None:
    """A provider's cache is of prefixes; also where each task is run by a graph that is built anew."""
    policy = {"texts": WORDS, "prompt_tokens": 2_000, "compaction": compaction}
    looks = [[call("look", where=f"{task} {at}") for at in range(5)] for task in range(6)]
    steps = iter([step for some in looks for step in (*some, FINISH)])
    model = ScriptedModel(lambda messages: answer(messages, steps))
    for number in range(len(looks)):
        with sqlite_storage(tmp_path / "t.sqlite") as storage:
            graph = build_graph(model, [look], storage=storage, policy=policy)
            graph.invoke({"messages": [("user", f"Task {number}.")]}, THREAD)
    seen = [one.messages for one in model.seen if one.messages[-1].text != "<note_down>"]
    for prompt in seen:
        assert_in_turn(prompt)
    for before, after in pairwise(seen):
        if summary_in(after) == summary_in(before):
            assert convert_to_openai_messages(after[: len(before)]) == convert_to_openai_messages(before)
    summaries = [summary_in(prompt) for prompt in seen]
    assert 1 < len({*summaries}) < len(seen) / 2


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
