"""OpenTelemetry spans of a run, following the conventions for generative AI (extra `signoff[otel]`).

`Tracing` is a callback: `Session(graph, "t", config={"callbacks": [Tracing(storage=storage)]})`. A run is a
span `invoke_agent` with a `chat` span for each model call and an `execute_tool` span for each tool call. Its
events are decisions and waits; its attributes are the outcome. Only this module imports OpenTelemetry.
"""

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from signoff import SetupError, Storage
from signoff.graph.inside.installing import install_hint
from signoff.machine import State
from signoff.text import label

try:
    from opentelemetry import context as current
    from opentelemetry import trace
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise SetupError(
        f"signoff.otel needs OpenTelemetry, which is not installed; run: {install_hint('otel')}"
    ) from error

__all__ = ["Tracing"]

_KEY = "trace"
_STATES = frozenset(map(str, State))
_OUTCOME = ("status", "reason", "claim", "verified")
_PROPAGATOR = TraceContextTextMapPropagator()
_LAST_SECONDS = 1.0


def has_provider() -> bool:
    """Whether spans are exported: by the program's own provider, else by OTLP in the background, to the
    address in `OTEL_EXPORTER_OTLP_ENDPOINT` and the other OpenTelemetry variables.

    If the server is down or does not respond, the end of the process is delayed by a second and the remaining
    spans are lost; this is logged if the program has configured logging.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as Provider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return False
    service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "signoff")}
    provider, exporter = (
        Provider(resource=Resource.create(service), shutdown_on_exit=False),
        OTLPSpanExporter(),
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    # Without a handler, Python writes warnings to stderr.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    _flush_at_exit(provider.force_flush, exporter.shutdown)
    return True


def _flush_at_exit(flush: Callable[[], object], close: Callable[[], object]) -> None:
    """Exports the remaining spans when the process ends, for at most a second.

    Its thread starts now, because no thread can start while Python shuts down.
    """
    ends, flushed = threading.Event(), threading.Event()

    def wait_and_flush() -> None:
        ends.wait()
        try:
            flush()
        finally:
            flushed.set()

    def at_exit() -> None:
        ends.set()
        flushed.wait(_LAST_SECONDS)
        close()

    threading.Thread(target=wait_and_flush, name="signoff-otel", daemon=True).start()
    atexit.register(at_exit)


@dataclass
class _Run:
    """A LangChain run that has begun, with its span if it has one."""

    name: str
    parent: UUID | None
    begun: int
    thread_id: str | None = None
    span: Span | None = None
    is_agent: bool = False
    state: str = ""
    children: list[UUID] = field(default_factory=list)


class Tracing(BaseCallbackHandler):
    """Creates the spans of a run; one instance serves any number of runs.

    storage: the graph's storage, which keeps the trace of a thread, so that all its runs, in any process,
    form one trace. Without it, each run is its own trace, or belongs to the current span. provider: by
    default the program's OpenTelemetry provider. content: also record messages, arguments and results.
    states: create a span for each state of the machine.

    An error here or in an exporter never ends a run. An exporter does not slow the run if the provider
    exports in the background, as `BatchSpanProcessor` does.
    """

    run_inline = True
    raise_error = False

    def __init__(
        self,
        *,
        storage: Storage | None = None,
        provider: TracerProvider | None = None,
        content: bool = False,
        states: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("signoff", tracer_provider=provider)
        self._store = None if storage is None else storage.store
        self._content = content
        self._states = states
        self._runs: dict[UUID, _Run] = {}

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Handles the start of a graph, a state or any other run."""
        known, name = metadata or {}, str(kwargs.get("name") or "")
        thread_id = known.get("thread_id")
        run = _Run(name, parent_run_id, time.time_ns(), None if thread_id is None else str(thread_id))
        self._add(run_id, run)
        if name not in _STATES or known.get("langgraph_node") != name or parent_run_id is None:
            return
        # Only its states show that a graph is a machine.
        run.state = name
        graph = self._runs.get(parent_run_id)
        if graph is not None and graph.span is None:
            self._begin_agent(graph)
        if self._states:
            run.span = self._child(run, f"state {name}", {"signoff.state": name})

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles the end of a run: its graph's span records the decisions and conclusions of a state."""
        run = self._runs.get(run_id)
        told = outputs if isinstance(outputs, Mapping) else {}
        if run is not None and run.state:
            agent = self._agent(run)
            if run.span is not None and (event := told.get("event")):
                run.span.set_attribute("signoff.event", str(event))
            if agent is not None and run.state == State.DECIDE and (decision := told.get("decision")):
                fields = {
                    f"signoff.decision.{name}": str(decision[name]) for name in ("rule", "event", "why")
                }
                agent.add_event("signoff.decision", fields)
            if agent is not None and (outcome := told.get("outcome")):
                _conclude(agent, outcome)
        self._end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles an interrupt, which waits for a person, or an error."""
        run = self._runs.get(run_id)
        if run is not None and run.state and isinstance(error, GraphInterrupt):
            self._wait(run, error)
        is_fault = not isinstance(error, GraphBubbleUp)
        self._end(run_id, error if is_fault else None)

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Handles the start of a model call."""
        given, known = kwargs.get("invocation_params") or {}, metadata or {}
        model = str(given.get("model") or given.get("model_name") or known.get("ls_model_name") or "")
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        if provider := known.get("ls_provider"):
            attributes["gen_ai.provider.name"] = str(provider)
        if model:
            attributes["gen_ai.request.model"] = model
        if self._content:
            shown = [_message(one) for each in messages for one in each]
            attributes["gen_ai.input.messages"] = _json(shown)
        run = _Run(f"chat {model}".strip(), parent_run_id, time.time_ns())
        self._add(run_id, run)
        run.span = self._child(run, run.name, attributes, SpanKind.CLIENT)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles the model's reply."""
        span = self._span(run_id)
        message = getattr(response.generations[0][0], "message", None) if response.generations else None
        if span is not None and message is not None:
            _replied(span, message)
            if self._content:
                span.set_attribute("gen_ai.output.messages", _json([_message(message)]))
        self._end(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles a model error. Ending a reply early once it is decided is not an error."""
        self._end(run_id, None if isinstance(error, GeneratorExit) else error)

    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Handles the start of a tool call."""
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
        }
        if call_id := kwargs.get("tool_call_id"):
            attributes["gen_ai.tool.call.id"] = str(call_id)
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = _json(kwargs.get("inputs") or input_str)
        run = _Run(f"execute_tool {name}", parent_run_id, time.time_ns())
        self._add(run_id, run)
        run.span = self._child(run, run.name, attributes)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles the end of a tool call."""
        span = self._span(run_id)
        if span is not None and self._content:
            given = output.content if isinstance(output, ToolMessage) else output
            span.set_attribute("gen_ai.tool.call.result", _json(given))
        if span is not None and isinstance(output, ToolMessage) and output.status == "error":
            span.set_attribute("error.type", "tool_error")
            span.set_status(StatusCode.ERROR)
        self._end(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Handles a tool error, or an interrupt that waits for a person."""
        self._end(run_id, None if isinstance(error, GraphBubbleUp) else error)

    def _add(self, run_id: UUID, run: _Run) -> None:
        self._runs[run_id] = run
        if run.parent is not None and (parent := self._runs.get(run.parent)):
            parent.children.append(run_id)

    def _span(self, run_id: UUID) -> Span | None:
        run = self._runs.get(run_id)
        return None if run is None else run.span

    def _around(self, run: _Run, *, agent: bool = False) -> Span | None:
        """Returns the span around the run; the agent's, if requested."""
        above = None if run.parent is None else self._runs.get(run.parent)
        while above is not None and (above.span is None or (agent and not above.is_agent)):
            above = None if above.parent is None else self._runs.get(above.parent)
        return None if above is None else above.span

    def _agent(self, run: _Run) -> Span | None:
        return self._around(run, agent=True)

    def _child(
        self, run: _Run, name: str, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        around = self._around(run)
        where = None if around is None else trace.set_span_in_context(around)
        return self._tracer.start_span(name, where, kind, attributes, start_time=run.begun)

    def _begin_agent(self, run: _Run) -> None:
        """Starts the span of a machine: within its caller's span, else within the trace of its thread."""
        attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": run.name}
        if run.thread_id is not None:
            attributes["gen_ai.conversation.id"] = run.thread_id
        name, run.is_agent = f"invoke_agent {run.name}".strip(), True
        if self._around(run) is not None:
            run.span = self._child(run, name, attributes)
            return
        kept, outer = self._stored_trace(run.thread_id), trace.get_current_span().get_span_context()
        links = [Link(outer)] if kept and outer.is_valid else []
        where = _PROPAGATOR.extract(kept) if kept else current.get_current()
        run.span = self._tracer.start_span(
            name, where, attributes=attributes, links=links, start_time=run.begun
        )
        if kept is None:
            self._keep(run.thread_id, run.span)

    def _stored_trace(self, thread_id: str | None) -> dict[str, str] | None:
        """Returns the trace of the thread's first run; empty if it cannot be read now."""
        if self._store is None or thread_id is None:
            return None
        try:
            item = self._store.get(("signoff", "threads", label(thread_id)), _KEY)
        except Exception:  # noqa: BLE001  whatever fails here, the run has a span
            return {}
        return None if item is None else dict(item.value)

    def _keep(self, thread_id: str | None, span: Span) -> None:
        if self._store is None or thread_id is None or not span.get_span_context().is_valid:
            return
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        with suppress(Exception):
            self._store.put(("signoff", "threads", label(thread_id)), _KEY, carrier)

    def _wait(self, run: _Run, error: GraphInterrupt) -> None:
        agent, found = self._agent(run), error.args[0] if error.args else ()
        for one in found if agent is not None and isinstance(found, Sequence) else ():
            asked = one.value if isinstance(one.value, Mapping) else {}
            told = {"signoff.state": run.state, "signoff.wait.id": str(one.id)}
            told["signoff.wait.type"] = str(asked.get("type", run.state))
            path = asked.get("path")
            if isinstance(path, list | tuple) and path:
                told["signoff.wait.path"] = " / ".join(map(str, path))
            if self._content:
                told["signoff.wait.content"] = _json(one.value)
            assert agent is not None, "as asked above"
            agent.add_event("signoff.wait", told)

    def _end(self, run_id: UUID, error: BaseException | None = None) -> None:
        """Ends the run's span and the open spans within it, which a closed stream leaves behind."""
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        for child in run.children:
            self._end(child)
        if run.span is None:
            return
        if error is not None:
            run.span.set_attribute("error.type", type(error).__name__)
            run.span.set_status(StatusCode.ERROR, str(error) if self._content else None)
        run.span.end()


def _conclude(agent: Span, outcome: Mapping[str, Any]) -> None:
    agent.set_attribute("signoff.task", str(outcome["task"]))
    for name in _OUTCOME:
        if outcome.get(name) is not None:
            agent.set_attribute(f"signoff.outcome.{name}", str(outcome[name]))
    usage = outcome.get("usage") or {}
    agent.set_attribute("gen_ai.usage.input_tokens", usage.get("input_tokens", 0))
    agent.set_attribute("gen_ai.usage.output_tokens", usage.get("output_tokens", 0))
    if outcome["status"] == "error":
        agent.set_attribute("error.type", str(outcome["reason"]))
        agent.set_status(StatusCode.ERROR)


def _replied(span: Span, message: BaseMessage) -> None:
    metadata, usage = message.response_metadata, getattr(message, "usage_metadata", None) or {}
    named = {
        "gen_ai.response.model": metadata.get("model_name") or metadata.get("model"),
        "gen_ai.response.id": message.id,
    }
    for name, value in named.items():
        if value:
            span.set_attribute(name, str(value))
    if reason := metadata.get("finish_reason") or metadata.get("stop_reason"):
        span.set_attribute("gen_ai.response.finish_reasons", [str(reason)])
    for side in ("input_tokens", "output_tokens"):
        if side in usage:
            span.set_attribute(f"gen_ai.usage.{side}", usage[side])


def _message(message: BaseMessage) -> dict[str, Any]:
    """Returns a message in the form of the conventions: a role and parts."""
    roles = {"human": "user", "ai": "assistant"}
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    parts += [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
        for call in getattr(message, "tool_calls", ())
    ]
    if isinstance(message, ToolMessage):
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
    return {"role": roles.get(message.type, message.type), "parts": parts}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
