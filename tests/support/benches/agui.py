"""Clients of the AG-UI protocol: its own package in a process of Node, and requests as they stand."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.npm import client


@dataclass(frozen=True)
class Seen:
    """What a client made of one run."""

    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    state: dict[str, Any]
    interrupts: list[dict[str, Any]]
    failed: dict[str, Any] | None = None

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


class NodeClient:
    """The protocol's own client in a process of its own, on one thread."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, **asked: Any) -> Seen:
        """Runs the agent once. text: a new message of the user."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found = json.loads(self._process.stdout.readline())
        assert found.pop("warnings") == [], "the client takes all events as they stand"
        return Seen(**found)


@contextmanager
def node_client(folder: Path, origin: str, token: str, thread: str = "t1") -> Iterator[NodeClient]:
    command = [*client("agui.mjs", folder), f"{origin}/agui", token, thread]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield NodeClient(process)
        finally:
            process.kill()


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
