"""`signoff delete`: what it removes, whom it asks, what it refuses."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.storage.sqlite import thread_lock
from tests.support.benches.cli import Bench, one_sentence, steps
from tests.support.benches.cli_terminal import terminal as in_terminal

DONE = 'call("finish_task", summary="All done.")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
ASK = 'call("ask_user", question="Which port?")'
LOOK = 'call("read_file", path="config.py")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def with_threads(bench: Bench, **scripts: str) -> None:
    """Threads by these names, that play these scripts; `limit` ends at its second turn."""
    for name, script in scripts.items():
        bench.model(script)
        bench.run("The task", "--turns", "2", thread=name)


def ids(bench: Bench) -> set[str]:
    return {row["thread_id"] for row in json.loads(bench("threads", "--json").stdout)}


def tables(bench: Bench) -> dict[str, int]:
    with closing(sqlite3.connect(bench.database)) as connection:
        names = ("checkpoints", "writes", "store")
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


class TestDelete:
    def test_a_thread_goes_with_everything(self, bench: Bench) -> None:
        with_threads(bench, a=steps(EDIT, DONE))
        bench("rate", "a", "5")
        result = bench("delete", "a", "--yes")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "Deleted a.\n", "")
        assert set(tables(bench).values()) == {0}
        assert bench.config.read_text() == "PORT = 4000\n", "what it did stays"

    def test_what_is_stored_of_one_without_checkpoints_goes_too(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        with closing(sqlite3.connect(bench.database)) as connection, connection:
            connection.execute("DELETE FROM checkpoints")
            connection.execute("DELETE FROM writes")
        assert bench("delete", "a", "--yes").exit_code == 0
        assert tables(bench)["store"] == 0

    def test_a_dry_run_shows_it_and_leaves_it(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        result = bench("delete", "a", "--dry-run")
        _head, line, told = result.stdout.splitlines()
        assert line.startswith("a       Asserted: done")
        assert told == "1 thread would be deleted; nothing was."
        assert ids(bench) == {"a"}

    def test_as_json(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        dry = json.loads(bench("delete", "a", "--dry-run", "--json").stdout)
        assert dry == {"deleted": [], "kept": {}, "would_delete": ["a"]}
        assert json.loads(bench("delete", "a", "--yes", "--json").stdout) == {"deleted": ["a"], "kept": {}}


class TestRefusals:
    @pytest.mark.parametrize("database", [True, False], ids=["a database", "no database"])
    def test_a_thread_that_is_not_there(self, bench: Bench, database: bool) -> None:
        if database:
            with_threads(bench, a=steps(DONE))
        result = bench("delete", "b", "--yes")
        one_sentence(result, "There is no thread 'b' in", "`signoff threads` lists them")

    def test_a_thread_that_runs(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        with thread_lock(bench.database, "a"):
            result = bench("delete", "a", "--yes")
        one_sentence(result, "'a' is running elsewhere; wait until it ends, or pause it there.")
        assert ids(bench) == {"a"}

    @pytest.mark.parametrize(
        "words", [(), ("a", "--older", "30d"), ("a", "--all"), ("--all",)], ids=lambda words: " ".join(words)
    )
    def test_neither_a_thread_nor_an_age_or_both(self, bench: Bench, words: tuple[str, ...]) -> None:
        with_threads(bench, a=steps(DONE))
        one_sentence(bench("delete", *words, "--yes"), "Name a thread, or --older TIME, as in --older 30d")
        assert ids(bench) == {"a"}

    @pytest.mark.parametrize(
        "words", [("delete", "a"), ("delete", "--older", "2099-01-01"), ("delete", "a", "--json")]
    )
    def test_nobody_to_ask(self, bench: Bench, words: tuple[str, ...]) -> None:
        with_threads(bench, a=steps(DONE))
        result = bench(*words)
        assert result.exit_code == 2
        assert "add --yes, or --dry-run to list what would be deleted" in result.stderr
        assert ids(bench) == {"a"}

    @pytest.mark.parametrize("given", ["soon", "", "30", "d30", "30x", "9999999d"])
    def test_no_time(self, bench: Bench, given: str) -> None:
        one_sentence(
            bench("delete", "--older", given), "--older", "is not a time; write a span like 7d, 24h or 30min"
        )

    @pytest.mark.parametrize(
        "words", [("stats",), ("threads",), ("threads", "--expire"), ("delete", "--older", "1d")]
    )
    def test_a_database_that_is_named_and_not_there(self, bench: Bench, words: tuple[str, ...]) -> None:
        where = bench.folder / "misspelt.sqlite"
        one_sentence(
            bench(*words, "--database", str(where)), f"There is no database {where}; name another one"
        )
        assert not where.exists()


ANSWERS = {"y": (0, set[str]()), "yes": (0, set[str]()), "n": (1, {"a"}), "": (1, {"a"}), "\x04": (1, {"a"})}


@pytest.mark.parametrize("typed", ANSWERS)
def test_a_person_is_asked(bench: Bench, typed: str) -> None:
    with_threads(bench, a=steps(DONE))
    code, left = ANSWERS[typed]
    with in_terminal(bench, "delete", "a") as terminal:
        terminal.until("Delete this thread? It cannot be undone. [y/N] ")
        terminal.type(typed if typed == "\x04" else f"{typed}\n")
        terminal.until("Deleted a." if code == 0 else "Nothing was deleted.")
        assert terminal.end() == code
    assert ids(bench) == left


SCRIPTS = {
    "success": steps(DONE), "limit": f"[{LOOK}] * 3", "error": steps("ValueError()"), "waiting": steps(ASK),
}  # fmt: skip


def aged(bench: Bench, days: float, *names: str) -> None:
    """Makes these threads so much older: each checkpoint has the time at which it was saved in it."""
    then = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    with sqlite_storage(bench.database) as storage:
        for name in names:
            found = storage.checkpointer.get_tuple({"configurable": {"thread_id": name}})
            assert found is not None
            found.checkpoint["ts"] = then
            kind, data = storage.checkpointer.serde.dumps_typed(found.checkpoint)
            with storage.checkpointer.cursor() as cursor:
                values = (kind, data, name, found.checkpoint["id"])
                cursor.execute(
                    "UPDATE checkpoints SET type = ?, checkpoint = ? "
                    "WHERE thread_id = ? AND checkpoint_id = ?",
                    values,
                )


OLDER: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "those that ended": (("--older", "30d"), {"success", "limit", "error"}),
    "those that wait, too": (("--older", "30d", "--all"), {"success", "limit", "error", "waiting"}),
    "none of that age": (("--older", "50d", "--all"), set()),
    "by a date": (("--older", "2099-01-01", "--all"), {*SCRIPTS, "new"}),
}


@pytest.mark.parametrize("case", OLDER)
def test_which_older_threads_go(bench: Bench, case: str) -> None:
    options, expected = OLDER[case]
    with_threads(bench, **SCRIPTS, new=steps(DONE))
    aged(bench, 40, *SCRIPTS)
    every = {*SCRIPTS, "new"}
    dry = json.loads(bench("delete", *options, "--dry-run", "--json").stdout)
    assert set(dry.get("would_delete", ())) == expected
    assert ids(bench) == every
    result = bench("delete", *options, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    told = f"Deleted {len(expected)} threads.\n" if expected else "No thread ended that long ago.\n"
    assert result.stdout == told
    assert ids(bench) == every - expected


def test_an_older_thread_that_runs_stays(bench: Bench) -> None:
    with_threads(bench, a=steps(DONE), b=steps(DONE))
    with thread_lock(bench.database, "a"):
        assert bench("delete", "--older", "2099-01-01", "--all", "--yes").stdout == "Deleted b.\n"
    assert ids(bench) == {"a"}


def test_those_that_did_not_end_are_mentioned(bench: Bench) -> None:
    with_threads(bench, a=steps(ASK))
    said = bench("delete", "--older", "2099-01-01", "--yes").stdout
    assert (
        said
        == "No thread ended that long ago. 1 thread of that age have not ended: --all deletes them, too.\n"
    )


def test_no_database_has_no_older_threads(bench: Bench) -> None:
    result = bench("delete", "--older", "1d", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No thread ended that long ago.\n")
    assert not bench.database.exists()
