"""What deepagents answers for the calls of a reply that was cut short, or that wait for a person.

Its `PatchToolCallsMiddleware` stands before any other one, and tells the model of each such call that it did
not complete: also of one whose result is in the journal, and of a question that the new message answers.
`Guards` knows what became of a call, so it answers them itself.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Overwrite

_MODULE, _CLASS = "deepagents.middleware.patch_tool_calls", "PatchToolCallsMiddleware"


def without_made_up(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state without what deepagents has answered for calls of the task that stands in it."""
    position, past = state.get("guards"), state.get("past") or ()
    patcher = getattr(sys.modules.get(_MODULE), _CLASS, None)
    # The ledger is as it was when the run was cut short.
    reply = next((one for one in reversed(past) if isinstance(one, AIMessage)), None)
    if patcher is None or reply is None or not (position and position["at"]):
        return state
    answered = {one.tool_call_id for one in past if isinstance(one, ToolMessage)}
    # In the words of the version that is installed.
    patched = patcher().before_agent({"messages": [reply]}, None) or {}
    found = patched.get("messages", ())
    # deepagents 0.3 gives an Overwrite, 0.7 a list.
    made = found.value if isinstance(found, Overwrite) else found
    results = [one for one in made if isinstance(one, ToolMessage)]
    said = {one.tool_call_id: one.content for one in results if one.tool_call_id not in answered}
    messages: Sequence[BaseMessage] = state["messages"]
    kept = [
        one
        for one in messages
        if not (isinstance(one, ToolMessage) and one.content == said.get(one.tool_call_id))
    ]
    return {**state, "messages": kept} if len(kept) < len(messages) else state
