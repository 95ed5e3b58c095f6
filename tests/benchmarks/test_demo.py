"""The demo: its check sees what is wrong, its cards say what was seen, its worked examples claim no more."""

import random
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import demo
from signoff.models.local import WORKED_EXAMPLES
from signoff.models.local.install import model_info
from tests.support.sources import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "demo_check.py"
CHECK = runpy.run_path(str(SCRIPT))
PORT = 18_123


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def copied(folder: Path, port: int) -> Path:
    """The sample, as it is when the task is done."""
    copy = folder / "project"
    copy.mkdir(exist_ok=True)
    for file in CHECK["ORIGINAL"].iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    change(copy / "config.py", "PORT = 3000", f"PORT = {port}")
    return copy


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "the port as text": (lambda f: change(f / "config.py", str(PORT), f"'{PORT}'"), f"PORT is '{PORT}'"),
    "a line of comment": (lambda f: change(f / "config.py", "DEBUG", "# Off.\nDEBUG"), "+# Off."),
    "another file": (lambda f: change(f / "app.py", "small", "big"), "app.py"),
    "a file more": (lambda f: (f / "notes.md").write_text("x"), "notes.md"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_the_check_names_what_is_wrong(case: str, tmp_path: Path) -> None:
    spoil, told = WRONG[case]
    copy = copied(tmp_path, PORT)
    spoil(copy)
    with pytest.raises(ValueError, match=re.escape(told)):
        CHECK["main"](PORT, copy)


@pytest.mark.slow
def test_the_check_runs_the_service_and_says_what_it_saw(tmp_path: Path) -> None:
    port = random.choice(range(20_000, 60_000))
    copy = copied(tmp_path, port)
    before = sorted(copy.iterdir())
    assert CHECK["main"](port, copy).startswith(f"PORT is {port}; app.py answers 'Hello'")
    assert sorted(copy.iterdir()) == before
    change(copy / "app.py", "import config", "import confg")
    with pytest.raises(ValueError, match="ModuleNotFoundError"):
        CHECK["answer"](port, copy, "127.0.0.1")


def test_only_the_demos_own_task_has_its_check() -> None:
    own, others = demo.command([f"PORT={PORT}"]), demo.command(["TASK=Say hello"])
    assert own[own.index("--check") + 1] == f"python ../../examples/demo_check.py {PORT}"
    assert "--check" not in others


EXAMPLES = re.findall(r"\[user\]\n.*?(?=\n\[user\]\n|\n</examples>)", WORKED_EXAMPLES, re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[1])
def test_no_worked_example_claims_what_no_tool_has_shown(example: str) -> None:
    before, _, after = example.rpartition('"summary": "')
    summary = after.partition('"}}')[0].replace('\\"', '"')
    named = set(re.findall(r"[\w.]*[\d_.\"][\w.\"]*\w|\b[A-Z]{2,}\b", summary))
    assert named, "it names something of the task"
    assert [word for word in named if word.strip('".') not in before.replace('\\"', '"')] == []
    assert not re.search(r"check|verif|test|nothing|no other|only|as they were|touched", summary, re.I)


def test_every_recorded_card_is_true_and_the_readme_quotes_them() -> None:
    runs = [one for one in demo.recorded() if one.port is not None]
    tasks = [one for one in demo.recorded() if one.port is None]
    assert len({one.port for one in runs}) == len(runs) == demo.RUNS
    assert [one.task for one in tasks] == list(demo.OWN)
    assert all(one.true for one in (*runs, *tasks))
    assert all(one.tone == "amber" and not demo.CLAIMS_A_CHECK.search(one.card) for one in tasks)
    green = sum(one.tone == "green" for one in runs)
    readme = " ".join((REPOSITORY / "README.md").read_text().split())
    assert f"{green} green cards of {len(runs)} runs" in readme


@pytest.mark.embedded
@pytest.mark.timeout(600)
@pytest.mark.skipif(not model_info().ready, reason="the embedded model is not installed")
def test_tasks_of_the_embedded_model() -> None:
    """The demo itself runs as it is, by `make demo`, after the tests."""
    runs = list(demo.sweep(0, demo.OWN[2:], random.randrange(2**32)))
    assert [one.true for one in runs] == [True], runs
    command = [sys.executable, "-m", "benchmarks.double_finish", "--json", "--times", "1", "--pause", "0.001"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert '"finished_again": 1' in done.stdout
