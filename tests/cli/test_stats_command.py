"""`signoff stats` and `signoff rate` on the command line."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from typer.testing import CliRunner, Result

from signoff import SetupError, postgres_storage, sqlite_storage
from signoff.cli.app import app
from signoff.front.options import moment
from tests.cli.test_stats import fill, put

DAY = 86_400.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Three tasks on two threads: now, an hour ago, ten days ago."""
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        some(storage.store)
    return file


def some(store: BaseStore) -> None:
    now = time.time()
    put(store, "old", 2, at=now - 10 * DAY)
    put(store, "new", 4, at=now - 3600)
    put(store, "new", 9, at=now, status="limit", reason="turns", claim=None)


def signoff(*words: str, database: Path | str) -> Result:
    return CliRunner().invoke(app, [*words, "--database", str(database)], env={"COLUMNS": "120"})


def told(*words: str, database: Path | str) -> dict[str, Any]:
    result = signoff(*words, "--json", database=database)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_table_says_what_the_json_says(database: Path) -> None:
    signoff("rate", "old", "4", database=database)
    out = signoff("stats", database=database).stdout
    for line in (
        "3 on 2 threads",
        "success 2 (67%) · limit 1 (33%)",
        "mean 4 · median 4 · p90 5 · most 5",
        "0 of 18 turns (0%)",
        "1, 0 extended, 0 of them then finished without a change",
        "0 of 1 judged finishes came too early (0%); judged by ratings 1; 1 not judged",
        "0 of 1 runs known as done went on or hit a limit (0%); judged by ratings 1; 2 not",
        "2 of 2 accepted as done and not reopened (100%)",
        "1, mean 4 (4★ 1)",
        "“the reminder near the limit”: 1 task (out of turns 1)",
    ):
        assert line in out, out


OPTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "all": ([], {"tasks": 3, "threads": 2}),
    "of one thread": (["--thread", "old"], {"tasks": 1, "threads": 1}),
    "since a span": (["--since", "2d"], {"tasks": 2}),
    "since a short span": (["--since", "30min"], {"tasks": 1}),
    "since a date": (["--since", "2020-01-31"], {"tasks": 3}),
    "since the future": (["--since", "2100-01-01T12:00"], {"tasks": 0}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options(case: str, database: Path) -> None:
    words, wanted = OPTIONS[case]
    found = told("stats", *words, database=database)
    assert {name: found[name] for name in wanted} == wanted


REFUSED: dict[str, tuple[list[str], str]] = {
    "an unknown thread": (["stats", "--thread", "ghost"], "There is no thread 'ghost'"),
    "a time that is none": (["stats", "--since", "yesterday"], "--since 'yesterday' is not a time"),
    "rating an unknown thread": (["rate", "ghost", "5"], "There is no thread 'ghost'"),
    "no star": (["rate", "old", "0"], "'STARS': Input should be greater than or equal to 1"),
    "six stars": (["rate", "old", "6"], "'STARS': Input should be less than or equal to 5"),
    "half a star": (["rate", "old", "4.5"], "'STARS': Input should be a valid integer"),
    "a task that is not there": (["rate", "old", "5", "--task", "2"], "there is no task 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_told_in_one_sentence(case: str, database: Path) -> None:
    words, said = REFUSED[case]
    result = signoff(*words, database=database)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert said in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


def test_a_rating_is_kept_and_the_last_one_counts(database: Path) -> None:
    assert "Rated 5 of 5: thread new" in signoff("rate", "new", "5", database=database).stdout
    found = told("rate", "new", "1", "--task", "1", database=database)
    assert (found["thread_id"], found["task"], found["rating"]) == ("new", "m4", 1)
    assert told("stats", database=database)["ratings"]["stars"] == {"1": 1, "2": 0, "3": 0, "4": 0, "5": 1}
    assert told("stats", database=database)["reopened"]["rated_low"] == 1


def test_no_database_yet_has_no_figures_and_none_is_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.sqlite"
    env = {"SIGNOFF_DATABASE": str(missing)}
    result = CliRunner().invoke(app, ["stats"], env=env)
    assert (result.exit_code, result.stdout) == (0, f"No task has ended in {missing} yet.\n")
    assert json.loads(CliRunner().invoke(app, ["stats", "--json"], env=env).stdout)["tasks"] == 0
    assert "There is no thread" in signoff("rate", "t", "5", database=missing).stderr
    assert not missing.exists()


def test_a_database_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    result = signoff("stats", database=tmp_path / "none.sqlite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"There is no database {tmp_path}/none.sqlite; name another one")


def test_what_a_model_calls_itself_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        put(storage.store, "t", 1, reason="\x1b]0;owned\x07", status="error", claim=None)
    assert "\x1b" not in signoff("stats", database=file).stdout


def test_a_span_is_before_now_and_a_date_is_local_time() -> None:
    spans = {"90m": 5400, "2h": 7200, "1w": 7 * DAY, " 5min ": 300}
    assert {text: 10_000_000 - moment(text, 1e7, "--since") for text in spans} == spans
    assert moment("2026-01-31", 0, "--since") == datetime(2026, 1, 31).timestamp()
    assert (
        moment("2026-01-31T12:00:00+02:00", 0, "--since")
        == datetime.fromisoformat("2026-01-31T10:00:00Z").timestamp()
    )
    for wrong in ("", "d", "-5d", "5 parsecs", "99999999d", "0001-01-01"):
        with pytest.raises(SetupError, match="is not a time"):
            moment(wrong, 0, "--since")


@pytest.mark.slow
@pytest.mark.thorough
def test_it_works_on_postgresql(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_storage(postgres_url) as storage:
        some(storage.store)
        fill(storage.store, 6_000)
    assert told("rate", "new", "5", database=postgres_url)["task"] == "m9"
    begun = time.process_time()
    found = told("stats", database=postgres_url)
    assert time.process_time() - begun < 4
    assert (found["tasks"], found["ratings"]["count"]) == (6_003, 1)
    assert told("stats", "--thread", "new", database=postgres_url)["tasks"] == 2
