"""Errors that stand for a reply, and replies that stand for an error.

Where the provider or its package refuses what the model has answered, no reply arrives. That is the model's
mistake, and the history has it as a reply of the model: so it is a turn, the model is reminded, and the
choice of tools becomes looser, after a restart, too. A reply that broke off is a fault of the provider.
"""

import json

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, InvalidToolCall
from pydantic import ValidationError

from signoff.graph.history.reasons import broken_off, is_context_full, reason_of
from signoff.graph.messages import NOTES, marks
from signoff.nodes.model.advice import refuses_call


def refused_reply(error: BaseException) -> AIMessage | None:
    """The reply that this error of a model call stands for; None if it is no mistake of the model.

    It is empty where the provider has refused a call, or the lack of a required one. Where its package could
    not build the reply, since the arguments of a call are not an object, only these arguments are known.
    """
    if refuses_call(error):
        return AIMessage("", response_metadata={NOTES: {"call_refused": True}})
    if not isinstance(error, ValidationError) or error.title not in ("AIMessage", "AIMessageChunk"):
        return None
    found = [part["input"] for part in error.errors() if part["loc"][-1:] == ("args",)]
    calls = [
        InvalidToolCall(type="invalid_tool_call", name="", id="", args=json.dumps(args), error=None)
        for args in found
    ]
    return AIMessage("", invalid_tool_calls=calls) if calls else None


def unfinished(reply: AIMessage) -> Exception | None:
    """The error that this reply stands for, since it broke off; None if the reply counts."""
    if marks(reply).get("dropped"):
        return ConnectionAbortedError(
            "the stream ended in the middle of the reply (it has no finish_reason; for a server that never "
            "sends one turn streaming off)"
        )
    said = f"(finish_reason {reason_of(reply)!r})"
    if is_context_full(reply):
        return ContextOverflowError(f"the context is full {said}")
    return ConnectionAbortedError(f"the provider broke the reply off {said}") if broken_off(reply) else None
