"""What the terminal pane sends for keys and pastes, what it keeps of a flood, and its own words."""

import pytest

from signoff.front.pane_shell import MOST, Backlog, Words, announced, pasted, typed
from signoff.ui.pane import title


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a", b"a"),
        ("é", "é".encode()),
        ("space", b" "),
        ("enter", b"\r"),
        ("tab", b"\t"),
        ("shift+tab", b"\x1b[Z"),
        ("backspace", b"\x7f"),
        ("escape", b"\x1b"),
        ("ctrl+a", b"\x01"),
        ("ctrl+z", b"\x1a"),
        ("ctrl+backslash", b"\x1c"),
        ("ctrl+at", b"\0"),
        ("ctrl+1", b""),
        ("alt+x", b"\x1bx"),
        ("alt+enter", b"\x1b\r"),
        ("alt+ctrl+a", b"\x1b\x01"),
        ("up", b"\x1b[A"),
        ("ctrl+right", b"\x1b[1;5C"),
        ("alt+left", b"\x1b[1;3D"),
        ("home", b"\x1b[H"),
        ("shift+end", b"\x1b[1;2F"),
        ("pageup", b"\x1b[5~"),
        ("ctrl+delete", b"\x1b[3;5~"),
        ("f1", b"\x1bOP"),
        ("shift+f1", b"\x1b[1;2P"),
        ("f5", b"\x1b[15~"),
        ("f12", b"\x1b[24~"),
        ("left_shift", b""),
        ("f99", b""),
    ],
)
def test_keys(key: str, data: bytes) -> None:
    last = key.split("+")[-1]
    assert typed(key, last if len(last) == 1 else None, application=False) == data


def test_cursor_keys_of_an_application() -> None:
    assert typed("up", None, application=True) == b"\x1bOA"
    assert typed("ctrl+up", None, application=True) == b"\x1b[1;5A"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("one\r\ntwo\nthree\r", b"one\rtwo\rthree\r"),
        ("a\tb\x03\x1b[201~\x00\x7f\x9bc\ud800", b"a\tb[201~c"),
    ],
)
def test_pastes(text: str, data: bytes) -> None:
    assert pasted(text, bracketed=False) == data
    assert pasted(text, bracketed=True) == b"\x1b[200~" + data + b"\x1b[201~"


def test_the_backlog_keeps_order_and_the_end() -> None:
    backlog = Backlog()
    assert backlog.add(b"one")
    assert not backlog.add(Words("two"))
    backlog.add(b"x" * 600)
    assert [backlog.take() for _ in range(5)] == [b"one", Words("two"), b"x" * 512, b"x" * 88, None]


def test_what_the_backlog_loses_is_said_and_its_modes_are_kept() -> None:
    backlog = Backlog()
    backlog.add(b"\x1b[?1049h\x1b[?10")
    for _ in range(40):
        backlog.add(b"49l\x1b[?25l" + b"line\n" * 2_000)
    taken = []
    while (item := backlog.take()) is not None:
        taken.append(item)
    assert taken[0] == b"\x18\x1b[?1049l\x1b[?25l\x1b[m"
    assert isinstance(taken[1], Words)
    assert "0.2 MB of output not shown" in taken[1].words
    assert MOST / 2 < sum(len(item) for item in taken[2:] if isinstance(item, bytes)) <= MOST


@pytest.mark.parametrize(
    ("running", "waiting", "expected"),
    [
        (None, None, "terminal · idle"),
        ("pytest -q", None, "terminal · $ pytest -q"),
        ("pytest\n-q\x1b", None, "terminal · $ pytest -q␛"),
        ("x" * 100, None, f"terminal · $ {'x' * 59}…"),
        ("sudo ls", "password", "terminal · asks for a password"),
        ("read x", "line", "terminal · asks for a line of input"),
        ("vi", "screen", "terminal · $ vi"),
    ],
)
def test_titles(running: str | None, waiting: str | None, expected: str) -> None:
    assert title(running, waiting) == expected


def test_a_long_command_is_announced_in_part() -> None:
    assert announced("a\x1b\nb") == "\x1b[1;32m$\x1b[39m a␛\n  b"
    assert announced("\n".join("x" * 20)).endswith("x\n  … 8 more lines")
    assert len(announced("x" * 10_000_000)) < 2_000
