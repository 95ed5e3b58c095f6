"""As many threads as can run at once, and a flood of requests: all are served, within bounds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.benches.served import New, Place, Served, Thread, at_once

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]

LOOK = 'call("write_file", path=f"{at}.txt", content="x")'
WORK = f'[held({LOOK}) for at in range(12)] + [call("finish_task", summary="Written.")]'


@pytest.fixture
def served(place: Place) -> Iterator[Served]:
    """A server that nothing has grown before."""
    with place.serve() as served:
        yield served


def memory(served: Served) -> float:
    """The megabytes that the server holds."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def test_as_many_threads_as_can_run_at_once(place: Place, served: Served) -> None:
    threads = [Thread(place, served, WORK) for _ in range(64)]
    codes = at_once(*(lambda thread=thread: thread.write(settings=thread.settings) for thread in threads))
    assert codes == [200] * 64
    more = Thread(place, served, WORK)
    assert more.write(settings=more.settings) == 422
    for thread in threads:
        thread.release()
    seen = at_once(*(lambda thread=thread: thread.look() for thread in threads))
    assert {one.last["result"]["turns"] for one in seen} == {13}


def test_a_flood_of_requests_costs_no_memory_and_stops_nobody(new: New, served: Served) -> None:
    bodies = ["{" + "x" * 900_000, json.dumps({"thread": "t0", "text": " "}), "[" * 50_000]
    headers = {"Content-Type": "application/json"}

    def look(name: str) -> None:
        with served.http.stream("GET", "/api/events", params={"thread": name}) as answer:
            next(answer.iter_lines())

    for name in ("warm", "warmer"):
        look(name)
    before = memory(served)
    for number in range(600):
        answer = served.http.post("/api/write", content=bodies[number % 3], headers=headers)
        assert answer.status_code in (400, 422)
    for first in range(0, 3_000, 20):
        at_once(*(lambda name=f"random-{first + at}": look(name) for at in range(20)))
    assert memory(served) - before < 100
    assert served.http.get("/api/new").status_code == 200
