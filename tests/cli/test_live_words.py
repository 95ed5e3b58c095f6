"""The live area shows the words of a reply as they come, and of a line that is too long its end."""

import io
from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from rich.console import Console

from signoff.cli.display import LiveArea, Streamed
from signoff.graph.machine import State
from signoff.session.events import Entered


def piece(text: str = "", name: str | None = None, args: str | None = None) -> ChatGenerationChunk:
    call = tool_call_chunk(name=name, args=args, id=None, index=0)
    return ChatGenerationChunk(
        message=AIMessageChunk(content=text, tool_call_chunks=[call] if name or args else [])
    )


def shown(pieces: Sequence[ChatGenerationChunk], width: int = 60) -> list[str]:
    area = LiveArea()
    area.streamed = Streamed()
    for each in pieces:
        area.streamed.on_llm_new_token(each.text, chunk=each)
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(area)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()[:-1]]


CASES: dict[str, tuple[list[ChatGenerationChunk], int, list[str]]] = {
    "nothing yet": ([], 60, []),
    "text": ([piece("I look "), piece("first.")], 60, ["    ▸ I look first."]),
    "a call": (
        [piece(name="read_file"), piece(args='{"path": '), piece(args='"a.py"}')],
        60,
        ['    ▸ read_file {"path": "a.py"}'],
    ),
    "text, then a call": ([piece("So:"), piece(name="stop", args="{}")], 60, ["    ▸ So: stop {}"]),
    "too long for the line": ([piece("abcdefgh" * 9)], 20, ["    ▸ …" + ("abcdefgh" * 9)[-13:]]),
    "wide characters": ([piece("漢字" * 20)], 20, ["    ▸ … " + "漢字" * 3]),
    "several lines are one": ([piece("a\nb")], 60, ["    ▸ a b"]),
    "escape sequences are harmless": ([piece("a\x1b[2Jb")], 60, ["    ▸ a␛[2Jb"]),
}


@pytest.mark.parametrize("case", CASES)
def test_words_that_come_in(case: str) -> None:
    pieces, width, lines = CASES[case]
    assert shown(pieces, width) == lines


def test_with_the_next_state_they_are_gone() -> None:
    streamed = Streamed()
    streamed.on_llm_new_token("So", chunk=piece("So"))
    assert (streamed.words, streamed.pieces) == ("So", 1)
    streamed.note_event(Entered(State.ROUTE_TOOLS, turn=1, turns=9, tokens=3, source=State.CALL_LLM))
    assert (streamed.words, streamed.pieces) == ("", 0)
