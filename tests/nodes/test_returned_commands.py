"""What a tool returns beside text: commands and messages, as one result of its call."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command

from signoff import build_graph
from signoff.models import ScriptedModel, call


class Notes(MessagesState):
    name: str
    place: str


def said(call_id: str) -> ToolMessage:
    return ToolMessage("said", tool_call_id=call_id)


def result(returned: Callable[[str], Any]) -> tuple[ToolMessage, dict[str, Any]]:
    """The result of a call of a tool that returns this, made of the call's id; and the state."""

    @tool
    def work(runtime: ToolRuntime[Any, Any]) -> Any:
        """Work."""
        return returned(runtime.tool_call_id or "")

    model = ScriptedModel([call("work"), call("finish_task", summary="Done.")])
    found = build_graph(model, [work], state_schema=Notes).invoke({"messages": [("user", "go")]})
    assert found["outcome"]["status"] == "success"
    return next(one for one in found["messages"] if isinstance(one, ToolMessage)), dict(found)


GOTO = "it has a goto, and the machine alone says what comes next"
MESSAGES = "of messages it may add one ToolMessage, with the tool_call_id of its call"
REFUSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "a goto": (lambda own: Command(goto="elsewhere"), GOTO),
    "a goto with a result": (lambda own: Command(goto="x", update={"messages": [said(own)]}), GOTO),
    "for another graph": (
        lambda own: Command(graph=Command.PARENT, update={"messages": [said(own)]}),
        "it is for the graph around this one",
    ),
    "a resume": (lambda own: Command(resume=1, update={"messages": [said(own)]}), "it has a resume"),
    "nothing": (lambda own: Command(), "it has no update, as a dict of channels"),
    "pairs": (lambda own: Command(update=[("name", "ann")]), "it has no update, as a dict of channels"),
    "no result": (lambda own: Command(update={"messages": [HumanMessage("x")]}), MESSAGES),
    "two results": (lambda own: Command(update={"messages": [said(own), said(own)]}), MESSAGES),
    "the result of another call": (lambda own: Command(update={"messages": [said("other")]}), MESSAGES),
    "a reply": (lambda own: Command(update={"messages": [said(own), AIMessage("x")]}), MESSAGES),
    "a removal": (lambda own: Command(update={"messages": [said(own), RemoveMessage(id="x")]}), MESSAGES),
    "no message": (lambda own: Command(update={"messages": [3]}), MESSAGES),
    "a goto in a list": (
        lambda own: [Command(update={"messages": [said(own)]}), Command(goto="x")],
        f"(list): in it, {GOTO}",
    ),
    "one channel twice": (
        lambda own: [Command(update={"name": "ann"}), Command(update={"name": "bob"})],
        "two commands in it write one channel",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_one_result_is_told_with_what_a_tool_returns(case: str) -> None:
    returned, why = REFUSED[case]
    found, state = result(returned)
    assert found.status == "error"
    assert "work has run, but returned something that this loop cannot apply" in found.text
    assert why in found.text
    assert found.text.endswith("or Command(update=…) with that message and channels of the state.")
    assert not {"name", "place"} & state.keys()


TAKEN: dict[str, tuple[Callable[[str], Any], str, dict[str, Any]]] = {
    "a message in a list": (lambda own: [said(own)], "said", {}),
    "a command in a list": (
        lambda own: [Command(update={"name": "ann", "messages": [said(own)]})],
        "said",
        {"name": "ann"},
    ),
    "commands for several channels": (
        lambda own: [
            Command(update={"name": "ann", "messages": said(own)}),
            Command(update={"place": "Rome"}),
        ],
        "said",
        {"name": "ann", "place": "Rome"},
    ),
    "commands without a message": (
        lambda own: [Command(update={"name": "ann"}), Command(update={"place": "Rome"})],
        "Written to the state: name, place.",
        {"name": "ann", "place": "Rome"},
    ),
    "a command and a message": (
        lambda own: [Command(update={"name": "ann"}), said(own)],
        "said",
        {"name": "ann"},
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_list_that_can_be_one_result_is_one(case: str) -> None:
    returned, text, written = TAKEN[case]
    found, state = result(returned)
    assert (found.status, found.text) == ("success", text)
    assert {key: state[key] for key in ("name", "place") if key in state} == written
