"""`signoff threads`: where each thread stands, since when and for what it waits; questions that expire."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of
from signoff.storage.sqlite import thread_lock
from tests.support.benches.cli import Bench, one_sentence, steps

DONE = 'call("finish_task", summary="All done.")'
PARTIAL = 'call("finish_task", summary="x", outcome="partial")'
LOOK = 'call("read_file", path="config.py")'
ASK = 'call("ask_user", question="Which\\nport?")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
WRITE = 'call("write_file", path="new.md", content="# New")'
CONFIRM = 'call("finish_task", summary="Look at it.", requires_user_confirmation=True)'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def listed(bench: Bench, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bench("threads", "--json", *words).stdout)
    return found


Case = tuple[str, list[str], tuple[str, str | None, str | None, int, str | None, str | None], str]
CASES: dict[str, Case] = {
    # script, options of run → status, claim, reason, turns, what kind of wait, what for; in words
    "done": (steps(DONE), [], ("success", "done", "finish_task", 1, None, None), "Asserted: done"),
    "half": (
        steps(PARTIAL),
        [],
        ("success", "partial", "finish_task", 1, None, None),
        "Asserted: partly done",
    ),
    "broken": (steps("ValueError()"), [], ("error", None, "model_error", 0, None, None), "The model failed"),
    "limit": (
        f"[{LOOK}] * 3",
        ["--turns", "2"],
        ("limit", None, "turns", 2, None, None),
        "Turn limit reached",
    ),
    "question": (
        steps(LOOK, ASK),
        [],
        ("waiting", None, None, 2, "answer", "Which\nport?"),
        "waiting for an answer",
    ),
    "approval": (
        steps(f"[{EDIT}, {WRITE}]"),
        ["--approve", "write"],
        ("waiting", None, None, 1, "approval", "edit_file, write_file"),
        "waiting for approval",
    ),
    "confirmation": (
        steps(CONFIRM),
        [],
        ("waiting", None, None, 1, "confirmation", "Look at it."),
        "waiting for confirmation",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_thread_and_how_it_stands(bench: Bench, case: str) -> None:
    script, options, expected, words = CASES[case]
    bench.model(script)
    bench.run("The task", *options)
    (row,) = listed(bench)
    known = ("status", "claim", "reason", "turns", "waits_for", "what")
    assert (row["thread_id"], row["task"]) == ("t1", "The task")
    assert tuple(row[name] for name in known) == expected
    head, line = bench("threads").stdout.splitlines()
    assert head.split() == ["thread", "status", "turns", "changed", "about"]
    assert line.startswith(f"t1      {words}")
    assert line.endswith(" ".join((expected[5] or "The task").split()))


def test_an_action_that_is_handed_over(bench: Bench) -> None:
    elsewhere(bench, call("deploy", target="blue"))
    (row,) = listed(bench)
    assert (row["status"], row["waits_for"], row["what"]) == ("waiting", "action", "deploy")
    assert "waiting for an action" in bench("threads").stdout


def elsewhere(bench: Bench, step: Any) -> None:
    """A thread that another program began, which hands `deploy` over."""

    def deploy(target: str) -> str:
        """Deploy."""
        raise AssertionError("it must not run")

    with ScriptedModel([step]) as model, sqlite_storage(bench.database) as storage:
        graph = build_graph(model, [deploy], storage=storage, hand_over=["deploy"])
        graph.invoke({"messages": [("user", "do it")]}, config_of("t1"))


def test_the_ones_changed_last_come_first_and_not_more_than_asked_for(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.run(f"Task {name}", thread=name)
    bench("resume", "b", "8080")
    assert [row["thread_id"] for row in listed(bench)] == ["b", "c", "a"]
    assert [row["thread_id"] for row in listed(bench, "--limit", "2")] == ["b", "c"]


def test_since_when_is_when_it_last_changed(bench: Bench) -> None:
    begun = datetime.now(UTC)
    bench.run()
    (row,) = listed(bench)
    assert begun <= datetime.fromisoformat(row["changed"]) <= datetime.now(UTC)
    bench("show", "t1")
    assert listed(bench) == [row], "looking changes nothing"


def test_what_runs_is_running_whatever_it_waited_for(bench: Bench) -> None:
    bench.run()
    with thread_lock(bench.database, "t1"):
        (row,) = listed(bench)
    assert (row["status"], row["waits_for"], row["what"]) == ("running", None, None)


def test_no_threads_yet(bench: Bench) -> None:
    for words, said in (([], "No threads"), (["--expire"], "No question has expired")):
        result = bench("threads", *words)
        assert (result.exit_code, said in result.stdout) == (0, True)
        assert listed(bench, *words) == []
    assert not bench.database.exists()


@pytest.mark.parametrize("limit", ["0", "-1", "all", ""])
def test_what_is_no_limit(bench: Bench, limit: str) -> None:
    one_sentence(bench("threads", f"--limit={limit}"), "--limit")


def question(seconds: object, default: object) -> str:
    late = f"deadline_seconds={seconds!r}, default_answer={default!r}"
    return f'call("ask_user", question="Which port?", {late})'


SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
EXPIRES: dict[str, tuple[str, str | None]] = {
    "past its deadline": (question(0.01, "8080"), "8080"),
    "a deadline as text": (question("0.01", "8080"), "8080"),
    "without a default": (question(0.01, None), "(nobody answered in time)"),
    "not yet": (question(1000, "8080"), None),
    "no deadline": (question(None, "8080"), None),
    "no usable deadline": (question(-1, "8080"), None),
    "a confirmation": (CONFIRM, None),
}


class TestExpire:
    @pytest.mark.parametrize("case", EXPIRES)
    def test_a_question(self, bench: Bench, case: str) -> None:
        script, answer = EXPIRES[case]
        bench.model(steps(script, SAY))
        bench.run()
        time.sleep(0.02)
        before = bench.json("show", "t1")
        found = listed(bench, "--expire")
        if answer is None:
            assert found == []
            assert bench.json("show", "t1") == before
            return
        assert found == [{"thread_id": "t1", "question": "Which port?", "answer": answer, "path": []}]
        assert listed(bench)[0]["status"] == "stopped"
        assert listed(bench, "--expire") == [], "once"
        ended = bench.json("resume", "t1")
        assert (ended["exit_code"], ended["outcome"]["summary"]) == (0, answer)
        asked = next(event for event in bench.told() if event["kind"] == "question")
        assert (asked["question"], asked["answer"]) == ("Which port?", answer)

    def test_the_printed_command_goes_on(self, bench: Bench) -> None:
        bench.model(steps(question(0.01, "80"), SAY))
        bench.run()
        time.sleep(0.02)
        line = bench("threads", "--expire").stdout
        assert line.startswith("t1: Which port? → 80  (go on: signoff resume --database ")
        assert line.endswith(" t1)\n")

    def test_all_that_have_expired_and_no_other(self, bench: Bench) -> None:
        for name, seconds in {"a": 0.01, "b": 1000, "c": 0.01}.items():
            bench.model(steps(question(seconds, name), SAY))
            bench.run(thread=name)
        time.sleep(0.02)
        assert {found["thread_id"] for found in listed(bench, "--expire", "--limit", "1")} == {"a", "c"}
        assert {row["thread_id"]: row["status"] for row in listed(bench)} == {
            "a": "stopped", "b": "waiting", "c": "stopped"
        }  # fmt: skip

    @pytest.mark.parametrize("beside", ["running", "damaged"])
    def test_one_that_runs_or_is_damaged_does_not_hold_up_the_others(self, bench: Bench, beside: str) -> None:
        bench.model(steps(question(0.01, "1"), SAY))
        for name in ("a", "b", "c"):
            bench.run(thread=name)
        time.sleep(0.02)
        if beside == "damaged":
            damage(bench)
            found = listed(bench, "--expire")
        else:
            with thread_lock(bench.database, "b"):
                found = listed(bench, "--expire")
            assert bench("resume", "b", "7").exit_code == 0
        assert {item["thread_id"] for item in found} == {"a", "c"}


def damage(bench: Bench) -> None:
    with sqlite_storage(bench.database) as storage:
        storage.checkpointer.conn.execute("UPDATE checkpoints SET checkpoint=x'c1' WHERE thread_id='b'")
        storage.checkpointer.conn.commit()
