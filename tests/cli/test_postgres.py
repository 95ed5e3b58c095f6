"""The command line on a PostgreSQL database: as on a file, and the password is never printed."""

import json
from pathlib import Path

import pytest

from signoff.storage.postgres import postgres_storage
from tests.support.benches.cli import PROGRAM, Bench, offered, one_sentence, steps
from tests.support.servers.postgres import PASSWORD, USER

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'


@pytest.fixture(params=["with its password", "and PGPASSWORD"])
def bench(tmp_path: Path, postgres_url: str, request: pytest.FixtureRequest) -> Bench:
    """The environment names the database: with its password, or beside PGPASSWORD."""
    bench = Bench(tmp_path)
    if request.param == "with its password":
        bench.env["SIGNOFF_DATABASE"] = postgres_url
    else:
        bench.env |= {"SIGNOFF_DATABASE": postgres_url.replace(f":{PASSWORD}", ""), "PGPASSWORD": PASSWORD}
    return bench


@pytest.mark.sample(1)
def test_run_show_threads_and_resume(bench: Bench) -> None:
    asked = bench.run()
    assert (asked.exit_code, asked.stderr) == (4, "")
    (row,) = json.loads(bench("threads", "--json").stdout)
    assert (row["thread_id"], row["status"], row["what"]) == ("t1", "waiting", "Which port?")
    shown = bench("show", "t1")
    assert "call_llm → route_tools → execute → decide" in shown.stdout
    words = offered(asked.stdout)["Answer"]
    assert words == offered(shown.stdout)["Answer"] == ["resume", "t1", "your answer"]
    ended = bench(*words[:-1], "8080")
    assert (ended.exit_code, bench.config.read_text()) == (0, "PORT = 8080\n")
    again = bench("run", "And more", "-t", "t1")
    assert again.exit_code == 0
    assert [len(task["turns"]) for task in bench.json("show", "t1")["tasks"]] == [4, 1]
    told = [result.output for result in (asked, shown, ended, again, bench("threads"))]
    assert not [out for out in told if PASSWORD in out]


@pytest.mark.sample(1)
def test_a_process_that_is_asked_to_pause(bench: Bench) -> None:
    pause = [*PROGRAM, "pause", "t1"]
    bench.model(steps(f"lambda m: (__import__('subprocess').run({pause!r}, check=True), {LOOK})[1]", DONE))
    stopped = bench.run()
    assert stopped.exit_code == 4
    one_sentence(bench("pause", "t1"), "'t1' is not running")
    assert bench(*offered(stopped.stdout)["Go on"]).exit_code == 0


@pytest.mark.sample(1)
def test_one_runner_a_thread(bench: Bench, postgres_url: str) -> None:
    bench.run()
    with postgres_storage(postgres_url) as storage, storage.checkpointer.runner("t1"):
        one_sentence(bench("resume", "t1", "8080"), "'t1' is running elsewhere")
        assert bench.json("show", "t1")["status"] == "running"
    assert bench("resume", "t1", "8080").exit_code == 0


@pytest.mark.sample(1)
def test_fork_and_expire(bench: Bench) -> None:
    ask = 'call("ask_user", question="Which?", deadline_seconds=0.01, default_answer="blue")'
    bench.model(steps(LOOK, ask, 'lambda m: call("finish_task", summary=m[-1].text)'))
    bench.run()
    assert bench("fork", "t1", "--at", "1", "--to", "copy").exit_code == 0
    (found,) = json.loads(bench("threads", "--expire", "--json").stdout)
    assert (found["thread_id"], found["answer"]) == ("t1", "blue")
    assert bench.json("resume", "t1")["outcome"]["summary"] == "blue"
    assert bench.json("resume", "copy")["question"]["question"] == "Which?"


@pytest.mark.parametrize("form", ["url", "query"])
@pytest.mark.sample(1)
def test_the_printed_commands_name_the_address_without_the_password(
    bench: Bench, postgres_url: str, form: str
) -> None:
    bare = postgres_url.replace(f":{PASSWORD}", "")
    given = postgres_url if form == "url" else f"{bare}?password={PASSWORD}&connect_timeout=9"
    asked = bench("run", "x", "-t", "t1", "-w", str(bench.workspace), "--database", given)
    assert PASSWORD not in asked.output
    words = offered(asked.stdout)["Answer"]
    expected = bare if form == "url" else f"{bare}?connect_timeout=9"
    assert words[:3] == ["resume", "--database", expected]
    assert bench(*words, PGPASSWORD=PASSWORD).exit_code == 0


UNUSABLE = {
    "nobody there": "postgresql://me:{}@127.0.0.1:1/x",
    "wrong password": "postgresql://{user}:{}@{place}",
    "no address": "postgresql://[me:{}@h/x",
    "a password with a slash": "postgresql://me:{}/@127.0.0.1:1/x",
    "a password with an at": "postgresql://me:{}@@127.0.0.1:1/x",
    "a password in the query": "postgresql://127.0.0.1:1/x?password={}",
    "NUL": "postgresql://me:{}@127.0.0.1:1/x\0",
}


@pytest.mark.parametrize("command", [["run", "x"], ["threads"], ["show", "t1"], ["pause", "t1"]])
@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.sample(6)
def test_what_cannot_be_used_is_told_without_the_password(
    tmp_path: Path, postgres_url: str, case: str, command: list[str]
) -> None:
    url = UNUSABLE[case].format("s3cret-0ther", user=USER, place=postgres_url.rpartition("@")[2])
    result = Bench(tmp_path)(*command, "--database", url)
    one_sentence(result, "database")
    assert "s3cret" not in result.output
