"""`signoff replay`: a stored thread is decided again as it was; what would be decided otherwise is named."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from signoff import Session
from signoff.session.as_test import why_it_fails
from signoff.storage.sqlite import sqlite_storage, thread_lock
from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
SAME = "The same: Signoff "
GRAPH = """
from tests.incidents.player import graph_of, incidents

def graph():
    return graph_of(incidents()[{name!r}], (), None)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def looked(bench: Bench) -> Bench:
    """A bench with a thread that looked three times and finished."""
    bench.model(steps(LOOK, LOOK, LOOK, DONE))
    bench.run()
    return bench


@pytest.fixture
def answered(bench: Bench) -> Bench:
    """A bench with a thread that looked, asked, changed the file and finished."""
    bench.run("Change the port")
    bench("resume", "t1", "8080")
    return bench


def test_a_thread_is_decided_as_it_was_with_every_sort_of_step_in_it(bench: Bench) -> None:
    bench.run()
    assert bench("replay", "t1").stdout.startswith(SAME), "it waits for an answer"
    bench("resume", "t1", "8080")
    bench.run("And once more")
    result = bench("replay", "t1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(SAME)


@pytest.mark.parametrize(
    ("options", "turn", "what", "stored", "now"),
    [
        (
            ("--turns", "2"),
            1,
            "rule",
            "think → think: nothing else applies",
            "near_limit → remind: 1 of 2",
        ),
        (
            ("--turns", "1"),
            1,
            "rule",
            "think → think: nothing else applies",
            "turns → exhausted: 1 of 1",
        ),
        (("--tokens", "10"), 1, "rule", "think → think: nothing else applies", "tokens → exhausted: "),
        (("--approve", "read"), 1, "event", "work", "needs approval"),
    ],
)
def test_the_first_difference_is_shown_with_both_reasons(
    looked: Bench, options: tuple[str, ...], turn: int, what: str, stored: str, now: str
) -> None:
    result = looked("replay", "t1", *options)
    head, was, then, *_ = result.stdout.splitlines()
    assert result.exit_code == 1
    assert f" decides otherwise at turn {turn}, " in head
    assert f"stored: {what} {stored}" in was
    assert f"now: {what} {now}" in then
    document = looked.json("replay", "t1", *options)
    assert (document["differences"][0]["turn"], document["differences"][0]["stored"]) == (turn, stored)


def test_nothing_is_changed_and_nothing_runs(looked: Bench) -> None:
    def held() -> list[Any]:
        with sqlite_storage(looked.database) as storage:
            return [list(storage.checkpointer.list(None)), list(storage.store.search((), limit=1_000))]

    before = held()
    looked.config.unlink()
    assert looked("replay", "t1").exit_code == 0
    assert looked("replay", "t1", "--turns", "2").exit_code == 1
    assert held() == before


def test_a_model_that_is_gone_is_not_missed(looked: Bench) -> None:
    for file in looked.folder.glob("model*.py"):
        file.unlink()
    assert looked("replay", "t1").exit_code == 0


def test_bad_input_is_told_in_a_sentence(looked: Bench, tmp_path: Path) -> None:
    one_sentence(looked("replay", "nobody"), "There is no thread 'nobody'")
    one_sentence(looked("replay", "t1", "--database", str(tmp_path / "none.sqlite")), "There is no thread")
    one_sentence(looked("replay", "t1", "--graph", "nothing"), "package.module:graph")
    one_sentence(looked("replay", "t1", "--graph", "x:y", "--turns", "3"), "leave out --turns")
    one_sentence(looked("replay", "t1", "--redact", "a:b"), "add --to-test FILE")
    one_sentence(looked("replay", "t1", "--to-test", "/nowhere/test.py"), "Cannot write to /nowhere/test.py")
    assert "leave out --json" in looked("replay", "t1", "--to-test", "-", "--json").stderr
    with thread_lock(looked.database, "t1"):
        one_sentence(looked("replay", "t1"), "is running elsewhere")


def test_a_thread_of_another_program_is_decided_by_the_graph_that_is_named(
    bench: Bench, played_incidents: Path, tmp_path: Path
) -> None:
    name, file = "questions: answered", tmp_path / "graph.py"
    file.write_text(GRAPH.format(name=name))
    database = ("--database", str(shutil.copy(played_incidents, tmp_path)))
    one_sentence(bench("replay", name, *database), "not begun by the command line", "--graph")
    document = bench.json("replay", name, *database, "--graph", f"{file}:graph")
    assert document["decided"] > 3
    assert document["differences"] == []


TEAM = """\
from signoff import build_graph, delegate
from signoff.models import ScriptedModel, call

done = call("finish_task", summary="Done.")
think = call("think", thought="Hm.")

def team(turns, storage=None):
    child = build_graph(ScriptedModel([think, think, done]), limits={{"turns": turns}})
    model = ScriptedModel([call("child", task="go"), done])
    return build_graph(model, [delegate("child", child, description="Works.")], storage=storage)

graph = team({turns})
"""


def test_a_difference_below_is_shown_with_the_way_to_it(bench: Bench, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec(TEAM.format(turns=3), made)
    with sqlite_storage(bench.database) as storage:
        Session(made["team"](3, storage), "t").run("go")
    for turns, code, says in ((3, 0, "The same: "), (2, 1, "decides otherwise at child / turn 1, decide")):
        file = tmp_path / f"team_{turns}.py"
        file.write_text(TEAM.format(turns=turns))
        found = bench("replay", "t", "--graph", f"{file}:graph")
        assert (found.exit_code, says in found.stdout) == (code, True), found.output


def test_a_thread_with_delegates_becomes_a_test(bench: Bench, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec(TEAM.format(turns=3), made)
    with sqlite_storage(bench.database) as storage:
        Session(made["team"](3, storage), "t").run("go")
    (file := tmp_path / "team.py").write_text(TEAM.format(turns=3))
    found = bench("replay", "t", "--graph", f"{file}:graph", "--to-test", "-")
    assert found.exit_code == 0, found.output
    assert why_it_fails(found.stdout) == ""
    assert why_it_fails(found.stdout.replace("turns=3", "turns=2")) != ""


def test_a_thread_is_written_as_a_test_that_passes(answered: Bench, tmp_path: Path) -> None:
    file = tmp_path / "test_t1.py"
    result = answered("replay", "t1", "--to-test", str(file))
    assert (result.exit_code, result.stdout) == (
        0,
        f"Written to {file}; it passes. Look before you share it: it holds what was said and done.\n",
    )
    assert why_it_fails(file.read_text("utf-8")) == ""
    assert answered("replay", "t1", "--to-test", "-").stdout == file.read_text("utf-8")


def test_a_redaction_of_ones_own_is_named_like_a_graph(answered: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def redact(text):\n    return text.replace('config', 'secret')\n")
    written = answered("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact").stdout
    assert "config.py" not in written
    assert "secret.py" in written


@pytest.mark.parametrize(("body", "why"), [("return None", "returned None"), ("1 / 0", "ZeroDivisionError")])
def test_a_redaction_that_fails_is_told_in_a_sentence(
    answered: Bench, tmp_path: Path, body: str, why: str
) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"def redact(text):\n    {body}\n")
    result = answered("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact")
    one_sentence(result, "The redaction function", why)
