"""The benchmark of the guards against finishing twice runs, and shows what it is for."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.prepared import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> str:
    return run_python("-m", "benchmarks.double_finish", *arguments, cwd=ROOT).stdout


@pytest.mark.parametrize("part", ["server", "scripted"])
def test_ten_finishes_cost_one_with_the_inner_guard(part: str, found: dict[str, Any]) -> None:
    guarded, bare = found[part]["with"], found[part]["without"]
    assert (guarded["finishes"], bare["finishes"]) == (1, 10)
    assert guarded["sent"] < bare["sent"] / 5
    assert guarded["tokens"] < bare["tokens"] / 3
    assert (guarded["estimated"], bare["estimated"]) == (True, False)


def test_the_server_saw_the_connection_close_early(found: dict[str, Any]) -> None:
    guarded, bare = found["server"]["with"], found["server"]["without"]
    assert bare["closed"] is None
    assert guarded["closed"] < bare["seconds"] / 3


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(bench("--json", "--no-model", "--pause", "0.02"))
    return read


@pytest.mark.thorough
def test_the_tables_stand_side_by_side() -> None:
    shown = bench("--no-model", "--pause", "0.001")
    assert "with the inner guard" in shown
    assert "never: all chunks sent" in shown


@pytest.mark.timeout(600)
@pytest.mark.thorough
@pytest.mark.embedded
def test_the_embedded_model_finishes_again_when_it_is_asked_again() -> None:
    again = json.loads(bench("--json", "--times", "1", "--pause", "0.001"))["embedded_model"]
    if again is None:
        pytest.skip("the extra signoff[local] is not installed")
    assert again["finished_again"] == 1
