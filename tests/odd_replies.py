"""Odd replies of models, messages of middleware and outputs of tools, drawn by chance: each task that meets
one has an outcome, and its thread can be read, goes on with another task, and can be deleted.

Run as a program: `python -m tests.odd_replies --replies 10000 [--seconds N] [--seed N]`. It prints figures as
it goes, and fails with the first case that breaks something.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, tool

from signoff import Limits, build_graph, sqlite_storage
from signoff.guards import Guards
from tests.support.adapted import adapted
from tests.support.ends import saved_outcome
from tests.support.hypothesis_runs import program_options
from tests.support.odd_values import ACT, FINISH, FORGED, LOOK, Drawn

LIMITS = Limits(turns=4, talk_turns=3, calls_per_reply=8)


class OddModel(BaseChatModel):
    """Replies with what is in the queue, then with a finish."""

    queue: list[Any] = []  # noqa: RUF012  a field of pydantic, which copies it

    @property
    def _llm_type(self) -> str:
        return "odd"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        message = self.queue.pop(0) if self.queue else AIMessage("", tool_calls=[{**FINISH}])
        return ChatResult(generations=[ChatGeneration(message=message)])


class OddStream(OddModel):
    """The same, with a list of chunks for each reply."""

    streaming: bool = True

    def _stream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        piece = {"name": "finish_task", "args": '{"summary": "Done."}', "id": "f", "index": 0}
        last = AIMessageChunk(
            content="", tool_call_chunks=[piece], response_metadata={"finish_reason": "stop"}
        )
        for chunk in self.queue.pop(0) if self.queue else [last]:
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


class OddMiddleware(AgentMiddleware[Any, Any]):
    """At one of its hooks it returns what is in the queue; else it does nothing."""

    def __init__(self, queue: list[Any], hook: str) -> None:
        super().__init__()
        self.queue, self.hook = queue, hook

    def _written(self, hook: str) -> Any:
        return {"messages": self.queue.pop(0)} if self.queue and hook == self.hook else None

    def before_model(self, state: Any, runtime: Any) -> Any:
        return self._written("before_model")

    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._written("after_model")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        if self.queue and self.hook == "in place":
            found = handler(request)
            vars(found.result[0]).update(self.queue.pop(0))
            return found
        return self.queue.pop(0) if self.queue and self.hook == "wrap_model_call" else handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        if self.queue and self.hook == "in place":
            found = await handler(request)
            vars(found.result[0]).update(self.queue.pop(0))
            return found
        return self.queue.pop(0) if self.queue and self.hook == "wrap_model_call" else await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        found = handler(request)
        return self.queue.pop(0)(request) if self.queue and self.hook == "wrap_tool_call" else found

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        found = await handler(request)
        return self.queue.pop(0)(request) if self.queue and self.hook == "wrap_tool_call" else found


EDGES = (
    "reply", "stream", "wrap_model_call", "in place", "before_model", "after_model", "wrap_tool_call", "tool",
    "guarded reply", "guarded stream", "guarded wrap_model_call", "guarded tool",
    "guarded in place", "guarded wrap_tool_call",
)  # fmt: skip
HOOKS = EDGES[2:7]
STREAMING = {"stream": "always"}


class OddBench:
    """A graph or a guarded agent for each edge, all on one database."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.figures = Counter[str]()
        self.models: dict[str, OddModel] = {}
        # What the middleware, or the tools, of an edge give.
        self.given: dict[str, list[Any]] = {edge: [] for edge in EDGES}
        self.graphs = {edge: self._graph(edge) for edge in EDGES}

    def _graph(self, edge: str) -> Any:
        given = self.given[edge]
        outputs = given if edge.endswith("tool") else []

        @tool
        def act(call_id: Annotated[str, InjectedToolCallId], what: Any = "") -> Any:
            """Act."""
            return outputs.pop(0)(call_id) if outputs else "done"

        @tool
        def look(call_id: Annotated[str, InjectedToolCallId], what: Any = "") -> Any:
            """Look."""
            return outputs.pop(0)(call_id) if outputs else "seen"

        look.metadata = {"kind": "read"}
        model = self.models[edge] = OddStream(streaming=True) if "stream" in edge else OddModel()
        around = [OddMiddleware(given, edge.removeprefix("guarded "))]
        if edge.startswith("guarded "):
            saved = {"checkpointer": self.storage.checkpointer, "store": self.storage.store}
            return create_agent(model, [act, look], middleware=[Guards(LIMITS), *around], **saved)
        more: Any = {"middleware": around if edge in HOOKS else (), "streaming": STREAMING.get(edge, "auto")}
        return build_graph(
            model, [act, look], storage=self.storage, limits=LIMITS, **adapted(model_retries=None, **more)
        )

    def play(self, edge: str, seed: str, *, in_loop: bool) -> None:
        """A thread with a task that meets something odd, and one that does not."""
        self._draw(edge, Drawn(f"{seed} {edge}"))
        thread = f"{seed} {edge}"
        try:
            status = self._task(edge, thread, in_loop=in_loop)
            assert status in ("success", "limit", "error", "asks")
            self.figures[f"{edge}: {status}"] += 1
            self.models[edge].queue.clear()
            self.given[edge].clear()
            assert self._task(edge, thread, in_loop=in_loop) == "success", "the next task"
            self.storage.checkpointer.delete_thread(thread)
        except BaseException as error:
            error.add_note(f"seed {seed!r}, edge {edge!r}, in_loop {in_loop}")
            raise

    def _draw(self, edge: str, drawn: Drawn) -> None:
        """Puts into the queues of this edge what it meets."""
        several, replies, given = range(drawn.one(1, 1, 2)), self.models[edge].queue, self.given[edge]
        if edge.endswith("stream"):
            replies += [drawn.chunks() for _ in several]
        elif edge.endswith("reply"):
            replies += [drawn.reply() for _ in several]
        elif edge.endswith("wrap_model_call"):
            given += [drawn.reply() for _ in several]
        elif edge.endswith("in place"):
            given += [drawn.fields() for _ in several]
        elif edge in ("before_model", "after_model"):
            given += [drawn.one([drawn.message()], drawn.message(), drawn.value()) for _ in several]
        else:
            replies += [
                AIMessage("", tool_calls=[{**ACT, "id": f"a{at}"}, {**LOOK, "id": f"l{at}"}])
                for at in several
            ]
            given += [drawn.output for _ in several]

    def _task(self, edge: str, thread: str, *, in_loop: bool) -> str:
        graph, task, config = (
            self.graphs[edge],
            {"messages": [("user", "go")]},
            {"configurable": {"thread_id": thread}},
        )
        if in_loop:
            asyncio.run(graph.ainvoke(task, config))
        else:
            graph.invoke(task, config)
        state = graph.get_state(config)
        for message in state.values["messages"]:
            _check(message)
        if state.interrupts:
            # The same finish was refused twice.
            return "asks"
        outcome = saved_outcome(state.values)
        assert outcome is not None, "the task has no outcome"
        return str(outcome["status"])


def _check(message: BaseMessage) -> None:
    """What is stored is valid text, and nobody has set our marks."""
    assert type(message).__module__.startswith("langchain_core."), type(message)
    fields = message.model_dump(exclude={"artifact"})
    json.dumps(fields, ensure_ascii=False, default=repr).encode()
    for extras in (message.response_metadata, message.additional_kwargs):
        assert FORGED not in repr(extras.get("signoff"))
        assert not any(key.startswith("signoff-") for key in extras)


def play(bench: OddBench, seed: str, replies: int) -> None:
    """So many cases, at all edges in turn, each third one in an event loop."""
    for at in range(replies):
        bench.play(EDGES[at % len(EDGES)], f"{seed}.{at}", in_loop=at // len(EDGES) % 3 == 0)


def main(arguments: list[str]) -> int:
    options = program_options(__doc__, "replies", 10_000).parse_args(arguments)
    begun, done, number = time.monotonic(), Counter[str](), options.seed
    while done.total() < options.replies and time.monotonic() - begun < options.seconds:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            bench = OddBench(stack.enter_context(sqlite_storage(Path(folder) / "threads.sqlite")))
            play(bench, str(number), min(250, options.replies - done.total()))
        done += bench.figures
        print(
            f"after {time.monotonic() - begun:.0f} s and seed {number}: {done.total()} {dict(done)}",
            flush=True,
        )
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
