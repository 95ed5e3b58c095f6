"""The screen of the terminal pane: sequences in, lines and styles out, and nothing that could do harm."""

import pytest
from rich.style import Style

from signoff.ui.screen import TerminalScreen

CURSOR = Style(reverse=True)


def fed(data: bytes | str, rows: int = 4, cols: int = 12) -> TerminalScreen:
    screen = TerminalScreen(rows, cols)
    screen.feed(data.encode() if isinstance(data, str) else data)
    return screen


def lines(screen: TerminalScreen) -> list[str]:
    """The lines, without blank ones at the end."""
    return "\n".join(screen.text).rstrip("\n").split("\n")


def spans(screen: TerminalScreen, y: int = 0) -> list[tuple[str, str]]:
    """The texts of a line and their styles."""
    return [(text, str(style or "plain")) for text, style, _ in screen.line(y) if text.strip()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("one\ntwo", ["one", "   two"]),
        ("wrapped at twelve", ["wrapped at t", "welve"]),
        ("abc\rX\b\bY", ["Ybc"]),
        ("a\tb\tc", ["a       b  c"]),
        ("\x1b[2;3Hx\x1b[Ay\x1b[3Dz\x1b[Bw", [" z y", "  w"]),
        ("abcdef\x1b[3D\x1b[K", ["abc"]),
        ("abcdef\x1b[3D\x1b[1K", ["    ef"]),
        ("abcdef\x1b[4G\x1b[2Px", ["abcx"]),
        ("abcdef\x1b[2G\x1b[2@", ["a  bcdef"]),
        ("abcdef\x1b[2G\x1b[3X", ["a   ef"]),
        ("abc\x1b[2G\x1b[4hX\x1b[4lY", ["aXYc"]),
        ("-\x1b[9bx", ["----------x"]),
        ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]),
        ("1\r\n2\r\n3\x1b[2J\x1b[Hx", ["x"]),
        ("1\r\n2\r\n3\x1b[2;1H\x1b[L", ["1", "", "2", "3"]),
        ("1\r\n2\r\n\r\n4\x1b[H\x1b[M\x1b[M", ["", "4"]),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nx", ["1", "3", "x", "4"]),
        ("1\r\n2\r\n3\r\n4\x1b[S", ["2", "3", "4"]),
        ("1\r\n2\x1b[T", ["", "1", "2"]),
        ("1\r\n2\x1b[H\x1bM0", ["0", "1", "2"]),
        ("\x1b7ab\x1b8c", ["cb"]),
        ("\x1b(0lqk\x1b(Bq", ["┌─┐q"]),
        ("ab\x1b[?7l" + "x" * 20 + "y", ["ab" + "x" * 9 + "y"]),
        ("abc\x1bcx", ["x"]),
        ("a\x1b[1;3;5mb\x1b[>4;2mc\x1b[?1md\x1b[38:2::1:2:3me\x1b[2 qf\x1b[!pg", ["abcdefg"]),
        ("漢字x", ["漢字x"]),
        ("123456789ab漢", ["123456789ab", "漢"]),
        ("漢\x1b[2Gx", [" x"]),
        ("漢\x1b[1Gx", ["x"]),
        ("e\u0301\u0301\u0301\u0301\u0301\u0301x", ["é\u0301\u0301\u0301x"]),
        ("\u0301x", ["x"]),
        ("👩\u200d💻👍🏽|", ["👩💻👍|"]),
        ("🇩🇪", ["🇩🇪"]),
        ("a\u202eb", ["a⟨U+202E⟩b"]),
        ("a\u200bb", ["a⟨U+200B⟩b"]),
        ("a\ufe0f\u00adb\u00a0c", ["a-b c"]),
        ("a\x9b31mb\x90c", ["a\ufffd31mb\ufffdc"]),
        ("a\x00\x01\x05\x07\x7fb", ["ab"]),
        (b"\xff\xc3(", ["\ufffd\ufffd("]),
    ],
)
def test_what_is_written_appears(data: bytes | str, expected: list[str]) -> None:
    assert lines(fed(data)) == expected


def test_a_character_may_come_in_pieces() -> None:
    screen = TerminalScreen()
    for byte in "\x1b[31mé漢\x1b[0m".encode():
        screen.feed(bytes([byte]))
    assert spans(screen) == [("é漢", "color(1)")]


@pytest.mark.parametrize(
    ("code", "style"),
    [
        ("1", "bold"),
        ("2", "dim"),
        ("3", "italic"),
        ("4", "underline"),
        ("4:3", "underline"),
        ("4;24", "plain"),
        ("4;4:0", "plain"),
        ("7", "reverse"),
        ("9", "strike"),
        ("31", "color(1)"),
        ("97", "color(15)"),
        ("42", "on color(2)"),
        ("105", "on color(13)"),
        ("38;5;208", "color(208)"),
        ("48;5;17", "on color(17)"),
        ("38;2;1;2;3", "#010203"),
        ("38:2:1:2:3", "#010203"),
        ("38:2::1:2:3", "#010203"),
        ("48;2;255;0;16", "on #ff0010"),
        ("1;31;44;4", "bold underline color(1) on color(4)"),
        ("1;31;0", "plain"),
        ("1;31;", "plain"),
        ("31;39", "plain"),
        ("38;5;999", "plain"),
        ("38;2;999;0;0", "plain"),
        ("38", "plain"),
        ("38;2;1", "plain"),
        ("8", "plain"),
        ("99999999999999999999", "plain"),
    ],
)
def test_styles(code: str, style: str) -> None:
    assert spans(fed(f"\x1b[{code}mx")) == [("x", style)]


def test_a_background_is_erased_with() -> None:
    screen = fed("\x1b[44mab\x1b[K\r\n\x1b[2J\x1b[0m", cols=6)
    assert [str(style) for _, style, _ in screen.line(0)][:1] == ["on color(4)"]
    assert screen.line(0).cell_length == screen.line(3).cell_length == 6


def test_the_cursor() -> None:
    screen = fed("ab\x1b[D")
    assert screen.cursor == (1, 0)
    assert [(text, str(style)) for text, style, _ in screen.line_with_cursor(0, CURSOR)][1] == (
        "b",
        "reverse",
    )
    screen.feed("漢\x1b[2D".encode())
    assert ("漢", "reverse") in [(text, str(style)) for text, style, _ in screen.line_with_cursor(0, CURSOR)]
    screen.feed(b"\x1b[?25l")
    assert screen.cursor is None
    assert screen.line_with_cursor(0, CURSOR) == screen.line(0)


def test_lines_that_scroll_off_are_kept_up_to_a_limit() -> None:
    screen = TerminalScreen(2, 10, history=50)
    for number in range(100):
        screen.feed(b"\x1b[32m%d\x1b[m\r\n" % number)
    assert (screen.history_lines, screen.scrolled_off) == (50, 99)
    assert [screen.line(y).text.strip() for y in (-1, -50)] == ["98", "49"]
    assert spans(screen, -1) == [("98", "color(2)")]
    screen.resize(2, 4)
    assert screen.line(-1).cell_length == 4
    screen.feed(b"\x1b[3J")
    assert screen.history_lines == 0


@pytest.mark.parametrize("mode", ["1049", "1047", "47"])
def test_a_full_screen_program_leaves_the_screen_as_it_was(mode: str) -> None:
    screen = fed("one\r\n\x1b[31mtwo")
    before = (screen.text, screen.cursor, screen.history_lines)
    screen.feed(f"\x1b[?{mode}h\x1b[2;3r\x1b[2Jfull\r\n".encode() + b"x\r\n" * 20)
    assert screen.alternate
    assert "two" not in lines(screen)
    assert screen.history_lines == 0
    screen.say("not shown")
    screen.feed(f"\x1b[?{mode}h\x1b[?{mode}l".encode())
    assert (screen.text, screen.cursor, screen.history_lines) == before
    screen.feed(b"!")
    assert spans(screen, 1) == [("two!", "color(1)")]


def test_a_full_screen_program_may_be_resized() -> None:
    screen = fed("one\r\ntwo\r\nthree", rows=4, cols=12)
    screen.feed(b"\x1b[?1049hfull")
    for size in ((1, 1), (50, 200), (2, 8)):
        screen.resize(*size)
        screen.feed(b"\x1b[H\x1b[2Jx\x1b[999;999Hy")
    screen.feed(b"\x1b[?1049l")
    assert (lines(screen), screen.cursor) == (["two", "three"], (5, 1))
    assert screen.line(-1).text == "one     "


def test_the_screen_takes_any_size() -> None:
    screen = fed("one\r\ntwo\r\nthree", rows=4, cols=12)
    screen.resize(2, 12)
    assert (lines(screen), screen.cursor, screen.history_lines) == (["two", "three"], (5, 1), 1)
    screen.resize(4, 3)
    assert (lines(screen), screen.cursor) == (["two", "thr"], (2, 1))
    screen.resize(4, 12)
    assert lines(screen) == ["two", "three"]
    screen.resize(0, -1)
    screen.feed("x漢\r\ny\tz\x1b[5;5H\x1b[2M".encode())
    assert (screen.rows, screen.cols, screen.line(0).cell_length) == (1, 1, 1)


def test_modes_for_the_keyboard_are_known() -> None:
    screen = fed("\x1b[?1;2004h")
    assert (screen.application_cursor, screen.bracketed_paste) == (True, True)
    screen.feed(b"\x1b[?1l\x1b[?2004l")
    assert (screen.application_cursor, screen.bracketed_paste) == (False, False)
    screen.feed(b"\x1b[?1;2004h\x1bc")
    assert (screen.application_cursor, screen.bracketed_paste) == (False, False)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (b"ab\r\nc\x1b[6n", b"\x1b[2;2R"),
        (b"\x1b[?6n", b"\x1b[?1;1R"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"\x1b[c", b"\x1b[?6c"),
        (b"\x1b[>c", b"\x1b[>0;0;0c"),
        (b"\x1b]11;?\x07\x1bP$qm\x1b\\\x1b[21t\x1b]52;c;?\x07\x1b[?1049$p", b""),
    ],
)
def test_harmless_questions_are_answered(query: bytes, answer: bytes) -> None:
    screen = fed(query)
    assert (screen.answers(), screen.answers()) == (answer, b"")


def test_answers_are_bounded() -> None:
    assert len(fed(b"\x1b[6n" * 10_000).answers()) <= 256


def test_words_of_ours_stand_on_lines_of_their_own() -> None:
    screen = fed("output\x1b[1;31m without end\x1b]52;c;begun", rows=6, cols=30)
    screen.say("\x1b[32m$ command\nmore")
    screen.feed(b"next")
    assert lines(screen) == ["output without end", "$ command", "more", "next"]
    assert spans(screen, 1) == [("$ command", "color(2)")]
    assert spans(screen, 3) == [("next", "plain")]


def test_a_prompt_begins_a_line_and_gives_way_to_a_command() -> None:
    prompt = "\x1b]133;A;nonce\x07~ $ \x1b]133;B\x07"
    screen = fed("no newline" + prompt, rows=6, cols=12)
    assert lines(screen) == ["no newline", "~ $"]
    screen.feed(b"half a line that wraps")
    screen.say("$ command", over_prompt=True)
    assert lines(screen) == ["no newline", "$ command"]
    # A prompt that comes late is not in the way of the output.
    screen.feed(f"{prompt}\x1b]133;C;nonce\x07output\r\n{prompt}".encode())
    assert lines(screen) == ["no newline", "$ command", "output", "~ $"]
    screen.feed(b"x\r\n" * 20)
    screen.say("$ command", over_prompt=True)
    assert lines(screen)[-1] == "$ command"
