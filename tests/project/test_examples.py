"""The examples run, and print what they say."""

import re
import runpy
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.programs import run_program
from tests.support.sources import REPOSITORY

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"
PRINTED = {
    "quickstart.py": ["19 + 23 is 42.", "success"],
    "resume.py": ["Which colour?", "The door is blue."],
    "approval.py": ["{'order': 7, 'amount': 250}", "Paid back."],
    "driver.py": ["I look at what is here.", "There is a note.", "success - The note says hello."],
    "tagged.py": ["success - 1060 - Checking", "success - The primes below 100 sum up to 1060."],
    "rounds.py": ["finish_task(A kilo of each costs 3 + 5 + 4 = 12.)", "success"],
    "within.py": ["Graz, 2.5 hours", "planner: Graz it is."],
    "engine.py": ["invoice-7 ended", "paid [50]"],
    "pause.py": ["Paused", "1 of 3 turns", "success after 3"],
    "fork.py": ["One door is blue, one is red.", "['The front door is blue.', 'The back door is red.']"],
    "coding/agent.py": ["1 failed, 4 passed", "success, verified, refusals 1", "cents below ten."],
    "research/agent.py": ["success, verified: About 2111.", "1. The council acts once fewer than 20 metres"],
}
# Of programs that only a person runs: `tests/benchmarks/test_demo.py` and `tests/session/` start them.
ELSEWHERE = {"demo_check.py", "web.py"}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a shell in which no environment is active."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    # pytest starts without plugins, which is quicker.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_its_model_says(name: str, tmp_path: Path) -> None:
    printed = run_program(EXAMPLES / name, folder=tmp_path)
    places = [printed.find(words) for words in PRINTED[name]]
    assert -1 not in places, printed
    assert places == sorted(places)


def test_every_example_is_run() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")} - ELSEWHERE
    assert files == {name for name in PRINTED if "/" not in name}


@pytest.mark.parametrize("name", ["quickstart.py", "resume.py", "approval.py"])
def test_the_readme_shows_the_example_as_it_is(name: str) -> None:
    code = (EXAMPLES / name).read_text().split("\n\n", 1)[1]
    assert code in re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)


def test_an_example_runs_as_a_program_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "quickstart.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "19 + 23 is 42.\nsuccess\n", "")


def test_a_coding_agent_that_changes_the_tests_gains_nothing(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "coding" / "project", tmp_path / "project")
    (project / "test_prices.py").write_text("def test_nothing() -> None: pass\n")
    suite_check = runpy.run_path(str(EXAMPLES / "coding" / "agent.py"))["suite_check"]
    assert "3 failed, 2 passed" in suite_check(project)({})


@pytest.mark.parametrize(
    ("answer", "claim", "sent"),
    [(["--approve"], "done", True), (["--reject", "Too early"], "partial", False)],
)
def test_the_team_sends_nothing_before_a_person_has_approved_it(
    answer: list[str], claim: str, sent: bool, tmp_path: Path
) -> None:
    team = EXAMPLES / "team" / "agent.py"
    asked = run_program(team, folder=tmp_path)
    assert "writer wants send_letter" in asked
    assert not (tmp_path / "outbox").exists()
    assert run_program(team, *answer, folder=tmp_path).startswith(f"success, {claim}")
    assert (tmp_path / "outbox" / "council.txt").exists() == sent
    # Once more, in the same thread: it begins anew.
    assert run_program(team, folder=tmp_path) == asked


@contextmanager
def service(folder: Path) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(EXAMPLES / "support" / "service.py")
    server = subprocess.Popen([sys.executable, program, "--port", str(port)], cwd=folder)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(600):
                assert server.poll() is None, "the server has ended"
                with suppress(httpx.ConnectError):
                    client.get("/")
                    break
                time.sleep(0.1)
            yield client
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def test_the_support_agent_refunds_once_and_what_was_approved(tmp_path: Path) -> None:
    def refunds() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(tmp_path / "orders.sqlite")) as db:
            return db.execute("SELECT number, cents FROM refunds").fetchall()

    with service(tmp_path) as client:
        for thread, task in (("t1", "Order 7 came broken."), ("t2", "Order 8 is too big.")):
            assert client.post(f"/threads/{thread}", json={"task": task}).json()["type"] == "approval"
    # The service is started again: what waits lies in its database.
    with service(tmp_path) as client:
        waits = {wait["thread"]: wait for wait in client.get("/waiting").json()}
        assert waits["t1"]["action_requests"][0]["args"] == {"number": 7, "cents": 4500}
        assert refunds() == []
        one, two = (f"/threads/{name}/waits/{waits[name]['interrupt_id']}" for name in ("t1", "t2"))
        assert client.post(one, json="maybe").status_code == 422
        assert client.post(one.replace("t1", "t2"), json="approve").status_code == 409
        assert client.post(one, json="approve").status_code == 200
        assert (client.post(one, json="approve").status_code, refunds()) == (409, [(7, 4500)])
        assert "He has sat on it." in client.post(two, json="reject: He has sat on it.").json()["summary"]
        # The same thread again: nothing of what was paid is left to refund.
        again = client.post("/threads/t1", json={"task": "And order 7 again?"}).json()
        assert client.post(f"/threads/t1/waits/{again['interrupt_id']}", json="approve").status_code == 200
        assert refunds() == [(7, 4500)]
