"""Phases: what is recorded of them, what is refused, and what an outcome says of a task that had some."""

from pathlib import Path
from typing import Any

import pytest

from signoff import Limits, build_graph, extend, sqlite_storage
from signoff.graph.history.reader import read_messages
from signoff.graph.history.task import KEPT, is_phase, open_phases, phases_of, with_phase
from signoff.graph.prompt.prompt import contract, contract_text
from signoff.graph.state import Phases
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from tests.support.cases.loop import AGAIN, FINISH, GO, SUCCESS, THINK, THREAD, WRITE, error, limit
from tests.support.histories import CONTROLS, ai, done, state, user
from tests.support.reviews import Review, both_modes, play


def phase(percentage: int = 100, following: str | None = None, summary: str = "part") -> Any:
    return call("finish_task", summary=summary, completion_percentage=percentage, next_phase=following)


def recorded(percentage: float, turn: int, following: str = "", summary: str = "part") -> dict[str, Any]:
    return {"percentage": percentage, "summary": summary, "next_phase": following, "turn": turn}


PARTIAL = {"claim": "partial", "verified": None, "summary": "part"}
GOES_ON = {
    "under 100 %": Review(
        [phase(40), FINISH],
        ends={**SUCCESS, "turns": 2, "refusals": 0, "nudges": 0, "phases": [recorded(40, 1)]},
        says=["Noted: 40 % is done. The task goes on: go on with what is left."],
    ),
    "a next phase": Review(
        [phase(100, "tests"), FINISH],
        ends={**SUCCESS, "phases": [recorded(100, 1, "tests")]},
        says=["go on with the next phase, tests."],
    ),
    "both": Review([phase(30, "tests"), FINISH], ends={**SUCCESS, "phases": [recorded(30, 1, "tests")]}),
    "one after the other, with work in between": Review(
        [phase(30, "b"), WRITE, phase(60, "c"), WRITE, FINISH],
        ran=["write"] * 2,
        ends={**SUCCESS, "turns": 5, "phases": [recorded(30, 1, "b"), recorded(60, 3, "c")]},
    ),
    "the same percentage again after work": Review(
        [phase(50), WRITE, phase(50), FINISH],
        ran=["write"],
        ends={**SUCCESS, "refusals": 0, "phases": [recorded(50, 1), recorded(50, 3)]},
    ),
    "more without work is believed": Review([phase(50), phase(60), FINISH], ends={**SUCCESS, "refusals": 0}),
    "work before a phase in the same reply": Review(
        [[WRITE, phase(50)], FINISH], ran=["write"], ends={**SUCCESS, "phases": [recorded(50, 1)]}
    ),
    "work after it never runs": Review(
        [[phase(50), WRITE], FINISH],
        ends={**SUCCESS, "turns": 2},
        says=["Not run: a call after finish_task"],
        streamed=False,
    ),
    "a phase asks nobody": Review(
        [call("finish_task", summary="part", completion_percentage=50, pending_issues=["x"]), FINISH]
    ),
    "an import with its result": Review(
        [FINISH],
        given=[
            [user(), ai(("finish_task", "f", {"summary": "part", "completion_percentage": 40})), done("f")]
        ],
        ends={**SUCCESS, "turns": 2, "phases": [recorded(40, 1)]},
        says=["Your finish_task says that 40 % is done."],
    ),
    "an import of a phase after a claim of done: the older claim does not stand again": Review(
        [FINISH],
        given=[
            [
                user(),
                ai(("finish_task", "e", {"summary": "old"})),
                done("e"),
                ai(("finish_task", "f", {"summary": "part", "completion_percentage": 40})),
                done("f"),
            ]
        ],
        ends={**SUCCESS, "turns": 3},
    ),
}

REFUSED = {
    "it goes backwards": Review(
        [phase(60), WRITE, phase(40), FINISH],
        ran=["write"],
        ends={**SUCCESS, "refusals": 1, "phases": [recorded(60, 1)]},
        says=["you reported 40 %, but 60 % before"],
    ),
    "it says the same again without work": Review(
        [phase(60), THINK, phase(60), FINISH],
        ends={**SUCCESS, "refusals": 1, "phases": [recorded(60, 1)]},
        says=["no work was done since"],
    ),
    "250 %": Review([phase(250), FINISH], ends={**SUCCESS, "refusals": 1, "phases": []}),
    "-5 %": Review([phase(-5), FINISH], ends={**SUCCESS, "refusals": 1, "phases": []}),
    "an empty summary": Review(
        [phase(40, summary=""), FINISH], ends={**SUCCESS, "refusals": 1, "phases": []}
    ),
    "backwards again and again: a limit, with the phases": Review(
        [phase(60), phase(40), phase(40)],
        saved=False,
        ends={
            **limit("review_deadlock"),
            **PARTIAL,
            "refusals": 2,
            "phases": [recorded(60, 1)],
        },
    ),
    "an honest partial may be less than a phase": Review(
        [phase(60), call("finish_task", summary="x", outcome="partial", completion_percentage=40)],
        ends={"status": "success", "claim": "partial", "phases": [recorded(60, 1)]},
    ),
}

ENDS = {
    "on the last turn": Review(
        [WRITE, phase(50, "tests")],
        limits=Limits(turns=2),
        ran=["write"],
        ends={**limit("turns"), **PARTIAL, "phases": [recorded(50, 2, "tests")], "turns": 2},
    ),
    "a limit after it": Review(
        [phase(50), "a", "b"],
        limits=Limits(talk_turns=2),
        ends={**limit("talk_turns"), **PARTIAL, "phases": [recorded(50, 1)]},
    ),
    "an error after it": Review(
        [phase(50), RuntimeError("down")], ends={**error("model_error"), "phases": [recorded(50, 1)]}
    ),
    "the next task begins without phases": Review(
        [phase(50), FINISH, FINISH], given=[GO, AGAIN], ends={**SUCCESS, "phases": []}
    ),
    "and may begin at less": Review(
        [phase(50), FINISH, phase(10), FINISH],
        given=[GO, AGAIN],
        ends={**SUCCESS, "refusals": 0, "phases": [recorded(10, 1)]},
    ),
}

CASES = {**GOES_ON, **REFUSED, **ENDS}


@both_modes
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(24)
async def test_case(name: str, mode: str, tmp_path: Path) -> None:
    await play(CASES[name], mode, tmp_path)


def test_a_task_that_ended_in_a_phase_can_be_extended(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage, ScriptedModel([phase(50), FINISH]) as model:
        graph = build_graph(model, storage=storage, limits=Limits(turns=1))
        first = graph.invoke({"messages": GO}, THREAD)["outcome"]
        outcome = graph.invoke(extend(graph.get_state(THREAD).values, turns=3), THREAD)["outcome"]
    assert (first["status"], first["claim"]) == ("limit", "partial")
    assert (outcome["status"], outcome["claim"], outcome["phases"]) == ("success", "done", [recorded(50, 1)])


def test_a_task_that_a_new_message_cuts_short_keeps_its_phases(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([phase(50), FINISH]), storage=storage)
        graph.invoke({"messages": GO}, THREAD, interrupt_before=["call_llm"])
        graph.invoke(None, THREAD, interrupt_before=["call_llm"])
        graph.invoke({"messages": AGAIN}, THREAD)
        found = storage.store.search(("signoff", "outcomes"))
    by_reason = {item.value["reason"]: item.value["phases"] for item in found}
    assert by_reason == {"superseded": [recorded(50, 1)], "finish_task": []}


CLAIMS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"completion_percentage": 100}, False),
    ({"completion_percentage": 99}, True),
    ({"completion_percentage": 0}, True),
    ({"next_phase": "b"}, True),
    ({"next_phase": None}, False),
    ({"next_phase": ""}, False),
    ({"outcome": "partial", "completion_percentage": 40}, False),
    ({"outcome": "blocked", "next_phase": "b"}, False),
    # A finishing tool of somebody's own may mean something else by these words.
    ({"completion_percentage": "most"}, False),
    ({"completion_percentage": True}, False),
]


@pytest.mark.parametrize(("claim", "expected"), CLAIMS)
def test_which_claims_are_phases(claim: dict[str, Any], expected: bool) -> None:
    assert is_phase(claim) is expected


def two_phases() -> Phases:
    first = with_phase(None, "m0", {"summary": "a", "completion_percentage": 30, "next_phase": "b"}, 1)
    return with_phase(first, "m0", {"summary": "c" * 5000, "completion_percentage": 60}, 4)


def test_the_state_keeps_a_bounded_part_of_the_words() -> None:
    assert [len(found["summary"]) for found in phases_of(two_phases(), "m0")] == [1, KEPT]
    assert phases_of(two_phases(), "another task") == phases_of(None, "m0") == []


def test_phases_as_the_model_reads_them() -> None:
    found = two_phases()
    assert open_phases(found, "m0", turns=3) == ["30 % done: a; next: b"]
    assert open_phases(found, "m0")[1].startswith("60 % done: ccc")
    assert open_phases(found, "m0", turns=0) == open_phases(found, "m1") == open_phases(None, "m0") == []


def test_the_contract_holds_the_phases_of_what_is_folded() -> None:
    messages = state(user(), ai(("read", "1")), done("1"), ai(("read", "2")), done("2"))
    reader = read_messages(messages, CONTROLS)
    held = contract(reader, 3, 200, two_phases())
    assert held["phases"] == ["30 % done: a; next: b"]
    assert "- a phase that you reported: 30 % done: a; next: b" in contract_text(held, DEFAULT_TEXTS)
    assert contract(reader, 3, 200)["phases"] == []


def test_the_model_still_sees_a_phase_when_its_turn_is_folded(tmp_path: Path) -> None:
    script = [phase(30, "the tests"), *[call("write", text=f"{n} " * 200) for n in range(12)], FINISH]
    with ScriptedModel(script) as model:

        def write(text: str) -> str:
            """Write."""
            return text

        build_graph(model, [write], prompt_tokens=1600).invoke({"messages": GO})
    last = "\n".join(str(message.text) for message in model.seen[-1].messages)
    assert "Noted: 30 %" not in last
    assert "a phase that you reported: 30 % done: part; next: the tests" in last
