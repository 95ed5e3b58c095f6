"""OpenTelemetry: names and attributes of spans, as an in-memory exporter gets them."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
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

from signoff import Session, build_graph, delegate, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.otel import Tracing

ROOT = Path(__file__).parents[2]
ADD = call("add", a=1, b=2)
ASK = call("ask_user", question="Which colour?")
FINISH = call("finish_task", summary="It is 3.")


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

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    @property
    def tree(self) -> list[tuple[str, str]]:
        """Each span with the one that it is in, in the order in which they began."""
        names = {span.context.span_id: span.name for span in self.all if span.context}
        begun = sorted(self.all, key=lambda span: span.start_time or 0)
        return [(span.name, names.get(span.parent.span_id, "") if span.parent else "") for span in begun]


def run(spans: Spans, script: list[Any], **options: Any) -> Any:
    graph = build_graph(ScriptedModel(script), [add, broken], name="researcher")
    tracing = Tracing(provider=spans.provider, **options)
    return graph.invoke({"messages": ["add"]}, {"callbacks": [tracing]})


def fields(found: Any) -> dict[str, Any]:
    return dict(found.attributes or {})


def test_a_run_is_a_span_with_a_span_for_each_call() -> None:
    spans = Spans()
    run(spans, [reply(ADD, usage=(10, 5)), reply(FINISH, usage=(20, 6))])
    agent = "invoke_agent researcher"
    assert spans.tree == [
        (agent, ""),
        ("chat scripted", agent),
        ("execute_tool add", agent),
        ("chat scripted", agent),
    ]
    assert fields(spans.one(agent)) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "researcher",
        "signoff.task": fields(spans.one(agent))["signoff.task"],
        "signoff.outcome.status": "success",
        "signoff.outcome.reason": "finish_task",
        "signoff.outcome.claim": "done",
        "signoff.outcome.verified": "asserted",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 11,
    }
    chat = fields(next(span for span in spans.all if span.name == "chat scripted"))
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
    spans = Spans()
    run(spans, [ADD, FINISH])
    events = spans.one("invoke_agent researcher").events
    assert [(event.name, fields(event)["signoff.decision.rule"]) for event in events] == [
        ("signoff.decision", "think"),
        ("signoff.decision", "think"),
        ("signoff.decision", "claimed"),
    ]
    assert fields(events[-1])["signoff.decision.why"] == "finish_task stands (call_2)"


def test_a_span_for_each_state_when_asked_for() -> None:
    spans = Spans()
    run(spans, [ADD, FINISH], states=True)
    states = [name.removeprefix("state ") for name, _ in spans.tree if name.startswith("state ")]
    turn = ["call_llm", "route_tools"]
    assert states == ["compress", "decide", *turn, "execute", "decide", *turn, "decide", "review", "finish"]
    assert ("execute_tool add", "state execute") in spans.tree
    assert fields(spans.one("state execute")) == {"signoff.state": "execute", "signoff.event": "done"}


@pytest.mark.parametrize("content", [False, True])
def test_content_only_when_asked_for(content: bool) -> None:
    spans = Spans()
    run(spans, [call("add", a=1234, b=2), call("finish_task", summary="Ready.")], content=content)
    told = json.dumps([fields(span) for span in spans.all], default=str)
    assert ("1234" in told, "Ready." in told) == (content, content)
    if content:
        added = fields(spans.one("execute_tool add"))
        assert added["gen_ai.tool.call.arguments"] == '{"a": 1234, "b": 2}'
        assert added["gen_ai.tool.call.result"] == "1236"


def test_failures_are_errors_and_name_what_failed() -> None:
    spans = Spans()
    run(spans, [call("broken"), RuntimeError("the server is down")])
    agent, tool = spans.one("invoke_agent researcher"), spans.one("execute_tool broken")
    failed = [span for span in spans.all if span.name.startswith("chat") and not span.status.is_ok]
    assert (agent.status.is_ok, fields(agent)["error.type"]) == (False, "model_error")
    assert (tool.status.is_ok, fields(tool)["error.type"]) == (False, "ToolException")
    assert [fields(span)["error.type"] for span in failed] == ["RuntimeError"]
    assert "the server is down" not in str([span.status.description for span in spans.all])


def test_a_reply_that_is_ended_early_ends_its_span() -> None:
    spans = Spans()
    run(spans, [[FINISH, "And further words. " * 100]])
    assert [span.status.is_ok for span in spans.all] == [True, True]
    assert spans.tree == [("invoke_agent researcher", ""), ("chat scripted", "invoke_agent researcher")]


def test_a_machine_in_a_tool_is_nested() -> None:
    spans = Spans()
    child = build_graph(ScriptedModel([ADD, FINISH]), [add], name="adder")

    def delegate() -> str:
        """Have it added."""
        return str(child.invoke({"messages": ["add"]})["outcome"]["summary"])

    parent = build_graph(ScriptedModel([call("delegate"), FINISH]), [delegate], name="boss")
    parent.invoke({"messages": ["go"]}, {"callbacks": [Tracing(provider=spans.provider)]})
    assert ("invoke_agent adder", "execute_tool delegate") in spans.tree
    assert ("execute_tool add", "invoke_agent adder") in spans.tree
    assert len({span.context.trace_id for span in spans.all if span.context}) == 1


def test_a_delegate_stands_within_the_run_that_called_it(tmp_path: Path) -> None:
    spans = Spans()
    child = build_graph(ScriptedModel([ADD, ASK, FINISH]), [add], name="adder")
    adder = delegate("adder", child, description="Adds.")
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script = [call("adder", task="add"), FINISH]
        graph = build_graph(ScriptedModel(script), [adder], storage=storage, name="boss")
        tracing = Tracing(storage=storage, provider=spans.provider)
        session = Session(graph, "t", config={"callbacks": [tracing]})
        session.run("go")
        session.resume("red")
    boss, below = "invoke_agent boss", "invoke_agent adder"
    assert spans.tree == [
        (boss, ""),
        ("chat scripted", boss),
        (below, boss),
        ("chat scripted", below),
        ("execute_tool add", below),
        ("chat scripted", below),
        (boss, boss),
        (below, boss),
        ("chat scripted", below),
        ("chat scripted", boss),
    ]
    assert len({span.context.trace_id for span in spans.all if span.context}) == 1


@pytest.mark.parametrize("way", ["sync", "async"])
def test_delegates_of_graphs_without_names_are_told_apart(way: str, tmp_path: Path) -> None:
    spans = Spans()
    deep = delegate("deep", build_graph(ScriptedModel(lambda _: ASK)), description="Asks.")
    made = {name: build_graph(ScriptedModel([call("deep", task="go"), FINISH]), [deep]) for name in "ab"}
    team = [delegate(name, graph, description="Works.") for name, graph in made.items()]
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script: list[Any] = [reply(call("a", task="go"), call("b", task="go")), FINISH]
        graph = build_graph(ScriptedModel(script), team, storage=storage, name="boss")
        tracing = Tracing(storage=storage, provider=spans.provider)
        session = Session(graph, "t", config={"callbacks": [tracing]})
        session.run("go") if way == "sync" else asyncio.run(session.arun("go"))
    boss, a, b, below = (f"invoke_agent {name}" for name in ("boss", "a", "b", "deep"))
    agents = sorted(pair for pair in spans.tree if pair[0].startswith("invoke_agent"))
    assert agents == [(a, boss), (b, boss), (boss, ""), (below, a), (below, b)]
    waits = {
        (span.name, event.attributes.get("signoff.wait.path", ""))
        for span in spans.all
        for event in span.events
        if event.name == "signoff.wait" and event.attributes
    }
    assert waits == {(boss, "a / deep"), (boss, "b / deep"), (a, "deep"), (b, "deep"), (below, "")}


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
    spans = Spans()
    graph = build_graph(ScriptedModel([ADD, FINISH]), [add], name="researcher")
    tracing = Tracing(storage=Down(), provider=spans.provider)
    graph.invoke({"messages": ["add"]}, {"callbacks": [tracing], "configurable": {"thread_id": "t"}})
    agent = spans.one("invoke_agent researcher")
    assert fields(agent)["signoff.outcome.status"] == "success"
    assert ("execute_tool add", "invoke_agent researcher") in spans.tree


PROCESS = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.otel import Tracing

file, answer, *script = sys.argv[1:]
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
STEPS = {"ask": call("ask_user", question="Which?"), "finish": call("finish_task", summary="It is red.")}
with sqlite_storage(file) as storage:
    graph = build_graph(ScriptedModel([STEPS[name] for name in script]), storage=storage)
    config = {"callbacks": [Tracing(storage=storage, provider=provider)]}
    session = Session(graph, "t", config=config)
    session.resume(answer) if answer else session.run("go")
for span in exporter.get_finished_spans():
    events = [[event.name, dict(event.attributes)] for event in span.events]
    print(json.dumps([span.name, span.context.trace_id, span.parent and span.parent.trace_id, events]))
"""


@pytest.mark.slow
def test_a_thread_that_ran_in_three_processes_is_one_trace(tmp_path: Path) -> None:
    def process(*words: str) -> list[Any]:
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "t.sqlite"), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    runs = [process("", "ask"), process("red", "ask"), process("green", "finish")]
    spans = [span for found in runs for span in found]
    assert [span[0] for found in runs for span in found if span[0].startswith("invoke")] == [
        "invoke_agent signoff"
    ] * 3
    assert len({span[1] for span in spans}) == 1
    waits = [
        attributes["signoff.wait.type"]
        for span in spans
        for name, attributes in span[3]
        if name == "signoff.wait"
    ]
    assert waits == ["question", "question"]


async def test_in_an_event_loop_and_beside_each_other(tmp_path: Path) -> None:
    spans = Spans()
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        tracing = Tracing(storage=storage, provider=spans.provider)
        for thread_id in ("a", "b"):
            graph = build_graph(ScriptedModel([ADD, FINISH]), [add], storage=storage)
            await Session(graph, thread_id, config={"callbacks": [tracing]}).arun("go")
    agents = [span for span in spans.all if span.name.startswith("invoke_agent")]
    assert [fields(span)["gen_ai.conversation.id"] for span in agents] == ["a", "b"]
    assert len({span.context.trace_id for span in agents if span.context}) == 2
    assert len(spans.all) == 8


def test_the_first_run_belongs_to_the_span_that_is_current_and_the_next_links_to_its_own(
    tmp_path: Path,
) -> None:
    spans = Spans()
    tracer = trace.get_tracer("app", tracer_provider=spans.provider)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([ASK, FINISH]), storage=storage)
        session = Session(
            graph, "t", config={"callbacks": [Tracing(storage=storage, provider=spans.provider)]}
        )
        with tracer.start_as_current_span("first request"):
            session.run("go")
        with tracer.start_as_current_span("second request") as second:
            session.resume("red")
    first, next_one = (span for span in spans.all if span.name.startswith("invoke_agent"))
    assert ("invoke_agent signoff", "first request") in spans.tree
    assert first.context is not None
    assert next_one.context is not None
    assert first.context.trace_id == next_one.context.trace_id
    assert [link.context.span_id for link in next_one.links] == [second.get_span_context().span_id]


class Broken(SpanExporter):
    """An exporter whose server is down: it hangs, or it raises."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        time.sleep(self.seconds)
        raise ConnectionError("nobody is there")


def test_an_exporter_that_is_down_neither_ends_nor_slows_a_run() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Broken(20), schedule_delay_millis=1))
    spans = Spans()
    spans.provider = provider
    begun = time.monotonic()
    assert run(spans, [ADD, FINISH])["outcome"]["status"] == "success"
    assert time.monotonic() - begun < 10


def test_one_that_raises_in_the_run_does_not_end_it() -> None:
    class Raising(SimpleSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise ConnectionError("nobody is there")

    spans = Spans()
    spans.provider = TracerProvider()
    spans.provider.add_span_processor(Raising(InMemorySpanExporter()))
    assert run(spans, [ADD, FINISH])["outcome"]["status"] == "success"


def test_nothing_is_imported_when_it_is_off() -> None:
    code = "import sys, signoff; signoff.build_graph; print('signoff.otel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
