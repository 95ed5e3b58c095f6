"""The benchmark of turns runs both loops, and its table says what the runs say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel

from signoff.models import ScriptedModel, call, reply

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import iterations
from benchmarks.comparison import Prices, fewer, rows
from benchmarks.file_tasks import TASKS, TURNS, FileTask, run_task
from benchmarks.iterations import CLASSES, compulsive, simulated
from benchmarks.loops import LOOPS, PLAIN, SIGNOFF, Run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PRICES = Prices(input=2.0, output=10.0)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return simulated(latency=0)


@pytest.mark.thorough
def test_twenty_tasks_by_both_loops(runs: list[Run]) -> None:
    for loop in LOOPS:
        kinds = [run.kind for run in runs if run.loop == loop]
        assert {kind: kinds.count(kind) for kind in kinds} == {"simple": 7, "medium": 6, "complex": 7}


def test_the_plain_loop_never_ends_and_signoff_ends_with_the_work(runs: list[Run]) -> None:
    for run in runs:
        if run.loop == PLAIN:
            assert (run.turns, run.ended) == (30, "30 turns"), run
        else:
            assert (run.turns, run.ended) == (CLASSES[run.kind][1], "finish_task (done)"), run


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_counts_the_calls_of_its_model_and_what_they_were_shown(loop: str) -> None:
    model = compulsive(2, latency=0)
    found = LOOPS[loop](model, iterations.TOOLS, "Do it.", "simple", 30)
    assert found.turns == len(model.seen)
    characters = [sum(len(str(message.content)) for message in seen.messages) for seen in model.seen]
    assert found.input_tokens >= sum(characters) // 4
    assert found.output_tokens > 0


def test_the_model_is_the_same_for_both_loops_but_for_the_tools_it_is_given() -> None:
    seen = []
    for loop in LOOPS.values():
        model = compulsive(2, latency=0)
        loop(model, iterations.TOOLS, "Do it.", "simple", 5)
        seen.append(set(model.seen[0].tool_names))
    assert seen[0] == {"work", "look"}
    assert seen[1] - seen[0] == {"finish_task", "ask_user", "think"}


def test_the_rows_are_means_of_the_runs(runs: list[Run]) -> None:
    found = {(row.kind, row.loop): row for row in rows(runs, PRICES)}
    assert len(found) == 8
    for (kind, loop), row in found.items():
        mine = [run for run in runs if run.loop == loop and kind in (run.kind, "all")]
        seconds = sum(run.seconds for run in mine)
        assert row.tasks == len(mine)
        assert row.turns == pytest.approx(sum(run.turns for run in mine) / len(mine))
        assert row.tokens == pytest.approx(sum(r.input_tokens + r.output_tokens for r in mine) / len(mine))
        paid = sum(run.input_tokens * 2 + run.output_tokens * 10 for run in mine) / 1e6
        assert row.cost == pytest.approx(paid / len(mine))
        assert row.seconds == pytest.approx(seconds / len(mine))
        assert row.tasks_per_second == pytest.approx(len(mine) / seconds)
        assert sum(row.ended.values()) == len(mine)


def test_thirty_turns_become_8_7(runs: list[Run]) -> None:
    found = rows(runs, PRICES)
    assert {row.loop: row.turns for row in found if row.kind == "all"} == {PLAIN: 30, SIGNOFF: 8.7}
    less = fewer(found)
    assert less["turns"] == pytest.approx(0.71)
    plain, ours = (next(r for r in found if (r.kind, r.loop) == ("all", loop)) for loop in LOOPS)
    assert less["tokens"] == pytest.approx((plain.tokens - ours.tokens) / plain.tokens)
    assert less["tokens"] > 0.5


ENDS: dict[str, tuple[list[object], tuple[str, int]]] = {
    "words": ([call("look", at="x"), "Nothing to do."], ("words", 2)),
    "an error of the provider": ([RuntimeError("down")], ("RuntimeError", 0)),
    "a tool that does not exist": ([call("ghost"), "I cannot."], ("words", 2)),
    "its turns": ([call("look", at="x")] * 3, ("3 turns", 3)),
    "several calls in one reply": (
        [reply(call("look", at="x"), call("work", step=1)), "Done."],
        ("words", 2),
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_plain_loop_ends_by(case: str) -> None:
    script, wanted = ENDS[case]
    with ScriptedModel(script) as model:  # type: ignore[arg-type]  # the table holds steps of every kind
        found = LOOPS[PLAIN](model, iterations.TOOLS, "Do it.", "simple", 3)
    assert (found.ended, found.turns) == wanted


def test_signoff_says_how_it_ended() -> None:
    ends = []
    for script in ([call("finish_task", summary="No.", outcome="blocked")], ["a", "b", "c"]):
        ends.append(LOOPS[SIGNOFF](ScriptedModel(script), iterations.TOOLS, "Do it.", "simple", 3).ended)
    assert ends == ["finish_task (blocked)", "3 turns"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.words)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_file_task_is_not_right_by_itself(task: FileTask, loop: str, tmp_path: Path) -> None:
    finish = [call("finish_task", summary="x")] if loop == SIGNOFF else ["Done."]
    found = run_task(loop, ScriptedModel(finish), task, tmp_path)
    assert (found.right, found.turns) == (False, 1)


RIGHT: dict[str, list[object]] = {
    "Set the retries": [call("edit_file", path="settings.ini", old="retries = 2", new="retries = 5")],
    "Create a file": [call("write_file", path="notes.txt", content="buy milk\n")],
    "Correct the spelling": [call("edit_file", path="letter.txt", old="recieve", new="receive")],
    "Rename the function": [
        call("edit_file", path="cart.py", old="def total(", new="def total_price("),
        call("edit_file", path="shop.py", old="import total", new="import total_price"),
        call("edit_file", path="shop.py", old="total([1, 2])", new="total_price([1, 2])"),
    ],
    "Add a function": [
        call(
            "write_file",
            path="maths.py",
            content="def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n",
        )
    ],
}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.words)
def test_a_file_task_can_be_done_right(task: FileTask, tmp_path: Path) -> None:
    steps = next(steps for words, steps in RIGHT.items() if task.words.startswith(words))
    model: BaseChatModel = ScriptedModel([*steps, call("finish_task", summary="x")])  # type: ignore[list-item]  # as above
    assert run_task(SIGNOFF, model, task, tmp_path).right is True


@pytest.mark.thorough
def test_it_runs_as_a_file_and_says_that_the_model_is_simulated() -> None:
    command = [sys.executable, "benchmarks/iterations.py", "--latency", "0"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for words in ("SIMULATED", "71% fewer turns", "8.7", "real (qwen", "recorded"):
        assert words in shown


@pytest.mark.thorough
def test_the_json_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    iterations.main(latency=0, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert "SIMULATED" in found["simulated"]["note"]
    assert found["real"]["recorded"]
    assert [row["tasks"] for row in found["real"]["rows"]] == [5, 5]


def test_the_real_runs_are_recorded_whole() -> None:
    _, runs = iterations.recorded()
    assert [(run.loop, run.task) for run in runs] == [(loop, task.words) for task in TASKS for loop in LOOPS]
    assert all(0 < run.turns <= TURNS for run in runs)


def test_the_docs_quote_both_tables() -> None:
    page = (ROOT / "docs" / "benchmarks" / "index.md").read_text()
    _, runs = iterations.recorded()
    quoted = [*rows(simulated(0), PRICES)[-2:], *rows(runs, PRICES)]
    for row in quoted:
        assert f"| {row.loop.partition(': ')[2]} | {row.turns:.1f} | {row.tokens:,.0f} |" in page
