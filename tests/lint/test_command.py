"""`signoff lint` on the command line."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from signoff.cli.app import app
from signoff.cli.lint import MOST_ROWS
from signoff.lint import FaultKind
from tests.support.lint.cases import END, GO, finish, poll, work
from tests.support.lint.writers import History, Res, User, ai, chat

CLEAN: History = [GO, *END]
FAULTY: History = [GO, ai(work("w"), finish()), Res("w"), Res("f"), ai(finish("g"))]


def write(path: Path, history: History) -> str:
    path.write_text(json.dumps(chat(history)[0]), "utf-8")
    return str(path)


def lint(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["lint", *words], input=stdin, env={"COLUMNS": "120"})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_a_clean_history_is_said_to_be_clean(trace: Path) -> None:
    result = lint(write(trace, CLEAN))
    assert result.exit_code == 0
    assert result.stdout == "No fault in OpenAI chat messages: 3 messages, 1 reply, 1 call, 1 result.\n"


def test_faults_are_shown_with_their_places_and_meanings(trace: Path) -> None:
    result = lint(write(trace, FAULTY))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["message", "call", "fault", "what"]
    assert lines[1].split()[:3] == ["1", "f", "blind-finish"]
    assert lines[2].split()[:3] == ["4", "g", "repeated-finish"]
    assert "repeated-finish: the task was finished again" in lines
    assert lines[-1] == "2 faults in OpenAI chat messages: 5 messages, 2 replies, 3 calls, 2 results."


def test_a_delegate_is_named_by_an_option(trace: Path) -> None:
    written = write(trace, [GO, ai(work("w"))])
    assert lint(written).exit_code == 1
    assert lint(written, "--delegate", "write").exit_code == 0


def test_the_json_says_the_same(trace: Path) -> None:
    result = lint(write(trace, FAULTY), "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["faults"].pop()["says"] == "finish_task again; message 1 had finished the task"
    assert found == {
        "file": str(trace),
        "format": "OpenAI chat messages",
        "messages": 5,
        "replies": 2,
        "calls": 3,
        "results": 2,
        "counts": {"blind-finish": 1, "repeated-finish": 1},
        "faults": [
            {
                "fault": "blind-finish",
                "message": 1,
                "call_id": "f",
                "says": "finish_task was accepted before the model had seen the result of write",
            }
        ],
        "remarks": [],
    }


def test_stdin_is_read(trace: Path) -> None:
    write(trace, FAULTY)
    assert lint("-", stdin=trace.read_bytes()).exit_code == 1
    told = lint("-", stdin=b"nothing")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("stdin is not JSON")


HAND_IN: History = [GO, ai(finish(name="hand_in"))]
TABLE: dict[str, tuple[History, list[str], int]] = {
    "another finish": (HAND_IN, ["--finish", "hand_in"], 0),
    "two of them": (HAND_IN, ["--finish", "x", "--finish", "hand_in"], 0),
    "not the usual ones then": (CLEAN, ["--finish", "hand_in"], 1),
    "another question": ([GO, ai(finish(name="consult"))], ["--ask", "consult"], 0),
    "a fault to leave out": (FAULTY, ["--ignore", "blind-finish", "--ignore", "repeated-finish"], 0),
    "only one of two": (FAULTY, ["--ignore", "blind-finish"], 1),
    "fewer repetitions": ([GO, *poll(2), *END], ["--repeats", "2"], 1),
    "more repetitions": ([GO, *poll(3), *END], ["--repeats", "4"], 0),
    "one time is none": (CLEAN, ["--repeats", "1"], 2),
    "an unknown fault": (CLEAN, ["--ignore", "nonsense"], 2),
    "one name for both": (CLEAN, ["--finish", "a", "--ask", "A"], 2),
    "no file": ([], ["--json", "--", "more"], 2),
}


@pytest.mark.parametrize("name", TABLE)
def test_options_and_exit_codes(name: str, trace: Path) -> None:
    history, words, code = TABLE[name]
    result = lint(write(trace, history), *words)
    assert result.exit_code == code, result.output
    assert code != 2 or len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("data", [b"", b"[", b"[]", b"7", b"\xff", b'[{"role": 1}]', b"[" * 100_000])
def test_what_cannot_be_read_is_one_sentence_on_stderr(data: bytes, trace: Path) -> None:
    trace.write_bytes(data)
    result = lint(str(trace))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.endswith(".")
    as_json = lint(str(trace), "--json")
    assert as_json.exit_code == 2
    assert one_line(line) == one_line(json.loads(as_json.stdout)["error"])


def one_line(text: str) -> str:
    return " ".join(text.split())


HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\x1b]52;c;AAAA\x07",
    "[bold red]x[/bold red]",
    "[/nothing]",
    "\u202egnp.exe",
    "\ud800",
    "a\r\nb\x00",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_history_can_steer_the_terminal(text: str, trace: Path) -> None:
    history: History = [User(text), ai(work(text)), Res(text + "?"), ai(f"I will {text}")]
    for words in ([], ["--json"]):
        result = lint(write(trace, history), *words)
        assert result.exit_code == 1
        assert not set("\x1b\x07\x00\r\u202e\x9b") & set(result.stdout)
        result.stdout.encode()
        assert words or len(result.stdout) < 5_000
        assert "bold" not in text or "[bold red]x[/bold red]" in result.stdout


def test_a_hostile_key_or_name_of_a_file_is_harmless_too(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[2Jb.json"
    file.write_text(json.dumps([{"\x1b]0;x\x07": 1}]), "utf-8")
    result = lint(str(file))
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def test_of_many_faults_the_first_are_shown_and_all_counted(trace: Path) -> None:
    many: History = [line for n in range(50) for line in (ai(work(f"w{n}", str(n))), User())]
    result = lint(write(trace, many))
    assert result.stdout.count("write was never answered") == MOST_ROWS
    assert f"{50 - MOST_ROWS} more; --json shows all" in result.stdout
    found: dict[str, Any] = json.loads(lint(str(trace), "--json").stdout)
    assert found["counts"] == {FaultKind.DANGLING: 50}
    assert len(found["faults"]) == 50
    assert [remark["fault"] for remark in found["remarks"]] == [FaultKind.NO_FINISH]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes in the file system")
def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = json.dumps(chat(CLEAN)[0])
    writer = threading.Thread(target=lambda: pipe.write_text(data, "utf-8"))
    writer.start()
    assert lint(str(pipe)).exit_code == 0
    writer.join()
