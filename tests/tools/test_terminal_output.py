"""Output of any length and any bytes becomes bounded text that can do nothing to a terminal."""

import re
import time

import pytest

from signoff.tools.pty.job import Mark, TerminalMarks
from signoff.tools.pty.output import HEAD, TAIL, Capture, Live, harmless

NONCE = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\r\nb\r\r\n", "a\nb\n"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"aaaa\rbb\n", "bbaa\n"),
        (b"aaaa\r\x1b[Kbb\n", "bb\n"),
        (b"aaaa\x1b[2Kbb\n", "bb\n"),
        (b"h\bhe\bel\bl", "hel"),
        (b"\b\b\bx", "x"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]52;c;aGVsbG8=\x07paste", "paste"),
        (b"\x1b]0;title\x1b\\text", "text"),
        (b"\x1bP1;2q#0\x1b\\sixel", "sixel"),
        (b"\x1b]52;c;never ended\nnext", "]52;c;never ended\nnext"),
        (b"\x1b\x1b[31m[31m\x1b", "[31m"),
        (b"\x1b(B\x1b=\x1b7\x1b[?1049hx", "x"),
        (b"a\x07\x00\x7f\xff\x1a", "a\ufffd\ufffd\ufffd\ufffd"),
        ("\x9b31mC1 \u2028 \u00e9\u6f22\U0001f600".encode(), "\ufffd31mC1 \ufffd \u00e9\u6f22\U0001f600"),
        (b"page\x0cfeed", "page\nfeed"),
    ],
)
def test_output_is_rendered_harmless(written: bytes, shown: str) -> None:
    assert harmless(written) == shown


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_are_rendered_like_the_whole(size: int) -> None:
    written = b"\x1b[1mbold\x1b[0m \x1b]52;c;aGk=\x1b\\\xc3\xa9\xe6\xbc\xa2\r\n\x1b]0;t\x07end\r\n"
    live = Live()
    pieces = [live.feed(written[at : at + size]) for at in range(0, len(written), size)]
    assert "".join(pieces) == harmless(written)


def test_a_live_line_that_is_written_again_begins_a_new_one() -> None:
    live = Live()
    assert [live.feed(b"10%"), live.feed(b"\r50%\r100%"), live.feed(b"\r\n")] == ["10%", "\n100%", "\n"]


def test_live_output_never_holds_an_endless_sequence_back() -> None:
    live = Live()
    assert "xxxx" in live.feed(b"\x1b]52;c;" + b"x" * 10_000)


@pytest.mark.timed
@pytest.mark.parametrize("unit", [b"\x1b]", b"\x1b[", b"a\r", b"\b", b"\x1b[K", b"x\x1b", b"\x1b]0;"])
def test_hostile_repetition_takes_linear_time(unit: bytes) -> None:
    begun = time.monotonic()
    text = harmless(unit * (1_000_000 // len(unit)))
    assert time.monotonic() - begun < 5
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_of_a_long_output_beginning_and_end_are_kept() -> None:
    capture = Capture()
    for number in range(400_000):
        capture.add(b"%06d\n" % number)
    text = capture.text()
    assert text.startswith("000000\n000001\n")
    assert text.endswith("399999\n")
    assert capture.left_out == 400_000 * 7 - HEAD - TAIL
    assert f"[... {capture.left_out:,} bytes of output left out here ...]" in text
    assert len(text) < HEAD + TAIL + 100


def test_a_short_output_is_kept_whole() -> None:
    capture = Capture()
    for at in range(0, HEAD + TAIL, 1_000):
        capture.add(b"%03d" % (at // 1_000 % 1_000) + b"x" * 997)
    assert (len(capture.text()), capture.left_out) == (HEAD + TAIL, 0)


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_marks_are_found_however_the_stream_is_cut(size: int) -> None:
    stream = f"a\x1b]133;C;{NONCE}\x07b\x1b[1mc\x1b]133;D;255;{NONCE}\x07\x1b]133;A;{NONCE}\x07d".encode()
    marks, output, found = TerminalMarks(), b"", []
    for at in range(0, len(stream), size):
        for piece in marks.split(stream[at : at + size]):
            if isinstance(piece, Mark):
                found.append((piece.kind, piece.code, piece.nonce, output))
            else:
                output += piece
    assert output == b"ab\x1b[1mcd"
    assert found == [
        ("begin", None, NONCE, b"a"),
        ("end", 255, NONCE, b"ab\x1b[1mc"),
        ("prompt", None, NONCE, b"ab\x1b[1mc"),
    ]


@pytest.mark.parametrize(
    "other", [b"\x1b]133;D;0;short\x07", b"\x1b]133;D;0\x07", b"\x1b]133;X;" + NONCE.encode()]
)
def test_what_only_looks_like_a_mark_is_output(other: bytes) -> None:
    assert b"".join(
        piece for piece in TerminalMarks().split(other + b"x" * 80) if isinstance(piece, bytes)
    ).startswith(other)
