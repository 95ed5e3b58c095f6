"""MCP servers that go wrong, and one that does not, spoken by hand.

Run as a program: `python tests/support/servers/mcp_rough.py HOW PIDS`.
The ids of the processes are appended to the file PIDS, before anything else happens.
`echo` returns the arguments that it got, `give` and `checked` the result that they are told. The schema of
`echo` names what Python, LangChain and LangGraph keep for themselves.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from typing import Any

NAMES = [
    *("config", "runtime", "run_manager", "self", "callbacks", "name", "tool_call_id", "state", "store"),
    *("input", "args", "kwargs", "session", "arguments", "type", "id", "metadata", "tags", "cls"),
]
_GIVE = {"type": "object", "properties": {"result": {"type": "object"}}, "required": ["result"]}
_CHECKED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def note(pids: str, pid: int) -> None:
    with open(pids, "a") as file:
        file.write(f"{pid}\n")


def say(line: str) -> None:
    print(line, flush=True)


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def offered(name: str, **annotations: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}


def listed(how: str, request: dict[str, Any]) -> dict[str, Any]:
    if how == "many tools":
        return {"tools": [offered(f"tool_{number}") for number in range(5_000)]}
    ours = {"kind": "read", "idempotent": True, "seconds": 0.001, "hand_over": True}
    return {
        "tools": [
            offered("look", readOnlyHint=True),
            offered("put", readOnlyHint=False, idempotentHint=True),
            offered("claim", readOnlyHint=True, idempotentHint=True, **ours),
            offered("shout", **ours),
            offered("die"),
            offered("hang"),
            {
                "name": "echo",
                "inputSchema": {"type": "object", "properties": {name: {} for name in NAMES}},
            },
            {"name": "give", "inputSchema": _GIVE},
            {"name": "checked", "inputSchema": _GIVE, "outputSchema": _CHECKED},
        ]
    }


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "die":
        os._exit(1)
    if name == "hang":
        time.sleep(1_000)
    if name in ("give", "checked"):
        result: dict[str, Any] = arguments["result"]
        return result
    text = json.dumps(arguments) if name == "echo" else f"by {os.getpid()}"
    return {"content": [{"type": "text", "text": text}]}


def serve(how: str) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params") or {}
        if method == "initialize":
            info = {"name": "rough", "version": "1"}
            version = params["protocolVersion"]
            answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            answer(request, listed(how, request))
        elif method == "tools/call":
            answer(request, called(params["name"], params.get("arguments") or {}))
        elif method == "ping":
            answer(request, {})


def main(how: str, pids: str) -> None:
    note(pids, os.getpid())
    if how == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1_000)
    elif how == "garbage":
        with suppress(BrokenPipeError):
            for number in count():
                say(f"garbage {number}")
        # What is still to be written has nowhere to go: without this, the interpreter tells of it as it ends.
        os._exit(1)
    elif how == "mumbles and ends":
        say("listening on port 80")
        sys.exit(3)
    if how == "leaves a child":
        note(pids, subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    else:
        say("a banner")
    serve(how)


if __name__ == "__main__":
    main(*sys.argv[1:])
