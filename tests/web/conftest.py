"""One server for all tests of a process; each test has threads of its own on it, with a script for each."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.benches.served import New, Place, Served, Thread


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
def second(place: Place) -> Iterator[Served]:
    """Another server on the same database."""
    with place.serve() as second:
        yield second
