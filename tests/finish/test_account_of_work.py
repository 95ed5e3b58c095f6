"""What an outcome tells of the work: what was changed last, what is open, and what nobody knows."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import Outcome, Session, build_graph, delegate, outcome_of, standard_controls, stop
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import Bench, steps
from tests.support.benches.page_shown import last_card, shown
from tests.support.plays import FINISH, GO, TEXTS, THREAD, results, saved


def pay(to: str) -> str:
    """Pay."""
    if to == "nobody":
        raise ValueError("no such person")
    return f"paid {to}\nthe receipt\n" + "and words " * 60 + "exit code 0"


def look(at: str) -> str:
    """Look."""
    return at


def ended(*script: Any, turns: int = 30) -> Outcome:
    reading = StructuredTool.from_function(look, metadata={"kind": "read"})
    return outcome_of(build_graph(ScriptedModel(script), [pay, reading], limits={"turns": turns}).invoke(GO))


def paid(name: str) -> Any:
    return call("pay", to=name)


def test_calls_with_effects_and_their_results_are_a_line_each() -> None:
    outcome = ended(paid("ada"), call("think", thought="So far."), paid("nobody"), "What now?", turns=4)
    first, second = outcome.changes
    assert (first.call, first.came) == ("pay(to='ada')", "ok")
    assert first.result.startswith("paid ada the receipt")
    assert first.result.endswith("exit code 0")
    assert "\n" not in first.result
    assert (second.call, second.came) == ("pay(to='nobody')", "error")
    assert "no such person" in second.result


def test_the_last_eight_are_kept_the_newest_last() -> None:
    names = [f"n{number}" for number in range(11)]
    changes = ended(*map(paid, names), turns=11).changes
    assert [change.call for change in changes] == [f"pay(to='{name}')" for name in names[-8:]]


def test_reads_what_never_ran_and_what_a_person_answered_are_no_changes() -> None:
    assert ended(call("look", at="x"), [FINISH, paid("ada")]).changes == []
    graph = build_graph(ScriptedModel([paid("ada"), FINISH]), [pay], approvals={"pay": True}, **saved())
    graph.invoke(GO, THREAD)
    answer: Any = Command(resume={"decisions": [{"type": "respond", "message": "I paid her."}]})
    assert outcome_of(graph.invoke(answer, THREAD)).changes == []


OPEN: dict[str, tuple[list[Any], list[str], list[str]]] = {
    # The issues, and what the open points name.
    "nothing is known": ([paid("ada")], [], []),
    "the next phase": (
        [call("finish_task", summary="Half.", completion_percentage=50, next_phase="The tests")],
        [],
        ["The tests"],
    ),
    "the status of a thought": (
        [call("think", thought="x", status="two of three"), call("think", thought="y")],
        [],
        ["two of three"],
    ),
    "a finish that was refused, and its issues": (
        [call("finish_task", summary="", pending_issues=["bob is not paid"])],
        ["bob is not paid"],
        ["summary"],
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_at_a_limit(name: str) -> None:
    script, issues, points = OPEN[name]
    outcome = ended(*script, turns=len(script))
    assert (outcome.status, outcome.pending_issues, outcome.open_work) == ("limit", issues, [])
    assert all(part in point for part, point in zip(points, outcome.open_points, strict=True))


def test_after_a_success_nothing_is_open() -> None:
    outcome = ended(call("finish_task", summary=""), call("think", thought="x", status="wait"), FINISH)
    assert (outcome.status, outcome.open_points, outcome.open_work) == ("success", [], [])


def test_the_card_and_the_page_show_what_was_changed_and_what_is_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    edit = 'call("edit_file", path="config.py", old="3000", new="4000")'
    bench.model(steps('call("think", thought="x", status="the tests are left")', edit))
    printed = bench.run("Do it", "--turns", "2").stdout
    for text in (printed, last_card(shown(bench)).text):
        assert "edit_file(path='config.py', old='3000'" in text
        assert "the tests are left" in text


# A "done" over an effect of which nobody knows whether it took place is refused once, unless a call has run
# since that could have looked; what it passes over nevertheless is an open point.

PAY, LOOK = call("pay", to="ada"), call("balance")
HALF = call("finish_task", summary="Half of it.", completion_percentage=50)
PARTIAL = call("finish_task", summary="Perhaps.", outcome="partial")


class Bank:
    """The tools of an agent: a payment that is cancelled the first time, and what can look."""

    def __init__(self) -> None:
        pay = StructuredTool.from_function(self.pay, self.pay_slowly, name="pay")
        self.tools: list[Any] = [pay, self.note, self.balance, self.broken]

    def pay(self, to: str) -> str:
        """Pay somebody."""
        return f"{to} is paid"

    async def pay_slowly(self, to: str) -> str:
        (run,) = [task for task in asyncio.all_tasks() if task.get_name() == "the run"]
        run.cancel()
        await asyncio.sleep(60)
        raise AssertionError("it is cancelled")

    def note(self, text: str) -> str:
        """Note something down."""
        return text

    def balance(self) -> str:
        """Read the balance."""
        return "Ada received 5 today."

    def broken(self) -> str:
        """Look into what is closed."""
        raise OSError("it is closed")


def machine(script: Sequence[Any], limits: Any, **options: Any) -> Any:
    options["policy"] = {"texts": TEXTS, **options.get("policy", {})}
    return build_graph(ScriptedModel(script), Bank().tools, limits=limits, **saved(), **options)


def under_guards(script: Sequence[Any], limits: Any) -> Any:
    middleware = [Guards(limits, policy={"texts": TEXTS})]
    return create_agent(ScriptedModel(script), Bank().tools, middleware=middleware, **saved())


AGENTS: dict[str, Callable[[Sequence[Any], Any], Any]] = {
    "build_graph": machine,
    "Guards": under_guards,
    "guarded": lambda script, limits: guarded(under_guards(script, limits)),
}


def cut_short(graph: Any) -> None:
    """Only a coroutine can be stopped in the middle of a tool under every driver."""

    async def run() -> None:
        await asyncio.create_task(graph.ainvoke(GO, THREAD), name="the run")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


@dataclass(frozen=True)
class Claims:
    """What the model says once it has read that the effect is unknown; how many finishes are refused for
    that; whether the outcome lists it."""

    then: Sequence[Any]
    refused: int
    listed: bool = False
    turns: int = 9
    claim: str = "done"
    answers: Sequence[Any] = field(default_factory=list)


CLAIMS = {
    "done at once, twice": Claims([FINISH, FINISH], 1, listed=True),
    "a look": Claims([LOOK, FINISH], 0),
    "a look after the refusal": Claims([FINISH, LOOK, FINISH], 1),
    "another effect could have looked": Claims([call("note", text="x"), FINISH], 0),
    "it is done again": Claims([PAY, FINISH], 0),
    "a look that fails": Claims([call("broken"), FINISH, FINISH], 1, listed=True),
    "only a thought": Claims([call("think", thought="Hm."), FINISH, FINISH], 1, listed=True),
    "only words": Claims(["It is done.", FINISH, FINISH], 1, listed=True),
    "a call that does not run": Claims([call("no_such_tool"), FINISH, FINISH], 1, listed=True),
    "a person is asked": Claims([call("ask_user", question="Was she?"), FINISH], 0, answers=["Yes."]),
    "an honest claim": Claims([PARTIAL], 0, claim="partial"),
    "a phase, then done": Claims([HALF, FINISH, FINISH], 1, listed=True),
    "a look before a phase": Claims([LOOK, HALF, FINISH], 0),
    "the last turn": Claims([FINISH], 0, listed=True, turns=2),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_over_an_unknown_effect(name: str, agent: str) -> None:
    case = CLAIMS[name]
    graph = AGENTS[agent]([PAY, *case.then], {"turns": case.turns})
    cut_short(graph)
    result = graph.invoke(None, THREAD)
    for answer in case.answers:
        result = graph.invoke(Command(resume=answer), THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.claim, outcome.refusals) == ("success", case.claim, case.refused)
    assert ["pay(to='ada')" in point for point in outcome.open_points] == [True] * case.listed
    assert (outcome.pending_issues, outcome.changes[0].came) == ([], "unknown")
    refused = [text for text in results(result) if text.startswith("<refused>")]
    assert all("<open>" in text and "pay(to='ada')" in text for text in refused)


def test_it_is_refused_before_a_check_runs_and_in_rounds() -> None:
    checked: list[str] = []
    checks = [lambda claim: checked.append(claim["summary"])]
    script = [PAY, FINISH, call("think", thought="Once more."), FINISH]
    graph = machine(script, {"turns": 9}, control_tools=standard_controls(rounds=True), checks=checks)
    cut_short(graph)
    outcome = outcome_of(graph.invoke(None, THREAD))
    assert (outcome.refusals, len(outcome.open_points), checked) == (1, 1, ["All of it."])


def test_what_a_delegate_passes_over_is_listed_above() -> None:
    clerk = build_graph(ScriptedModel([PAY, FINISH, FINISH]), Bank().tools)
    helper = delegate("clerk", clerk, description="Pays.")
    graph = build_graph(ScriptedModel([call("clerk", task="Pay."), FINISH]), [helper], **saved())
    cut_short(graph)
    result = graph.invoke(None, THREAD)
    (point,) = outcome_of(result).open_points
    assert (point.startswith("clerk / "), "pay(to='ada')" in point) == (True, True)
    assert "pay(to='ada')" in results(result, "clerk")[0]
    assert outcome_of(result).refusals == 0


def test_a_task_that_is_stopped_says_what_may_have_run() -> None:
    graph = machine([PAY], {"turns": 9})
    cut_short(graph)
    Session(graph, "t").run(stop())
    outcome = outcome_of(graph.get_state(THREAD))
    assert ([change.came for change in outcome.changes], outcome.open_work) == (["unknown"], [])


PERSONS: dict[str, Any] = {
    "sends it back": {"type": "reject", "message": "It is paid."},
    "says what came of it": {"type": "respond", "message": "It is paid."},
    "has it run once more": "approve",
}


@pytest.mark.parametrize("name", PERSONS)
def test_what_a_person_was_asked_about_is_not_asked_again(name: str) -> None:
    graph = machine([PAY, FINISH], {"turns": 9}, policy={"unknown_outcomes": "ask"})
    cut_short(graph)
    (wait,) = graph.invoke(None, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={wait.id: PERSONS[name]}), THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.refusals, outcome.open_points) == ("success", 0, [])
    assert "<rejected>" not in results(result, "pay")[0]
