"""`signoff acp` as an editor starts it: sessions are threads, and each answer of a person counts once."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from signoff import Session, build_graph, sqlite_storage
from signoff.cli.app import app
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.protocols.conftest import text_of
from tests.support.rpc import FAILS, NEVER, Peer, Refused, fill_in, signoff

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parents[1] / "support" / "servers"
INVALID, FAILED = -32602, -32000
PUT_AWAY = {"result": {"action": "cancel"}}
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
LARGE = "x" * 2_000_000


def choose(option: Any) -> dict[str, Any]:
    return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


def edit_to(arguments: str) -> dict[str, Any]:
    return fill_in(arguments=arguments)


def server(name: str, program: str, *words: object) -> dict[str, Any]:
    """An MCP server of the editor."""
    args = [str(SERVERS / program), *map(str, words)]
    return {"name": name, "command": sys.executable, "args": args, "env": []}


class Editor(Peer):
    """An editor and the agent that it has started."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, version: int | None = 1, **capabilities: Any
    ) -> None:
        super().__init__(command, folder)
        if version is not None:
            self.request("initialize", protocolVersion=version, clientCapabilities=capabilities)

    def new(self, cwd: object = None, servers: Sequence[Any] = ()) -> str:
        made = self.request("session/new", cwd=str(cwd or self.folder), mcpServers=[*servers])
        return str(made["sessionId"])

    def load(self, session: str, method: str = "session/load") -> None:
        self.request(method, cwd=str(self.folder), sessionId=session, mcpServers=[])

    def begin(self, session: str, text: str) -> int:
        prompt = [{"type": "text", "text": text}] if text else []
        return self.start("session/prompt", sessionId=session, prompt=prompt)

    def prompt(self, session: str, text: str, *answers: Any) -> str:
        """Returns why the turn stopped. answers: what a person chooses in its dialogs."""
        self.answers.extend(answers)
        stopped = self.response(self.begin(session, text))
        assert not self.answers, "fewer dialogs were shown"
        return str(stopped["stopReason"])

    def hang(self, session: str, text: str) -> tuple[int, int]:
        """The ids of a prompt and of its dialog, which a person leaves open."""
        # The package numbers its requests one by one.
        dialog = len(self.asked)
        self.answers.append(NEVER)
        prompt = self.begin(session, text)
        self.wait_for(lambda: len(self.asked) > dialog)
        return prompt, dialog

    def updates(self, session: str, *kinds: str) -> list[Any]:
        heard = [params for _, params in self.heard if params["sessionId"] == session]
        return [params["update"] for params in heard if params["update"]["sessionUpdate"] in kinds]

    def said(self, session: str, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(session, kind))

    def sessions(self, **options: Any) -> list[list[str]]:
        """The ids of the sessions, page by page."""
        page = self.request("session/list", **options)
        ids = [[session["sessionId"] for session in page["sessions"]]]
        cursor = page.get("nextCursor")
        return ids + self.sessions(**{**options, "cursor": cursor}) if cursor else ids


@pytest.fixture(scope="module")
def command(folder: Path) -> list[str]:
    return signoff("acp", folder / "threads.sqlite", "--approve", "terminal", "--turns", "4")


@pytest.fixture(scope="module")
def with_forms(folder: Path, command: list[str]) -> Iterator[Editor]:
    with Editor(command, folder, **FORMS) as editor:
        yield editor


@pytest.fixture(scope="module")
def without_forms(folder: Path, command: list[str]) -> Iterator[Editor]:
    with Editor(command, folder) as editor:
        yield editor


@pytest.fixture
def storage(folder: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(folder / "threads.sqlite") as storage:
        yield storage


# What a person chooses, one dialog after the other; what then stands in the file; why the turn stops.
DIALOGS: dict[str, tuple[list[Any], str, str]] = {
    "edited wrongly": ([choose("edit"), edit_to("no JSON"), choose("approve")], "ran\n", "end_turn"),
    "an edit that is put away": ([choose("edit"), PUT_AWAY], "", "cancelled"),
    "an option that was not offered": ([choose("always"), choose("approve")], "ran\n", "end_turn"),
}


@pytest.mark.parametrize("case", DIALOGS)
def test_a_call_is_decided_in_a_dialog(with_forms: Editor, file: Path, case: str) -> None:
    """tests/faces has what a decision comes to."""
    answers, wrote, stops = DIALOGS[case]
    session = with_forms.new()
    first = len(with_forms.asked)
    assert with_forms.prompt(session, f"run {file.name}", *answers) == stops
    asked = with_forms.asked[first][1]
    assert [option["optionId"] for option in asked["options"]] == ["approve", "edit", "reject"]
    updates = with_forms.updates(session, "tool_call", "tool_call_update")
    assert {update["toolCallId"] for update in updates} == {asked["toolCall"]["toolCallId"]}
    assert updates[0]["status"] == "pending"
    if stops == "end_turn":
        assert updates[-1]["status"] == "completed"
    else:
        assert with_forms.prompt(session, "/stop") == "end_turn"
    assert text_of(file) == wrote


# What comes of the form of a question, in an editor with forms.
OPEN: dict[str, dict[str, Any]] = {
    "put away": PUT_AWAY,
    "something else": {"result": {"action": "accept", "content": 5}},
}


@pytest.mark.parametrize("case", [*OPEN, "an editor without forms"])
def test_else_the_next_prompt_is_the_answer(
    with_forms: Editor, without_forms: Editor, file: Path, case: str
) -> None:
    editor, answers = (with_forms, [OPEN[case]]) if case in OPEN else (without_forms, [])
    session = editor.new()
    assert editor.prompt(session, f"ask {file.name}", *answers) == "end_turn"
    assert all(word in editor.said(session) for word in ("Which port?", "8080", "9090"))
    assert editor.prompt(session, "2") == "end_turn"
    assert text_of(file) == "9090"
    (change,) = editor.updates(session, "tool_call")[-1]["content"]
    assert (change["type"], change["newText"], change["path"]) == ("diff", "9090", str(file))


BROKEN: dict[str, Any] = {
    "an error": FAILS,
    "an error of other types": {"error": {"code": "x", "message": 5}},
    "a text": {"result": "approve"},
}


def test_a_dialog_without_an_answer_leaves_the_call_to_the_next_prompt(
    without_forms: Editor, file: Path
) -> None:
    session, text = without_forms.new(), f"run {file.name}"
    for case, answer in BROKEN.items():
        assert without_forms.prompt(session, text, answer) == "end_turn", case
        text = "perhaps"
    assert text_of(file) == ""
    assert without_forms.prompt(session, "approve") == "end_turn"
    assert text_of(file) == "ran\n"


def test_a_dialog_that_is_never_answered_hangs_nothing_and_an_answer_counts_once(
    without_forms: Editor, file: Path
) -> None:
    session = without_forms.new()
    prompt, _ = without_forms.hang(session, f"run {file.name}")
    without_forms.send(method="session/cancel", params={"sessionId": session})
    assert without_forms.response(prompt)["stopReason"] == "cancelled"
    prompt, dialog = without_forms.hang(session, "")
    without_forms.send(id=10_000, **choose("approve"))
    assert text_of(file) == ""
    for _ in range(2):
        without_forms.send(id=dialog, **choose("approve"))
    assert without_forms.response(prompt)["stopReason"] == "end_turn"
    assert text_of(file) == "ran\n"


# --- how a turn ends, and goes on ---


def test_a_limit_and_more_turns(without_forms: Editor, file: Path) -> None:
    session = without_forms.new()
    assert without_forms.prompt(session, f"write {file.name}") == "max_turn_requests"
    assert without_forms.prompt(session, "/continue 5") == "end_turn"


def test_an_error_is_an_error_and_is_tried_again(without_forms: Editor, file: Path) -> None:
    session = without_forms.new()
    with pytest.raises(Refused) as refused:
        without_forms.prompt(session, f"fail {file}")
    assert refused.value.code == FAILED
    assert refused.value.data == {"thread": session, "reason": "model_error"}
    file.touch()
    assert without_forms.prompt(session, "/continue") == "end_turn"


@pytest.mark.parametrize("how", ["session/cancel", "session/close"])
def test_what_is_cancelled_or_closed_is_paused(without_forms: Editor, file: Path, how: str) -> None:
    session = without_forms.new()
    prompt = without_forms.begin(session, f"slow {file}")
    without_forms.wait_for(lambda: without_forms.updates(session, "tool_call_update"))
    with pytest.raises(Refused):
        without_forms.load(session)
    is_closed = how == "session/close"
    without_forms.send(method=how, params={"sessionId": session}, **({"id": "close"} if is_closed else {}))
    # A notification is not answered, but what is sent after it is.
    with pytest.raises(Refused):
        without_forms.prompt(session, "Another")
    file.with_suffix(".go").touch()
    assert without_forms.response(prompt)["stopReason"] == "cancelled"
    assert not file.with_suffix(".1").exists()
    if is_closed:
        without_forms.response("close")
        without_forms.load(session)
    assert without_forms.prompt(session, "") == "end_turn"
    assert file.with_suffix(".1").exists()
    with pytest.raises(Refused):
        without_forms.prompt(session, "")


def test_phases_are_a_plan(without_forms: Editor) -> None:
    session = without_forms.new()
    assert without_forms.prompt(session, "phases") == "end_turn"
    plans = [update["entries"] for update in without_forms.updates(session, "plan")]
    assert [entry["status"] for entry in plans[0]] == ["completed", "in_progress"]
    assert plans[0][1]["content"] == "Write it"
    assert {entry["status"] for entry in plans[-1]} == {"completed"}


# --- sessions are threads ---


def test_a_saved_session_is_told_again(with_forms: Editor, without_forms: Editor, file: Path) -> None:
    session, task = without_forms.new(), f"ask {file.name}"
    without_forms.prompt(session, task)
    with pytest.raises(Refused):
        with_forms.prompt(session, "9090")
    with_forms.load(session)
    assert with_forms.said(session, "user_message_chunk") == task
    assert "Which port?" in with_forms.said(session)
    assert with_forms.prompt(session, "9090") == "end_turn"
    assert text_of(file) == "9090"
    without_forms.heard.clear()
    without_forms.load(session)
    assert without_forms.said(session, "user_message_chunk") == f"{task}9090"
    assert [call["status"] for call in without_forms.updates(session, "tool_call")] == ["completed"]


def test_words_that_were_written_before_a_question_was_seen_do_not_answer_it(
    with_forms: Editor, without_forms: Editor, file: Path
) -> None:
    session = with_forms.new()
    with_forms.prompt(session, f"later {file.name}")
    without_forms.load(session, "session/resume")
    assert with_forms.prompt(session, "And now?", PUT_AWAY) == "end_turn"
    assert without_forms.prompt(session, "9090") == "end_turn"
    assert text_of(file) == ""
    assert "Which port?" in without_forms.said(session)
    assert without_forms.prompt(session, "9090") == "end_turn"
    assert text_of(file) == "9090"


def test_a_thread_that_runs_elsewhere_is_left_alone(
    with_forms: Editor, without_forms: Editor, file: Path, storage: SqliteStorage
) -> None:
    session = without_forms.new()
    without_forms.prompt(session, f"ask {file.name}")
    with storage.checkpointer.runner(session):
        with_forms.load(session)
        assert "Which port?" not in with_forms.said(session)
        for editor, words in ((without_forms, "1"), (with_forms, "1"), (with_forms, "/stop")):
            with pytest.raises(Refused) as refused:
                editor.prompt(session, words)
            assert refused.value.code == FAILED
    assert text_of(file) == ""
    with_forms.load(session)
    assert with_forms.prompt(session, "1") == "end_turn"
    assert text_of(file) == "8080"


def test_the_list_comes_in_pages_and_by_folder(
    without_forms: Editor, storage: SqliteStorage, tmp_path: Path
) -> None:
    graph = build_graph(ScriptedModel(lambda _: call("finish_task", summary="Done.")), storage=storage)
    names = [f"t{number}" for number in range(51)]
    for name in names:
        Session(graph, name).run("Task")
    first, second, *_ = without_forms.sessions()
    assert [*first, second[0]] == names[::-1]
    (tmp_path / "link").symlink_to(folder := tmp_path / "real")
    folder.mkdir()
    session = without_forms.new(tmp_path / "link")
    assert without_forms.prompt(session, "phases") == "end_turn"
    for same in (f"{folder}/", f"{tmp_path}/link", f"{folder}/../real"):
        assert session in without_forms.sessions(cwd=same)[0], same
    assert session not in without_forms.sessions(cwd=str(tmp_path))[0]


# --- what an editor gives ---


def test_a_tool_whose_name_is_taken_has_that_of_its_server_before_it(
    without_forms: Editor, tmp_path: Path
) -> None:
    servers = [
        server("fs", "mcp_named.py", tmp_path / "fs", "read_file", "look"),
        server("x " * 40, "mcp_named.py", tmp_path / "other", "look"),
    ]
    told = {
        "fs_read_file": "fs did read_file",
        "fs_look": "fs did look",
        f"{'x_' * 15}_look": "other did look",
    }
    session = without_forms.new(servers=servers)
    assert without_forms.prompt(session, f"use {' '.join(told)}") == "end_turn"
    updates = without_forms.updates(session, "tool_call_update")
    results = [update["rawOutput"] for update in updates if update["status"] == "completed"]
    assert [text for text, result in zip(told.values(), results, strict=True) if text not in result] == []


def test_a_server_that_cannot_start_ends_the_others(without_forms: Editor, tmp_path: Path) -> None:
    good, broken = server("fs", "mcp_named.py", tmp_path / "fs", "look"), server("broken", "none.py")
    with pytest.raises(Refused) as refused:
        without_forms.new(servers=[good, broken])
    assert refused.value.code == INVALID
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "fs").read_text()), 0)


WRONG: dict[str, tuple[str, dict[str, Any], int]] = {
    "a relative folder": ("session/new", {"cwd": "somewhere", "mcpServers": []}, INVALID),
    "a server that is no process": (
        "session/new",
        {"cwd": "/", "mcpServers": [{"type": "http", "name": "far", "url": "http://x", "headers": []}]},
        INVALID,
    ),
    "an unknown session": ("session/load", {"sessionId": "none", "cwd": "/", "mcpServers": []}, INVALID),
    "an unknown method": ("session/teleport", {"to": LARGE}, -32601),
}


def test_a_wrong_request_is_refused_and_not_sent_back(without_forms: Editor) -> None:
    for case, (method, params, code) in WRONG.items():
        with pytest.raises(Refused) as refused:
            without_forms.request(method, **params)
        assert (refused.value.code, len(str(refused.value)) < 2_000) == (code, True), case


# --- the process ---

# Lines that are no messages, with the id under which they are refused.
LINES: dict[str, tuple[bytes, Any, int]] = {
    "no JSON": (b"no JSON", None, -32700),
    "nested too deep": (b"[" * 100_000, None, -32700),
    "neither a method nor an id": (b'{"jsonrpc": "2.0"}', None, -32600),
    "an id that nobody sends back": (json.dumps({"id": "x" * 201, "method": "m"}).encode(), None, -32600),
    "70 MB": (b'{"id": "b", "method": "m", "params": "' + b"x" * 70_000_000, "b", -32600),
}


def test_lines_that_are_no_messages_end_nothing(without_forms: Editor) -> None:
    for quiet in (b"", b" ", b'{"id": null, "error": {"code": 1, "message": "What?"}}'):
        without_forms.write(quiet)
    for case, (line, request_id, code) in LINES.items():
        without_forms.write(line)
        with pytest.raises(Refused) as refused:
            without_forms.response(request_id)
        assert refused.value.code == code, case
    session = without_forms.new()
    # Its arguments hold a number that JSON does not have.
    assert without_forms.prompt(session, "number") == "end_turn"


def test_a_version_is_agreed_on_and_a_terminal_of_the_editor_which_then_goes_away(
    command: list[str], folder: Path, without_forms: Editor, file: Path
) -> None:
    viewers: list[subprocess.Popen[bytes]] = []
    printed: list[bytes] = []

    def create(params: Any) -> dict[str, Any]:
        viewers.append(subprocess.Popen([params["command"], *params["args"]], stdout=subprocess.PIPE))
        return {"terminalId": "one"}

    def wait_for_exit(_: Any) -> dict[str, Any]:
        printed.append(viewers[0].communicate()[0])
        return {"exitCode": viewers[0].returncode}

    with Editor(command, folder, version=None) as editor:
        for version in (0, 2):
            with pytest.raises(Refused):
                editor.new()
            agreed = editor.request(
                "initialize", protocolVersion=version, clientCapabilities={"terminal": True}
            )
        assert agreed["protocolVersion"] == 1
        editor.handlers |= {"terminal/create": create, "terminal/wait_for_exit": wait_for_exit}
        editor.handlers |= {"terminal/release": lambda _: {}}
        session = editor.new()
        assert editor.prompt(session, f"run {file.name}", choose("approve")) == "end_turn"
        (shown,) = [one for one in editor.updates(session, "tool_call_update") if one.get("content")]
        assert shown["content"] == [{"type": "terminal", "terminalId": "one"}]
        assert (printed, viewers[0].returncode, text_of(file)) == ([b"ran\r\n"], 0, "ran\n")
        other = editor.new()
        editor.hang(other, f"two {file.name}")
        assert editor.end() == 0
    without_forms.load(other)
    assert without_forms.prompt(other, "", choose("approve"), choose("reject")) == "end_turn"
    assert text_of(file) == "ran\none\n"


@pytest.mark.parametrize("name", ["acp", "mcp"])
def test_without_its_package_a_command_names_the_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda found, *more: None if found == name else find(found, *more)
    )
    result = CliRunner().invoke(app, [name])
    assert (result.exit_code, f"[{name}]" in result.stderr, result.stdout) == (2, True, "")
