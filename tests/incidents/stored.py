"""The threads of the incidents, for tests that need stored threads of many kinds."""

import fcntl
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first of these tests plays all incidents, and others wait for that.
    for item in items:
        if isinstance(item, pytest.Function) and "played_incidents" in item.fixturenames:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def played_incidents(shared_folder: Path) -> Path:
    """A SQLite database with the thread of each incident, under its name: played once for all processes that
    test. Open a copy of it. What came of them stands beside it, in `played.json`."""
    # Here, since every run of the tests reads this file, and few need LangChain's middleware.
    from tests.incidents.player import Player, incidents

    folder = shared_folder / "incidents"
    folder.mkdir(exist_ok=True)
    file, results = folder / "threads.sqlite", folder / "played.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not results.exists():
            played: dict[str, Any] = {}
            for name, incident in incidents().items():
                try:
                    played[name] = Player(name, incident, str(file), folder).play()
                except AssertionError:
                    played[name] = traceback.format_exc()
            results.write_text(json.dumps(played), "utf-8")
    return file


@pytest.fixture(scope="module")
def incident_storage(played_incidents: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A storage with these threads, for the tests of one module."""
    from signoff import sqlite_storage

    with sqlite_storage(copy(played_incidents, tmp_path_factory.mktemp("incidents"))) as storage:
        yield storage
