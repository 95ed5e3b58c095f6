"""What runs a command and says how long it took passes its exit code on."""

import subprocess
import sys

import pytest

from tests.support.sources import REPOSITORY


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_command() -> None:
    command = [sys.executable, "-m", "tests.budget", "it", "1", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True).returncode == 7
