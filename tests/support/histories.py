"""Short words for writing histories down in tests."""

from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, InvalidToolCall, ToolMessage

from signoff import standard_controls
from signoff.graph.messages import KEY, append_messages, nudge, result
from signoff.graph.state import AgentState
from signoff.tools.toolbox import make_toolbox
from tests.support import plays
from tests.support.plays import done as done
from tests.support.plays import user as user

CONTROLS = make_toolbox([], standard_controls())


def ai(*parts: Any, stop: str | None = None) -> AIMessage:
    """A reply of a model, with the reason of its end: see `plays.ai`."""
    reply = plays.ai(*parts)
    reason = stop or ("tool_calls" if reply.tool_calls else "stop")
    return reply.model_copy(update={"response_metadata": {"finish_reason": reason}})


def malformed(name: str, call_id: str) -> AIMessage:
    bad = InvalidToolCall(type="invalid_tool_call", name=name, id=call_id, args='{"a": ', error="cut")
    return AIMessage(content="", invalid_tool_calls=[bad])


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
