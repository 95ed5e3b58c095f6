"""Hears what the models send during a model call that other code makes: LangChain hands on only what its
lenient parser has made of it, whichever model a middleware has taken.
"""

from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook

from signoff.graph.history.received import as_received
from signoff.graph.history.replies import calls_of
from signoff.graph.values import arguments_text

_T = TypeVar("_T")


class Setting:
    """While it is entered, a context variable has this value. Not with `contextmanager`, which costs more
    than what it does here."""

    def __init__(self, variable: ContextVar[_T], value: _T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._before = self._variable.get()
        self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        # Not with a token: a coroutine may be closed in a context other than its own.
        self._variable.set(self._before)


class Heard(BaseCallbackHandler):
    """The streams of all models that are called by the code that waits for a reply, while it does so."""

    # In the order in which the chunks come, and without a thread.
    run_inline = True
    ignore_chain = ignore_chat_model = True

    def __init__(self) -> None:
        self._chunks: dict[UUID, list[AIMessageChunk]] = {}
        self._by_events: set[UUID] = set()

    def listening(self) -> Setting:
        return Setting(_heard, self)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        if isinstance(message := getattr(chunk, "message", None), AIMessageChunk):
            self._chunks.setdefault(run_id, []).append(message)

    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> None:
        self._by_events.add(run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """LangChain reads a stream of events itself, and strictly; some of its chunks may be told, too."""
        if run_id not in self._by_events:
            return
        message: Any = getattr(response.generations[0][0], "message", None)
        pieces = [
            tool_call_chunk(name=call.name, args=arguments_text(call.args), id=call.id, index=at)
            for at, call in enumerate(calls_of(message))
        ]
        fields: Any = {"id": message.id, "response_metadata": message.response_metadata}
        self._chunks[run_id] = [AIMessageChunk(content="", tool_call_chunks=pieces, **fields)]

    def as_received(self, reply: AIMessage) -> AIMessage:
        """The reply with what it has of the streams, the latest one first, read as `received` reads it."""
        return as_received(reply, reversed(self._chunks.values()))


_heard = ContextVar[Heard | None]("_heard", default=None)
register_configure_hook(_heard, inheritable=False)
