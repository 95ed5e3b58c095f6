"""Tests for PII detection middleware."""

import re
from collections.abc import Callable
from typing import Any
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import tool
from langgraph.runtime import Runtime
from langgraph.stream._types import ProtocolEvent
from langgraph.stream.transformers import MessagesTransformer
from langchain.agents import AgentState
from langchain.agents import middleware as middleware_package
from tests.drop_in.langchain_tests.adapter import create_agent
from langchain.agents.middleware import PIIMatch as PublicPIIMatch
from langchain.agents.middleware._redaction import RedactionRule
from langchain.agents.middleware.pii import (
    PIIDetectionError,
    PIIMatch,
    PIIMiddleware,
    _PIIStreamTransformer,
    detect_credit_card,
    detect_email,
    detect_ip,
    detect_mac_address,
    detect_url,
)
from tests.drop_in.langchain_tests.model import FakeToolCallingModel


class TestPIIMiddlewareIntegration:

    """Test PIIMiddleware integration with agent."""

    def test_with_agent(self) -> None:
        """Test PIIMiddleware integrated with create_agent."""
        model = FakeToolCallingModel()

        agent = create_agent(
            model=model,
            middleware=[PIIMiddleware("email", strategy="redact")],
        )

        # Invoke (agent is already compiled)
        result = agent.invoke({"messages": [HumanMessage("Email: test@example.com")]})

        # Check that email was redacted in the stored messages
        # The first message should have been processed
        messages = result["messages"]
        assert any("[REDACTED_EMAIL]" in str(msg.content) for msg in messages)


class TestMultipleMiddleware:

    """Test using multiple PII middleware instances."""

    def test_multiple_pii_middleware_with_create_agent(self) -> None:
        """Test that multiple PIIMiddleware instances work together in create_agent."""
        model = FakeToolCallingModel()

        # Multiple PIIMiddleware instances should work because each has a unique name
        agent = create_agent(
            model=model,
            middleware=[
                PIIMiddleware("email", strategy="redact"),
                PIIMiddleware("ip", strategy="mask"),
                PIIMiddleware("url", strategy="block", apply_to_input=True),
            ],
        )

        # Test with email and IP (url would block, so we omit it)
        result = agent.invoke(
            {"messages": [HumanMessage("Contact: test@example.com, IP: 192.168.1.100")]}
        )

        messages = result["messages"]
        content = " ".join(str(msg.content) for msg in messages)

        # Email should be redacted
        assert "test@example.com" not in content
        # IP should be masked
        assert "192.168.1.100" not in content


def _make_delta_event(text: str, *, index: int = 0, run_id: str = "r1") -> ProtocolEvent:
    """Build a `messages` protocol event for a text content-block delta."""
    return {
        "type": "event",
        "method": "messages",
        "params": {
            "namespace": [],
            "timestamp": 0,
            "data": (
                {
                    "event": "content-block-delta",
                    "index": index,
                    "delta": {"type": "text-delta", "text": text},
                },
                {"run_id": run_id},
            ),
        },
    }


def _make_finish_event(text: str, *, index: int = 0, run_id: str = "r1") -> ProtocolEvent:
    """Build a `messages` protocol event for content-block-finish on a text block."""
    return {
        "type": "event",
        "method": "messages",
        "params": {
            "namespace": [],
            "timestamp": 0,
            "data": (
                {
                    "event": "content-block-finish",
                    "index": index,
                    "content": {"type": "text", "text": text},
                },
                {"run_id": run_id},
            ),
        },
    }


def _emitted_text(events: list[ProtocolEvent]) -> tuple[str, dict[int, str]]:
    """Concatenate delta + finalized text the way a streaming consumer would."""
    parts = []
    final_by_index: dict[int, str] = {}
    for event in events:
        payload = event["params"]["data"][0]
        kind = payload.get("event")
        if kind == "content-block-delta":
            delta = payload["delta"]
            if delta.get("type") == "text-delta":
                parts.append(delta["text"])
        elif kind == "content-block-finish":
            content = payload.get("content", {})
            if content.get("type") == "text":
                final_by_index[payload["index"]] = content["text"]
    # Concatenated delta stream is what the consumer sees in real time;
    # finalized text is the snapshot. Return both via a tuple-like dict.
    return "".join(parts), final_by_index


def _make_tool_call_delta_event(
    delta: dict[str, Any], *, index: int = 0, run_id: str = "r1"
) -> ProtocolEvent:
    """Build a `messages` protocol event for a tool-call content-block delta."""
    return {
        "type": "event",
        "method": "messages",
        "params": {
            "namespace": [],
            "timestamp": 0,
            "data": (
                {"event": "content-block-delta", "index": index, "delta": delta},
                {"run_id": run_id},
            ),
        },
    }


def _tool_call_slice(args: str) -> dict[str, Any]:
    return {"type": "tool-call-delta", "args": args}


def _tool_call_snapshot(args: str | None = None, **fields: Any) -> dict[str, Any]:
    if args is not None:
        fields["args"] = args
    return {"type": "block-delta", "fields": {"type": "tool_call_chunk", **fields}}


def _emitted_tool_call_args(events: list[ProtocolEvent]) -> str:
    """Rebuild streamed tool-call args the way a consumer would.

    `tool-call-delta` appends its slice; a `block-delta` carrying `args`
    replaces them.
    """
    args = ""
    for event in events:
        payload = event["params"]["data"][0]
        if payload.get("event") != "content-block-delta":
            continue
        delta = payload["delta"]
        if delta.get("type") == "tool-call-delta":
            args += delta["args"]
        elif delta.get("type") == "block-delta" and "args" in delta["fields"]:
            args = delta["fields"]["args"]
    return args


def _run_transformer(transformer: Any, events: list[ProtocolEvent]) -> list[ProtocolEvent]:
    """Feed events through the transformer (mutates in place) and return them."""
    for event in events:
        transformer.process(event)
    return events


class TestPIIStreamTransformer:

    """Tests for the in-flight stream transformer."""

    def test_transformer_registered_before_messages_transformer_on_agent(self) -> None:
        """The PIIMiddleware transformer must run before MessagesTransformer.

        Otherwise the built-in `messages` projection snapshots the original
        text before redaction, defeating the whole point of the in-flight
        path.
        """
        model = FakeToolCallingModel()
        agent = create_agent(model, [], middleware=[PIIMiddleware("email", apply_to_output=True)])

        run = agent.stream_events({"messages": [HumanMessage("hi")]}, version="v3")
        transformers = run._mux._transformers

        pii_idx = next(
            i for i, t in enumerate(transformers) if isinstance(t, _PIIStreamTransformer)
        )
        messages_idx = next(
            i for i, t in enumerate(transformers) if isinstance(t, MessagesTransformer)
        )
        assert pii_idx < messages_idx, (
            "PIIStreamTransformer must be registered before MessagesTransformer "
            "so it can mutate delta.text before the messages projection snapshots it"
        )

        # Drain to close cleanly.
        list(run.tool_calls)


class TestPIIStreamingEndToEnd:

    """End-to-end tests with a real streaming chat model wired into create_agent."""

    @pytest.mark.anyio
    async def test_streamed_messages_projection_is_redacted(self) -> None:
        """Iterating `run.messages` should yield text with PII already redacted.

        Drives a `GenericFakeChatModel` (which actually streams content via
        `_stream` / `_astream` and produces `content-block-delta` protocol
        events) through `create_agent` and asserts the `.text` projection
        of each `ChatModelStream` does not contain the original PII.
        """
        model = GenericFakeChatModel(
            messages=iter([AIMessage(content="Reach me at alice@example.com today.")])
        )
        agent = create_agent(model, [], middleware=[PIIMiddleware("email", apply_to_output=True)])

        run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")

        collected_text = ""
        async for msg in run.messages:
            async for chunk in msg.text:
                collected_text += chunk

        assert "alice@example.com" not in collected_text
        assert "[REDACTED_EMAIL]" in collected_text

    @pytest.mark.anyio
    async def test_main_event_log_carries_redacted_deltas(self) -> None:
        """Raw protocol events on the main log must not leak the original PII.

        Iterates the run as a raw protocol event stream (the same surface
        external consumers see via `stream_events(version="v3")`) and
        asserts every `content-block-delta` event's `delta.text` is
        already redacted.
        """
        model = GenericFakeChatModel(
            messages=iter([AIMessage(content="Reach me at alice@example.com today.")])
        )
        agent = create_agent(model, [], middleware=[PIIMiddleware("email", apply_to_output=True)])

        run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")

        surfaces: list[str] = []
        async for event in run:
            if event.get("method") != "messages":
                continue
            data = event["params"].get("data")
            if not isinstance(data, tuple) or len(data) != 2:
                continue
            payload = data[0]
            # v3 protocol-event shape: dict with `event` discriminator.
            if isinstance(payload, dict):
                kind = payload.get("event")
                if kind == "content-block-delta":
                    delta = payload.get("delta") or {}
                    if delta.get("type") == "text-delta":
                        surfaces.append(delta.get("text", ""))
                elif kind == "content-block-finish":
                    content = payload.get("content") or {}
                    if content.get("type") == "text":
                        surfaces.append(content.get("text", ""))
            # Legacy `(BaseMessage, metadata)` shape: message carries text
            # directly on `.content`. The langgraph→langchain adapter falls
            # back to this when `_astream` isn't streaming chunks.
            elif isinstance(payload, BaseMessage):
                content = payload.content
                if isinstance(content, str):
                    surfaces.append(content)

        # Every observed text surface — deltas, finalized snapshots, or
        # legacy whole-message payloads — must already be redacted.
        for text in surfaces:
            assert "alice@example.com" not in text
        # And the redaction marker actually shows up somewhere.
        assert any("[REDACTED_EMAIL]" in text for text in surfaces)

    @pytest.mark.anyio
    async def test_block_strategy_emits_no_pii_and_run_raises(self) -> None:
        """`block` + `apply_to_output=True` + streaming.

        Closes the bypass where the transformer was skipped for `block`,
        leaving plaintext deltas to reach the consumer before
        `after_model` raised. The buffering transformer now keeps every
        wire surface empty and `after_model` raises on the original
        message in state.
        """
        model = GenericFakeChatModel(
            messages=iter([AIMessage(content="Email me at alice@example.com.")])
        )
        agent = create_agent(
            model,
            [],
            middleware=[PIIMiddleware("email", strategy="block", apply_to_output=True)],
        )

        collected = ""

        async def drain() -> None:
            nonlocal collected
            run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")
            async for msg in run.messages:
                async for chunk in msg.text:
                    collected += chunk

        with pytest.raises(PIIDetectionError):
            await drain()

        # No characters of the PII surface ever reach the consumer — the
        # raised error is the only signal that something was blocked.
        assert "alice@example.com" not in collected
        assert "alice" not in collected

    @pytest.mark.anyio
    async def test_tool_call_args_redacted_end_to_end(self) -> None:
        """Tool-call args containing PII don't reach the consumer."""

        @tool
        def echo(text: str) -> str:
            """Echo."""
            return f"echo: {text}"

        model = FakeToolCallingModel(
            tool_calls=[
                [ToolCall(name="echo", args={"text": "ping alice@example.com"}, id="c1")],
                [],
            ]
        )
        agent = create_agent(
            model,
            [echo],
            middleware=[PIIMiddleware("email", apply_to_output=True)],
        )

        surfaces: list[str] = []
        run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")
        async for event in run:
            data = event.get("params", {}).get("data")
            if isinstance(data, tuple) and len(data) == 2:
                p = data[0]
                if isinstance(p, BaseMessage):
                    surfaces.append(str(p.content))
                    surfaces.extend(
                        str(tc.get("args")) for tc in getattr(p, "tool_calls", None) or []
                    )
                elif isinstance(p, dict):
                    if p.get("event") == "content-block-finish":
                        c = p.get("content") or {}
                        if c.get("type") == "text":
                            surfaces.append(str(c.get("text", "")))
                        elif c.get("type") in {"tool_call", "server_tool_call"}:
                            surfaces.append(str(c.get("args")))
                    elif p.get("event") == "content-block-delta":
                        d = p.get("delta") or {}
                        if d.get("type") == "tool-call-delta":
                            surfaces.append(str(d.get("args", "")))
                        elif d.get("type") == "block-delta":
                            f = d.get("fields") or {}
                            if f.get("type") in {
                                "tool_call_chunk",
                                "server_tool_call_chunk",
                            }:
                                surfaces.append(str(f.get("args", "")))
            elif isinstance(data, dict):
                e = data.get("event")
                if e == "tool-started":
                    surfaces.append(str(data.get("input")))
                elif e == "tool-output-delta":
                    surfaces.append(str(data.get("delta")))
                elif e == "tool-finished":
                    surfaces.append(str(data.get("output")))
                elif e == "tool-error":
                    surfaces.append(str(data.get("message", "")))

        for s in surfaces:
            assert "alice@example.com" not in s, f"PII leaked on surface: {s!r}"
        assert any("[REDACTED_EMAIL]" in s for s in surfaces), (
            f"redaction marker not observed; surfaces={surfaces}"
        )

    @pytest.mark.anyio
    async def test_tool_output_redacted_end_to_end(self) -> None:
        """Tool output containing PII is redacted on every stream surface."""

        @tool
        def lookup_user(user_id: str) -> str:
            """Look up a user — returns PII."""
            return f"User {user_id}: alice@example.com"

        model = FakeToolCallingModel(
            tool_calls=[
                [ToolCall(name="lookup_user", args={"user_id": "u1"}, id="c1")],
                [],
            ]
        )
        agent = create_agent(
            model,
            [lookup_user],
            middleware=[
                PIIMiddleware(
                    "email",
                    apply_to_input=True,
                    apply_to_output=True,
                    apply_to_tool_results=True,
                )
            ],
        )

        surfaces: list[str] = []
        run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")
        async for event in run:
            data = event.get("params", {}).get("data")
            if isinstance(data, tuple) and len(data) == 2:
                p = data[0]
                if isinstance(p, BaseMessage):
                    surfaces.append(str(p.content))
                elif isinstance(p, dict):
                    surfaces.append(repr(p))
            elif isinstance(data, dict):
                surfaces.append(repr(data))

        for s in surfaces:
            assert "alice@example.com" not in s, f"tool output leaked on surface: {s!r}"

    @pytest.mark.anyio
    async def test_block_raises_on_tool_output_pii(self) -> None:
        """`block` + tool output with PII → run raises, no leak on the wire."""

        @tool
        def lookup_user(user_id: str) -> str:
            """Look up a user — returns PII."""
            return f"User {user_id}: alice@example.com"

        model = FakeToolCallingModel(
            tool_calls=[
                [ToolCall(name="lookup_user", args={"user_id": "u1"}, id="c1")],
                [],
            ]
        )
        agent = create_agent(
            model,
            [lookup_user],
            middleware=[
                PIIMiddleware(
                    "email",
                    strategy="block",
                    apply_to_input=True,
                    apply_to_output=True,
                    apply_to_tool_results=True,
                )
            ],
        )

        collected: list[str] = []

        async def drain() -> None:
            run = await agent.astream_events({"messages": [HumanMessage("hi")]}, version="v3")
            async for event in run:
                if isinstance(event, dict):
                    data = event.get("params", {}).get("data")
                    if isinstance(data, tuple) and len(data) == 2:
                        p = data[0]
                        if isinstance(p, BaseMessage):
                            collected.append(str(p.content))
                        elif isinstance(p, dict):
                            collected.append(repr(p))
                    elif isinstance(data, dict):
                        collected.append(repr(data))

        with pytest.raises(PIIDetectionError):
            await drain()

        for s in collected:
            assert "alice@example.com" not in s, f"PII leaked under block: {s!r}"

    @pytest.mark.anyio
    async def test_block_fails_all_projections_cleanly(self) -> None:
        """Block raise propagates to every projection cursor via `afail`.

        Verifies the langgraph cleanup chain: `process()` raises →
        `_apump_next` catches and calls `_mux.afail(err)` → every
        registered channel (`messages` log, `tool_calls` log, `values`
        log, raw event log) is failed with the error → every inner
        ChatModelStream / ToolCallStream the transformers were tracking
        gets `fail()` called.
        """

        @tool
        def lookup(user_id: str) -> str:
            """Look up."""
            return f"User {user_id}: alice@example.com"

        def _agent() -> Any:
            model = FakeToolCallingModel(
                tool_calls=[
                    [ToolCall(name="lookup", args={"user_id": "u1"}, id="c1")],
                    [],
                ]
            )
            return create_agent(
                model,
                [lookup],
                middleware=[
                    PIIMiddleware(
                        "email",
                        strategy="block",
                        apply_to_output=True,
                        apply_to_tool_results=True,
                    )
                ],
            )

        # Raw events log
        run = await _agent().astream_events({"messages": [HumanMessage("hi")]}, version="v3")
        with pytest.raises(PIIDetectionError):
            async for _event in run:
                pass

        # `run.messages` projection — inner ChatModelStreams also fail.
        run = await _agent().astream_events({"messages": [HumanMessage("hi")]}, version="v3")

        async def drain_messages() -> None:
            async for msg in run.messages:
                async for _chunk in msg.text:
                    pass

        with pytest.raises(PIIDetectionError):
            await drain_messages()

        # `run.values` projection.
        run = await _agent().astream_events({"messages": [HumanMessage("hi")]}, version="v3")
        with pytest.raises(PIIDetectionError):
            async for _snapshot in run.values:
                pass

    @pytest.mark.anyio
    async def test_subgraph_redaction_via_create_agent_in_tool(self) -> None:
        """A sub-agent invoked inside a tool inherits the parent's transformer.

        `StreamMux._make_child` clones the factory list down to every
        subgraph scope, so a fresh `_PIIStreamTransformer` runs at the
        sub-agent's mini-mux too. This is the supported pattern: attach
        `PIIMiddleware` to the outer agent and every nested model call
        — including those run by sub-agents inside tools — gets redacted
        in flight by its own scoped instance of the transformer.
        """
        inner_model = GenericFakeChatModel(
            messages=iter([AIMessage(content="Hi bob@example.com, here is data.")])
        )
        # No PII middleware on the inner agent — the outer's transformer
        # factory propagates down to the subgraph scope.
        inner_agent = create_agent(inner_model, [])

        @tool
        def delegate(query: str) -> str:
            """Hand the query off to the inner agent."""
            result = inner_agent.invoke({"messages": [HumanMessage(query)]})
            return str(result["messages"][-1].content)

        outer_model = FakeToolCallingModel(
            tool_calls=[
                [{"name": "delegate", "args": {"query": "hi"}, "id": "tc1"}],
                [],
            ]
        )
        outer_agent = create_agent(
            outer_model,
            [delegate],
            middleware=[PIIMiddleware("email", apply_to_output=True)],
        )

        run = await outer_agent.astream_events({"messages": [HumanMessage("go")]}, version="v3")

        seen_email_in_deltas = False
        seen_email_in_finalized = False
        seen_redaction = False
        async for event in run:
            if event.get("method") != "messages":
                continue
            data = event["params"].get("data")
            if not isinstance(data, tuple) or len(data) != 2:
                continue
            payload = data[0]
            if not isinstance(payload, dict):
                continue
            kind = payload.get("event")
            if kind == "content-block-delta":
                delta = payload.get("delta") or {}
                if delta.get("type") == "text-delta":
                    text = delta.get("text", "")
                    if "bob@example.com" in text:
                        seen_email_in_deltas = True
                    if "[REDACTED_EMAIL]" in text:
                        seen_redaction = True
            elif kind == "content-block-finish":
                content = payload.get("content") or {}
                if content.get("type") == "text":
                    text = content.get("text", "")
                    if "bob@example.com" in text:
                        seen_email_in_finalized = True
                    if "[REDACTED_EMAIL]" in text:
                        seen_redaction = True

        assert not seen_email_in_deltas, (
            "raw PII leaked through a subgraph's streamed deltas — child "
            "mini-mux did not inherit the outer transformer factory"
        )
        assert not seen_email_in_finalized, (
            "raw PII leaked through a subgraph's content-block-finish snapshot"
        )
        assert seen_redaction, "transformer never fired at the subgraph scope"
