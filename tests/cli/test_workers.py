"""`signoff submit`, `signoff worker`, and the other commands on threads that belong to the workers."""

import json
from pathlib import Path

import pytest

from signoff.storage.postgres import postgres_storage
from signoff.workers import submit
from signoff.workers.inbox import read_inbox
from tests.support.benches.cli import ASKS, Bench, offered, one_sentence, steps
from tests.support.benches.cli_workers import handed, row, work
from tests.support.servers.postgres import PASSWORD

GRAPHS = """
import time
from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

def work() -> str:
    "Work."
    return "worked"

def step(messages):
    return call("work") if len(messages) < 3 else call("finish_task", summary="Mine.")

def mine(storage):
    return build_graph(ScriptedModel(step), [work], storage=storage)

def broken(storage):
    raise RuntimeError("no")

def none(storage):
    return 7

def elsewhere(storage):
    return build_graph(ScriptedModel(step), [work])

made = build_graph(ScriptedModel([]))
"""


@pytest.fixture
def bench(tmp_path: Path, postgres_url: str) -> Bench:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    return bench


@pytest.mark.parametrize("words", [["submit", "x"], ["worker"]])
@pytest.mark.parametrize("where", ["a file", "nothing"])
def test_workers_need_postgresql(tmp_path: Path, words: list[str], where: str) -> None:
    bench = Bench(tmp_path)
    if where == "nothing":
        bench.env["SIGNOFF_DATABASE"] = None
    result = bench(*words)
    one_sentence(result, "PostgreSQL database", "postgresql://user@host:5432/database (--database")
    assert ("is a SQLite file" in result.stderr) is (where == "a file")


@pytest.mark.parametrize("words", [["submit", "x"], ["worker"]])
def test_a_server_that_is_not_there(tmp_path: Path, words: list[str]) -> None:
    one_sentence(Bench(tmp_path)(*words, "-d", "postgresql://me@127.0.0.1:1/x"), "cannot be reached")


@pytest.mark.slow
def test_submitted_worked_on_answered_from_anywhere_and_finished(bench: Bench) -> None:
    submitted = bench("submit", "Change the port", "-t", "t1", "-w", str(bench.workspace))
    assert (submitted.exit_code, submitted.stderr) == (0, "")
    assert submitted.stdout.splitlines()[0] == "Submitted to the workers:"
    assert offered(submitted.stdout) == {"Look": ["threads"]}
    assert (row(bench)["status"], row(bench)["task"]) == ("queued", "Change the port")
    one_sentence(bench("resume", "t1", "8080"), "has not begun; there is nothing to answer")
    lines = work(bench).splitlines()
    assert [line.split(" ", 2)[2] for line in lines[1:]] == ["t1: begun", "t1: waits for answer", "ended"]
    assert (row(bench)["status"], row(bench)["what"]) == ("waiting", "Which port?")
    one_sentence(bench("submit", "More", "-t", "t1"), "t1 'your answer'")
    one_sentence(bench("run", "More", "-t", "t1"), "belongs to the workers", "submit --thread t1")
    assert bench("resume", "t1").exit_code == 4
    answered = bench.json("resume", "t1", "8080")
    assert (answered["status"], answered["exit_code"]) == ("queued", 0)
    assert bench.config.read_text() == "PORT = 3000\n"
    one_sentence(bench("resume", "t1", "9090"), "has already been told how to go on")
    work(bench)
    assert (row(bench)["status"], bench.config.read_text()) == ("success", "PORT = 8080\n")
    handed(bench, "And more")
    work(bench)
    assert [len(task["turns"]) for task in bench.json("show", "t1")["tasks"]] == [4, 1]
    told = [result.output for result in (submitted, bench("threads"))]
    assert not [out for out in [*told, "\n".join(lines)] if PASSWORD in out]


@pytest.mark.slow
def test_an_approval_that_does_not_fit_changes_nothing(bench: Bench) -> None:
    write = 'call("write_file", path="x", content="y")'
    bench.model(steps(write, 'call("finish_task", summary="Done.")'))
    handed(bench, "Write", "--approve", "write")
    work(bench)
    before = row(bench)
    one_sentence(bench("resume", "t1", "perhaps"), "perhaps")
    assert row(bench) == before
    assert bench("resume", "t1", bench.decide()).exit_code == 0
    work(bench)
    assert (row(bench)["status"], (bench.workspace / "x").read_text()) == ("success", "y")


@pytest.mark.slow
def test_after_a_limit_and_an_error_the_workers_go_on(bench: Bench) -> None:
    look = 'call("read_file", path="config.py")'
    bench.model(steps(look, look, 'call("finish_task", summary="Done.")'))
    handed(bench, "Look", "--turns", "1")
    work(bench)
    assert (row(bench)["status"], row(bench)["reason"]) == ("limit", "turns")
    one_sentence(bench("retry", "t1"), "has ended (limit, turns)")
    one_sentence(bench("undo", "t1"), "Workers do not undo", "Session(graph, thread_id).undo()")
    assert bench("extend", "t1", "1").exit_code == 0
    work(bench)
    assert (row(bench)["status"], row(bench)["turns"]) == ("limit", 2)
    bench.model("[RuntimeError('no')]")
    assert bench("extend", "t1", "1", "--model", str(bench.env["SIGNOFF_MODEL"])).exit_code == 0
    work(bench)
    assert row(bench)["status"] == "error"
    bench.model(steps(look, look, 'call("finish_task", summary="Done.")'))
    assert bench("retry", "t1", "--model", str(bench.env["SIGNOFF_MODEL"])).exit_code == 0
    work(bench)
    assert row(bench)["status"] == "success"
    one_sentence(bench("undo", "t1"), "Workers do not undo", "Session(graph, thread_id).undo()")


@pytest.mark.slow
def test_a_thread_that_cannot_be_run_here_says_why(bench: Bench) -> None:
    bench.model(ASKS)
    Path(str(bench.env["SIGNOFF_MODEL"]).removeprefix("scripted:")).unlink()
    handed(bench)
    assert "t1: failed, trying again in 2 s: SetupError: There is no file" in work(bench)
    assert row(bench)["status"] == "queued"


@pytest.mark.slow
def test_pause_and_go_on(bench: Bench) -> None:
    handed(bench)
    assert bench("pause", "t1").exit_code == 0
    assert row(bench)["status"] == "paused"
    work(bench)
    assert (row(bench)["status"], row(bench)["turns"]) == ("paused", 0)
    assert bench("resume", "t1").exit_code == 0
    work(bench)
    assert row(bench)["status"] == "waiting"


@pytest.mark.slow
def test_an_expired_question_goes_on_by_itself(bench: Bench) -> None:
    ask = 'call("ask_user", question="Which?", deadline_seconds=0.01, default_answer="blue")'
    bench.model(steps(ask, 'call("finish_task", summary="Done.")'))
    handed(bench)
    work(bench)
    (found,) = json.loads(bench("threads", "--expire", "--json").stdout)
    assert found["answer"] == "blue"
    work(bench)
    assert row(bench)["status"] == "success"


@pytest.mark.slow
def test_backlog_and_throughput(bench: Bench) -> None:
    assert json.loads(bench("threads", "--json").stdout) == []
    handed(bench)
    figures = json.loads(bench("threads", "--json").stdout)["workers"]
    assert (figures["waiting"], figures["running"], figures["failed"]) == (1, 0, 0)
    assert "0 workers: 1 waiting (the oldest for " in bench("threads").stdout
    work(bench)
    line = bench("threads").stdout.splitlines()[-1]
    assert line == (
        "0 workers: 0 waiting, 0 running, 0 stalled, 0 failed; 1 a minute ended, 1 in the last hour"
    )


@pytest.mark.slow
def test_a_graph_of_ones_own(bench: Bench, postgres_url: str) -> None:
    (bench.folder / "own.py").write_text(GRAPHS)
    own = str(bench.folder / "own.py:mine")
    with postgres_storage(postgres_url) as storage:
        submit(storage, "one", "t1", queue="own:mine")
        submit(storage, "one", "t2", queue="elsewhere")
        work(bench)
        work(bench, own)
        work(bench, own, "--queue", "elsewhere")
    found = json.loads(bench("threads", "--json").stdout)["threads"]
    assert {(item["thread_id"], item["status"], item["turns"]) for item in found} == {
        ("t1", "success", 2),
        ("t2", "success", 2),
    }
    assert bench("submit", "two", "-t", "t1").exit_code == 0
    one_sentence(bench("submit", "two", "-t", "t1", "--model", "x"), "runs a graph of its own")
    work(bench, own)
    assert len(bench.json("show", "t1")["tasks"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "has no 'nothing'"),
        ("made", "is not a function; name one that takes the storage"),
        ("broken", "could not be loaded (RuntimeError: no)"),
        ("none", "returned int, not a graph"),
        ("elsewhere", "stores its threads elsewhere; build it with the storage"),
    ],
)
def test_a_graph_that_cannot_be_used(bench: Bench, name: str, why: str) -> None:
    (bench.folder / "own.py").write_text(GRAPHS)
    one_sentence(bench("worker", str(bench.folder / f"own.py:{name}")), why)


@pytest.mark.slow
def test_settings_are_remembered_and_a_refused_task_leaves_them(bench: Bench, postgres_url: str) -> None:
    handed(bench, "Change the port", "--turns", "7")
    one_sentence(bench("submit", " ", "-t", "t1", "--turns", "9"), "The task is empty")
    work(bench)
    assert bench("resume", "t1", "8080", "--talk-turns", "2").exit_code == 0
    with postgres_storage(postgres_url) as storage:
        item = storage.store.get(("signoff", "threads", "t1"), "settings")
        inbox = read_inbox(storage.store, "t1")
    assert item is not None
    assert inbox is not None
    assert (item.value["turns"], item.value["talk_turns"], len(inbox.orders)) == (7, 2, 1)
