"""Replies as no provider should send them: whatever comes, the thread ends or asks, and can be read again.

Run as a program: `python -m tests.fuzz_replies --replies 100000 [--seconds N] [--seed N]`. It prints figures
as it goes, and fails with the shortest replies that break something.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from hypothesis import given, seed
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.types import Command

from signoff import (
    Approval,
    Decision,
    Ended,
    Limits,
    Message,
    Outcome,
    Session,
    build_graph,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.storage import SqliteStorage
from tests.support.adapted import adapted
from tests.support.faulty_replies import DONE, Sent, replies, ways
from tests.support.history_checks import finished_rightly, history_faults, view_faults
from tests.support.hypothesis_runs import drawn_settings, program_options


class Odd(BaseChatModel):
    """A model that sends just what it is given, then a finish. `views` are what it was shown."""

    queue: list[Any] = []  # noqa: RUF012  a field of pydantic, which copies it
    views: list[Any] = []  # noqa: RUF012  as above

    @property
    def _llm_type(self) -> str:
        return "odd"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _next(self, messages: list[BaseMessage]) -> Iterator[Any]:
        self.views.append(messages)
        return (self.queue.pop(0) if self.queue else DONE).messages()

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=next(self._next(messages)))])


class OddStream(Odd):
    def _stream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for message in self._next(messages):
            chunk = message if isinstance(message, AIMessageChunk) else _as_chunk(message)
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    pieces = [
        tool_call_chunk(name=call["name"], args='{"summary": "Done."}', id=call["id"], index=at)
        for at, call in enumerate(message.tool_calls)
    ]
    return AIMessageChunk(content="", tool_call_chunks=pieces, chunk_position="last")


class Bench:
    """Graphs on one database, for thread after thread. `ran` are the calls that had an effect."""

    def __init__(self, storage: SqliteStorage) -> None:
        self.storage = storage
        self.figures = Counter[str]()
        self.ran: list[str] = []
        self.outcome = Outcome(status="error", reason="nothing")
        self.models = {False: Odd(), True: OddStream()}
        self.graphs = {way: self._graph(model) for way, model in self.models.items()}

    def _graph(self, model: Odd) -> Graph:
        ran = self.ran

        @tool
        def act(call_id: Annotated[str, InjectedToolCallId], what: Any = "") -> str:
            """Act."""
            ran.append(call_id)
            return str(what)[:100]

        @tool
        def pay(what: Any = "") -> str:
            """Pay."""
            return "paid"

        @tool
        def look(what: Any = "") -> Any:
            """Look."""
            return what

        look.metadata = {"kind": "read"}
        limits = Limits(turns=6, talk_turns=4)
        return build_graph(
            model,
            [act, pay, look],
            storage=self.storage,
            limits=limits,
            **adapted(approvals={"pay": True}, policy={"compaction": "lines"}),
        )

    def play(self, sent: list[Sent], way: str) -> None:
        """Drives a new thread to its end; fails by AssertionError for what must not be."""
        number = self.figures["threads"]
        self.figures["threads"] += 1
        model, graph = self.models[sent[0].streamed], self.graphs[sent[0].streamed]
        model.queue[:], model.views[:], self.ran[:] = list(sent), [], []
        session = Session(graph, f"t{number}")
        decision: Decision = drive(session, way, None)
        for _ in range(30):
            if isinstance(decision, Ended):
                break
            self.figures[f"asked by {type(decision).__name__}"] += not isinstance(decision, Message)
            decision = drive(session, way, decision)
        else:
            raise AssertionError(f"the thread does not end; it stands at {decision}")
        self.figures["replies"] += len(sent) - len(model.queue)
        self.outcome = decision.outcome
        self._check(session, decision.outcome, model.views)
        self.figures[f"{decision.outcome.status}: {decision.outcome.reason}"] += 1

    def _check(self, session: Session, outcome: Outcome, views: list[list[BaseMessage]]) -> None:
        assert outcome.status in ("success", "limit", "error")
        thread_status = session.status()
        found = thread_status.values["messages"]
        faults = [
            *history_faults(found, ended=True),
            *(fault for view in views for fault in view_faults(view)),
        ]
        assert not faults, faults
        assert thread_status.outcome == outcome
        assert len(self.ran) == len(set(self.ran)), "a call ran twice"
        if outcome.status == "success":
            assert finished_rightly(found, outcome.task, {"finish_task"})
        session.history()


def drive(session: Session, way: str, waiting: Decision | None) -> Decision:
    """To the next decision: begins the thread, or gives an answer that suits."""
    answer: Any = "approve" if isinstance(waiting, Approval) else "blue"
    if way == "invoke":
        given: Any = {"messages": [("user", "go")]}
        if waiting is not None:
            assert not isinstance(waiting, Message | Ended)
            given = Command(resume={getattr(waiting, "interrupt_id", ""): answer})
        session.graph.invoke(given, {"configurable": {"thread_id": session.thread_id}})
        return session.status().wait() or session.run()
    if way == "step":
        if waiting is None:
            return session.step("go")
        return session.step() if isinstance(waiting, Message) else session.resume(answer)
    if way == "arun":
        return asyncio.run(session.arun("go") if waiting is None else session.aresume(answer))
    return session.run("go") if waiting is None else session.resume(answer)


def fuzz(bench: Bench, examples: int, number: int | None = None) -> None:
    """Plays that many lists of replies: always the same ones, or those of the seed `number`."""

    @drawn_settings(examples, number)
    @given(replies, ways)
    def play(sent: list[Sent], way: str) -> None:
        bench.play(sent, way)

    (play if number is None else seed(number)(play))()


def main(arguments: list[str]) -> int:
    given_ = program_options(__doc__, "replies", 100_000).parse_args(arguments)
    begun, number, done = time.monotonic(), given_.seed, Counter[str]()
    while done["replies"] < given_.replies and time.monotonic() - begun < given_.seconds:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            bench = Bench(stack.enter_context(sqlite_storage(Path(folder) / "threads.sqlite")))
            fuzz(bench, min(1_000, given_.replies), number)
        done += bench.figures
        print(f"after {time.monotonic() - begun:.0f} s and seed {number}: {dict(done)}", flush=True)
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
