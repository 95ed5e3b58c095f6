"""`extend(turns=n)` gives n more turns, also to a task that has used more than its limit.

An answered question, and a finish that a person sent back, allow one turn more than the limit; and a graph
may be built again with a lower one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import Limits, build_graph, extend, sqlite_storage
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call, reply
from signoff.session.replay import replay
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
ASK = reply(call("ask_user", question="Which one?"), usage=(9, 1))
CLAIM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
ANSWER = "The red one."


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


def works(seen: Sequence[Any]) -> Any:
    return reply(call("work", n=len(seen)), usage=(9, 1))


@dataclass(frozen=True)
class Case:
    """A task under `limits`, and how many turns it has used each time it ends at a limit.

    says: what the model says first; then it works without an end. moves: what happens whenever it waits or
    has ended: an answer (a text), more turns (a number), or a graph built again with other limits.
    """

    says: Sequence[Any]
    moves: Sequence[str | int | Limits]
    ends: Sequence[int]
    limits: Limits = field(default_factory=lambda: Limits(turns=2))
    reason: str = "turns"


W = works
BEYOND = [W, ASK, ASK, ASK, W]
ANSWERS = [ANSWER] * 3
"""Five turns of two, by three answers."""

CASES: dict[str, Case] = {
    "at the limit": Case([], [2], [2, 4]),
    "beyond it": Case(BEYOND, [*ANSWERS, 2], [5, 7]),
    "beyond it, by one turn": Case(BEYOND, [*ANSWERS, 1], [5, 6]),
    "beyond it, by less than it is beyond": Case(BEYOND, [*ANSWERS, 1, 2], [5, 6, 8]),
    "twice": Case(BEYOND, [*ANSWERS, 2, 2], [5, 7, 9]),
    "beyond what an extension gave": Case(
        [*BEYOND, W, ASK, ASK, W], [*ANSWERS, 2, ANSWER, ANSWER, 2], [5, 9, 11]
    ),
    "a finish that was sent back": Case([W, CLAIM, W], ["no: the title is wrong", 2], [3, 5]),
    "an answer after it, within the turns": Case([*BEYOND, ASK], [*ANSWERS, 2, ANSWER], [5, 7]),
    "an answer after it, on the last turn": Case([*BEYOND, W, ASK], [*ANSWERS, 2, ANSWER], [5, 8]),
    "under a lower limit": Case([], [Limits(turns=1), 2], [4, 6], Limits(turns=4)),
    "and then under a lower limit": Case(
        [*[W] * 5, ASK], [3, Limits(turns=1), ANSWER], [4, 7], Limits(turns=4)
    ),
    "and then under a higher limit": Case([*BEYOND, ASK], [*ANSWERS, 2, Limits(turns=9), ANSWER], [5, 11]),
    "under the same limit, before it was reached": Case(
        [W], [2, 2], [2, 4, 6], Limits(turns=9, tokens=20), "tokens"
    ),
    "beyond it, after another limit": Case(
        [W, ASK, ASK], [ANSWER, ANSWER, 2], [3, 5], Limits(turns=2, tokens=30)
    ),
    "beyond it, after another limit that left a turn of those given": Case(
        BEYOND, [*ANSWERS, 4, 2], [5, 8, 11], Limits(turns=2, tool_calls=2)
    ),
}


def run(case: Case, storage: SqliteStorage) -> tuple[list[Any], Any]:
    """Each outcome, and the last graph."""
    said = iter(case.says)

    def script(seen: Sequence[Any]) -> Any:
        step = next(said, works)
        return step(seen) if callable(step) else step

    def built(limits: Limits) -> Any:
        model = ScriptedModel(script)
        return build_graph(model, [work], limits=limits, storage=storage)

    graph = built(case.limits)
    results = [graph.invoke(GO, THREAD)]
    for move in case.moves:
        if isinstance(move, Limits):
            graph = built(move)
        elif isinstance(move, str):
            results.append(graph.invoke(Command(resume=move), THREAD))
        else:
            results.append(graph.invoke(extend(graph.get_state(THREAD), turns=move), THREAD))
    return [result["outcome"] for result in results if result["outcome"]], graph


@pytest.mark.parametrize("name", CASES)
def test_so_many_turns_are_left_as_were_given(name: str, storage: SqliteStorage) -> None:
    case = CASES[name]
    outcomes, graph = run(case, storage)
    assert [outcome["turns"] for outcome in outcomes] == case.ends
    assert (outcomes[-1]["status"], outcomes[-1]["reason"]) == ("limit", case.reason)
    if not any(isinstance(move, Limits) for move in case.moves):
        assert replay(graph, "t").differences == ()


def test_the_reason_and_the_reminder_count_from_there(storage: SqliteStorage) -> None:
    _, graph = run(CASES["beyond it"], storage)
    values = graph.get_state(THREAD).values
    assert values["decision"]["why"] == "7 of 7 turns are used"
    reminders = [m for m in values["messages"] if marks(m).get("nudge") == "near_limit"]
    assert "1 turn(s) left" in reminders[-1].text
