"""What a tool returns is valid, bounded, and says where the whole of it is."""

import json
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.graph.foreign import capped, count_noun, keep_in, valid_text


def _nowhere(_: str) -> str:
    raise AssertionError("nothing had to be kept")


@pytest.mark.parametrize("text", ["", "short", "x" * 100, "ü\n" * 50])
def test_text_within_the_limit_is_returned_as_it_is(text: str) -> None:
    assert capped(text, limit=100, keep=_nowhere) == text


@pytest.mark.parametrize("limit", [200, 201, 1_000, 20_000])
def test_longer_text_keeps_head_and_tail_and_says_what_is_missing_and_where_it_is(limit: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(limit + 5_000))
    kept: list[str] = []

    def keep(full: str) -> str:
        kept.append(full)
        return "out/full.txt"

    short = capped(text, limit=limit, keep=keep)
    head, rest = short.split("\n[... ")
    said, tail = rest.split(" ...]\n")
    count = len(text) - len(head) - len(tail)
    assert kept == [text]
    assert said == f"{count} characters left out; the full text is in out/full.txt"
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - len(tail)) <= 1
    assert limit - 5 <= len(short) <= limit


def test_without_a_place_the_text_is_cut_all_the_same() -> None:
    assert "5000 characters left out; the full text was not kept" in capped("x" * 5_000, limit=0, keep=None)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ToolException("no place")])
def test_a_copy_that_fails_costs_the_copy_alone(error: Exception) -> None:
    def keep(_: str) -> str:
        raise error

    short = capped("head" + "x" * 5_000 + "tail", limit=300, keep=keep)
    assert short.startswith("head")
    assert short.endswith("tail")
    assert f"could not be kept: {error}" in short


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("plain \U0001f600 text", "plain \U0001f600 text"),
        ("a\ud800b\udfffc", "a\ufffdb\ufffdc"),
        ("nul\0", "nul\ufffd"),
        ("\x1b[31m", "\x1b[31m"),
    ],
)
def test_text_becomes_valid(text: str, valid: str) -> None:
    assert valid_text(text) == capped(text, keep=None) == valid
    assert json.loads(json.dumps(valid, ensure_ascii=False).encode()) == valid


def test_full_texts_are_kept_in_a_folder_under_harmless_names(tmp_path: Path) -> None:
    keep = keep_in(tmp_path / "new" / "folder", "../run: ls")
    place = Path(keep("all \ud800 of it"))
    assert place.parent == tmp_path / "new" / "folder"
    assert place.name.startswith("_run_ls-")
    assert place.read_text() == "all \ufffd of it"
    assert keep("all \ud800 of it") == str(place)
    assert keep("something else") != str(place)
    assert len(list(place.parent.iterdir())) == 2


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1234, "1,234 lines")]
)
def test_counts_in_words(number: int, said: str) -> None:
    assert count_noun(number, "line") == said
