"""The screen of the terminal pane against programs that mean harm."""

import random
import time

import pytest
from rich.cells import cell_len
from rich.style import Style

from signoff.ui.screen import TerminalScreen

CURSOR = Style(reverse=True)


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b]0;title\x07",
        "\x1b]52;c;cm0gLXJmIC8=\x07",
        "\x1b]52;c;cm0gLXJmIC8=\x1b\\",
        "\x1b]8;;https://example.org\x1b\\",
        "\x1bP+q544e\x1b\\",
        "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
        "\x1b_Gf=100;AAAA\x1b\\",
        "\x1b^secret\x1b\\",
        "\x1bXstring\x1b\\",
        "\x1b]52;c;" + "x" * 100_000 + "\x07",
        "\x1b]52;c;" + "x" * 100_000 + "\x1b\\",
        "\x1b[" + "1;" * 50_000 + "m",
        "\x1b[1?2z",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 5_000, 200_000])
def test_strings_for_a_terminal_are_dropped_however_they_come(sequence: str, size: int) -> None:
    screen, data = TerminalScreen(4, 12), f"a{sequence}b".encode()
    for at in range(0, len(data), size):
        screen.feed(data[at : at + size])
    assert (screen.text[0], screen.text[1], screen.answers()) == ("ab", "", b"")


def sound(screen: TerminalScreen) -> None:
    """Every line fills its cells and holds only what a terminal shows."""
    for y in range(-screen.history_lines, screen.rows):
        line = screen.line_with_cursor(y, CURSOR)
        assert sum(cell_len(text) for text, _, _ in line) == screen.cols == line.cell_length
        assert not any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in line.text)


def hostile(chance: random.Random) -> bytes:
    numbers = [0, 1, 2, 3, 5, 6, 7, 8, 25, 38, 48, 47, 1047, 1049, 2004, 9999, 10**12]
    text = "ab漢字é\u0301\u200d\u202e👍🏽🇩🇪ᄒ\u1161\ufe0f\u00ad\u0e33\t\n\r\b\x0e\x0f"
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(20)
    if kind == 1:
        return f"\x1b{chr(chance.randrange(0x20, 0x7F))}{chr(chance.randrange(0x20, 0x7F))}".encode()
    if kind == 2:
        return "".join(chance.choices(text, k=20)).encode()
    if kind == 3:
        return b"\x1b]133;%c\x07" % chance.choice(b"ABC")
    mark, end = chance.choice(["", "", "?", ">", "="]), chance.choice(["", "", "", " ", "!"])
    values = ";".join(str(chance.choice(numbers)) for _ in range(chance.randrange(5)))
    return f"\x1b[{mark}{values}{end}{chr(chance.randrange(0x40, 0x7F))}".encode()


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.sample(50)
def test_whatever_comes_nothing_raises(seed: int) -> None:
    chance = random.Random(seed)
    screen = TerminalScreen(chance.randrange(1, 12), chance.randrange(1, 30), history=20)
    for step in range(150):
        screen.feed(hostile(chance))
        if step % 10 == 0:
            screen.resize(chance.randrange(12), chance.randrange(30))
            screen.say("$ words", over_prompt=True)
        if step % 25 == 0:
            sound(screen)
    sound(screen)


@pytest.mark.parametrize(
    "data",
    [
        b"e" + "\u0301".encode() * 100_000,
        b"a\x1b[9999b" * 500,
        b"\x1b[9999S\x1b[9999T" * 200,
        b"\x1b[9999L\x1b[9999@\x1b[9999P" * 500,
        b"\x1b7" * 100_000,
        b"\x1b]0;" + b"x" * 1_000_000,
        b"\x1b[" + b"1;" * 100_000 + b"m",
        b"\x1bH\t" * 50_000,
    ],
    ids=["marks", "repeat", "scroll", "insert", "save", "string", "numbers", "tabs"],
)
def test_no_short_sequence_takes_long(data: bytes) -> None:
    screen = TerminalScreen(50, 200)
    begun = time.process_time()
    for at in range(0, len(data), 512):
        screen.feed(data[at : at + 512])
    assert time.process_time() - begun < 5
    sound(screen)
