"""What an outcome tells of the work: what was changed last, what is open, which checks ran."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import Limits, Outcome, build_graph, sqlite_storage
from signoff.graph.outcome import MOST_CHANGES
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from tests.support.benches.cli import Bench, steps
from tests.support.benches.page_shown import last_card, shown

GO = {"messages": [("user", "Do it.")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
DONE = call("finish_task", summary="Done.")


def pay(to: str) -> str:
    """Pay."""
    if to == "nobody":
        raise ValueError("there is no such person")
    return f"paid {to}\nthe receipt has many lines\n" + "and words " * 60 + "exit code 0"


@tool
def look(at: str) -> str:
    """Look."""
    return at


look.metadata = {"kind": "read"}


def ended(script: Sequence[Step], turns: int = 30, **options: Any) -> Outcome:
    graph = build_graph(ScriptedModel(list(script)), [pay, look], limits=Limits(turns=turns), **options)
    return Outcome.model_validate(graph.invoke(GO)["outcome"])


def paid(name: str) -> Step:
    return call("pay", to=name)


class TestWhatWasChanged:
    def test_calls_with_effects_and_their_results_are_a_line_each(self) -> None:
        found = ended([paid("ada"), call("think", thought="So far."), paid("nobody"), "What now?"], turns=4)
        assert (found.status, found.reason) == ("limit", "turns")
        first, second = found.changes
        assert (first.call, first.came) == ("pay(to='ada')", "ok")
        assert first.result.startswith("paid ada the receipt")
        assert first.result.endswith("exit code 0")
        assert "\n" not in first.result
        assert (second.call, second.came) == ("pay(to='nobody')", "error")
        assert "no such person" in second.result

    def test_the_last_ones_are_kept_the_newest_last(self) -> None:
        names = [f"n{number}" for number in range(MOST_CHANGES + 3)]
        found = ended([paid(name) for name in names], turns=len(names))
        assert [change.call for change in found.changes] == [f"pay(to='{n}')" for n in names[-MOST_CHANGES:]]

    def test_reads_and_what_was_never_run_are_no_changes(self) -> None:
        found = ended([call("look", at="x"), reply(DONE, call("pay", to="ada"))])
        assert found.changes == []

    def test_a_call_that_a_person_answered_in_its_place_changed_nothing(self, tmp_path: Path) -> None:
        with sqlite_storage(tmp_path / "db") as storage:
            model = ScriptedModel([paid("ada"), DONE])
            graph = build_graph(model, [pay], storage=storage, approvals={"pay": True})
            waits = graph.invoke(GO, THREAD)["__interrupt__"][0]
            answer = {waits.id: {"decisions": [{"type": "respond", "message": "I paid her."}]}}
            assert graph.invoke(Command(resume=answer), THREAD)["outcome"]["changes"] == []


OPEN: dict[str, tuple[list[Step], list[str], list[str]]] = {
    "nothing is known": ([paid("ada")], [], []),
    "the next phase": (
        [call("finish_task", summary="Half.", completion_percentage=50, next_phase="The tests")],
        [],
        ["the next phase: The tests"],
    ),
    "the status of a thought": (
        [call("think", thought="x", status="two of three are paid"), call("think", thought="y")],
        [],
        ["its last status: two of three are paid"],
    ),
    "a finish that was refused, with what it said is open": (
        [call("finish_task", summary="", pending_issues=["bob is not paid"])],
        ["bob is not paid"],
        ["its last finish did not count: the summary is empty. Say in the summary what was done"],
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_is_open_at_a_limit(case: str) -> None:
    script, issues, points = OPEN[case]
    found = ended(script, turns=len(script))
    assert (found.status, found.pending_issues, found.open_work) == ("limit", issues, [])
    assert [point[: len(wanted)] for point, wanted in zip(found.open_points, points, strict=True)] == points


def test_after_a_success_nothing_is_listed_as_open() -> None:
    found = ended([call("finish_task", summary=""), call("think", thought="x", status="wait"), DONE])
    assert (found.status, found.open_points, found.open_work) == ("success", [], [])


def test_the_card_and_the_page_show_what_was_changed_and_what_is_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    edit = 'call("edit_file", path="config.py", old="3000", new="4000")'
    bench.model(steps('call("think", thought="x", status="the tests are left")', edit))
    printed = bench.run("Do it", "--turns", "2").stdout
    page = last_card(shown(bench)).text
    for text in (printed.partition("Turn limit reached")[2], page):
        for words in ("Changed last", "edit_file(path='config.py', old='3000'", "→ Edited config.py."):
            assert words in text
        assert "its last status: the tests are left" in text


def test_where_nothing_is_known_the_card_says_that_the_task_is_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.model(steps('call("read_file", path="config.py")'))
    printed = bench.run("Do it", "--turns", "1").stdout
    told = "the task itself; no finish of it was accepted"
    assert told in printed
    assert told in last_card(shown(bench)).text


class TestChecks:
    def test_each_that_ran_is_kept_with_the_last_line_that_it_said(self) -> None:
        def is_tidy() -> None: ...

        found = ended([DONE], checks=["echo first; echo 3 passed", is_tidy])
        assert found.verified == "verified"
        kept = [(check.name, check.passed, check.said) for check in found.checks]
        assert kept == [("echo first; echo 3 passed", True, "3 passed"), ("is_tidy", True, "")]

    def test_without_a_check_there_is_none_to_tell_of(self) -> None:
        found = ended([DONE])
        assert (found.verified, found.checks) == ("asserted", [])

    def test_what_a_person_accepts_keeps_the_verdict_of_the_check(self, tmp_path: Path) -> None:
        with sqlite_storage(tmp_path / "db") as storage:
            checks = [lambda: "two tests fail"]
            graph = build_graph(ScriptedModel([DONE, DONE]), storage=storage, checks=checks)
            waits = graph.invoke(GO, THREAD)["__interrupt__"][0]
            found = graph.invoke(Command(resume={waits.id: "yes"}), THREAD)["outcome"]
        assert found["verified"] == "unverified"
        assert found["checks"] == [
            {"name": "<lambda>", "passed": False, "said": "<lambda> failed: two tests fail"}
        ]
