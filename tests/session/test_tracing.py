"""What OpenTelemetry is told of a run: spans, made by a program, or by a command with `SIGNOFF_OTEL`."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from langchain_core.tools import ToolException
from langgraph.store.base import BaseStore
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from signoff import Graph, Session, Storage, build_graph, delegate, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.otel import Tracing
from tests.support.benches.cli import Bench as CommandLine
from tests.support.benches.cli import steps
from tests.support.benches.session import Bench
from tests.support.servers.collector import Collector, collector

ROOT = Path(__file__).parents[2]
ADD = call("add", a=1, b=2)
ASK = call("ask_user", question="Which colour?")
FINISH = call("finish_task", summary="It is 3.")
AGENT = "invoke_agent researcher"


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def broken() -> str:
    """Fail."""
    raise ToolException("no")


class Spans:
    """What an exporter in memory got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def tree(self) -> list[tuple[str, str]]:
        """Each span with the one that it is in, in the order in which they began."""
        names = {span.context.span_id: span.name for span in self.all if span.context}
        begun = sorted(self.all, key=lambda span: span.start_time or 0)
        return [(span.name, names.get(span.parent.span_id, "") if span.parent else "") for span in begun]

    @property
    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.all if span.context}

    def session(self, graph: Graph, storage: Storage, thread: str = "t") -> Session:
        tracing = Tracing(storage=storage, provider=self.provider)
        return Session(graph, thread, config={"callbacks": [tracing]})


def traced(*script: Any, provider: TracerProvider | None = None, **options: Any) -> tuple[Spans, Any]:
    """The spans of a run, and its outcome."""
    spans = Spans()
    graph = build_graph(ScriptedModel(script), [add, broken], name="researcher")
    tracing = Tracing(provider=provider or spans.provider, **options)
    return spans, graph.invoke({"messages": ["add"]}, {"callbacks": [tracing]})["outcome"]


def fields(found: Any) -> dict[str, Any]:
    return dict(found.attributes or {})


# One run.


def test_a_run_is_a_span_with_a_span_for_each_call() -> None:
    spans, _ = traced(reply(ADD, usage=(10, 5)), reply(FINISH, usage=(20, 6)))
    assert spans.tree == [
        (AGENT, ""),
        ("chat scripted", AGENT),
        ("execute_tool add", AGENT),
        ("chat scripted", AGENT),
    ]
    agent = fields(spans.one(AGENT))
    assert agent.pop("signoff.task")
    assert agent == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "researcher",
        "signoff.outcome.status": "success",
        "signoff.outcome.reason": "finish_task",
        "signoff.outcome.claim": "done",
        "signoff.outcome.verified": "asserted",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 11,
    }
    chat = fields(spans.named("chat")[0])
    assert chat.pop("gen_ai.response.id").startswith("msg_")
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scriptedmodel",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    assert fields(spans.one("execute_tool add")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
    }


def test_decisions_are_events_with_their_rule() -> None:
    spans, _ = traced(ADD, FINISH)
    events = spans.one(AGENT).events
    assert {event.name for event in events} == {"signoff.decision"}
    rules = [fields(event)["signoff.decision.rule"] for event in events]
    assert (rules, "call_2" in fields(events[-1])["signoff.decision.why"]) == (
        ["think", "think", "claimed"],
        True,
    )


def test_a_span_for_each_state_when_asked_for() -> None:
    spans, _ = traced(ADD, FINISH, states=True)
    states = [name.removeprefix("state ") for name, _ in spans.tree if name.startswith("state ")]
    turn = ["call_llm", "route_tools"]
    assert states == ["compress", "decide", *turn, "execute", "decide", *turn, "decide", "review", "finish"]
    assert ("execute_tool add", "state execute") in spans.tree
    assert fields(spans.one("state execute")) == {"signoff.state": "execute", "signoff.event": "done"}


@pytest.mark.parametrize("content", [False, True])
def test_content_only_when_asked_for(content: bool) -> None:
    spans, _ = traced(call("add", a=1234, b=2), call("finish_task", summary="Ready."), content=content)
    told = json.dumps([fields(span) for span in spans.all], default=str)
    assert ("1234" in told, "Ready." in told) == (content, content)
    added = fields(spans.one("execute_tool add"))
    assert added.get("gen_ai.tool.call.arguments") == ('{"a": 1234, "b": 2}' if content else None)
    assert added.get("gen_ai.tool.call.result") == ("1236" if content else None)


def test_failures_are_errors_and_name_what_failed() -> None:
    spans, _ = traced(call("broken"), RuntimeError("the server is down"))
    failed = {span.name: fields(span)["error.type"] for span in spans.all if not span.status.is_ok}
    assert failed == {
        AGENT: "model_error",
        "execute_tool broken": "ToolException",
        "chat scripted": "RuntimeError",
    }
    assert "the server is down" not in str([span.status.description for span in spans.all])


def test_a_reply_that_is_ended_early_ends_its_span() -> None:
    spans, _ = traced([FINISH, "And further words. " * 100])
    assert [span.status.is_ok for span in spans.all] == [True, True]
    assert spans.tree == [(AGENT, ""), ("chat scripted", AGENT)]


# What fails beside it.


class Unreadable(BaseStore):
    """A store that is down."""

    def batch(self, ops: Any) -> Any:
        raise ConnectionError("nobody is there")

    async def abatch(self, ops: Any) -> Any:
        raise ConnectionError("nobody is there")


@dataclass
class Down:
    """A storage whose store is down."""

    checkpointer: Any = None
    store: Any = field(default_factory=Unreadable)


def test_a_run_has_its_span_though_the_trace_of_its_thread_cannot_be_read() -> None:
    spans, _ = traced(ADD, FINISH, storage=Down())
    assert fields(spans.one(AGENT))["signoff.outcome.status"] == "success"
    assert ("execute_tool add", AGENT) in spans.tree


class Raising(SimpleSpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise ConnectionError("nobody is there")


class Hanging(SpanExporter):
    """Takes spans for as long as it is not let go."""

    def __init__(self) -> None:
        self.let_go, self.is_over = Event(), False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.let_go.wait(60)
        self.is_over = True
        raise ConnectionError("nobody is there")


def test_what_takes_the_spans_neither_ends_nor_slows_a_run() -> None:
    raising, hanging = TracerProvider(), TracerProvider(shutdown_on_exit=False)
    raising.add_span_processor(Raising(InMemorySpanExporter()))
    exporter = Hanging()
    hanging.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1))
    for provider in (raising, hanging):
        _, outcome = traced(ADD, FINISH, provider=provider)
        assert outcome["status"] == "success"
    assert not exporter.is_over
    exporter.let_go.set()


def test_nothing_is_imported_when_it_is_off() -> None:
    code = "import sys, signoff; signoff.build_graph; print('signoff.otel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"


# Several runs, several threads, several machines.


def test_a_thread_is_one_trace_wherever_it_goes_on(tmp_path: Path) -> None:
    """Each run has a storage and a provider of its own, as in another process."""
    found = list[Spans]()
    for command in ("go", "red", "green"):
        with sqlite_storage(tmp_path / "t.sqlite") as storage:
            model = ScriptedModel([FINISH if command == "green" else ASK])
            spans = Spans()
            session = spans.session(build_graph(model, storage=storage), storage)
            session.run(command)
            found.append(spans)
    assert len(set().union(*[spans.traces for spans in found])) == 1
    events = [spans.one("invoke_agent").events for spans in found]
    waits = [[fields(one) for one in some if one.name == "signoff.wait"] for some in events]
    assert [[one["signoff.wait.type"] for one in some] for some in waits] == [["question"], ["question"], []]


async def test_threads_of_an_event_loop_have_traces_of_their_own(bench: Bench) -> None:
    spans = Spans()
    for thread in ("a", "b"):
        graph = build_graph(ScriptedModel([ADD, FINISH]), [add], storage=bench.storage)
        await spans.session(graph, bench.storage, thread).arun("go")
    threads = [fields(span)["gen_ai.conversation.id"] for span in spans.named("invoke_agent")]
    assert (threads, len(spans.traces), len(spans.all)) == (["a", "b"], 2, 8)


def test_the_first_run_belongs_to_the_current_span_and_the_next_links_to_its_own(bench: Bench) -> None:
    spans = Spans()
    tracer = trace.get_tracer("app", tracer_provider=spans.provider)
    session = spans.session(build_graph(ScriptedModel([ASK, FINISH]), storage=bench.storage), bench.storage)
    with tracer.start_as_current_span("first request"):
        session.run("go")
    with tracer.start_as_current_span("second request") as second:
        session.resume("red")
    assert ("invoke_agent signoff", "first request") in spans.tree
    first, after = spans.named("invoke_agent")
    assert first.context is not None
    assert after.context is not None
    assert first.context.trace_id == after.context.trace_id
    assert [link.context.span_id for link in after.links] == [second.get_span_context().span_id]


def test_a_machine_in_a_tool_is_nested() -> None:
    spans, child = Spans(), build_graph(ScriptedModel([ADD, FINISH]), [add], name="adder")

    def hire() -> str:
        """Have it added."""
        return str(child.invoke({"messages": ["add"]})["outcome"]["summary"])

    parent = build_graph(ScriptedModel([call("hire"), FINISH]), [hire], name="boss")
    parent.invoke({"messages": ["go"]}, {"callbacks": [Tracing(provider=spans.provider)]})
    nested = {("invoke_agent adder", "execute_tool hire"), ("execute_tool add", "invoke_agent adder")}
    assert nested <= set(spans.tree)
    assert len(spans.traces) == 1


def test_a_delegate_stands_within_the_run_that_called_it(bench: Bench) -> None:
    spans, child = Spans(), build_graph(ScriptedModel([ADD, ASK, FINISH]), [add], name="adder")
    team = [delegate("adder", child, description="Adds.")]
    model = ScriptedModel([call("adder", task="add"), FINISH])
    session = spans.session(build_graph(model, team, storage=bench.storage, name="boss"), bench.storage)
    session.run("go")
    session.resume("red")
    boss, below = "invoke_agent boss", "invoke_agent adder"
    assert spans.tree == [
        *((boss, ""), ("chat scripted", boss)),
        *((below, boss), ("chat scripted", below), ("execute_tool add", below), ("chat scripted", below)),
        *((boss, boss), (below, boss), ("chat scripted", below)),
        ("chat scripted", boss),
    ]
    assert len(spans.traces) == 1


def test_delegates_of_graphs_without_names_are_told_apart(bench: Bench) -> None:
    spans = Spans()
    deep = delegate("deep", build_graph(ScriptedModel(lambda _: ASK)), description="Asks.")
    made = {name: build_graph(ScriptedModel([call("deep", task="go"), FINISH]), [deep]) for name in "ab"}
    team = [delegate(name, graph, description="Works.") for name, graph in made.items()]
    model = ScriptedModel([reply(call("a", task="go"), call("b", task="go")), FINISH])
    spans.session(build_graph(model, team, storage=bench.storage, name="boss"), bench.storage).run("go")
    boss, a, b, below = (f"invoke_agent {name}" for name in ("boss", "a", "b", "deep"))
    agents = sorted(pair for pair in spans.tree if pair[0].startswith("invoke_agent"))
    assert agents == [(a, boss), (b, boss), (boss, ""), (below, a), (below, b)]
    waits = {
        (span.name, fields(event).get("signoff.wait.path", ""))
        for span in spans.all
        for event in span.events
        if event.name == "signoff.wait"
    }
    assert waits == {(boss, "a / deep"), (boss, "b / deep"), (a, "deep"), (b, "deep"), (below, "")}


# Commands.

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
RUN = ("run", "Look", "-t", "t1")


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    command_line = CommandLine(tmp_path)
    command_line.model(steps(LOOK, 'call("ask_user", question="Which?")', DONE))
    command_line.env["SIGNOFF_OTEL"] = "on"
    return command_line


def process(command_line: CommandLine, server: Collector, *words: str) -> tuple[int, str]:
    """The exit code of a command that sends its spans there, and what it says of errors."""
    command_line.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = server.address
    code, _, errors = command_line.process(*words, real=True)
    return code, errors


def is_one_trace(server: Collector) -> bool:
    """Whether two runs of the thread are one trace, without content."""
    agents = [span["attributes"] for span in server.spans if span["name"].startswith("invoke_agent")]
    assert [one["gen_ai.conversation.id"] for one in agents] == ["t1", "t1"]
    assert [one.get("signoff.outcome.status") for one in agents] == [None, "success"]
    assert ("execute_tool read_file", "invoke_agent signoff") in server.tree
    assert not [span for span in server.spans if "gen_ai.tool.call.arguments" in span["attributes"]]
    return len(server.traces) == 1


@pytest.mark.slow
def test_two_commands_on_a_thread_are_one_trace(command_line: CommandLine) -> None:
    with collector() as server:
        first = process(command_line, server, *RUN, "-w", str(command_line.workspace))
        assert (first, process(command_line, server, "resume", "t1", "that one")) == ((4, ""), (0, ""))
    assert is_one_trace(server)
    assert server.services == {"signoff"}


@pytest.mark.slow
def test_two_workers_on_a_thread_are_one_trace(command_line: CommandLine, postgres_url: str) -> None:
    command_line.env["SIGNOFF_DATABASE"] = postgres_url
    with collector() as server:
        for words in ((*RUN, "--submit", "-w", str(command_line.workspace)), ("resume", "t1", "that one")):
            assert command_line(*words).exit_code == 0
            assert process(command_line, server, "worker", "--until-idle")[0] == 0
    assert is_one_trace(server)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "spans", "content", "states"),
    [(" Off ", False, False, False), ("Content, states", True, True, True)],
)
def test_the_variable_says_what_is_traced(
    words: str, spans: bool, content: bool, states: bool, command_line: CommandLine
) -> None:
    command_line.env["SIGNOFF_OTEL"] = words
    with collector() as server:
        process(command_line, server, *RUN, "-w", str(command_line.workspace))
    told = str(server.spans)
    assert (bool(server.spans), "config.py" in told, "state execute" in told) == (spans, content, states)


def test_a_word_that_means_nothing_is_told(command_line: CommandLine) -> None:
    command_line.env["SIGNOFF_OTEL"] = "states,everything"
    result = command_line.run()
    assert result.exit_code == 2
    assert "SIGNOFF_OTEL has 'everything'" in result.stderr


@contextmanager
def nobody() -> Iterator[Collector]:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Collector(address=f"http://127.0.0.1:{taken.getsockname()[1]}")


@contextmanager
def silent() -> Iterator[Collector]:
    with collector(answers=False) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("server", [nobody, silent])
def test_a_server_that_is_down_costs_a_command_nothing_but_a_moment(
    command_line: CommandLine, server: Any
) -> None:
    with server() as down:
        begun = time.monotonic()
        assert process(command_line, down, *RUN, "-w", str(command_line.workspace)) == (4, "")
        assert time.monotonic() - begun < 120
