"""Short words for writing histories down in tests."""

from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, InvalidToolCall, ToolMessage

from signoff import standard_controls
from signoff.graph.messages import KEY, append_messages, nudge, result
from signoff.graph.state import AgentState
from signoff.tools.toolbox import make_toolbox

CONTROLS = make_toolbox([], standard_controls())


def user(text: str = "do it") -> HumanMessage:
    return HumanMessage(text)


def ai(*parts: Any, stop: str | None = None) -> AIMessage:
    """A reply: words are text, `(name, id)` or `(name, id, args)` a call."""
    calls = [part for part in parts if isinstance(part, tuple)]
    return AIMessage(
        content=" ".join(part for part in parts if isinstance(part, str)),
        tool_calls=[{"name": c[0], "id": c[1], "args": c[2] if len(c) > 2 else _args(c[0])} for c in calls],
        response_metadata={"finish_reason": stop or ("tool_calls" if calls else "stop")},
    )


def _args(name: str) -> dict[str, Any]:
    return {"finish_task": {"summary": "All of it."}, "ask_user": {"question": "Which one?"}}.get(name, {})


def malformed(name: str, call_id: str) -> AIMessage:
    bad = InvalidToolCall(type="invalid_tool_call", name=name, id=call_id, args='{"a": ', error="cut")
    return AIMessage(content="", invalid_tool_calls=[bad])


def done(call_id: str, text: str = "ok") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def broken(call_id: str) -> ToolMessage:
    return ToolMessage("it broke", tool_call_id=call_id, status="error")


def sent_back(call_id: str) -> ToolMessage:
    return result(call_id, "finish_task", "A person did not accept this.", ok=False, sent_back=True)


def nudged(kind: str, **notes: Any) -> HumanMessage:
    return nudge(kind, "go on", **notes)


def spent(reply: AIMessage, tokens: int = 0, seconds: float = 0.0) -> AIMessage:
    """The reply with what it took; all tokens but one were read."""
    usage = {"input_tokens": tokens - 1, "output_tokens": 1, "total_tokens": tokens} if tokens else None
    metadata = {**reply.response_metadata, KEY: {"seconds": seconds, "at": 0.0}}
    return reply.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})


def history(*messages: BaseMessage) -> list[BaseMessage]:
    """The messages with the ids m0, m1, …"""
    return append_messages([], [m.model_copy(update={"id": f"m{i}"}) for i, m in enumerate(messages)])


def state(*messages: BaseMessage, **values: Any) -> AgentState:
    return cast(AgentState, {"messages": history(*messages), **values})
