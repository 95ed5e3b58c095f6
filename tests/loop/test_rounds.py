"""Plan, execute, think in rounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, build_graph
from signoff.graph.history.task import read
from signoff.graph.messages import nudge_kind
from signoff.graph.rules import decide
from signoff.models import ScriptedModel, call, reply
from signoff.models.local import local_model
from signoff.models.local.install import is_installed
from signoff.tools.control import standard_controls
from signoff.tools.files import workspace_tools
from signoff.tools.toolbox import make_toolbox
from tests.support.histories import CONTROLS, ai, done, malformed, nudged, state, user


def look(where: str = "here") -> str:
    """Look."""
    return f"nothing {where}"


ROUNDS = replace(make_toolbox([look], standard_controls()), rounds=True)
LOOK, TWO = ("look", "w"), [("look", "w1"), ("look", "w2")]
FINISH, THINK, ASK = ("finish_task", "f"), ("think", "t", {"thought": "hm"}), ("ask_user", "q")

CASES: dict[str, tuple[list[Any], Limits, str]] = {
    "the first reply is free": ([user()], Limits(), "think"),
    "after a batch it is asked to think": (
        [user(), ai(*TWO), done("w1"), done("w2")], Limits(), "round"),
    "once": (
        [user(), ai(*TWO), done("w1"), done("w2"), nudged("round")], Limits(), "think"),
    "a thought opens the next round": (
        [user(), ai(LOOK), done("w"), nudged("round"), ai(THINK), done("t")], Limits(), "think"),
    "a thought beside the batch has not seen it": (
        [user(), ai(THINK, LOOK), done("t"), done("w")], Limits(), "round"),
    "who works on instead is asked again": (
        [user(), ai(LOOK), done("w"), nudged("round"), ai(("look", "x")), done("x")],
        Limits(), "round"),
    "a batch that is still open comes first": (
        [user(), ai(*TWO), done("w1")], Limits(), "calls_open"),
    "so does a finish": ([user(), ai(LOOK, FINISH), done("w")], Limits(), "claimed"),
    "so does a question": ([user(), ai(LOOK, ASK), done("w")], Limits(), "asked"),
    "so does the limit": ([user(), ai(LOOK), done("w")], Limits(turns=1), "turns"),
    "a call that could not run is no batch": (
        [user(), malformed("look", "w"), done("w")], Limits(), "think"),
    "nor is a tool that does not exist": (
        [user(), ai(("xyz", "w")), done("w")], Limits(), "think"),
    "nor is talk": ([user(), ai("Hello.")], Limits(), "talked"),
    "nor is an end that was extended": (
        [user(), ai(LOOK), done("w"), nudged("resumed")], Limits(), "think"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_comes_next(name: str) -> None:
    messages, limits, rule = CASES[name]
    assert decide(read(state(*messages), ROUNDS), limits)["rule"] == rule


@pytest.mark.parametrize("name", CASES)
def test_without_rounds_nothing_is_asked(name: str) -> None:
    messages, limits, _ = CASES[name]
    assert decide(read(state(*messages), CONTROLS), limits)["rule"] != "round"


DONE = call("finish_task", summary="Done.")
THOUGHT = call("think", thought="It is not here.")


def run(*script: Any, **options: Any) -> tuple[dict[str, Any], ScriptedModel]:
    with ScriptedModel(list(script)) as model:
        return build_graph(model, [look], rounds=True, **options).invoke({"messages": ["go"]}), model


def test_the_model_is_told_that_it_works_in_rounds() -> None:
    _, model = run(DONE, system_prompt="Be kind.")
    system = model.seen[0].messages[0].text
    assert system.startswith("Be kind.")
    assert "You work in rounds." in system


def test_two_rounds() -> None:
    batch = reply(call("look", where="a"), call("look", where="b"))
    result, model = run(THOUGHT, batch, THOUGHT, call("look", where="c"), DONE)
    asked = [seen.messages[-1].text.startswith("These calls have run") for seen in model.seen]
    assert asked == [False, False, True, False, True]
    # The same tools in every call: a provider's cache of the prompt holds.
    assert {(len(seen.tools), seen.tool_choice) for seen in model.seen} == {(4, None)}
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 5)
    assert (result["outcome"]["tool_calls"], result["outcome"]["nudges"]) == (3, 0)


def test_a_model_that_does_not_think_goes_on_all_the_same() -> None:
    result, _ = run(*[call("look", where=str(n)) for n in range(4)], DONE)
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 5)


def test_a_batch_is_at_most_eight_calls_beside_a_thought() -> None:
    batch = reply(THOUGHT, *[call("look", where=str(n)) for n in range(9)])
    result, _ = run(batch, THOUGHT, DONE)
    results = [message.text for message in result["messages"] if getattr(message, "name", "") == "look"]
    assert sorted(results)[1:] == [f"nothing {n}" for n in range(8)]
    assert "at most 8 calls" in min(results)


def test_a_smaller_batch_can_be_set() -> None:
    result, _ = run(reply(*[call("look")] * 3), THOUGHT, DONE, limits=Limits(calls_per_reply=2))
    assert result["outcome"]["tool_calls"] == 2


def test_near_the_limit_both_are_said() -> None:
    _, model = run(call("look"), DONE, limits=Limits(turns=2))
    blocks: Any = model.seen[1].messages[-1].content
    kinds = [block["text"][:8] for block in blocks]
    assert kinds == ["You have", "These ca"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not is_installed(), reason="the extra signoff[local] is not installed")
@pytest.mark.thorough
@pytest.mark.embedded
def test_the_embedded_model_works_in_rounds(tmp_path: Path) -> None:
    """A model this small may end badly, think in circles, or ask; the rounds hold all the same."""
    with local_model(max_tokens=200) as model:
        graph = build_graph(
            model,
            workspace_tools(tmp_path),
            rounds=True,
            limits=Limits(turns=3),
            checkpointer=InMemorySaver(),
            store=InMemoryStore(),
        )
        task = "Create a file notes.txt that holds the line: buy milk"
        result = graph.invoke({"messages": [task]}, {"configurable": {"thread_id": "t"}})
    kinds = ["nudge" if nudge_kind(message) == "round" else message.type for message in result["messages"]]
    worked = [
        place for place, message in enumerate(result["messages"]) if message.type == "ai" and works(message)
    ]
    assert worked, kinds
    # The reply, its result, and then the question what it shows.
    assert all(kinds[place + 2] == "nudge" for place in worked if place + 2 < len(kinds)), kinds
    assert (tmp_path / "notes.txt").read_text().strip() == "buy milk"
    assert result["outcome"] is None or result["outcome"]["status"] in ("success", "limit")


def works(reply: Any) -> bool:
    calls = getattr(reply, "tool_calls", ())
    return any(call["name"] not in ("think", "finish_task", "ask_user") for call in calls)
