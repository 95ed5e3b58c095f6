"""Turns commands and messages that a tool returns into one result of its call."""

from collections.abc import Container, Mapping
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage, convert_to_messages
from langgraph.types import Command

from signoff.graph.history.replies import Call


def from_command(
    command: Command[Any], call: Call, written: Mapping[str, Any]
) -> tuple[ToolMessage | Command[Any], tuple[HumanMessage, ...]]:
    """The result of a `Command` that only updates the history and the user's channels, and what the tool
    displays.

    A command with a goto, or one that writes the machine's channels, removes messages, or adds a message of
    the model or of another tool, is returned unchanged.
    """
    update = command.update if isinstance(command.update, Mapping) else {}
    elsewhere = command.goto or command.graph is not None or command.resume is not None
    if elsewhere or set(update) != {"messages", *written}:
        return command, ()
    given = update["messages"]
    try:
        messages = convert_to_messages(given if isinstance(given, list | tuple) else [given])
    except (NotImplementedError, TypeError, ValueError, LookupError):
        return command, ()
    own = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call.id]
    shown = tuple(m for m in messages if isinstance(m, HumanMessage))
    if len(own) != 1 or len(messages) != 1 + len(shown):
        return command, ()
    return own[0], shown


def joined(given: list[Any]) -> Command[Any] | list[Any]:
    """The commands and messages in a list that a tool returned, combined into one command; the list itself if
    they cannot be combined."""
    update, messages = dict[str, Any](), list[Any]()
    for one in given:
        if isinstance(one, ToolMessage):
            messages.append(one)
            continue
        if not isinstance(one, Command) or not isinstance(one.update, Mapping):
            return given
        said = one.update.get("messages", [])
        written = {key: value for key, value in one.update.items() if key != "messages"}
        if (
            one.goto
            or one.graph is not None
            or one.resume is not None
            or not update.keys().isdisjoint(written)
        ):
            return given
        update |= written
        messages += said if isinstance(said, list | tuple) else [said]
    return Command(update={**update, "messages": messages} if messages else update)


def why_not(output: Any, channels: Container[str]) -> str:
    """Why this cannot be applied, in words for the tool's author."""
    if isinstance(output, list):
        alone = [one for one in output if isinstance(joined([one]), list)]
        return f"in it, {why_not(alone[0], channels)}" if alone else "two commands in it write one channel"
    if not isinstance(output, Command):
        return f"it is a {type(output).__name__}, and one call has one result"
    if output.goto:
        return "it has a goto, and the machine alone says what comes next"
    if output.graph is not None:
        return "it is for the graph around this one (graph=…)"
    if output.resume is not None:
        return "it has a resume, which only a caller gives"
    if not isinstance(output.update, Mapping) or not output.update:
        return "it has no update, as a dict of channels"
    if strange := [str(key) for key in output.update if key != "messages" and key not in channels]:
        return f"it writes {', '.join(strange)}, and the graph has no such channel of yours (state_schema=…)"
    return (
        "of messages it may add one ToolMessage, with the tool_call_id of its call, and messages in the "
        "user's role, and remove none"
    )
