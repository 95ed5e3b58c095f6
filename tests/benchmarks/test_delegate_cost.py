"""What a turn of a delegate costs: the command, and the table on the page."""

import json

import pytest

from benchmarks import delegate_cost
from benchmarks.delegate_cost import PAGE, RESULTS, Cost, compared, page


def test_what_a_turn_costs_is_the_difference_of_two_lengths() -> None:
    costs = {"alone": Cost(turn=2.0, run=20.0), "no limit on the tree": Cost(turn=2.2, run=25.0)}
    ratios = {"no limit on the tree": {"turn": 1.1, "run": 1.25}}
    assert compared(costs) == {"turn_ms": 2.0, "run_ms": 20.0, "delegates": ratios}


def test_the_command_measures_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        delegate_cost.main(["--turns", "10", "--runs", "1"])
    for line in capsys.readouterr().out.splitlines():
        way, _, told = line.partition(" ")
        assert way in ("sync", "async")
        assert json.loads(told)["delegates"].keys() == delegate_cost.WAYS.keys() - {"alone"}


def test_the_page_has_the_recorded_table() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text, json.loads(RESULTS.read_text("utf-8"))) == text
