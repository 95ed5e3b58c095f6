"""A finishing tool of one's own is run, at most once, and says whether the task has ended."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from signoff import ControlTool, Effect, build_graph, sqlite_storage
from signoff.graph.errors import JournalWarning
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.control import standard_controls
from tests.support.cases.loop import FAIL, FINISH, GO, SUCCESS, THREAD, WRITE, limit
from tests.support.histories import ai, broken, done, user
from tests.support.interrupting import interrupt_process
from tests.support.reviews import Review, both_modes, play

YES: Any = Command(resume="yes")
NO: Any = Command(resume="Not yet.")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


class Submit:
    """A finishing tool that gives its answers one after another, and counts how often it is run."""

    def __init__(self, *answers: Any, name: str = "submit", **metadata: Any) -> None:
        self.ran = 0
        self.answers = answers
        self.tool: BaseTool = StructuredTool.from_function(
            self.submit, name=name, description="Hand the work in.", metadata=metadata or None
        )

    def submit(self, report: str) -> Any:
        self.ran += 1
        answer = self.answers[min(self.ran, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


SUBMIT = call("submit", report="42")


def with_tool(given: Submit | BaseTool, effect: Effect = Effect.FINISH, **options: Any) -> dict[str, Any]:
    made = given.tool if isinstance(given, Submit) else given
    return {"control_tools": [*standard_controls(), ControlTool(made, effect, **options)]}


def hands_in(*answers: Any, **more: Any) -> Callable[[], dict[str, Any]]:
    """The settings of a graph with a new `submit`."""
    return lambda: with_tool(Submit(*answers), **more)


HANDED_IN = {"status": "success", "reason": "submit", "claim": "done", "summary": "report: 42"}
GOES_ON = {"shouldContinue": True, "hint": "tests are missing"}


def never_done(value: Any) -> Effect:
    return Effect.CONTINUE


def asks(value: Any) -> Effect:
    return Effect.ASK


def confused(value: Any) -> Any:
    raise KeyError("what")


# The settings are made anew for each run: `submit` counts.
RUN: dict[str, tuple[Callable[[], dict[str, Any]], Review]] = {
    "what it returns is the result": (
        hands_in({"ticket": 7}),
        Review([SUBMIT], ends={**HANDED_IN, "result": {"ticket": 7}, "refusals": 0}, says=['{"ticket": 7}']),
    ),
    "a text is one, too": (hands_in("done"), Review([SUBMIT], ends={**HANDED_IN, "result": "done"})),
    "shouldContinue: the task goes on with its answer": (
        hands_in(GOES_ON, {"shouldContinue": False}),
        Review(
            [SUBMIT, WRITE, SUBMIT],
            ran=["write"],
            ends={**HANDED_IN, "turns": 3, "refusals": 0, "nudges": 0},
            says=["tests are missing"],
        ),
    ),
    "should_continue": (
        hands_in({"should_continue": True}),
        Review([SUBMIT, FINISH], ends={**SUCCESS, "turns": 2}),
    ),
    "a word that is not true does not go on": (
        hands_in({"shouldContinue": "false"}),
        Review([SUBMIT], ends=HANDED_IN),
    ),
    "it goes on, then finish_task ends": (
        hands_in(GOES_ON),
        Review([SUBMIT, FINISH], ends={**SUCCESS, "turns": 2, "result": None}),
    ),
    "its effect by a function of one's own": (
        hands_in("no", decide=never_done),
        Review([SUBMIT, FINISH], ends={**SUCCESS, "turns": 2}, says=["no"]),
    ),
    "the function gets what it returned": (
        hands_in([1, 2], decide=lambda value: Effect.CONTINUE if value == [1, 2] else Effect.FINISH),
        Review([SUBMIT, FINISH], ends={**SUCCESS, "turns": 2}),
    ),
    "it fails: the claim is refused": (
        hands_in(ValueError("no network"), "sent"),
        Review(
            [SUBMIT, WRITE, SUBMIT],
            ran=["write"],
            ends={**HANDED_IN, "turns": 3, "refusals": 1},
            says=["ValueError: no network"],
        ),
    ),
    "it fails again and again: a limit": (
        hands_in(ValueError("no network")),
        Review([SUBMIT, SUBMIT], saved=False, ends={**limit("review_deadlock"), "refusals": 2}),
    ),
    "it fails again and again: a person accepts": (
        hands_in(ValueError("no network")),
        Review(
            [SUBMIT, SUBMIT],
            given=[GO, YES],
            asks={"problem": "submit failed: ValueError: no network"},
            ends={**HANDED_IN, "verified": "unverified", "refusals": 1, "result": None},
        ),
    ),
    "its function fails: the claim is refused": (
        hands_in("x", decide=confused),
        Review(
            [SUBMIT, FINISH],
            ends={**SUCCESS, "refusals": 1},
            says=["cannot be told whether the task has ended"],
        ),
    ),
    "its function says no effect": (
        hands_in("x", decide=lambda value: "perhaps"),
        Review([SUBMIT, FINISH], ends={**SUCCESS, "refusals": 1}, says=["cannot be told"]),
    ),
    "it asks for a person": (
        hands_in("please look", decide=asks),
        Review(
            [SUBMIT],
            given=[GO, YES],
            asks={"summary": "report: 42"},
            ends={**HANDED_IN, "result": "please look"},
        ),
    ),
    "it asks for a person, who says no": (
        hands_in("please look", decide=asks),
        Review(
            [SUBMIT, FINISH],
            given=[GO, NO],
            asks={"type": "confirmation"},
            ends={**SUCCESS, "refusals": 1},
            says=["A person did not accept your finish_task: Not yet."],
        ),
    ),
    "it asks for a person, and there is none": (
        hands_in("please look", decide=asks),
        Review(
            [SUBMIT],
            saved=False,
            ends={
                **HANDED_IN,
                "status": "error",
                "reason": "needs_person",
                "verified": None,
                "pending_issues": ["The model asks a person to confirm the result."],
            },
        ),
    ),
    "a failed call beside it: it is not run": (
        hands_in(AssertionError("it must not run")),
        Review(
            [[FAIL, SUBMIT], FINISH], ran=["fail"], ends={**SUCCESS, "refusals": 1}, says=["did not succeed"]
        ),
    ),
    "a failed check: it is not run": (
        lambda: {**with_tool(Submit(AssertionError("it must not run"))), "checks": ["false"]},
        Review(
            [SUBMIT, call("finish_task", summary="x", outcome="partial")],
            ends={"claim": "partial", "refusals": 1},
            says=["checks did not pass"],
        ),
    ),
    "wrong arguments: it is not run": (
        hands_in(AssertionError("it must not run")),
        Review(
            [call("submit", text="x"), FINISH],
            ends={**SUCCESS, "refusals": 1},
            says=["report: Field required"],
        ),
    ),
    "an import with its result: it is not run": (
        hands_in(AssertionError("it must not run")),
        Review(
            [],
            given=[[user(), ai(("submit", "s", {"report": "42"})), done("s")]],
            ends={**HANDED_IN, "result": "ok"},
        ),
    ),
    "an import whose result says that it goes on": (
        hands_in(AssertionError("it must not run")),
        Review(
            [FINISH],
            given=[[user(), ai(("submit", "s", {"report": "42"})), done("s", '{"shouldContinue": true}')]],
            ends={**SUCCESS, "turns": 2},
        ),
    ),
    "an import whose result is an error is no claim": (
        hands_in("x"),
        Review([FINISH], given=[[user(), ai(("submit", "s", {"report": "42"})), broken("s")]], ends=SUCCESS),
    ),
}


@both_modes
@pytest.mark.parametrize("name", RUN)
@pytest.mark.sample(23)
async def test_a_finishing_tool_is_run(name: str, mode: str, tmp_path: Path) -> None:
    options, case = RUN[name]
    case.options = options()
    await play(case, mode, tmp_path)


async def handed_in(report: str) -> dict[str, Any]:
    """Hand the work in."""
    return {"shouldContinue": report == "early"}


@both_modes
async def test_an_async_finishing_tool(mode: str, tmp_path: Path) -> None:
    script = [call("handed_in", report="early"), call("handed_in", report="late")]
    case = Review(script, options=with_tool(tool(handed_in)), ends={"reason": "handed_in", "turns": 2})
    await play(case, mode, tmp_path)


CONFIRMED = call("submit", report="42", requires_user_confirmation=True)


@both_modes
async def test_it_is_run_only_when_a_person_has_confirmed(mode: str, tmp_path: Path) -> None:
    ran: list[str] = []

    def submit(report: str, requires_user_confirmation: bool = False) -> str:
        """Hand the work in."""
        ran.append(report)
        return "sent"

    options = with_tool(tool(submit))
    await play(Review([CONFIRMED], options=options, asks={}, ends=None), mode, tmp_path / "a")
    assert ran == []
    sent_back = Review(
        [CONFIRMED, FINISH], options=options, given=[GO, NO], asks={}, ends={**SUCCESS, "refusals": 1}
    )
    await play(sent_back, mode, tmp_path / "b")
    assert ran == []
    yes = Review([CONFIRMED], options=options, given=[GO, YES], asks={}, ends={**HANDED_IN, "result": "sent"})
    await play(yes, mode, tmp_path / "c")
    assert ran == ["42"]


class Killed(BaseException):
    """What a process that is killed looks like from inside."""


def kill_after(saver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing that a node writes is saved, as if the process had been killed before it could."""

    def lost(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(saver, "put_writes", lost)
    monkeypatch.setattr(saver, "put", lost)


def test_a_crash_after_it_has_run_does_not_run_it_again(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Submit({"ticket": 7})
    graph = build_graph(ScriptedModel([SUBMIT]), storage=storage, **with_tool(submit))
    graph.invoke({"messages": GO}, THREAD, interrupt_before=["review"])
    with monkeypatch.context() as patched:
        kill_after(storage.checkpointer, patched)
        with pytest.raises(Killed):
            graph.invoke(None, THREAD)
    outcome = graph.invoke(None, THREAD)["outcome"]
    assert (outcome["status"], outcome["result"], submit.ran) == ("success", {"ticket": 7}, 1)


@pytest.mark.parametrize(("metadata", "ran"), [({}, 1), ({"idempotent": True}, 2)])
def test_a_crash_in_the_middle_of_it(metadata: dict[str, Any], ran: int, storage: SqliteStorage) -> None:
    """Nobody knows whether it took effect: the claim is refused, unless it may be repeated."""

    submit = Submit(interrupt_process, "sent", **metadata)
    graph = build_graph(ScriptedModel([SUBMIT, FINISH]), storage=storage, **with_tool(submit))
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": GO}, THREAD)
    outcome = graph.invoke(None, THREAD)["outcome"]
    expected = ("submit", 0) if metadata else ("finish_task", 1)
    assert (outcome["reason"], outcome["refusals"], submit.ran) == (*expected, ran)


def test_a_message_after_a_crash_in_the_middle_of_it(storage: SqliteStorage) -> None:
    """The call is closed as unknown, not as never run."""

    graph = build_graph(
        ScriptedModel([SUBMIT, FINISH]), storage=storage, **with_tool(Submit(interrupt_process))
    )
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": GO}, THREAD)
    result = graph.invoke({"messages": [("user", "and that")]}, THREAD)
    assert any("Outcome unknown: submit" in message.text for message in result["messages"])
    assert [found.reason for found in recorded(storage.store, "a thread")] == ["superseded", "finish_task"]


def test_it_may_pause_by_itself(storage: SqliteStorage) -> None:
    submit = Submit(lambda: interrupt("really?"), lambda: interrupt("really?"))
    graph = build_graph(ScriptedModel([SUBMIT]), storage=storage, **with_tool(submit))
    assert graph.invoke({"messages": GO}, THREAD)["__interrupt__"][0].value == "really?"
    outcome = graph.invoke(Command(resume="really"), THREAD)["outcome"]
    assert (outcome["status"], outcome["result"]) == ("success", "really")


def test_without_a_journal_there_is_a_warning() -> None:
    with pytest.warns(JournalWarning, match="submit may change something"):
        build_graph(ScriptedModel([]), checkpointer=InMemorySaver(), **with_tool(Submit("x")))


def test_a_finishing_tool_that_only_reads_needs_no_journal() -> None:
    build_graph(ScriptedModel([]), checkpointer=InMemorySaver(), **with_tool(Submit("x", kind="read")))
