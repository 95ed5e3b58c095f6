"""docs/how-to/workers.md: its programs run as they stand, its commands and figures are true."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from signoff.cli.app import app
from signoff.workers.figures import QueueFigures
from tests.support.benches.cli import Bench

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/workers.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```", PAGE, re.M | re.S)


def program(words: str) -> str:
    """The program of the page that has these words."""
    return next(block for block in blocks("python") if words in block)


def test_every_command_exists_with_its_options() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # the app is a group
    lines = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    named = [words for words in lines if words and words[0] == "signoff"]
    assert {words[1] for words in named} == {"worker", "run", "threads", "resume"}
    for words in named:
        known = {option for parameter in commands[words[1]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_the_ten_lines_for_another_engine_are_those_of_the_example() -> None:
    code = (ROOT / "examples/engine.py").read_text()
    assert program("def run_thread") in code


def test_every_figure_of_the_workers_is_told() -> None:
    told = PAGE.partition('"workers": {…}}`')[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", told)) >= set(QueueFigures.__dataclass_fields__)


@pytest.mark.slow
def test_a_graph_of_ones_own_runs_what_is_submitted_from_python_and_by_the_command(
    tmp_path: Path, postgres_url: str
) -> None:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    (tmp_path / "my_agent.py").write_text(program("def agent"))
    submits = re.sub(r"postgresql://[^\"]*", postgres_url, program("import submit"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", submits], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    for line in blocks("sh")[1].splitlines()[::-1]:
        words = shlex.split(line)[1:]
        code, _, told = bench.process(*words, *(["--until-idle"] if words[0] == "worker" else []))
        assert code == 0, told
    found = json.loads(bench("threads", "--json").stdout)["threads"]
    assert [(row["task"], row["status"]) for row in found] == [("Look at the logs", "success")] * 2
