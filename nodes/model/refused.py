"""Replies that never arrive, since the provider or its package refuses what the model has answered.

That is the model's mistake, and the history has it as a reply of the model: so it is a turn, the model is
reminded, and the choice of tools becomes looser, after a restart, too.
"""

import json

from langchain_core.messages import AIMessage, InvalidToolCall
from pydantic import ValidationError

from signoff.graph.messages import NOTES
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
