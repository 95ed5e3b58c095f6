"""What the workflows run on each system passes here, from a folder that is not the clone."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "portable.py"


@pytest.mark.slow
@pytest.mark.thorough
def test_what_has_to_work_on_every_system_works_here(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    steps = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert steps == ["imports", "command", "pauses", "goes_on", "has_one_runner"]
    assert list(tmp_path.iterdir()) == []
