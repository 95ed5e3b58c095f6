"""The order in which a finish is judged, what stops it, and how a review that does not move ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command
from pydantic import BaseModel

from signoff import Limits, build_graph, extend, go_on, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.storage.sqlite import SqliteStorage
from tests.support.cases.loop import (
    ASK,
    FAIL,
    FINISH,
    GO,
    NOTHING,
    SUCCESS,
    THINK,
    THREAD,
    WRITE,
    limit,
)
from tests.support.histories import ai, done, user
from tests.support.reviews import Review, both_modes, play

EMPTY = call("finish_task", summary=" ")
LONG = "word " * 200_000
BAD_PERCENT = call("finish_task", summary="x", completion_percentage=250)
GHOST = [call("ghost"), FINISH]
YES: Any = Command(resume="yes")
NO: Any = Command(resume="Write a summary.")
MEASURED = {**SUCCESS, "summary": "Measured.", "verified": "verified"}
DEADLOCK = limit("review_deadlock")


class Size(BaseModel):
    """A size."""

    size: int


def sized(size: int) -> Any:
    return call("finish_task", summary="Measured.", result={"size": size})


def at_least_7(arguments: dict[str, Any]) -> Any:
    size = arguments["result"]["size"]
    return size >= 7 or f"{size} is too small"


def passes() -> bool:
    return True


def never() -> bool:
    raise AssertionError("it must not run")


ORDER = {
    "arguments come before the calls beside it": Review(
        [[FAIL, EMPTY], FINISH], ran=["fail"], ends={**SUCCESS, "refusals": 1}, says=["summary is empty"]
    ),
    "the calls beside it come before a phase": Review(
        [[FAIL, call("finish_task", summary="x", completion_percentage=50)], FINISH],
        ran=["fail"],
        ends={**SUCCESS, "phases": [], "refusals": 1},
        says=["fail in the same reply did not succeed"],
    ),
    "a phase comes before the checks": Review(
        [
            call("finish_task", summary="x", completion_percentage=50),
            call("finish_task", summary="b", outcome="blocked"),
        ],
        options={"checks": [never]},
        ends={"status": "success", "claim": "blocked", "verified": "asserted", "refusals": 0},
    ),
    "bad arguments run no check": Review(
        [EMPTY, call("finish_task", summary="x", outcome="partial")],
        options={"checks": [never]},
        ends={"claim": "partial"},
    ),
    "checks come before a person": Review(
        [call("finish_task", summary="x", requires_user_confirmation=True), FINISH],
        options={"checks": [lambda claim: not claim["requires_user_confirmation"]]},
        ends={**SUCCESS, "verified": "verified", "refusals": 1},
    ),
    "a person comes last, and what the checks said holds": Review(
        [call("finish_task", summary="All of it.", requires_user_confirmation=True)],
        options={"checks": [passes]},
        given=[GO, YES],
        asks={"type": "confirmation", "summary": "All of it.", "problem": None},
        ends={**SUCCESS, "verified": "verified", "refusals": 0},
    ),
}

BESIDE_WORK = {
    "a write before it": Review([[WRITE, FINISH]], ran=["write"], ends={**SUCCESS, "turns": 1}),
}

BAD_INPUT = {
    "an empty summary": Review([EMPTY, FINISH], ends={**SUCCESS, "refusals": 1}, says=["summary is empty"]),
    "a percentage of 250": Review(
        [BAD_PERCENT, FINISH],
        ends={**SUCCESS, "refusals": 1},
        says=["completion_percentage: Input should be"],
    ),
    "a percentage in words": Review(
        [call("finish_task", summary="x", completion_percentage="most"), FINISH],
        says=["completion_percentage"],
    ),
    "pending issues that are a number": Review(
        [call("finish_task", summary="x", pending_issues=5), FINISH], says=["pending_issues: Input should be"]
    ),
    "pending issues that are an object": Review(
        [call("finish_task", summary="x", pending_issues={"a": 1}), FINISH], says=["pending_issues"]
    ),
    "pending issues that hold numbers": Review(
        [call("finish_task", summary="x", pending_issues=["a", 1]), FINISH], says=["pending_issues.1"]
    ),
    "an outcome that does not exist": Review(
        [call("finish_task", summary="x", outcome="great"), FINISH], says=["outcome: Input should be"]
    ),
    **{
        f"{words!r} is no next phase": Review(
            [call("finish_task", summary="All of it.", next_phase=words)], ends={**SUCCESS, "turns": 1}
        )
        for words in ("", "None", "n/a", "Done!", "Completed.", "next_phase")
    },
}

PROBLEM = "the summary is empty. Say in the summary what was done and what the result is."
STANDSTILL = {
    "the same refusal twice: a person is asked, who accepts": Review(
        [EMPTY, EMPTY],
        given=[GO, YES],
        asks={"problem": PROBLEM, "summary": " "},
        ends={"status": "success", "claim": "done", "verified": "unverified", "refusals": 1, "turns": 2},
    ),
    "a person sends it back": Review(
        [EMPTY, EMPTY, FINISH],
        given=[GO, NO],
        asks={"problem": PROBLEM},
        ends={**SUCCESS, "verified": "asserted", "refusals": 2, "turns": 3},
        says=["A person did not accept this: Write a summary."],
    ),
    "a message sends it back": Review(
        [EMPTY, EMPTY, FINISH], given=[GO, [("user", "Write a summary.")]], asks={"problem": PROBLEM}
    ),
    "after a person's word it has one more try": Review(
        [EMPTY, EMPTY, EMPTY, FINISH],
        given=[GO, NO],
        asks={"problem": PROBLEM},
        ends={**SUCCESS, "refusals": 3},
    ),
    "nobody can be asked: a limit": Review(
        [EMPTY, EMPTY], saved=False, ends={**DEADLOCK, "turns": 2, "refusals": 2, "summary": ""}
    ),
    "another refusal in between changes nothing": Review(
        [EMPTY, BAD_PERCENT, EMPTY], saved=False, ends={**DEADLOCK, "turns": 3, "refusals": 3}
    ),
    "talk and thoughts in between are no work": Review(
        [EMPTY, "hm", THINK, EMPTY], saved=False, ends={**DEADLOCK, "turns": 4}
    ),
    "work in between is": Review(
        [EMPTY, WRITE, EMPTY, WRITE, FINISH], saved=False, ran=["write"] * 2, ends={**SUCCESS, "refusals": 2}
    ),
    "work that failed is work, too": Review(
        [EMPTY, FAIL, EMPTY, FINISH], saved=False, ran=["fail"], ends={**SUCCESS, "refusals": 2}
    ),
    "an answer in between is, too": Review(
        [EMPTY, ASK, EMPTY, FINISH],
        given=[GO, Command(resume="blue")],
        asks={"type": "question"},
        ends={**SUCCESS, "refusals": 2},
    ),
    "a call that did not run is no work": Review(
        [GHOST, GHOST], saved=False, ends={**DEADLOCK, "turns": 2, "refusals": 2}
    ),
    "a failing call beside each is work": Review(
        [[FAIL, FINISH], [FAIL, FINISH], FINISH],
        saved=False,
        ran=["fail"] * 2,
        ends={**SUCCESS, "refusals": 2},
    ),
    "different refusals are no standstill": Review(
        [EMPTY, BAD_PERCENT, FINISH], saved=False, ends={**SUCCESS, "refusals": 2}
    ),
    "the same reason for other claims is no standstill": Review(
        [EMPTY, call("finish_task", summary=""), FINISH], saved=False, ends={**SUCCESS, "refusals": 2}
    ),
    "what a check says of each claim differs": Review(
        [sized(4), sized(5), sized(6), sized(7)],
        options={"checks": [at_least_7], "response_format": Size},
        saved=False,
        ends={**MEASURED, "refusals": 3, "result": {"size": 7}},
        says=["4 is too small", "5 is too small", "6 is too small"],
    ),
    "a check says something else of the same claim": Review(
        [sized(4), sized(4), sized(4)],
        options={"checks": [lambda messages: f"{len(messages)} messages" if len(messages) < 6 else True]},
        saved=False,
        ends={**MEASURED, "refusals": 2},
    ),
    "a check says the same of the same claim": Review(
        [sized(4), sized(5), sized(4)],
        options={"checks": [at_least_7], "response_format": Size},
        saved=False,
        ends={**DEADLOCK, "refusals": 3},
    ),
    "five other claims in a row are too many": Review(
        [sized(number) for number in range(5)],
        options={"checks": [at_least_7], "response_format": Size},
        saved=False,
        ends={**DEADLOCK, "turns": 5, "refusals": 5},
    ),
    "as many as the limit says, and a person decides": Review(
        [sized(4), sized(5)],
        options={"checks": [at_least_7], "response_format": Size},
        limits=Limits(refusals=2),
        given=[GO, YES],
        asks={"type": "confirmation"},
        ends={"status": "success", "verified": "unverified", "result": {"size": 5}, "refusals": 1},
    ),
    "work in between starts the row anew": Review(
        [sized(1), sized(2), WRITE, sized(3), sized(4), WRITE, sized(7)],
        options={"checks": [at_least_7], "response_format": Size},
        limits=Limits(refusals=3),
        saved=False,
        ran=["write"] * 2,
        ends={**MEASURED, "refusals": 4},
    ),
    "without a limit they go on to the last turn": Review(
        [sized(-number) for number in range(8)],
        options={"checks": [at_least_7], "response_format": Size},
        limits=Limits(turns=8, refusals=None),
        saved=False,
        ends={**limit("turns"), "refusals": 8},
    ),
    "arguments that cannot be read at all": Review(
        [BAD_PERCENT, BAD_PERCENT],
        given=[GO, YES],
        asks={"summary": "x", "claim": "done"},
        ends={"status": "success", "claim": "done", "summary": "x", "verified": "unverified"},
    ),
    "on the last turn a person is still asked": Review(
        [EMPTY, EMPTY],
        limits=Limits(turns=2),
        given=[GO, YES],
        asks={"problem": PROBLEM},
        ends={"status": "success", "verified": "unverified", "turns": 2},
    ),
    "a refusal of an earlier task does not count": Review(
        [EMPTY, FINISH, EMPTY, FINISH],
        saved=True,
        given=[GO, [("user", "b")]],
        ends={**SUCCESS, "refusals": 1},
    ),
}

IMPORTED = ai(("finish_task", "f"))
REPEATED = {
    "ten finishes in one reply": Review([[FINISH] * 10], ends={**SUCCESS, "turns": 1, "refusals": 0}),
    "nothing new after the end": Review(
        [FINISH], given=[GO, NOTHING, NOTHING], ends={**SUCCESS, "turns": 1, "refusals": 0}
    ),
    "another finish appended by hand": Review(
        [FINISH],
        given=[GO, [ai(("finish_task", "again", {"summary": "Something else."}))]],
        ends={**SUCCESS, "turns": 1, "refusals": 0},
    ),
    "another finish with its result": Review(
        [FINISH], given=[GO, [ai(("finish_task", "again", {"summary": "No."})), done("again")]], ends=SUCCESS
    ),
    "an import with two finishes takes the last": Review(
        [],
        given=[[user(), ai(("finish_task", "e", {"summary": "a"})), done("e"), IMPORTED, done("f")]],
        ends={**SUCCESS, "turns": 2},
    ),
}

CASES = {**ORDER, **BESIDE_WORK, **BAD_INPUT, **STANDSTILL, **REPEATED}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@both_modes
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(56)
async def test_case(name: str, mode: str, tmp_path: Path) -> None:
    await play(CASES[name], mode, tmp_path)


def test_a_summary_of_1_mb_is_kept_whole(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("finish_task", summary=LONG)], chunk_size=10_000_000)
    outcome = build_graph(model, storage=storage).invoke({"messages": GO}, THREAD)["outcome"]
    assert (outcome["status"], outcome["summary"]) == ("success", LONG)


def test_the_end_of_a_standstill_says_what_was_refused() -> None:
    outcome = build_graph(ScriptedModel([EMPTY, EMPTY])).invoke({"messages": GO})["outcome"]
    assert outcome["error"] == (
        f"finish_task was refused again for the same reason, with no work in between: {PROBLEM}"
    )
    assert outcome["next"].startswith("Fix the reason for the refusal")


def test_the_end_of_a_row_of_refusals_says_how_many() -> None:
    script = [call("finish_task", summary=" " * number) for number in range(5)]
    outcome = build_graph(ScriptedModel(script)).invoke({"messages": GO})["outcome"]
    assert outcome["error"] == f"finish_task was refused 5 times in a row, with no work in between: {PROBLEM}"


def test_a_task_that_goes_on_after_a_limit_may_be_refused_anew(storage: SqliteStorage) -> None:
    with ScriptedModel([EMPTY, EMPTY, FINISH]) as model:
        graph = build_graph(model, storage=storage, limits=Limits(turns=1))
        assert graph.invoke({"messages": GO}, THREAD)["outcome"]["reason"] == "turns"
        outcome = graph.invoke(extend(graph.get_state(THREAD).values, turns=3), THREAD)["outcome"]
    assert (outcome["status"], outcome["refusals"]) == ("success", 2)


def test_a_process_that_is_killed_after_the_verdict_does_not_judge_again(storage: SqliteStorage) -> None:
    ran: list[str] = []
    graph = build_graph(ScriptedModel([FINISH]), storage=storage, checks=[lambda: ran.append("check")])
    graph.invoke({"messages": GO}, THREAD, interrupt_before=["finish"])
    # A process that is killed between two writes leaves a thread without a next step, to be begun anew.
    graph.update_state(THREAD, {}, as_node="finish")
    outcome = graph.invoke(go_on(graph.get_state(THREAD)), THREAD)["outcome"]
    assert (outcome["status"], outcome["verified"], outcome["turns"], ran) == (
        "success",
        "verified",
        1,
        ["check"],
    )


class Killed(BaseException):
    """What a process that is killed looks like from inside."""


def test_a_process_that_is_killed_in_the_checks_runs_them_again(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def lost(*_: Any, **__: Any) -> None:
        raise Killed

    graph = build_graph(ScriptedModel([FINISH]), storage=storage, checks=[lambda: ran.append("check")])
    graph.invoke({"messages": GO}, THREAD, interrupt_before=["review"])
    with monkeypatch.context() as patched:
        # The checks run, and nothing of what came of them is saved.
        patched.setattr(storage.checkpointer, "put_writes", lost)
        with pytest.raises(Killed):
            graph.invoke(None, THREAD)
    assert graph.invoke(None, THREAD)["outcome"]["verified"] == "verified"
    assert ran == ["check", "check"]


def test_a_waiting_thread_asks_anew_when_the_claim_was_changed(storage: SqliteStorage) -> None:
    """What was checked was another claim."""
    seen: list[str] = []
    graph = build_graph(
        ScriptedModel([call("finish_task", summary="a", requires_user_confirmation=True)]),
        storage=storage,
        checks=[lambda claim: seen.append(claim["summary"])],
    )
    message = graph.invoke({"messages": GO}, THREAD)["messages"][-1]
    args = {"summary": "b", "requires_user_confirmation": True}
    changed = message.model_copy(update={"tool_calls": [{**message.tool_calls[0], "args": args}]})
    graph.update_state(THREAD, {"messages": [changed]})
    (pending,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert (pending.value["summary"], seen) == ("b", ["a", "b"])
    assert graph.invoke(YES, THREAD)["outcome"]["summary"] == "b"


@both_modes
async def test_words_beside_a_finish_change_nothing(mode: str, tmp_path: Path) -> None:
    await play(Review([reply("I am not done yet!", FINISH)], ends={**SUCCESS, "turns": 1}), mode, tmp_path)
