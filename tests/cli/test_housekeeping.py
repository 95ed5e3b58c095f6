"""`signoff export`, `delete`, `prune`: what they keep and remove, whom they ask, what they refuse."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import messages_from_dict

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

    def test_what_an_older_version_has_left_of_one_goes_too(self, bench: Bench) -> None:
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
    @pytest.mark.parametrize("words", [("delete", "b", "--yes"), ("export", "b")])
    @pytest.mark.parametrize("database", [True, False], ids=["a database", "no database"])
    def test_a_thread_that_is_not_there(self, bench: Bench, words: tuple[str, ...], database: bool) -> None:
        if database:
            with_threads(bench, a=steps(DONE))
        one_sentence(bench(*words), "There is no thread 'b' in", "`signoff threads` lists them")

    @pytest.mark.parametrize("words", [("delete", "a", "--yes"), ("export", "a")])
    def test_a_thread_that_runs(self, bench: Bench, words: tuple[str, ...]) -> None:
        with_threads(bench, a=steps(DONE))
        with thread_lock(bench.database, "a"):
            one_sentence(bench(*words), "'a' is running elsewhere; wait until it ends, or pause it there.")
        assert ids(bench) == {"a"}

    @pytest.mark.parametrize(
        "words", [("delete", "a"), ("prune", "--older", "2099-01-01"), ("delete", "a", "--json")]
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
            bench("prune", "--older", given), "--older", "is not a time; write a span like 7d, 24h or 30min"
        )

    @pytest.mark.parametrize(
        "words", [("stats",), ("threads",), ("threads", "--expire"), ("prune", "--older", "1d")]
    )
    def test_a_database_that_is_named_and_not_there(self, bench: Bench, words: tuple[str, ...]) -> None:
        where = bench.folder / "misspelt.sqlite"
        one_sentence(
            bench(*words, "--database", str(where)), f"There is no database {where}; name another one"
        )
        assert not where.exists()

    def test_a_file_that_cannot_be_written(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        one_sentence(
            bench("export", "a", "-o", "/nowhere/a.json"),
            "Cannot write to /nowhere/a.json",
            "name another file",
        )


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


PRUNED: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "those that ended": (("--older", "30d"), {"success", "limit", "error"}),
    "those that wait, too": (("--older", "30d", "--all"), {"success", "limit", "error", "waiting"}),
    "none of that age": (("--older", "50d", "--all"), set()),
    "by a date": (("--older", "2099-01-01", "--all"), {*SCRIPTS, "new"}),
}


@pytest.mark.parametrize("case", PRUNED)
def test_what_is_pruned(bench: Bench, case: str) -> None:
    options, expected = PRUNED[case]
    with_threads(bench, **SCRIPTS, new=steps(DONE))
    aged(bench, 40, *SCRIPTS)
    every = {*SCRIPTS, "new"}
    dry = json.loads(bench("prune", *options, "--dry-run", "--json").stdout)
    assert set(dry.get("would_delete", ())) == expected
    assert ids(bench) == every
    result = bench("prune", *options, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    told = f"Deleted {len(expected)} threads.\n" if expected else "No thread ended that long ago.\n"
    assert result.stdout == told
    assert ids(bench) == every - expected


def test_a_thread_that_runs_is_not_pruned(bench: Bench) -> None:
    with_threads(bench, a=steps(DONE), b=steps(DONE))
    with thread_lock(bench.database, "a"):
        assert bench("prune", "--older", "2099-01-01", "--all", "--yes").stdout == "Deleted b.\n"
    assert ids(bench) == {"a"}


def test_those_that_did_not_end_are_mentioned(bench: Bench) -> None:
    with_threads(bench, a=steps(ASK))
    said = bench("prune", "--older", "2099-01-01", "--yes").stdout
    assert (
        said
        == "No thread ended that long ago. 1 thread of that age have not ended: --all deletes them, too.\n"
    )


def test_no_database_has_nothing_to_prune(bench: Bench) -> None:
    result = bench("prune", "--older", "1d", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No thread ended that long ago.\n")
    assert not bench.database.exists()


class TestExport:
    def exported(self, bench: Bench, name: str = "a", *words: str) -> dict[str, Any]:
        result = bench("export", name, *words)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def test_history_outcome_and_records(self, bench: Bench) -> None:
        with_threads(bench, a=steps(EDIT, DONE), ab=steps(DONE))
        bench("rate", "a", "5")
        found = self.exported(bench)
        assert (found["format"], found["thread_id"], found["condition"]) == (1, "a", "ended")
        assert found["outcome"]["summary"] == "All done."
        assert [outcome["status"] for outcome in found["outcomes"]] == ["success"]
        kinds = [message.type for message in messages_from_dict(found["history"])]
        assert kinds == ["human", "ai", "tool", "human", "ai", "tool", "ai"]
        assert [step["state"] for step in found["path"]][-2:] == ["review", "finish"]
        records = {record["record"]: record for record in found["records"]}
        assert set(records) == {"figures", "journal", "outcomes", "ratings", "threads"}
        assert records["journal"]["value"]["status"] == "done"
        assert 5 in records["ratings"]["value"].values()
        assert records["threads"]["value"]["workspace"] == str(bench.workspace)

    def test_one_that_waits_says_for_what(self, bench: Bench) -> None:
        with_threads(bench, a=steps(ASK))
        found = self.exported(bench)
        assert (found["outcome"], found["outcomes"]) == (None, [])
        assert found["waiting"]["for"] == "answer"
        assert found["waiting"]["question"] == "Which port?"

    def test_into_a_file(self, bench: Bench) -> None:
        with_threads(bench, a=steps(DONE))
        file = bench.folder / "a.json"
        result = bench("export", "a", "--output", str(file))
        assert (
            result.stdout
            == f"Written to {file}. It contains everything in the thread: check it before you share it.\n"
        )
        assert json.loads(file.read_text())["thread_id"] == "a"
