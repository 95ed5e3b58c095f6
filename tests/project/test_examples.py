"""The examples run, and print what they say."""

import re
import runpy
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from signoff import Session, sqlite_storage
from signoff.models import ScriptedModel
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


# The coding agent runs the tests of its project, again and again, each time in a process of its own.
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.thorough] * one.startswith("coding")) for one in PRINTED]
)
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


def test_a_coding_agent_that_changes_the_tests_gains_nothing(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "coding" / "project", tmp_path / "project")
    (project / "test_prices.py").write_text("def test_nothing() -> None: pass\n")
    suite_check = runpy.run_path(str(EXAMPLES / "coding" / "agent.py"))["suite_check"]
    assert "3 failed, 2 passed" in suite_check(project)({})


def test_the_team_sends_nothing_before_a_person_has_approved_it(tmp_path: Path) -> None:
    team, sent = EXAMPLES / "team" / "agent.py", tmp_path / "outbox" / "council.txt"
    for answer, claim, is_sent in (("--reject", "partial", False), ("--approve", "done", True)):
        assert "writer wants send_letter" in run_program(team, folder=tmp_path)
        assert not sent.exists()
        words = [answer, *["Too early"] * (not is_sent)]
        assert run_program(team, *words, folder=tmp_path).startswith(f"success, {claim}")
        assert sent.exists() is is_sent


def test_the_support_agent_refunds_once_and_what_was_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How its service answers, stops and starts again is in `tests/door/test_service.py`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES / "support"))
    service = runpy.run_path(str(EXAMPLES / "support" / "service.py"))
    with sqlite_storage("threads.sqlite") as storage:
        session = Session(service["make_graph"](ScriptedModel(service["script"]), storage), "t1")
        for task in ("Order 7 came broken.", "And order 7 again?"):
            session.run(task)
            (wait,) = session.status().waits
            assert wait.document()["action_requests"][0]["args"] == {"number": 7, "cents": 4500}
            session.resume("approve", wait.interrupt_id)
    with closing(sqlite3.connect("orders.sqlite")) as db:
        assert db.execute("SELECT number, cents FROM refunds").fetchall() == [(7, 4500)]
