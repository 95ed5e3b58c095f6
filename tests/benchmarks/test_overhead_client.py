"""The overhead with a real client: the subjects do the work that is asked for, targets are judged rightly."""

import sys
from pathlib import Path

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.overhead.client import CLIENTS, LONG, ClientCost, clients, provider, with_client
from benchmarks.overhead.measure import Subject
from benchmarks.overhead.record import Recorded
from benchmarks.overhead.subjects.own_client import SUBJECTS


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_of_our_own_runs_its_tool_once_a_turn(name: str) -> None:
    with provider() as url:
        told = SUBJECTS[name](3, None, url=url, chunks=2)()
    assert (told["steps"] if "listened to" in name else told) == 2


def test_each_subject_is_measured() -> None:
    assert {one.name for one in CLIENTS if one.env is None} == set(SUBJECTS)
    (cost,) = clients([Subject("signoff, never", "own_client")], 2, runs=1)
    assert (cost.subject, cost.chunks, cost.runs) == ("signoff, never", 2, 1)
    assert 0 < cost.cpu < 1_000
    assert cost.first is None
    (heard,) = clients([Subject("signoff, listened to", "own_client")], 2, runs=1)
    assert heard.first is not None
    assert 0 < heard.first < 10_000


def of(subject: str, cpu: float, chunks: int = LONG) -> ClientCost:
    return ClientCost(subject, chunks, cpu, 1)


COSTS = [
    of("signoff", 2.0),
    of("signoff, auto", 1.2),
    of("signoff", 9.0, 30),
    of("create_agent", 1.0),
    of("signoff, listened to", 3.0),
    of("create_agent, listened to", 10.0),
]


def test_what_is_measured_is_judged_by_the_targets() -> None:
    found = with_client(COSTS)
    assert [(one.measured, one.met) for one in found] == [(2.0, True), (1.2, False), (0.3, True)]
    assert with_client(COSTS[:3]) == []


def test_what_is_measured_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    recorded = Recorded(clients=[*COSTS])
    recorded.add_clients([of("signoff", 4.0)])
    assert [(one.chunks, one.cpu) for one in recorded.clients] == [(30, 9.0), (LONG, 4.0)]
    recorded.save(tmp_path / "results.json")
    assert Recorded.read(tmp_path / "results.json") == recorded
