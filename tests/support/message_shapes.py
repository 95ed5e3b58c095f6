"""Models that answer with given fields of a message, and a run in which they are read."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from signoff import build_graph
from signoff.graph.messages import nudge_kind
from tests.support.histories import assert_sendable

FINISH = {"tool_calls": [{"name": "finish_task", "id": "f", "args": {"summary": "Done."}}]}
WAYS = ["imported", "whole", "in pieces"]
Fields = dict[str, Any]


class Whole(BaseChatModel):
    """Answers with one after another of `replies`, given as the fields of a message."""

    replies: Sequence[Fields]
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "shapes"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _next(self, messages: list[BaseMessage]) -> Fields:
        self._seen.append(messages)
        return self.replies[len(self._seen) - 1]

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage(**{"content": "", **self._next(messages)})
        return ChatResult(generations=[ChatGeneration(message=message)])


class Pieces(Whole):
    def _stream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(**{"content": "", **self._next(messages)}))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))


def run(way: str, *replies: Fields, sendable: bool = True) -> tuple[Fields, list[str], Whole]:
    """The result of a run in which the model gives these replies, then finishes; what was written; the model.

    "imported" puts the first reply into the history, in place of the model. sendable: whether every view has
    to be one that providers take.
    """
    written: list[str] = []

    def write(text: str) -> str:
        """Write."""
        written.append(text)
        return "written"

    def read_page(page: int = 1) -> str:
        """Read."""
        return str(page)

    given: list[BaseMessage] = [HumanMessage("do it")]
    first, *rest = replies
    if way == "imported":
        given.append(AIMessage(**{"content": "", **first}))
    else:
        rest = [first, *rest]
    model = (Whole if way == "whole" else Pieces)(replies=[*rest, FINISH])
    result = build_graph(model, [write, read_page]).invoke({"messages": given})
    assert len(model._seen) == len(rest) + 1, "the model was called as often as it should be"
    for view in model._seen if sendable else ():
        assert_sendable(view)
    return result, written, model


def told(result: Fields) -> str:
    return "\n".join(message.text for message in result["messages"] if isinstance(message, ToolMessage))


def nudges(result: Fields) -> list[str]:
    return [kind for message in result["messages"] if (kind := nudge_kind(message))]


def function(raw: Any = '{"text": "x"}', name: Any = "write") -> Fields:
    return {"name": name, "arguments": raw}


def text(words: str) -> Fields:
    return {"type": "text", "text": words}


def use(number: int = 1, **given: Any) -> Fields:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "write", "input": {"text": "x"}, **given}
