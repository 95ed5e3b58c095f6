"""A run that dies before or after any write: the command line picks the thread up by its ID."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import signoff.storage.sqlite
from tests.support.benches.cli import ASKS, Bench


class Died(BaseException):
    """The process is gone: no code of ours may catch this, and nothing is written after it."""


class Mortal(signoff.storage.sqlite.ThreadSaver):
    """Dies at the n-th moment before or after a write, and stays dead."""

    left = 0

    def _moment(self) -> None:
        Mortal.left -= 1
        if Mortal.left <= 0:
            raise Died

    def _around(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._moment()
        done = write(*args, **kwargs)
        self._moment()
        return done

    def put(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(super().put, *args, **kwargs)

    # LangGraph gives the path only to a saver that names it, and by that path ours tells what may wait.
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._around(super().put_writes, config, writes, task_id, task_path)

    def save(self, *args: Any) -> None:
        if Mortal.left <= 0:
            raise Died
        super().save(*args)


def until_done(bench: Bench, task: str, wanted: str) -> int:
    """Does what a person would who knows only the thread's ID; how many commands that took."""
    for count in range(1, 6):
        found = bench.json("show", "t1")
        told = [words for chapter in found.get("tasks", ()) for words in chapter["words"]]
        outcome = found.get("outcome") or {}
        if outcome.get("status") == "success" and outcome["summary"] == wanted:
            return count
        if task not in told:
            bench.run(task)
        elif found["status"] == "waiting":
            bench("resume", "t1", "8080")
        else:
            bench("resume", "t1")
    raise AssertionError(f"not done: {found}")


def died(bench: Bench, *words: str, at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Runs a command that dies at that moment. False when it lived to its end."""
    Mortal.left = at
    with monkeypatch.context() as patch:
        patch.setattr(signoff.storage.sqlite, "ThreadSaver", Mortal)
        try:
            bench(*words)
        except Died:
            return True
    return False


COMMANDS = {
    "run": (("run", "Change it", "-t", "t1"), "Change it", "The port in config.py is changed."),
    "resume": (("resume", "t1", "8080"), "Change it", "The port in config.py is changed."),
    "next task": (("run", "And more", "-t", "t1"), "And more", "The second task is done."),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.thorough
def test_it_ends_as_if_nothing_had_happened(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, task, wanted = COMMANDS[name]
    # After one write is before the next: every second moment is enough.
    moment, alive = -1, False
    while not alive:
        moment += 2
        folder = tmp_path / str(moment)
        folder.mkdir()
        bench = Bench(folder)
        bench.model(ASKS)
        monkeypatch.chdir(bench.workspace)
        if name != "run":
            bench.run("Change it")
        if name == "next task":
            bench("resume", "t1", "8080")
        alive = not died(bench, *words, at=moment, monkeypatch=monkeypatch)
        until_done(bench, task, wanted)
        assert bench.config.read_text() == "PORT = 8080\n"
    assert moment > 10
