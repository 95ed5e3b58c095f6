"""What OpenTelemetry is told of a run: spans, made by a program, or by a command with `SIGNOFF_OTEL`."""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from langchain_core.tools import ToolException
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from signoff import Graph, Session, Storage, build_graph, delegate, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.otel import Tracing
from tests.support.benches.cli import Bench as CommandLine
from tests.support.benches.cli import steps
from tests.support.benches.session import Bench
from tests.support.servers.collector import Collector

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


def traced(*script: Any, tools: Any = (add, broken), **options: Any) -> tuple[Spans, Any]:
    """The spans of a run, and its outcome."""
    spans = Spans()
    graph = build_graph(ScriptedModel(script), tools, name="researcher")
    tracing = Tracing(**{"provider": spans.provider, **options})
    return spans, graph.invoke({"messages": ["add"]}, {"callbacks": [tracing]})["outcome"]


def fields(found: Any) -> dict[str, Any]:
    return dict(found.attributes or {})


# One run.


def test_a_run_is_a_span_with_a_span_for_each_call() -> None:
    spans, _ = traced(reply(ADD, usage=(10, 5)), reply(FINISH, usage=(20, 6)))
    chat, tool = ("chat scripted", AGENT), ("execute_tool add", AGENT)
    assert spans.tree == [(AGENT, ""), chat, tool, chat]
    expected = {
        AGENT: {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "researcher",
            "signoff.outcome.status": "success",
            "signoff.outcome.reason": "finish_task",
            "signoff.outcome.claim": "done",
            "signoff.outcome.verified": "asserted",
            "gen_ai.usage.input_tokens": 30,
            "gen_ai.usage.output_tokens": 11,
        },
        "chat": {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scriptedmodel",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
            "gen_ai.response.finish_reasons": ("tool_calls",),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
        },
        "execute_tool add": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "add",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "call_1",
        },
    }
    for name, attributes in expected.items():
        told = fields(spans.named(name)[0])
        more = {"signoff.task", "gen_ai.response.id"} & set(told)
        assert {key: value for key, value in told.items() if key not in more} == attributes
        assert all(told[key] for key in more)


def test_decisions_are_events_with_their_rule_and_states_are_spans_when_asked_for() -> None:
    spans, _ = traced(ADD, FINISH, states=True)
    events = [fields(event) for event in spans.one(AGENT).events if event.name == "signoff.decision"]
    assert [event["signoff.decision.rule"] for event in events] == ["think", "think", "claimed"]
    assert "call_2" in events[-1]["signoff.decision.why"]
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


class Raising(SimpleSpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise ConnectionError("nobody is there")


class Hanging(InMemorySpanExporter):
    """Takes spans only once it is let go."""

    let_go = Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.let_go.wait(60)
        return super().export(spans)


def test_what_takes_the_spans_neither_ends_nor_slows_a_run() -> None:
    provider, exporter = TracerProvider(shutdown_on_exit=False), Hanging()
    provider.add_span_processor(Raising(InMemorySpanExporter()))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1))
    _, outcome = traced(ADD, FINISH, provider=provider)
    assert (outcome["status"], exporter.get_finished_spans()) == ("success", ())
    exporter.let_go.set()


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
    assert len({span.context.trace_id for span in (first, after) if span.context}) == 1
    assert [link.context.span_id for link in after.links] == [second.get_span_context().span_id]


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
    command_line.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = server.root
    code, _, errors = command_line.process(*words)
    return code, errors


@pytest.mark.slow
@pytest.mark.thorough
def test_the_variable_says_what_is_traced(command_line: CommandLine) -> None:
    command_line.env["SIGNOFF_OTEL"] = "Content, states"
    with Collector() as server:
        process(command_line, server, *RUN, "-w", str(command_line.workspace))
    told = str(server.spans)
    assert ("config.py" in told, "state execute" in told) == (True, True)


def test_off_traces_nothing_and_a_word_that_means_nothing_is_told(command_line: CommandLine) -> None:
    with Collector() as server:
        command_line.env.update(SIGNOFF_OTEL=" Off ", OTEL_EXPORTER_OTLP_ENDPOINT=server.root)
        assert command_line.run().exit_code == 4
    assert server.spans == []
    command_line.env["SIGNOFF_OTEL"] = "states,everything"
    result = command_line.run()
    assert (result.exit_code, "'everything'" in result.stderr) == (2, True)


@pytest.mark.thorough
def test_a_server_that_never_answers_costs_a_command_nothing_but_a_moment(command_line: CommandLine) -> None:
    with Collector(answers=False) as server:
        assert process(command_line, server, *RUN, "-w", str(command_line.workspace)) == (4, "")
