"""Many runs at once: the subjects do the work that is asked for, targets are judged rightly, and the page and
the pictures show what was recorded."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.overhead import crowd
from benchmarks.overhead.crowd import QUICK, SLOW, TOOL_SECONDS, Crowd, SlowTools, Writers
from benchmarks.overhead.crowd_targets import ideal, memory, starving, walls, writing
from benchmarks.overhead.measure import Figure
from benchmarks.overhead.pages import PAGE, PICTURES, page
from benchmarks.overhead.parts import PARTS, part
from benchmarks.overhead.pictures import CLIENT, CPU, CROWD, DISK, draw, mark, spread
from benchmarks.overhead.record import RESULTS, Recorded
from benchmarks.overhead.subjects.own_crowd import SUBJECTS, all_at_once
from benchmarks.overhead.targets import EQUAL

Given = dict[str, Any]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("name", ["signoff", "bare loop", "raw graph, 2 nodes"])
def test_every_subject_runs_its_tool_once_a_turn_in_each_run(name: str, is_async: bool) -> None:
    found = SUBJECTS[name](4, None, runs=5, seconds=0.001, is_async=is_async)()
    assert (found["steps"], found["wrong"], found["why"]) == (15, 0, "")


def test_slow_tools_run_beside_quick_ones() -> None:
    given: Given = {"runs": 3, "seconds": 0.001, "tool_seconds": 0.2, "is_async": False}
    found = SUBJECTS["signoff beside slow tools"](3, None, **given)()
    slow, quick = found["walls"]
    assert (found["steps"], found["wrong"]) == (12, 0)
    assert slow >= 0.4
    assert quick < slow


def test_a_tool_that_blocks_the_event_loop_is_seen() -> None:
    """What the lateness of the loop is measured for."""

    async def one(number: int) -> bool:
        time.sleep(0.2)
        return True

    assert all_at_once((one, 2))()["late"] > 0.15


def test_a_run_that_goes_wrong_is_counted_with_its_error() -> None:
    async def one(number: int) -> bool:
        if number == 1:
            raise OSError("database is locked")
        return number != 2

    found = all_at_once((one, 4))()
    assert (found["wrong"], found["why"]) == (2, "OSError: database is locked")


@pytest.mark.slow
@pytest.mark.thorough
def test_processes_write_to_one_new_file_at_once() -> None:
    found = crowd.writers(6, processes=3)
    assert (found.runs, found.processes, found.wrong, found.why) == (6, 3, 0, "")


@pytest.mark.slow
@pytest.mark.thorough
def test_the_memory_of_a_run_is_that_of_one_of_many() -> None:
    assert 30 < crowd.kilobytes_a_run(20) < 300


def at(subject: str, runs: int, wall: float, model: float = QUICK) -> Crowd:
    return Crowd(subject, runs, model, wall, wall, 1)


CROWDS = [
    at("signoff", 100, 1.1),
    at("raw graph, 2 nodes", 100, 1.0),
    at(EQUAL, 100, 2.0),
    at("signoff", 1_000, 13.0),
    at("raw graph, 2 nodes", 1_000, 10.0),
    at("signoff", 100, 20.0, SLOW),
]
TOOLS = SlowTools(100, ideal(QUICK, TOOL_SECONDS) * 1.1, 6.0, 0.1, 17.0, 4.0, 0.1)


@pytest.mark.parametrize(
    ("judged", "wanted"),
    [
        (lambda: walls(CROWDS), [(0.55, True), (1.1, True), (1.3, False), (1.11, True)]),
        (lambda: walls([at("signoff", 100, 22.0, SLOW)]), [(1.22, False)]),
        (lambda: walls(CROWDS[1:3]), []),
        (lambda: starving(TOOLS), [(1.1, True), (1.5, False), (0.1, True)]),
        (lambda: starving(replace(TOOLS, late=2.0))[2:], [(2.0, False)]),
        (lambda: starving(None), []),
        (lambda: writing([Writers(100, 1, 0, "", 1.0)]), [(0, True)]),
        (lambda: writing([Writers(100, 4, 1, "x", 1.0)]), [(1, False)]),
        (lambda: memory(89.9, 1_000), [(89.9, True)]),
        (lambda: memory(90.1, 1_000), [(90.1, False)]),
        (lambda: memory(None, 1_000), []),
    ],
)  # fmt: skip
def test_what_is_measured_is_judged_by_the_targets(
    judged: Callable[[], list[Any]], wanted: list[tuple[float, bool]]
) -> None:
    assert [(round(one.measured, 2), one.met) for one in judged()] == wanted


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    figures = [Figure("signoff", 50, True, 1.0, 1.0, 9.0, 1)]
    recorded = Recorded(
        figures=figures, crowds=[*CROWDS], slow_tools=TOOLS, writers=[Writers(1, 1, 0, "", 1)]
    )
    recorded.measured("turns-50")
    recorded.save(tmp_path / "results.json")
    found = Recorded.read(tmp_path / "results.json")
    assert found == recorded
    assert found.versions["signoff"]
    assert set(found.dates) == {"turns-50"}


def test_a_part_that_is_measured_again_takes_the_place_of_the_old_one() -> None:
    recorded = Recorded(figures=[Figure("signoff", turns, False, 1.0, 1.0, 0.0, 1) for turns in (10, 50)])
    recorded.add_figures([Figure("signoff", 50, False, 2.0, 2.0, 0.0, 1)])
    assert [(one.turns, one.cpu) for one in recorded.figures] == [(10, 1.0), (50, 2.0)]
    recorded.add_crowds(CROWDS)
    recorded.add_crowds([at("signoff", 1_000, 11.0)])
    assert sum(one.runs == 1_000 for one in recorded.crowds) == 1
    assert len(recorded.crowds) == 5


def test_every_part_has_something_that_measures_it() -> None:
    assert all(callable(part(name)) for name in PARTS)
    with pytest.raises(KeyError):
        part("nonsense")


@pytest.mark.parametrize(
    ("heights", "wanted"),
    [
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.5, 0.1, 0.5], [0.45, 0.1, 0.55]),
        ([0.50, 0.55, 0.60], [0.45, 0.55, 0.65]),
    ],
)
def test_labels_are_moved_apart_and_keep_their_order(heights: list[float], wanted: list[float]) -> None:
    assert [round(one, 3) for one in spread(heights, 0.1)] == wanted


def test_the_docs_show_the_recorded_results() -> None:
    recorded = Recorded.read(RESULTS)
    assert PAGE.read_text() == page()
    assert all(one.name in page() for one in recorded.results())
    for name in (CPU, DISK, CROWD, CLIENT):
        assert mark().encode() in (PICTURES / name).read_bytes(), f"{name} is of other results"


def test_the_pictures_are_drawn_from_the_recorded_results(tmp_path: Path) -> None:
    draw(Recorded.read(RESULTS), tmp_path)
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert set(sizes) == {CPU, DISK, CROWD, CLIENT}
    assert min(sizes.values()) > 20_000
