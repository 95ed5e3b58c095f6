"""Replies for the inner guard: as scripts, and as the chunks of odd providers."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from signoff.models import call

FINISH, ASK = call("finish_task", summary="All of it."), call("ask_user", question="Which one?")
THINK, WRITE = call("think", thought="hm"), call("write", path="a.txt", content='{"a": "}"}')
CUT_OFF = call("finish_task", raw='{"summary": "All of')

# What is sent, and the calls that are kept of it.
CUT: dict[str, tuple[list[Any], list[str]]] = {
    "ten finishes": ([FINISH] * 10, ["finish_task"]),
    "text after a finish": ([FINISH, "Anything else?"], ["finish_task"]),
    "a question, then a finish": ([ASK, FINISH], ["ask_user"]),
    "a finish, then a question": ([FINISH, ASK], ["finish_task"]),
    "work after a finish": ([FINISH, WRITE], ["finish_task"]),
    "text and work before it are kept": (
        ["Now.", WRITE, THINK, FINISH, FINISH],
        ["write", "think", "finish_task"],
    ),
    "braces in its words": ([call("finish_task", summary='\\"}} {"'), FINISH], ["finish_task"]),
}
UNCUT: dict[str, list[Any]] = {
    "a finish alone": [FINISH],
    "a finish beside words before it": ["Done.", FINISH],
    "a thought, then a finish": [THINK, FINISH],
    "work, then a finish": [WRITE, FINISH],
    "thoughts and work": [THINK, WRITE, THINK, WRITE],
    "nothing but a line break follows": [FINISH, "\n"],
    "a finish that is not whole JSON, then another": [CUT_OFF, FINISH],
    "a finish whose braces close but are no JSON": [call("finish_task", raw="{summary}"), FINISH],
    "a finish with more behind its object": [call("finish_task", raw='{"summary": "x"} {}'), FINISH],
    "a question that cannot be asked": [call("ask_user"), FINISH],
    "a malformed call before it": [call("write", raw='{"path'), FINISH],
    "text alone": ["Done.", "Really."],
}


class Wire(BaseChatModel):
    """Streams the given chunks, in sync only; notes how many were taken and whether it was closed."""

    chunks: list[AIMessageChunk]
    _taken: int = PrivateAttr(0)
    _closed: bool = PrivateAttr(False)

    @property
    def _llm_type(self) -> str:
        return "wire"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        try:
            for chunk in self.chunks:
                self._taken += 1
                yield ChatGenerationChunk(message=chunk.model_copy())
        finally:
            self._closed = True


class AsyncWire(Wire):
    """Streams in a loop by itself too."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream([]):
            yield chunk


def part(index: int | None, args: str, name: str | None = None, id: str | None = None) -> AIMessageChunk:
    """A piece of a call; with a name, its beginning."""
    given = id or (f"c{index}" if name else None)
    return AIMessageChunk(
        content="", tool_call_chunks=[tool_call_chunk(name=name, args=args, id=given, index=index)]
    )


def finish(index: int | None) -> AIMessageChunk:
    return part(index, '{"summary": "x"}', "finish_task")


def write(index: int | None, id: str | None = None) -> AIMessageChunk:
    return part(index, "{}", "write", id)


def together(*chunks: AIMessageChunk, text: str = "", stop: str = "") -> AIMessageChunk:
    """One chunk of the calls of several."""
    calls = [one for chunk in chunks for one in chunk.tool_call_chunks]
    return AIMessageChunk(
        content=text, tool_call_chunks=calls, response_metadata={"finish_reason": stop} if stop else {}
    )


def words(text: str, index: int) -> AIMessageChunk:
    return AIMessageChunk(content=[{"type": "text", "text": text, "index": index}])


BEGIN, END = part(0, '{"summary"', "finish_task"), part(0, ': "x"}')
WRITING, WRITTEN = part(0, '{"a"', "write"), part(0, ": 1}")

# The chunks, the calls that are kept of them, and how many chunks are taken.
STREAMS: dict[str, tuple[list[AIMessageChunk], list[str], int]] = {
    "calls side by side: what stands behind goes, also what came before the cut": (
        [BEGIN, part(1, '{"pa', "write"), END, part(1, 'th"'), part(1, ": 1}")],
        ["finish_task"],
        4,
    ),
    "calls side by side: the one in front is waited for": (
        [WRITING, finish(1), WRITTEN, finish(2)],
        ["write", "finish_task"],
        4,
    ),
    "whole calls, one a chunk, without an index": (
        [write(None), finish(None), finish(None), write(None)],
        ["write", "finish_task"],
        3,
    ),
    "all calls in one chunk": (
        [together(write(0), finish(1), write(2)), finish(3)],
        ["write", "finish_task"],
        1,
    ),
    "two calls under one index": ([finish(0), write(0, "other"), finish(None)], ["finish_task"], 2),
    "the reply has ended: nothing is left to save": (
        [together(finish(0), write(1), stop="tool_calls")],
        ["finish_task", "write"],
        1,
    ),
    "words in the chunk of the call belong to it": (
        [together(finish(0), text="Bye."), AIMessageChunk(content="")],
        ["finish_task"],
        2,
    ),
    "no arguments yet are not whole": (
        [part(0, "", "finish_task"), part(1, "", "write"), part(0, '{"summary": "x"}'), part(1, "{}")],
        ["finish_task"],
        4,
    ),
    "content blocks": ([words("Now.", 0), finish(1), words("More.", 2), finish(3)], ["finish_task"], 3),
}
