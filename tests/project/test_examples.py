"""The examples run, and print what they say."""

import json
import os
import re
import runpy
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.prepared import PreparedPython, run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PRINTED = {
    "quickstart.py": "19 + 23 is 42.\nsuccess\n",
    "resume.py": "Which colour?\nThe door is blue.\n",
    "approval.py": "{'order': 7, 'amount': 250}\nPaid back.\n",
    "driver.py": """I look at what is here.
$ echo hello > note.txt; ls *.txt
note.txt
There is a note.
Shall I read it? yes
$ cat note.txt
hello
success - The note says hello.
""",
    "tagged.py": """error - NameError: name 'is_prime' is not defined - Debugging
success - 1060 - Checking
success - The primes below 100 sum up to 1060.

Approach: brute force
""",
    "rounds.py": """think(Look all prices up, then add them.)
price(apples) price(cherries) price(pears)
think(There are no cherries; I take plums in their place.)
price(plums)
finish_task(A kilo of each costs 3 + 5 + 4 = 12.)
success
""",
    "within.py": "Graz, 2.5 hours\nplanner: Graz it is.\n",
    "engine.py": "invoice-7 ended\ninvoice-7 ended\npaid [50]\n",
    "pause.py": "Paused\n1 of 3 turns\nsuccess after 3\n",
    "fork.py": """Both doors are blue.
One door is blue, one is red.
['The front door is blue.', 'The back door is blue.']
['The front door is blue.', 'The back door is red.']
""",
}


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, tmp_path: Path) -> None:
    words = ["-W", "error", str(ROOT / "examples" / name)]
    if name == "quickstart.py":
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    else:
        done = run_python(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED[name], "")


def test_every_example_is_run() -> None:
    # `tests/benchmarks/test_demo.py` runs the check of the demo, `tests/session/test_web.py` the server.
    found = {path.name for path in (ROOT / "examples").glob("*.py")} - {"demo_check.py", "web.py"}
    assert found == set(PRINTED)


@pytest.mark.parametrize("name", ["quickstart.py", "resume.py", "approval.py"])
def test_the_readme_shows_the_example_as_it_is(name: str) -> None:
    code = (ROOT / "examples" / name).read_text().split("\n\n", 1)[1]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code in blocks


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """As of a shell in which no environment is active; pytest starts without plugins, which is quicker."""
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(tmp_path)}


def test_the_coding_agent_has_finished_when_the_suite_passes(tmp_path: Path, shell: dict[str, str]) -> None:
    before = {path.name: path.read_bytes() for path in (EXAMPLES / "coding" / "project").glob("*.*")}
    done = run_python(str(EXAMPLES / "coding" / "agent.py"), cwd=tmp_path, env=shell)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith(("finish_task:", "success"))] == [
        "finish_task: Refused: the completion checks did not pass: the_suite_passes. Put it right, then call "
        "finish_task again.",
        "success, verified, refusals 1: Fixed the discount, the limit of free shipping, and cents below ten.",
    ]
    assert any(line.startswith("1 failed, 4 passed") for line in said)
    fixed = Path(said[-1].removeprefix("The fixed project: "))
    assert "{cents % 100:02}" in (fixed / "prices.py").read_text()
    assert before == {path.name: path.read_bytes() for path in (EXAMPLES / "coding" / "project").glob("*.*")}


def test_a_coding_agent_that_changes_the_tests_gains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    copied = shutil.copytree(EXAMPLES / "coding" / "project", tmp_path / "project")
    (copied / "test_prices.py").write_text("def test_nothing() -> None:\n    pass\n")
    suite_check = runpy.run_path(str(EXAMPLES / "coding" / "agent.py"))["suite_check"]
    assert "3 failed, 2 passed" in suite_check(copied)({})


def test_the_bugs_are_found_by_tests_in_the_terminal(tmp_path: Path, shell: dict[str, str]) -> None:
    sample, database = tmp_path / "coding", str(tmp_path / "threads.sqlite")
    shutil.copytree(EXAMPLES / "coding", sample, ignore=shutil.ignore_patterns("__pycache__"))

    def signoff(*words: str) -> dict[str, Any]:
        command = ["-m", "signoff.cli", *words, "--json", "--database", database]
        done = run_python(*command, cwd=sample, env=shell)
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    check = f"{shlex.quote(sys.executable)} -B -m pytest -q"
    options = ("--model", "scripted:agent.py", "--workspace", "project", "--check", check)
    ended = signoff("run", "Fix what the tests find", *options)
    assert "(100 - discount)" in (sample / "project" / "prices.py").read_text()
    (told,) = signoff("show", ended["thread_id"])["tasks"]
    calls = [event for turn in told["turns"] for event in turn["events"] if event["kind"] == "call"]
    in_the_terminal = [entry["result"] for entry in calls if entry["name"] == "run_shell"]
    for parts, result in zip(TERMINAL, in_the_terminal, strict=True):
        assert [part for part in parts if part not in result] == []


TERMINAL = [("assert 1200 == 800", "3 failed, 2 passed", "[exit code 1; "), ("5 passed", "[exit code 0; ")]
REPORT = """Refused: the completion checks did not pass: every_quote_is_there. Put it right, then call finish_task again.

every_quote_is_there failed:
survey.txt does not say 'The cliff loses about 12 cm every year'. Read it, and quote it exactly.

success, verified: About 2111.
1. The council acts once fewer than 20 metres are left.
   council.txt: “It decided to move nothing before the distance between the tower and the edge falls below 20 metres”
2. The 11 metres above that last about 92 years, until 2111.
   survey.txt: “31 metres were left between its foot and the edge in 2019”
   survey.txt: “The cliff below the lighthouse of Kap Arn loses 12 centimetres a year”
"""  # noqa: E501  # as it is printed


def test_the_research_agent_quotes_what_is_there(tmp_path: Path) -> None:
    done = run_python("-W", "error", str(EXAMPLES / "research" / "agent.py"), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, REPORT, "")


ASKED = """writer wants send_letter:
  to: council
  text: Dear council, the tower has about 92 years left before fewer than 20 metres remain.
Say --approve, or --reject WHY.
"""


@pytest.mark.parametrize(
    ("answer", "told", "sent"),
    [
        (["--approve"], "success, done: The council has until about 2111; the letter tells it so.\n", True),
        (
            ["--reject", "Too early"],
            "success, partial: The council has until about 2111; it was not told.\n",
            False,
        ),
    ],
)
def test_the_team_sends_nothing_before_a_person_has_approved_it(
    tmp_path: Path, answer: list[str], told: str, sent: bool
) -> None:
    team = str(EXAMPLES / "team" / "agent.py")
    for _ in range(2):
        done = run_python("-W", "error", team, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, ASKED, "")
        assert not (tmp_path / "outbox").exists()
    done = run_python("-W", "error", team, *answer, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(told)
    assert done.stdout.endswith("3 delegates, 9 turns of all together\n")
    assert (tmp_path / "outbox" / "council.txt").exists() == sent
    # Once more, in the same thread: it begins anew.
    assert run_python("-W", "error", team, cwd=tmp_path).stdout == ASKED


@pytest.mark.parametrize(
    ("document", "quote", "wrong"),
    [
        ("survey.txt", "the tower\n  stands, 31 metres were left", None),
        ("survey.txt", "the tower stands, 32 metres were left", "survey.txt does not say"),
        ("council.txt", "the tower stands, 31 metres were left", "council.txt does not say"),
        ("../agent.py", "from signoff.models import ScriptedModel", "There is no document '../agent.py'"),
    ],
)
def test_a_citation_holds_when_its_document_says_it(document: str, quote: str, wrong: str | None) -> None:
    agent = runpy.run_path(str(EXAMPLES / "research" / "agent.py"))
    cited = {"text": "It stands.", "citations": [{"document": document, "quote": quote}]}
    said = agent["citations_check"](agent["DOCUMENTS"])({"result": {"statements": [cited]}})
    assert said is True if wrong is None else wrong in said


@contextmanager
def service(folder: Path) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(EXAMPLES / "support" / "service.py")
    server = PreparedPython([program, "--port", str(port)], cwd=folder)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            for _ in range(300):
                assert server.poll() is None, "the server has ended"
                with suppress(httpx.ConnectError):
                    client.get("/")
                    break
                time.sleep(0.1)
            yield client
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


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
        assert client.post(one, json="approve").json()["summary"] == "Refunded 45.00 for order 7."
        assert (client.post(one, json="approve").status_code, refunds()) == (409, [(7, 4500)])
        assert "He has sat on it." in client.post(two, json="reject: He has sat on it.").json()["summary"]
        # The same thread again: nothing of what was paid is left to refund.
        again = client.post("/threads/t1", json={"task": "And order 7 again?"}).json()
        ended = client.post(f"/threads/t1/waits/{again['interrupt_id']}", json="approve").json()
        assert ("not yet refunded" in ended["summary"], refunds()) == (True, [(7, 4500)])
