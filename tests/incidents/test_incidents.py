"""Every incident is played on SQLite and on PostgreSQL, and all that comes of it is as its file says."""

import difflib
from pathlib import Path
from typing import Any

import pytest

from tests.incidents.player import Player, as_json, incidents

INCIDENTS = incidents()


def check(name: str, address: str, folder: Path, *, is_async: bool) -> None:
    incident = INCIDENTS[name]
    played = Player(name, incident, address, folder, is_async).play()
    lines = as_json(incident).splitlines(), as_json(played).splitlines()
    if difference := "\n".join(difflib.unified_diff(*lines, "expected", "played", lineterm="")):
        pytest.fail(f"{name}: {incident['about']}\n{difference}", pytrace=False)


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_on_sqlite(name: str, tmp_path: Path) -> None:
    check(name, str(tmp_path / "threads.sqlite"), tmp_path, is_async=False)


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_on_postgresql_in_an_event_loop(name: str, postgres_url: str, tmp_path: Path) -> None:
    check(name, postgres_url, tmp_path, is_async=True)


def test_there_are_incidents_of_every_kind() -> None:
    killed = [one for one in INCIDENTS.values() if any("killed" in step for step in one["steps"])]
    folders = [name.partition(":")[0] for name in INCIDENTS]
    assert len(INCIDENTS) >= 60
    assert len(killed) >= 10
    assert folders.count("delegates") >= 4
    assert folders.count("middleware") + folders.count("channels") >= 12


def test_a_word_that_is_not_as_expected_is_shown(tmp_path: Path) -> None:
    name = "questions: answered"
    incident: Any = INCIDENTS[name]
    changed = as_json(incident).replace("pay: paid 3", "pay: paid 4")
    played = as_json(Player(name, incident, str(tmp_path / "threads.sqlite"), tmp_path).play())
    assert [*difflib.unified_diff(changed.splitlines(), played.splitlines(), n=0)][-2:] == [
        '-      "pay: paid 4",',
        '+      "pay: paid 3",',
    ]
