"""The parts of the command line: harmless text, shell words, thread ids, locks, messages as events."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from signoff import SetupError, ThreadBusy, build_graph
from signoff.front.calls import arguments, shortened
from signoff.front.text import one_line, plain, shell_command
from signoff.front.thread_ids import checked_thread_id, forked_thread_id, new_thread_id
from signoff.front.threads import ago
from signoff.graph.history.task import Task
from signoff.graph.machine import State
from signoff.graph.messages import nudge
from signoff.models import ScriptedModel
from signoff.session.events import (
    Answered,
    Called,
    CallFinished,
    Entered,
    Nudged,
    Said,
    SessionEvent,
    Thought,
    Wrote,
)
from signoff.session.following import Follower
from signoff.session.status import deps_of
from signoff.storage.sqlite import is_locked, lock_folder, thread_lock
from signoff.tools.toolbox import Toolbox

PLAIN = {
    "words": ("a b\nc", "a b\nc"),
    "tab": ("a\tb", "a    b"),
    "windows line": ("a\r\nb", "a\nb"),
    "colour": ("\x1b[31mred", "␛[31mred"),
    "bell, delete": ("\x07\x7f", "␇␡"),
    "carriage return": ("real\rfake", "real␍fake"),
    "eight-bit control": ("\x9b31m", "⟨U+009B⟩31m"),
    "right to left": ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
    "line separator": ("a\u2028b", "a⟨U+2028⟩b"),
    "half a character": ("\ud800", "\ufffd"),
    "letters": ("é 日本 👩‍💻", "é 日本 👩‍💻"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_text_is_made_harmless(case: str) -> None:
    text, shown = PLAIN[case]
    assert plain(text) == shown


def test_one_line() -> None:
    assert one_line("a\n\n b\tc\x1b") == "a b c␛"


@pytest.mark.parametrize(
    "word", ["a", "a b", "it's", "$HOME `id` \\", "\x1b[31m", "a\nb'c\\d", "é", "é\u202e", ""]
)
def test_a_shell_reads_the_printed_words_as_they_were(word: str) -> None:
    command = shell_command(["printf", "%s|", word, "end"])
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == f"{word}|end|"


@pytest.mark.parametrize("thread_id", ["a", "x" * 500, "a.b%c*?[d]", "é 日本\n"])
def test_a_thread_id_is_any_text(thread_id: str) -> None:
    assert checked_thread_id(thread_id) == thread_id


@pytest.mark.parametrize("thread_id", ["", "x" * 501, "a\0", "\ud800"])
def test_what_is_no_thread_id(thread_id: str) -> None:
    with pytest.raises(SetupError):
        checked_thread_id(thread_id)


def test_a_fork_is_named_after_its_thread() -> None:
    assert forked_thread_id("t", []) == "t-fork-1"
    assert forked_thread_id("t", ["t-fork-1", "t-fork-2"]) == "t-fork-3"
    long = forked_thread_id("x" * 500, [])
    assert checked_thread_id(forked_thread_id(long, [long])) != long


def test_a_new_thread_id_is_free() -> None:
    class AllButOne:
        def __init__(self) -> None:
            self.asked = 0

        def __contains__(self, name: object) -> bool:
            self.asked += 1
            return self.asked < 5

    taken = AllButOne()
    assert new_thread_id(taken).count("-") == 2
    assert taken.asked == 5


AGO = [("11:59:30", "30 s ago"), ("11:58:00", "2 min ago"), ("09:00:00", "3 h ago"), ("12:00:09", "0 s ago")]


@pytest.mark.parametrize(("moment", "said"), AGO)
def test_how_long_ago(moment: str, said: str) -> None:
    assert ago(f"2026-01-02T{moment}+00:00", datetime(2026, 1, 2, 12, tzinfo=UTC)) == said


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"old": "a\nb", "path": "x.py"}, 'x.py  old="a b"'),
    ({"n": 3, "deep": {"a": [1]}}, 'n=3  deep={"a": [1]}'),
    ({"content": "x" * 100}, f'content="{"x" * 59}…"'),
    ({"\x1b": "\x1b"}, '␛="␛"'),
]


@pytest.mark.parametrize(("args", "shown"), ARGUMENTS)
def test_arguments_in_short(args: dict[str, Any], shown: str) -> None:
    assert arguments(args) == shown


def test_results_in_short() -> None:
    assert shortened("") == []
    assert shortened("\n\na\n\nb\n") == ["a", "b"]
    assert shortened("a\nb\nc\nd") == ["a", "b", "… 2 more lines"]
    assert shortened("x" * 500) == ["x" * 159 + "…"]


class TestLocks:
    def test_one_holder_a_thread(self, tmp_path: Path) -> None:
        file = tmp_path / "db"
        assert not is_locked(file, "t")
        assert not lock_folder(file).exists()
        with thread_lock(file, "t"):
            assert is_locked(file, "t")
            assert not is_locked(file, "u")
            with pytest.raises(ThreadBusy, match="'t' is running"), thread_lock(file, "t"):
                pass
            with thread_lock(file, "u"), thread_lock(tmp_path / "other", "t"):
                pass
        assert not is_locked(file, "t")
        with thread_lock(file, "t"):
            pass

    def test_two_spellings_of_a_database_are_one(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "db")
        (tmp_path / "db").touch()
        with thread_lock(tmp_path / "db", "t"):
            assert is_locked(tmp_path / "link", "t")

    @pytest.mark.parametrize("thread_id", ["../x", "/", "a\nb", "x" * 500, "é"])
    def test_any_thread_id_has_a_lock(self, tmp_path: Path, thread_id: str) -> None:
        with thread_lock(tmp_path / "db", thread_id):
            assert is_locked(tmp_path / "db", thread_id)
        assert len(list(lock_folder(tmp_path / "db").iterdir())) == 1

    def test_the_lock_goes_when_the_work_raises(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="x"), thread_lock(tmp_path / "db", "t"):
            raise ValueError("x")
        assert not is_locked(tmp_path / "db", "t")


def test_messages_as_events() -> None:
    """What the follower makes of the messages of a task, one by one."""
    calls: Any = [
        {"name": "read_file", "args": {"path": "a"}, "id": "1"},
        {"name": "think", "args": {"thought": "hm", "status": "s"}, "id": "2"},
        {"name": "ask_user", "args": {"question": "which?"}, "id": "3"},
    ]
    usage: Any = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    messages = [
        HumanMessage("do it"),
        AIMessage("first", id="r1", tool_calls=calls, usage_metadata=usage),
        ToolMessage("text", tool_call_id="1"),
        ToolMessage("noted", tool_call_id="2"),
        ToolMessage("blue", tool_call_id="3"),
        nudge("talked", "go on"),
        AIMessage("", id="r2", tool_calls=[{"name": "finish_task", "args": {}, "id": "4"}]),
        ToolMessage("Refused: no summary", tool_call_id="4", status="error"),
    ]
    made = tuple(Called(call["name"], call["args"], call["id"]) for call in calls)
    follower = Follower(Task(), toolbox(), turns=9)
    found: list[SessionEvent] = [event for message in messages for event in follower.message(message)]
    assert found == [
        Wrote("do it"),
        Said(1, "first", made, tokens=5, message_id="r1"),
        CallFinished(1, "read_file", {"path": "a"}, True, "text", "1", reply_id="r1"),
        Thought(1, "hm", None, "s", call_id="2", reply_id="r1"),
        Answered(1, "which?", "blue", call_id="3", reply_id="r1"),
        Nudged("talked", "go on"),
        Said(2, "", (Called("finish_task", {}, "4"),), message_id="r2"),
        CallFinished(2, "finish_task", {}, False, "Refused: no summary", "4", reply_id="r2"),
    ]
    assert list(follower.update(State.EXECUTE, {"event": "more"})) == [
        Entered(State.ROUTE_TOOLS, 2, 9, 5, State.EXECUTE)
    ]


def test_a_reply_whose_calls_got_new_ids_is_still_one_turn() -> None:
    follower = Follower(Task(), toolbox(), turns=9)
    reply = AIMessage("", id="r", tool_calls=[{"name": "add", "args": {}, "id": "call_0"}])
    renamed = AIMessage("", id="r", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "call_9"}])
    assert [event for message in (reply, renamed) for event in follower.message(message)] == [
        Said(1, "", (Called("add", {}, "call_0"),), message_id="r")
    ]
    assert list(follower.message(ToolMessage("2", tool_call_id="call_9"))) == [
        CallFinished(1, "add", {"a": 1}, True, "2", "call_9", reply_id="r")
    ]


def toolbox() -> Toolbox:
    return deps_of(build_graph(ScriptedModel([]))).toolbox
