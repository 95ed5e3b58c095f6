"""The command line on PostgreSQL: as on a file, and threads that belong to the workers."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from signoff import postgres_storage
from signoff.workers import submit
from tests.support.benches.cli import Bench, offered, one_sentence, steps
from tests.support.benches.cli_steps import DONE
from tests.support.servers.postgres import PASSWORD
from tests.support.waiting import SECONDS, wait_until

pytestmark = pytest.mark.slow

EXPIRES = 'call("ask_user", question="?", deadline_seconds=0.01, default_answer="blue")'


@pytest.fixture
def bench(tmp_path: Path, postgres_url: str) -> Bench:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    return bench


def handed(bench: Bench, *words: str, task: str = "Change the port") -> None:
    """A task for the workers."""
    result = bench("run", "--submit", task, "-t", "t1", "-w", str(bench.workspace), *words)
    assert (result.exit_code, result.stderr) == (0, "")


def work(bench: Bench, *words: str) -> list[str]:
    """What a worker says that runs until nothing is left to begin."""
    result = bench("worker", "--until-idle", *words)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert PASSWORD not in result.stderr
    return result.stderr.splitlines()


def row(bench: Bench) -> dict[str, Any]:
    (thread,) = json.loads(bench("threads", "--json").stdout)["threads"]
    return dict(thread)


def figures(bench: Bench) -> tuple[int, ...]:
    shown = json.loads(bench("threads", "--json").stdout)["workers"]
    return tuple(shown[name] for name in ("waiting", "running", "ended", "failed"))


# A thread that no worker has: as on a file, and the password is never printed.


@pytest.mark.parametrize("way", ["beside PGPASSWORD", "in the query"])
def test_it_is_asked_shown_answered_and_ended(bench: Bench, postgres_url: str, way: str) -> None:
    bare = postgres_url.replace(f":{PASSWORD}", "")
    bench.env |= {"SIGNOFF_DATABASE": bare, "PGPASSWORD": PASSWORD}
    named = ["--database", f"{bare}?password={PASSWORD}&connect_timeout=9"]
    options = named if way == "in the query" else []
    asked = bench.run("Do it", *options)
    assert (asked.exit_code, asked.stderr) == (4, "")
    shown, listed = bench("show", *options, "t1"), bench("threads", *options)
    words = offered(asked.stdout)["Answer"]
    assert words == offered(shown.stdout)["Answer"]
    shown_as = ["--database", f"{bare}?connect_timeout=9"] if options else []
    assert words == ["resume", *shown_as, "t1", "your answer"]
    ended = bench(*words[:-1], "8080")
    assert (ended.exit_code, bench.config.read_text()) == (0, "PORT = 8080\n")
    assert PASSWORD not in "".join(result.output for result in (asked, shown, listed, ended))


# Threads of the workers.


def test_workers_need_postgresql(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for words in (["run", "--submit", "x"], ["worker"]):
        unreachable = bench(*words, "--database", "postgresql://me:s3cret@127.0.0.1:1/x")
        one_sentence(unreachable, "database")
        assert "s3cret" not in unreachable.stderr
        one_sentence(bench(*words), "postgresql://", "--database", str(bench.database))


def test_a_task_is_submitted_worked_on_answered_from_anywhere_and_finished(bench: Bench) -> None:
    submitted = bench("run", "--submit", "Change the port", "-t", "t1", "-w", str(bench.workspace))
    assert offered(submitted.stdout) == {"Look": ["threads"]}
    assert (row(bench)["status"], row(bench)["task"]) == ("queued", "Change the port")
    assert figures(bench) == (1, 0, 0, 0)
    for words in (["resume", "t1", "8080"], ["show", "t1"]):
        one_sentence(bench(*words), "'t1'", "not begun")
    assert [line.split(" ", 2)[2] for line in work(bench)[1:]] == [
        "t1: begun",
        "t1: waits for answer",
        "ended",
    ]
    assert (row(bench)["status"], row(bench)["what"]) == ("waiting", "Which port?")
    one_sentence(bench("run", "--submit", "More", "-t", "t1"), "t1 'your answer'")
    one_sentence(bench("run", "More", "-t", "t1"), "--submit --thread t1")
    one_sentence(bench("resume", "t1", "3"), "option")
    assert bench("resume", "t1").exit_code == 4
    answered = bench.json("resume", "t1", "8080")
    assert (answered["status"], answered["exit_code"]) == ("queued", 0)
    assert bench.config.read_text() == "PORT = 3000\n"
    one_sentence(bench("resume", "t1", "9090"), "'t1'")
    work(bench)
    assert (row(bench)["status"], bench.config.read_text()) == ("success", "PORT = 8080\n")
    assert PASSWORD not in submitted.output + bench("threads").output
    assert figures(bench) == (0, 0, 2, 0)


GRAPHS = """
from signoff import build_graph
from signoff.models import ScriptedModel, call

def step(messages):
    return call("finish_task", summary="Mine.")

def mine(storage):
    return build_graph(ScriptedModel(step), storage=storage)

"""


def test_a_graph_of_ones_own_has_its_queue(bench: Bench, postgres_url: str) -> None:
    (bench.folder / "own.py").write_text(GRAPHS)
    own = str(bench.folder / "own.py:mine")
    with postgres_storage(postgres_url) as storage:
        submit(storage, "one", "t1", queue="own:mine")
    work(bench)
    assert row(bench)["status"] == "queued"
    work(bench, own)
    assert (row(bench)["status"], row(bench)["turns"]) == ("success", 1)
    one_sentence(bench("run", "--submit", "two", "-t", "t1", "--model", "x"), "'own:mine'")
    one_sentence(bench("worker", str(bench.folder / "own.py:nothing")), "nothing")


WAITS = """
import os, time
def wait(messages):
    with open({mark!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(0.2)
    return call("search_files", pattern=str(len(messages)))
"""


def test_a_signal_drains_a_worker_and_another_one_goes_on(bench: Bench) -> None:
    asked = bench.folder / "asked"
    asked.touch()
    model = Path(bench.model(steps(*["wait"] * 6, DONE)).removeprefix("scripted:"))
    model.write_text(WAITS.format(mark=str(asked)) + model.read_text())
    handed(bench)
    with bench.start("worker", "--heartbeat", "1") as process:
        wait_until(lambda: len(asked.read_text().split()) >= 2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, row(bench)["status"]) == (0, "", "queued")
    work(bench)
    assert (row(bench)["status"], row(bench)["turns"]) == ("success", 7)
    processes = asked.read_text().split()
    # A reply that is still coming in is closed, and asked for again.
    assert (len(processes) in (6, 7), len(set(processes))) == (True, 2)
