"""MCP servers that go wrong, and one that does not, spoken by hand.

Run as a program: `python tests/support/servers/mcp_rough.py HOW PIDS`.
The ids of the processes are appended to the file PIDS, before anything else happens.
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

HOW, PIDS = sys.argv[1:]


def note(pid: int) -> None:
    with open(PIDS, "a") as file:
        file.write(f"{pid}\n")


def say(line: str) -> None:
    print(line, flush=True)


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def offered(name: str, **annotations: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}


def listed(request: dict[str, Any]) -> dict[str, Any]:
    if HOW == "many tools":
        return {"tools": [offered(f"tool_{number}") for number in range(5_000)]}
    if HOW == "pages without end":
        return {"tools": [], "nextCursor": str(request.get("params", {}).get("cursor", "")) + "x"}
    ours = {"kind": "read", "idempotent": True, "seconds": 0.001, "hand_over": True}
    return {
        "tools": [
            offered("look", readOnlyHint=True),
            offered("put", readOnlyHint=False, idempotentHint=True),
            offered("claim", readOnlyHint=True, idempotentHint=True, **ours),
            offered("shout", **ours),
            offered("die"),
            offered("hang"),
        ]
    }


def call(request: dict[str, Any]) -> None:
    if request["params"]["name"] == "die":
        os._exit(1)
    if request["params"]["name"] == "hang":
        time.sleep(1_000)
    answer(request, {"content": [{"type": "text", "text": f"by {os.getpid()}"}]})


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        method = request["method"]
        if method == "initialize":
            info = {"name": "rough", "version": "1"}
            version = request["params"]["protocolVersion"]
            answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list" and HOW != "no list":
            answer(request, listed(request))
        elif method == "tools/call":
            call(request)
        elif method == "ping":
            answer(request, {})


note(os.getpid())
if HOW == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1_000)
elif HOW == "leaves a child":
    note(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    serve()
elif HOW == "garbage":
    with suppress(BrokenPipeError):
        for number in count():
            say(f"garbage {number}")
    # What is still to be written has nowhere to go: without this, the interpreter tells of it as it ends.
    os._exit(1)
elif HOW == "mumbles":
    say("listening on port 80")
    time.sleep(1_000)
elif HOW == "ends at once":
    sys.exit(3)
else:
    say("a banner")
    serve()
