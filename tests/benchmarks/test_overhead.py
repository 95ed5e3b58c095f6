"""The overhead benchmark: its own subjects do the work that is asked for, targets are judged rightly."""

import sys
from pathlib import Path

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.overhead.guards import guarding
from benchmarks.overhead.measure import DEFAULTS, Figure
from benchmarks.overhead.subjects.own import SUBJECTS
from benchmarks.overhead.targets import growth, ratios


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_of_our_own_runs_its_tool_once_a_turn(name: str, stored: bool, tmp_path: Path) -> None:
    database = str(tmp_path / "threads.sqlite") if stored else None
    assert SUBJECTS[name](5, database)() == 4


def figure(subject: str, turns: int, cpu: float, kilobytes: float | None = None) -> Figure:
    return Figure(subject, turns, kilobytes is not None, cpu, cpu, kilobytes or 0.0, 1)


@pytest.mark.parametrize(("cpu", "met"), [(0.7, True), (0.75, True), (0.8, False)])
def test_a_ratio_is_of_two_subjects_at_the_same_length(cpu: float, met: bool) -> None:
    figures = [
        figure("signoff", 200, cpu),
        figure("signoff", 1_000, 9.0),
        figure("create_agent", 200, 1.0),
        figure("create_agent", 200, 9.0, kilobytes=30.0),
    ]
    (result,) = ratios(figures)
    assert (result.measured, result.most, result.met) == (cpu, 0.75, met)


def test_default_settings_have_targets_of_their_own() -> None:
    figures = [
        figure(DEFAULTS, 200, 0.6),
        figure("create_agent", 200, 1.0),
        figure("create_agent, equal features", 200, 1.5),
    ]
    assert [(one.most, round(one.measured, 2), one.met) for one in ratios(figures)] == [
        (0.65, 0.6, True),
        (0.34, 0.4, False),
    ]
    assert all("default settings" in f"{one.name} {one.beside}" for one in ratios(figures))


def test_the_growth_of_a_turn_leaves_out_that_of_the_model() -> None:
    figures = [
        figure("signoff", 50, 2.0),
        figure("signoff", 1_000, 5.0),
        figure("model alone", 50, 1.0),
        figure("model alone", 1_000, 3.5),
    ]
    (result,) = growth(figures)
    assert (result.measured, result.met) == (1.5, False)


def test_the_place_on_disk_is_judged_at_one_length_and_by_its_growth() -> None:
    kilobytes = {50: 8.0, 200: 30.0, 1_000: 20.0, 10_000: 8.8}
    figures = [figure("signoff", turns, 1.0, kilobytes=each) for turns, each in kilobytes.items()]
    figures.append(figure(DEFAULTS, 200, 1.0, kilobytes=7.9))
    assert [(one.measured, one.met) for one in growth(figures)] == [(7.9, True), (1.1, True)]
    assert growth(figures[:1]) == []


@pytest.mark.parametrize(("cpu", "met"), [(1.3, True), (1.5, True), (1.6, False)])
def test_guards_are_judged_beside_the_agent_that_they_stand_in(cpu: float, met: bool) -> None:
    figures = [
        figure("create_agent", 200, 1.0),
        figure("create_agent with Guards", 200, cpu),
        figure("create_agent", 200, 9.0, kilobytes=30.0),
    ]
    (result,) = guarding(figures)
    assert (result.measured, result.most, result.met) == (cpu, 1.5, met)


@pytest.mark.parametrize("stored", [False, True])
def test_an_agent_with_guards_runs_its_tool_once_a_turn(stored: bool, tmp_path: Path) -> None:
    from benchmarks.overhead.subjects.of_guards import guards

    assert guards(5, str(tmp_path / "threads.sqlite") if stored else None)() == 4
