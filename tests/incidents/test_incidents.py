"""Every incident is played on SQLite and on PostgreSQL, and all that comes of it is as its file says."""

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.incidents.player import Player, as_json, incidents

INCIDENTS = incidents()
# On both databases; the others are thorough on the second one.
ON_BOTH = {name.partition(":")[0]: name for name in INCIDENTS}.values()


def check(name: str, played: Any) -> None:
    lines = as_json(INCIDENTS[name]).splitlines(), as_json(played).splitlines()
    if difference := "\n".join(difflib.unified_diff(*lines, "expected", "played", lineterm="")):
        pytest.fail(f"{name}: {INCIDENTS[name]['about']}\n{difference}", pytrace=False)


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_on_sqlite(name: str, played_incidents: Path) -> None:
    check(name, json.loads(played_incidents.with_name("played.json").read_text("utf-8"))[name])


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in ON_BOTH else pytest.mark.thorough) for one in INCIDENTS]
)
def test_an_incident_on_postgresql_in_an_event_loop(name: str, postgres_url: str, tmp_path: Path) -> None:
    check(name, Player(name, INCIDENTS[name], postgres_url, tmp_path, is_async=True).play())
