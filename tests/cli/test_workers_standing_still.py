"""Threads of the workers that stand still, and how they are told to go on: none is ever stuck."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from signoff.storage.postgres import postgres_storage
from signoff.workers.inbox import edit_inbox
from tests.support.benches.cli import Bench, offered, one_sentence

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, postgres_url: str) -> Bench:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    assert bench("submit", "Change the port", "-t", "t1", "-w", str(bench.workspace)).exit_code == 0
    return bench


def work(bench: Bench) -> None:
    assert bench("worker", "--until-idle").exit_code == 0


def status(bench: Bench) -> str:
    (found,) = json.loads(bench("threads", "--json").stdout)["threads"]
    return str(found["status"])


def test_what_has_not_begun_is_not_said_to_be_unknown(bench: Bench) -> None:
    one_sentence(bench("show", "t1"), "is in the queue and has not begun")


def test_an_answered_thread_that_was_paused_goes_on_with_its_answer(bench: Bench) -> None:
    work(bench)
    for words in (["resume", "t1", "8080"], ["pause", "t1"]):
        assert bench(*words).exit_code == 0
    work(bench)
    assert status(bench) == "paused"
    one_sentence(
        bench("resume", "t1", "9090"), "already been told how to go on", "continue it without a new request"
    )
    assert bench.json("resume", "t1")["status"] == "queued"
    work(bench)
    assert (status(bench), bench.config.read_text()) == ("success", "PORT = 8080\n")


def test_an_answered_thread_that_workers_gave_up_on_is_tried_again(bench: Bench) -> None:
    work(bench)
    assert bench("resume", "t1", "8080").exit_code == 0
    with postgres_storage(str(bench.env["SIGNOFF_DATABASE"])) as storage:
        # The last of their tries: the ones before take half a minute of waiting.
        edit_inbox(storage.store, "t1", lambda inbox: replace(inbox, failures=4))
    away = bench.workspace.rename(bench.workspace.with_name("away"))
    work(bench)
    assert status(bench) == "failed"
    away.rename(bench.workspace)
    assert bench.json("resume", "t1")["status"] == "queued"
    work(bench)
    assert (status(bench), bench.config.read_text()) == ("success", "PORT = 8080\n")


def test_an_ended_thread_that_was_paused_takes_another_task(bench: Bench) -> None:
    work(bench)
    assert bench("resume", "t1", "8080").exit_code == 0
    work(bench)
    told = bench("resume", "t1")
    one_sentence(told, "has ended; give it another task")
    assert [*offered(told.stderr).values()] == [["submit", "--thread", "t1", "the next task"]]
    assert bench("pause", "t1").exit_code == 0
    one_sentence(bench("submit", "More", "-t", "t1"), "is paused; continue it first")
    assert bench.json("resume", "t1")["status"] == "queued"
    assert bench("submit", "More", "-t", "t1").exit_code == 0
    work(bench)
    assert len(bench.json("show", "t1")["tasks"]) == 2
