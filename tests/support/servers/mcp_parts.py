"""A raw MCP server over stdio: `echo` returns the arguments that it got, `give` the result that it is told.

Its schema of `echo` names what Python, LangChain and LangGraph keep for themselves.
"""

import json
import sys
from typing import Any

NAMES = [
    *("config", "runtime", "run_manager", "self", "callbacks", "name", "tool_call_id", "state", "store"),
    *("input", "args", "kwargs", "session", "arguments", "type", "id", "metadata", "tags", "cls"),
]
ANY = {"type": "object", "properties": {name: {} for name in NAMES}}
GIVE = {"type": "object", "properties": {"result": {"type": "object"}}, "required": ["result"]}


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "parts", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        checked = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return {
            "tools": [
                {"name": "echo", "inputSchema": ANY},
                {"name": "give", "inputSchema": GIVE},
                {"name": "checked", "inputSchema": GIVE, "outputSchema": checked},
            ]
        }
    if method != "tools/call":
        return {}
    given = params.get("arguments") or {}
    if params["name"] == "echo":
        return {"content": [{"type": "text", "text": json.dumps(given)}]}
    result: dict[str, Any] = given["result"]
    return result


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            found = answered(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}), flush=True)
