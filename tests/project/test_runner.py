"""How the tests are run: as samples that differ."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLED = """
import pytest
@pytest.mark.sample(3)
@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("b", ["x", "y", "z"])
def test_pairs(a, b): print(f"<{a}{b}>")
"""
CONFIG = """[pytest]
addopts = -p tests.conftest -p no:cacheprovider
asyncio_default_fixture_loop_scope = function
markers =
    sample(n): n cases
    thorough: all
"""


def test_the_exit_code_is_that_of_the_command() -> None:
    command = [sys.executable, "-m", "tests.budget", "it", "1", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command, capture_output=True).returncode == 7


def run(folder: Path, source: str, *options: str) -> str:
    (folder / "pytest.ini").write_text(CONFIG)
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.thorough
def test_a_sample_holds_every_value_and_the_rest_is_thorough(tmp_path: Path) -> None:
    quick = run(tmp_path, SAMPLED, "-m", "not thorough", "-s")
    assert "3 passed, 6 deselected" in quick
    assert {value for pair in re.findall(r"<(..)>", quick) for value in pair} == set("123xyz")
    assert "6 passed, 3 deselected" in run(tmp_path, SAMPLED, "-m", "thorough")
