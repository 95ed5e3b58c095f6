"""The parts of the command line: harmless text, shell words, settings, the choice of a model, locks."""

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import SetupError, ThreadBusy, sqlite_storage
from signoff.cli.calls import arguments, shortened
from signoff.cli.drive import Answered, Called, Follower, Happening, Moved, Reminded, Said, Thought, Wrote
from signoff.cli.names import checked_thread_id, new_thread_id
from signoff.cli.safe import one_line, plain, shell_command
from signoff.cli.settings import Given, Settings, recall, remember, settle
from signoff.cli.threads import ago
from signoff.graph.machine import State
from signoff.graph.marks import nudge
from signoff.graph.task import Task
from signoff.locks import is_locked, lock_folder, thread_lock
from signoff.models import ScriptedModel
from signoff.models.choose import check_model, choose_model

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


class TestSettings:
    BEFORE = Settings(workspace="/", model="gpt-a", base_url="http://a/v1", turns=7, talk_turns=3)
    CASES: Mapping[str, tuple[Given, Settings | None, dict[str, str], str, str | None]] = {
        "nothing": (Given(), None, {}, "local", None),
        "option": (Given(model="m"), None, {"SIGNOFF_MODEL": "e"}, "m", None),
        "environment": (
            Given(),
            None,
            {"SIGNOFF_MODEL": "e", "OPENAI_BASE_URL": "http://e"},
            "e",
            "http://e",
        ),
        "the thread's": (Given(), BEFORE, {"SIGNOFF_MODEL": "e"}, "gpt-a", "http://a/v1"),
        "option on a thread": (Given(model="m"), BEFORE, {}, "m", None),
        "address on a thread": (Given(base_url="http://b"), BEFORE, {}, "gpt-a", "http://b"),
        "local by name": (Given(model="local"), BEFORE, {"OPENAI_BASE_URL": "http://e"}, "local", None),
    }

    @pytest.mark.parametrize("case", CASES)
    def test_where_the_model_comes_from(self, case: str) -> None:
        given, before, env, model, base_url = self.CASES[case]
        settled = settle(given, before, env)
        assert (settled.model, settled.base_url) == (model, base_url)

    def test_limits_and_workspace_are_the_threads_unless_given(self, tmp_path: Path) -> None:
        kept = settle(Given(), self.BEFORE, {})
        assert (kept.workspace, kept.turns, kept.talk_turns) == ("/", 7, 3)
        given = settle(Given(workspace=tmp_path, turns=2, talk_turns=1), self.BEFORE, {})
        assert (given.workspace, given.turns, given.talk_turns) == (str(tmp_path), 2, 1)
        fresh = settle(Given(), None, {})
        assert (fresh.workspace, fresh.turns, fresh.talk_turns) == (str(Path.cwd()), 30, 5)

    @pytest.mark.parametrize("thread_id", ["t", "a.b", "100%", "*", ".", "é\n"])
    def test_a_thread_remembers_its_own_settings(self, tmp_path: Path, thread_id: str) -> None:
        with sqlite_storage(tmp_path / "db") as storage:
            remember(storage.store, f"{thread_id}2", self.BEFORE.model_copy(update={"turns": 2}))
            assert recall(storage.store, thread_id) is None
            remember(storage.store, thread_id, self.BEFORE)
            assert recall(storage.store, thread_id) == self.BEFORE

    def test_no_secret_is_remembered(self, tmp_path: Path) -> None:
        secret = self.BEFORE.model_copy(
            update={"base_url": "https://me:hunter2@host:99/v1?key=hunter2#hunter2"}
        )
        with sqlite_storage(tmp_path / "db") as storage:
            remember(storage.store, "t", secret)
            found = recall(storage.store, "t")
        assert found is not None
        assert found.base_url == "https://host:99/v1"
        assert not [file for file in tmp_path.iterdir() if b"hunter2" in file.read_bytes()]


class TestChoice:
    def test_an_openai_compatible_server(self) -> None:
        model = choose_model("m", "http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "k"}).model
        assert isinstance(model, ChatOpenAI)
        assert isinstance(model.openai_api_key, SecretStr)
        assert model.openai_api_key.get_secret_value() == "k"
        assert (model.model_name, model.openai_api_base) == ("m", "http://127.0.0.1:1/v1")

    def test_an_address_needs_no_key_and_openai_does(self) -> None:
        assert choose_model("m", "http://127.0.0.1:1/v1", {}).model
        for attempt in (choose_model, check_model):
            with pytest.raises(SetupError, match="OPENAI_API_KEY"):
                attempt("m", None, {})

    @pytest.mark.parametrize("url", ["localhost:8000", "ftp://h/v1", "http://", "/v1", "http//h"])
    def test_what_is_no_address(self, url: str) -> None:
        with pytest.raises(SetupError, match="no web address"):
            check_model("m", url, {"OPENAI_API_KEY": "k"})

    SCRIPTS: Mapping[str, tuple[str, str | None]] = {
        "model": ("from signoff.models import ScriptedModel\nmodel = ScriptedModel(['hi'])", None),
        "script": ("script = ['hi']", None),
        "neither": ("x = 1", "defines neither"),
        "broken": ("1 / 0", "ZeroDivisionError"),
        "no python": ("no python here", "SyntaxError"),
    }

    @pytest.mark.parametrize("case", SCRIPTS)
    def test_a_scripted_model_from_a_file(self, tmp_path: Path, case: str) -> None:
        source, problem = self.SCRIPTS[case]
        (tmp_path / "model.py").write_text(source)
        name = f"scripted:{tmp_path / 'model.py'}"
        if problem:
            with pytest.raises(SetupError, match=problem):
                choose_model(name, None, {})
        else:
            model = choose_model(name, None, {}).model
            assert isinstance(model, ScriptedModel)
            assert model.invoke("?").text == "hi"


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


def test_messages_as_happenings() -> None:
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
    follower = Follower(Task(), turns=9)
    found: list[Happening] = [happening for message in messages for happening in follower.message(message)]
    assert found == [
        Wrote("do it"),
        Said(1, "first"),
        Called(1, "read_file", {"path": "a"}, True, "text"),
        Thought(1, "hm", None, "s"),
        Answered(1, "which?", "blue"),
        Reminded("talked", "go on"),
        Called(2, "finish_task", {}, False, "Refused: no summary"),
    ]
    assert list(follower.update(State.EXECUTE, {"event": "more"})) == [Moved(State.ROUTE_TOOLS, 2, 9, 5)]


def test_a_reply_whose_calls_got_new_ids_is_still_one_turn() -> None:
    follower = Follower(Task(), turns=9)
    reply = AIMessage("", id="r", tool_calls=[{"name": "add", "args": {}, "id": "call_0"}])
    renamed = AIMessage("", id="r", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "call_9"}])
    for message in (reply, renamed):
        assert list(follower.message(message)) == []
    assert list(follower.message(ToolMessage("2", tool_call_id="call_9"))) == [
        Called(1, "add", {"a": 1}, True, "2")
    ]
