"""What an outcome tells of the work: what was changed last, what is open, and what nobody knows."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import Outcome, build_graph, outcome_of, standard_controls
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
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


PHASE = call("finish_task", summary="Half.", completion_percentage=50, next_phase="The tests")
THOUGHT = call("think", thought="x", status="two of three")
REFUSED = call("finish_task", summary="", pending_issues=["bob is not paid"])
OPEN: dict[str, tuple[list[Any], list[str], list[str]]] = {
    # The issues, and what the open points name.
    "nothing is known": ([paid("ada")], [], []),
    "the next phase": ([PHASE], [], ["The tests"]),
    "the status of a thought": ([THOUGHT, call("think", thought="y")], [], ["two of three"]),
    "a finish that was refused, and its issues": ([REFUSED], ["bob is not paid"], ["summary"]),
}


@pytest.mark.parametrize(("script", "issues", "points"), OPEN.values(), ids=OPEN)
def test_what_is_open_at_a_limit(script: list[Any], issues: list[str], points: list[str]) -> None:
    outcome = ended(*script, turns=len(script))
    assert (outcome.status, outcome.pending_issues, outcome.open_work) == ("limit", issues, [])
    assert all(part in point for part, point in zip(points, outcome.open_points, strict=True))


def test_after_a_success_nothing_is_open() -> None:
    outcome = ended(call("finish_task", summary=""), call("think", thought="x", status="wait"), FINISH)
    assert (outcome.status, outcome.open_points, outcome.open_work) == ("success", [], [])


# A "done" over an effect of which nobody knows whether it took place is refused once, unless a call has run
# since that could have looked; what it passes over nevertheless is an open point.

PAY, LOOK = call("pay", to="ada"), call("balance")
HALF = call("finish_task", summary="Half of it.", completion_percentage=50)
PARTIAL = call("finish_task", summary="Perhaps.", outcome="partial")


async def pay_slowly(to: str) -> str:
    """Pay somebody, and be cancelled."""
    (run,) = [task for task in asyncio.all_tasks() if task.get_name() == "the run"]
    run.cancel()
    await asyncio.sleep(60)
    raise AssertionError("it is cancelled")


def note(text: str) -> str:
    """Note something down."""
    return text


def balance() -> str:
    """Read the balance."""
    return "Ada received 5 today."


def broken() -> str:
    """Look into what is closed."""
    raise OSError("it is closed")


PAYING = StructuredTool.from_function(
    lambda to: f"{to} is paid", pay_slowly, name="pay", description="Pay somebody."
)
TOOLS: list[Any] = [PAYING, note, balance, broken]


def machine(script: Sequence[Any], turns: int = 9, **options: Any) -> Any:
    options["policy"] = {"texts": TEXTS, **options.get("policy", {})}
    return build_graph(ScriptedModel(script), TOOLS, limits={"turns": turns}, **saved(), **options)


def under_guards(script: Sequence[Any], turns: int = 9) -> Any:
    middleware = [Guards({"turns": turns}, policy={"texts": TEXTS})]
    return guarded(create_agent(ScriptedModel(script), TOOLS, middleware=middleware, **saved()))


def cut_short(graph: Any) -> None:
    """Only a coroutine can be stopped in the middle of a tool under every driver."""

    async def run() -> None:
        await asyncio.create_task(graph.ainvoke(GO, THREAD), name="the run")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


CLAIMS: dict[str, tuple[list[Any], int, int, bool]] = {
    # What the model says once it has read that the effect is unknown, within how many turns; how many of its
    # finishes are refused; whether the outcome lists it.
    "done at once, twice": ([FINISH, FINISH], 9, 1, True),
    "a look": ([LOOK, FINISH], 9, 0, False),
    "another effect could have looked": ([call("note", text="x"), FINISH], 9, 0, False),
    "a look that fails": ([call("broken"), FINISH, FINISH], 9, 1, True),
    "an honest claim": ([PARTIAL], 9, 0, False),
    "a phase, then done": ([HALF, FINISH, FINISH], 9, 1, True),
    "the last turn": ([FINISH], 2, 0, True),
}
CLAIMED = [(machine, name) for name in CLAIMS] + [(under_guards, "done at once, twice")]


@pytest.mark.parametrize(("agent", "name"), CLAIMED)
def test_a_claim_over_an_unknown_effect(agent: Any, name: str) -> None:
    script, turns, refused, listed = CLAIMS[name]
    graph = agent([PAY, *script], turns)
    cut_short(graph)
    result = graph.invoke(None, THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.refusals) == ("success", refused)
    assert ["pay(to='ada')" in point for point in outcome.open_points] == [True] * listed
    assert (outcome.pending_issues, outcome.changes[0].came) == ([], "unknown")
    refusals = [text for text in results(result) if text.startswith("<refused>")]
    assert all("<open>" in text and "pay(to='ada')" in text for text in refusals)


def test_it_is_refused_before_a_check_runs_and_in_rounds() -> None:
    checked: list[str] = []
    checks = [lambda claim: checked.append(claim["summary"])]
    script = [PAY, FINISH, call("think", thought="Once more."), FINISH]
    graph = machine(script, control_tools=standard_controls(rounds=True), checks=checks)
    cut_short(graph)
    outcome = outcome_of(graph.invoke(None, THREAD))
    assert (outcome.refusals, len(outcome.open_points), checked) == (1, 1, ["All of it."])


PERSONS: dict[str, Any] = {
    "sends it back": {"type": "reject", "message": "It is paid."},
    "says what came of it": {"type": "respond", "message": "It is paid."},
    "has it run once more": "approve",
}


@pytest.mark.parametrize("name", PERSONS)
def test_what_a_person_was_asked_about_is_not_asked_again(name: str) -> None:
    graph = machine([PAY, FINISH], policy={"unknown_outcomes": "ask"})
    cut_short(graph)
    (wait,) = graph.invoke(None, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={wait.id: PERSONS[name]}), THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.refusals, outcome.open_points) == ("success", 0, [])
    assert "<rejected>" not in results(result, "pay")[0]
