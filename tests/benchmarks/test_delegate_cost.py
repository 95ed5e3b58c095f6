"""What a turn of a delegate costs: the command, and the table on the page."""

import json

import pytest

from benchmarks import delegate_cost
from benchmarks.delegate_cost import PAGE, RESULTS, compared, explain, page


def test_the_runs_of_a_round_are_compared() -> None:
    """A machine that is slow for a while slows both."""
    assert compared({"alone": [1.0, 4.0, 2.0], "a": [1.1, 4.4, 5.0]}) == {"a": 1.1}


def test_the_command_measures_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        delegate_cost.main(["--turns", "10", "--runs", "1", "--processes", "1"])
    for line in capsys.readouterr().out.splitlines():
        way, _, told = line.partition(" ")
        assert way in ("sync", "async")
        assert json.loads(told).keys() == delegate_cost.WAYS.keys() - {"alone"}


def test_a_missed_target_comes_with_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    explain({"sync": {"no limit on the tree": 1.1, "a limit of turns": 1.11}, "async": {}}, 10)
    heading, *rows = capsys.readouterr().err.splitlines()
    assert heading.startswith("Missed, sync, a limit of turns: 1.11 of 1.1.")
    assert len([row for row in rows if "µs a turn" in row]) == 12


def test_the_page_has_the_recorded_table() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text, json.loads(RESULTS.read_text("utf-8"))) == text
