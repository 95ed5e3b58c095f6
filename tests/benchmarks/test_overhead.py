"""The overhead benchmark: its subjects do the work that is asked for, and what is measured is judged."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.overhead import __main__ as program
from benchmarks.overhead import crowd, start
from benchmarks.overhead.client import CLIENTS, clients, provider
from benchmarks.overhead.measure import Figure, Subject
from benchmarks.overhead.pages import PAGE, PICTURES, page
from benchmarks.overhead.pictures import CLIENT, CPU, CROWD, DISK, draw, mark
from benchmarks.overhead.record import RESULTS, Recorded
from benchmarks.overhead.sessions import sessions
from benchmarks.overhead.start import COMMANDS
from benchmarks.overhead.subjects import own, own_client, own_crowd
from benchmarks.overhead.subjects.of_guards import guards
from benchmarks.overhead.targets import ratios
from benchmarks.prompt_tokens import o200k

needs_tokens = pytest.mark.skipif(o200k() is None, reason="bpe-openai is not here")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", [*own.SUBJECTS, "guards"])
def test_every_subject_of_our_own_runs_its_tool_once_a_turn(name: str, stored: bool, tmp_path: Path) -> None:
    database = str(tmp_path / "threads.sqlite") if stored else None
    assert {**own.SUBJECTS, "guards": guards}[name](5, database)() == 4


@pytest.mark.parametrize("name", own_client.SUBJECTS)
def test_so_does_one_with_a_real_client(name: str) -> None:
    with provider() as url:
        told = own_client.SUBJECTS[name](3, None, url=url, chunks=2)()
    assert (told["steps"] if "listened to" in name else told) == 2


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("name", ["signoff", "bare loop", "raw graph, 2 nodes"])
def test_so_does_one_of_many_at_once(name: str, is_async: bool) -> None:
    told = own_crowd.SUBJECTS[name](4, None, runs=5, seconds=0.001, is_async=is_async)()
    assert (told["steps"], told["wrong"], told["why"]) == (15, 0, "")


@needs_tokens
def test_a_session_is_counted_on_the_wire() -> None:
    subject = Subject("signoff", "own_session")
    whole, shortened = sessions([subject], [subject], lengths=(3,), longest=14, budget=3_000)
    assert (whole.turns, whole.budget, whole.summaries) == (3, None, 0)
    assert whole.read > whole.first > 500
    assert (shortened.turns, shortened.summaries >= 1) == (14, True)
    assert whole.dollars == pytest.approx((whole.read * 3 + whole.cached * 0.3 + whole.written * 15) / 1e6)


def figure(subject: str, cpu: float) -> Figure:
    return Figure(subject, 200, False, cpu, cpu, 0.0, 1)


def test_a_target_is_met_up_to_its_bound() -> None:
    """How the recorded results are judged stands on the page."""
    other = figure("create_agent", 1.0)
    judged = [ratios([figure("signoff", cpu), other])[0] for cpu in (0.75, 0.8)]
    assert [(one.measured, one.met) for one in judged] == [(0.75, True), (0.8, False)]


def test_what_is_recorded_is_read_again_and_measured_again(tmp_path: Path) -> None:
    recorded = Recorded.read(RESULTS)
    again = replace(recorded.figures[0], cpu=987.0)
    kept = [one for one in recorded.figures if one.turns != again.turns]
    recorded.add_figures([again])
    assert (again in recorded.figures, len(recorded.figures)) == (True, len(kept) + 1)
    recorded.save(tmp_path / "results.json")
    assert Recorded.read(tmp_path / "results.json") == recorded


def test_a_part_that_cannot_be_measured_here_says_why_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["overhead", "--parts", "embedded", "--json", str(out)])
    assert program.main() == 0
    assert "not installed" in capsys.readouterr().out
    assert json.loads(out.read_text())["dates"] == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_part_is_measured_in_small() -> None:
    seconds = start.measured(runs=1)
    assert set(seconds) == set(COMMANDS)
    assert all(each > 0 for each in seconds.values())
    told = crowd.writers(6, processes=3)
    assert (told.runs, told.processes, told.wrong, told.why) == (6, 3, 0, "")
    assert crowd.kilobytes_a_run(20) > 0
    assert {one.name for one in CLIENTS if one.env is None} == set(own_client.SUBJECTS)
    (heard,) = clients([Subject("signoff, listened to", "own_client")], 2, runs=1)
    assert heard.cpu > 0
    assert heard.first is not None


def test_the_docs_show_the_recorded_results(tmp_path: Path) -> None:
    recorded = Recorded.read(RESULTS)
    assert PAGE.read_text() == page()
    assert all(one.name in page() for one in recorded.results())
    draw(recorded, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {CPU, DISK, CROWD, CLIENT}
    for file in tmp_path.iterdir():
        assert file.stat().st_size > 20_000
        assert mark().encode() in (PICTURES / file.name).read_bytes(), f"{file.name} is of other results"
