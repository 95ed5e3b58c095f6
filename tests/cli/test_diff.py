"""`signoff diff`: two threads beside each other."""

from pathlib import Path

import pytest

from signoff import Session, build_graph, delegate, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
# As much as the tasks of gpt-4o cost whose replies these are.
PAID = (
    'AIMessage("Hm.", usage_metadata={"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100},'
    ' response_metadata={"model_name": "%s", "finish_reason": "stop"})'
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_thread_and_its_fork(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("fork", "t1", "--at", "1", "--to", "copy")
    bench.config.write_text("PORT = 3000\n")
    bench("resume", "copy")
    bench("resume", "copy", "9090")
    found = bench.json("diff", "t1", "copy")
    assert found["differ_at"] == 3, "the second turn asked in both, and was answered otherwise"
    left, right = found["left"], found["right"]
    assert (left["thread_id"], right["thread_id"]) == ("t1", "copy")
    for one in (left, right):
        assert (one["status"], one["reason"], one["claim"], one["calls"]) == (
            "success",
            "finish_task",
            "done",
            2,
        )
        assert len(one["turns"]) == 4
        assert one["tokens"] > 100
    assert left["turns"][2] == "edit_file(path='config.py', old='3000', new='8080')"
    assert right["turns"][2] == "edit_file(path='config.py', old='3000', new='9090')"


def test_the_table_has_a_line_for_each_figure_and_each_turn(bench: Bench) -> None:
    bench.model(steps(LOOK, DONE))
    bench.run()
    bench.model(steps(LOOK, LOOK, DONE))
    bench.run(thread="t2")
    result = bench("diff", "t1", "t2")
    assert result.exit_code == 0
    lines = {line[:10].strip(): line.split("  ") for line in result.stdout.splitlines()}
    assert list(lines) == [
        "",
        *("outcome", "summary", "model", "turns", "calls", "tokens", "cost", "seconds"),
        *("turn 1", "turn 2 ≠", "turn 3"),
    ]
    cells = {name: [cell.strip() for cell in line if cell.strip()] for name, line in lines.items()}
    assert cells["turns"] == ["turns", "2", "3"]
    assert cells["calls"] == ["calls", "1", "2"]
    assert cells["turn 3"] == ["turn 3", "-", "finish_task(summary='All done.')"]
    assert cells["outcome"] == ["outcome", *["success, finish_task, done, asserted"] * 2]


@pytest.mark.parametrize(("model", "cost"), [("gpt-4o", 0.0035), ("no-such-model", None)])
def test_the_cost_is_that_of_a_model_whose_price_is_known(
    bench: Bench, model: str, cost: float | None
) -> None:
    file = Path(bench.model(steps(PAID % model)).removeprefix("scripted:"))
    file.write_text(f"from langchain_core.messages import AIMessage\n{file.read_text()}")
    bench.run("Go", "--turns", "1")
    assert bench.json("diff", "t1", "t1")["left"]["cost"] == cost


def test_one_that_waits_and_the_same_twice(bench: Bench) -> None:
    bench.run()
    found = bench.json("diff", "t1", "t1")
    assert (found["left"]["status"], found["differ_at"]) == ("waiting", None)


def test_a_thread_that_is_not_there_is_named(bench: Bench) -> None:
    one_sentence(bench("diff", "t1", "t2"), "There is no thread 't1'")
    bench.run()
    one_sentence(bench("diff", "t1", "t2"), "There is no thread 't2'")


def test_what_delegates_did_and_took_stands_below_the_turn_that_called_them(bench: Bench) -> None:
    done, deeper = call("finish_task", summary="Done."), call("deep", task="go")
    outcomes = {}
    with sqlite_storage(bench.database) as storage:
        for thread_id, question in (("t1", "Which?"), ("t2", "Who?")):
            deep = build_graph(ScriptedModel([call("ask_user", question=question), done]))
            below = [delegate("deep", deep, description="Works.")]
            child = build_graph(ScriptedModel([deeper, done]), below)
            tools = [delegate("child", child, description="Works.")]
            graph = build_graph(ScriptedModel([call("child", task="go"), done]), tools, storage=storage)
            session = Session(graph, thread_id)
            session.run("go")
            outcomes[thread_id] = session.resume("that").outcome  # type: ignore[union-attr]  # it has ended
    found = bench.json("diff", "t1", "t2")
    assert found["differ_at"] == 1
    left, tree = found["left"], outcomes["t1"].tree
    assert tree is not None
    assert left["below"][0] == [
        "child: deep(task='go')",
        "child / deep: ask_user(question='Which?')",
        "child / deep: finish_task(summary='Done.')",
        "child: finish_task(summary='Done.')",
    ]
    assert left["tokens"] < left["tree"]["tokens"] == tree.total_tokens
    assert (left["tree"]["delegates"], left["tree"]["turns"]) == (2, tree.turns)
    assert left["tree"]["calls"] == tree.tool_calls
    heads = [line[:9].strip() for line in bench("diff", "t1", "t2").stdout.splitlines()]
    assert [*filter(None, heads)][8:] == ["tree", "turn 1 ≠", "≠", "turn 2"]
    assert bench.json("diff", "t1", "t1")["differ_at"] is None
