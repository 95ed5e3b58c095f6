"""benchmarks/workers in small: workers are killed, stopped and cut off; what happened outside is counted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from benchmarks.workers import agent
from benchmarks.workers.proof import Plan, prove
from benchmarks.workers.record import Record
from signoff.graph.messages import result
from tests.support.servers.postgres import Server


def test_the_record_takes_a_step_once_and_counts_what_it_refused(tmp_path: Path) -> None:
    record = Record(tmp_path / "record")
    assert [record.book("a", 1, "x"), record.book("a", 1, "y"), record.book("a", 2, "y")] == [
        True,
        False,
        True,
    ]
    record.note("done", "a", 1, "z")
    with record.file.open("a") as file:
        file.write('{"what": "done", "acc')
    assert record.keys("done", "account", "step") == {("a", 1): 2, ("a", 2): 1}
    assert record.keys("refused", "call") == {("y",): 1}
    assert (record.has("a", 2), record.has("b", 2)) == (True, False)


@pytest.mark.slow
@pytest.mark.thorough
def test_nothing_is_lost_and_nothing_is_done_twice(
    tmp_path: Path, own_postgres_server: Server, figure: Callable[[str], None]
) -> None:
    plan = Plan(threads=12, steps=6, kills=2, stops=1, restarts=1)
    found = prove(plan, own_postgres_server, tmp_path)
    told = (
        f"workers: {found.threads_right} of {plan.threads} threads right, {found.effects} effects, "
        f"{found.effects_twice} twice, {found.uncertain} uncertain, {found.refused} refused by their key, "
        f"after {found.kills} kills, {found.stops} stop, {found.restarts} restart, in {found.seconds} s"
    )
    figure(told)
    assert found.right, f"{found}\n{(tmp_path / 'log').read_text()}"
    assert found.calls_twice == 0


def test_the_script_looks_before_it_repeats_a_step() -> None:
    asked = HumanMessage(agent.task("a", 2))
    names = [
        agent.script([asked, *results]).name
        for results in (
            [],
            [result("1", "book", "Outcome unknown", ok=False, unknown=True)],
            [result("1", "book", "?", ok=False, unknown=True), result("2", "look", "Step 1 is missing.")],
            [result("1", "book", "Step 1 is booked."), result("2", "look", "Step 2 is booked.")],
        )
    ]
    assert names == ["book", "look", "book", "finish_task"]
