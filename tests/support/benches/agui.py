"""A client of the AG-UI protocol: its requests, and what it makes of the events."""

import copy
import json
import uuid
from dataclasses import dataclass
from typing import Any

from ag_ui import core
from pydantic import TypeAdapter


@dataclass(frozen=True)
class Seen:
    """What a client made of one run."""

    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    state: dict[str, Any]
    interrupts: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def error(self) -> tuple[str, str]:
        assert self.last["type"] == "RUN_ERROR", self.last
        return self.last["code"], self.last["message"]

    def results(self) -> list[str]:
        return [one["content"] for one in self.messages if one["role"] == "tool"]

    def calls(self) -> list[tuple[str, Any]]:
        found = [call["function"] for one in self.messages for call in one.get("toolCalls", ())]
        return [(one["name"], json.loads(one["arguments"])) for one in found]

    def answer(self, *payloads: Any) -> dict[str, Any]:
        """What answers all that waits, in order."""
        given = zip(self.interrupts, payloads, strict=True)
        return {
            "resume": [
                {"interruptId": one["id"], "status": "resolved", "payload": said} for one, said in given
            ]
        }


def run_input(thread: str = "t1", *messages: Any, **more: Any) -> dict[str, Any]:
    """The body of a request. messages: texts of the user."""
    written = [{"id": f"m-{text}", "role": "user", "content": text} for text in messages]
    return {
        "threadId": thread,
        "runId": str(uuid.uuid4()),
        "protocolVersion": "1.0",
        "messages": written,
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        **more,
    }


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of an answer."""
    found = [part.removeprefix("data: ") for part in text.split("\n\n") if part.startswith("data: ")]
    return [json.loads(one) for one in found]


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, each of which is one of the protocol, in an order that it allows."""
    reader: TypeAdapter[Any] = TypeAdapter(core.Event)
    for event in events:
        reader.validate_python(event)
    types = [event["type"] for event in events]
    assert types[0] == "RUN_STARTED"
    assert types[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert not {"RUN_FINISHED", "RUN_ERROR"} & set(types[:-1])
    is_open = list[tuple[str, str]]()
    for event in events:
        kind, _, moment = event["type"].rpartition("_")
        own = (kind, event.get("messageId") or event.get("toolCallId") or event.get("stepName") or "")
        if kind in ("TEXT_MESSAGE", "TOOL_CALL", "STEP", "REASONING_MESSAGE") and moment != "RESULT":
            if moment in ("START", "STARTED"):
                assert own not in is_open
                is_open.append(own)
            elif moment in ("END", "FINISHED"):
                is_open.remove(own)
            else:
                assert own in is_open, event
    assert is_open == []
    return events


def applied(events: list[dict[str, Any]]) -> Seen:
    """What a client that does what the protocol says makes of one run."""
    messages, state, interrupts = dict[str, Any](), dict[str, Any](), list[dict[str, Any]]()
    for event in checked(events):
        match event:
            case {"type": "MESSAGES_SNAPSHOT"}:
                messages = {one["id"]: one for one in copy.deepcopy(event["messages"])}
            case {"type": "STATE_SNAPSHOT"}:
                state = dict(event["snapshot"])
            case {"type": "STATE_DELTA"}:
                state |= {one["path"][1:]: one["value"] for one in event["delta"]}
            case {"type": "TEXT_MESSAGE_START", "messageId": own}:
                messages[own] = {"id": own, "role": event["role"], "content": ""}
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": own}:
                messages[own]["content"] += event["delta"]
            case {"type": "TOOL_CALL_START", "parentMessageId": own}:
                parent = messages.setdefault(own, {"id": own, "role": "assistant"})
                function = {"name": event["toolCallName"], "arguments": ""}
                parent.setdefault("toolCalls", []).append({"id": event["toolCallId"], "function": function})
            case {"type": "TOOL_CALL_ARGS", "toolCallId": own}:
                calls = [call for one in messages.values() for call in one.get("toolCalls", ())]
                next(call for call in calls if call["id"] == own)["function"]["arguments"] += event["delta"]
            case {"type": "TOOL_CALL_RESULT", "messageId": own}:
                messages[own] = {"id": own, "role": "tool", **event}
            case {"type": "RUN_FINISHED", "outcome": {"type": "interrupt"}}:
                interrupts = event["outcome"]["interrupts"]
    return Seen(events, [*messages.values()], state, interrupts)
