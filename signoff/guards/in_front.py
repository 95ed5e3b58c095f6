"""Replies by a middleware in front of `Guards`, such as a cache, which answers the model's call itself.

No hook of `Guards` runs in such a call, so the hook at the end of the agent settles the reply, as the call
would have done. LangChain's loop goes from the tools to that hook only after tools that return directly. So
`think` is one, and the calls of the reply are put off by answers in its name, which the hook takes out again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool

from signoff.graph.messages import not_run
from signoff.graph.texts import Texts
from signoff.guards.persons import in_users_role
from signoff.tools.control import ControlTool

_PUT_OFF = "put-off-"


def tool_of(control: ControlTool) -> BaseTool:
    """The tool of a control tool of `Guards`, by which LangChain's loop may come to its end."""
    direct = control.effect == "continue"
    return control.tool.model_copy(update={"return_direct": True}) if direct else control.tool


def unseen_reply(state: Mapping[str, Any]) -> int | None:
    """The index of the last reply, if no hook of `Guards` has seen it. None if a person has written since, or
    no hook has run yet."""
    messages: Sequence[BaseMessage] = state.get("messages") or ()
    # Whatever marks it has: they are not ours.
    at = next((at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], AIMessage)), None)
    if at is None or state.get("guards") is None or in_users_role(messages[at + 1 :]):
        return None
    # Nearly always it is one of the last in the ledger.
    seen = any(message.id == messages[at].id for message in reversed(state.get("past") or ()))
    return None if seen else at


def put_off(unseen: Sequence[Any], tool: str, texts: Texts) -> list[ToolMessage]:
    """The answers that lead LangChain's loop to its end, for the open calls of a reply.

    unseen: the reply, and the messages after it. tool: the name of one that returns directly. The loop goes
    on after each call by itself, so each call writes all of them, under the same ids.
    """
    text = texts.results["left_behind"].format(control="")
    answered = {message.tool_call_id for message in unseen if isinstance(message, ToolMessage)}
    calls = [call["id"] for call in unseen[0].tool_calls if call["id"] not in answered]
    answers = [not_run(call_id, tool, text, "left_behind") for call_id in calls]
    return [one.model_copy(update={"id": f"{_PUT_OFF}{unseen[0].id}-{one.tool_call_id}"}) for one in answers]


def is_put_off(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage) and (message.id or "").startswith(_PUT_OFF)
