"""A runner that stood still while another one finished its thread does nothing more when it wakes up."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STRIDE = 41


@pytest.mark.slow
@pytest.mark.thorough
def test_a_runner_that_was_stopped_and_replaced_gives_up(
    postgres_url: str, figure: Callable[[str], None]
) -> None:
    command = [sys.executable, "-m", "tests.support.sweeps.fence", postgres_url, str(STRIDE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    stops = [json.loads(line) for line in done.stdout.splitlines()]
    unknown = sum(told[1] == "error" for stop in stops for told in stop["told"])
    figure(f"{len(stops)} runners stopped, cut off and replaced: all gave up; {unknown} effects unknown")
    assert len(stops) > 20
    assert {stop["child"] for stop in stops if not stop["was_over"]} == {"ThreadLost", "StorageError"}
    assert sum(stop["was_over"] for stop in stops) <= 4
    assert [stop for stop in stops if stop["faults"]] == []
