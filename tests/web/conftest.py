"""One server for all tests of a process; each test has threads of its own on it, with a script for each."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.benches.served import USER, New, Place, Served, Thread
from tests.support.servers.loopback import free_port


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served(place: Place) -> Iterator[Served]:
    with place.serve() as served:
        yield served


@pytest.fixture
def new(place: Place, served: Served) -> New:
    def made(steps: str, **settings: Any) -> Thread:
        return Thread(place, served, steps, **settings)

    return made


@pytest.fixture(scope="session")
def others() -> Iterator[list[Served]]:
    started: list[Served] = []
    yield started
    for server in started:
        server.end()


@pytest.fixture
def second(place: Place, others: list[Served]) -> Served:
    """Another server on the same database, behind a proxy; a new one if it was killed."""
    if not others or others[-1].process.poll() is not None:
        behind = ["--port", str(free_port()), "--proxy-header", USER, "--public", "HTTP://LocalHost:8443/"]
        others.append(place.start(*behind))
    return others[-1]
