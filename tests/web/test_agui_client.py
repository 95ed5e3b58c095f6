"""AG-UI by the protocol's own client (npm's `@ag-ui/client`), against servers in processes of their own."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.benches.agui import NodeClient, node_client, run_input
from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Served
from tests.support.npm import client as npm_client
from tests.support.pages import blocks
from tests.web.test_agui import FAILING, LONG, TASK

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]


class Place:
    """Servers and clients on one database."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.bench, self._folder, self._stack = WebBench(folder), folder, stack

    def serve(self, steps: str, delay: float = 0.0, *more: str) -> Served:
        options = ["--workspace", str(self.bench.workspace), "--model", self.bench.model(steps, delay)]
        where = ["--database", str(self.bench.database), "--tools", "files,shell"]
        server = Served(*where, *options, "--approve", "terminal", *more)
        self._stack.callback(server.end)
        return server

    def client(self, server: Served, thread: str = "t1", token: str = "") -> NodeClient:
        made = node_client(self._folder, server.origin, token or server.token, thread)
        return self._stack.enter_context(made)

    def ran(self) -> str:
        return (self.bench.workspace / "ran.txt").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


def test_a_whole_task_that_goes_on_in_other_processes(place: Place) -> None:
    server = place.serve(TASK)
    client = place.client(server)
    seen = client.run(text="Set the port")
    assert {"REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_RESULT"} <= set(seen.types)
    assert [name for name, _ in seen.calls()] == ["read_file", "read_file", "ask_user"]
    assert seen.interrupts[0]["message"] == "Which port?"
    seen = client.run(**seen.answer("1"))
    (waited,) = seen.interrupts
    assert waited["reason"] == "approval"
    server.end(signal.SIGKILL)

    client = place.client(place.serve(TASK))
    seen = client.run()
    assert [one["id"] for one in seen.interrupts] == [waited["id"]], "the same in another process"
    assert seen.state["waitsFor"] == "approval"
    assert [one["content"] for one in seen.messages if one["role"] == "user"] == ["Set the port"]
    args = {"command": "echo edited >> ran.txt; cat ran.txt", "timeout": 30}
    seen = client.run(**seen.answer({"type": "edit", "edited_action": {"name": "run_shell", "args": args}}))
    assert ("run_shell", args) in seen.calls()
    seen = client.run(**seen.answer("yes"))
    assert (seen.failed, seen.last["result"]["status"]) == (None, "success")
    assert (seen.messages[-1]["content"], place.ran()) == ("The port is set.", "edited\n")


def test_a_limit_and_more_turns(place: Place) -> None:
    client = place.client(place.serve(LONG, 0.0, "--turns", "2"))
    seen = client.run(text="Write")
    assert (seen.failed, seen.last["result"]["status"], seen.state["moves"]) == (None, "limit", ["go_on"])
    seen = client.run(forwardedProps={"signoff": {"move": "go_on", "turns": 10}})
    assert seen.last["result"]["status"] == "success"


def test_an_error_and_another_try(place: Place) -> None:
    mended = place.bench.folder / "mended"
    client = place.client(place.serve(FAILING % str(mended)))
    seen = client.run(text="Fail")
    assert (seen.error[0], seen.state["moves"]) == ("model_error", ["go_on"])
    mended.touch()
    seen = client.run(forwardedProps={"signoff": {"move": "go_on"}})
    assert seen.last["result"]["status"] == "success"


def test_a_client_that_goes_and_comes_back(place: Place) -> None:
    server = place.serve(LONG, 0.1)
    client = place.client(server)
    left = client.run(text="Write", leaveAt="TOOL_CALL_END")
    assert "RUN_FINISHED" not in left.types
    seen = client.run()
    assert seen.last["result"]["status"] == "success"
    assert [args["path"] for name, args in seen.calls() if name == "write_file"] == [
        f"{at}.txt" for at in range(6)
    ]
    assert seen.messages == client.run().messages


def test_a_pause_by_another_client(place: Place) -> None:
    server = place.serve(LONG, 0.2)
    client, other = place.client(server), place.client(server)
    client.run(text="Write", leaveAt="TOOL_CALL_END")
    seen = other.run(forwardedProps={"signoff": {"move": "pause"}})
    assert seen.last["outcome"] == {"type": "cancelled"}
    assert seen.state["moves"] == ["go_on", "stop"]
    seen = client.run(forwardedProps={"signoff": {"move": "go_on"}})
    assert seen.last["result"]["status"] == "success"


def test_a_message_that_was_refused_is_not_carried_out_by_a_look(place: Place) -> None:
    client = place.client(place.serve(LONG, 0.2))
    client.run(text="Write", leaveAt="TOOL_CALL_END")
    assert client.run(text="SECOND").error[0] == "busy"
    seen = client.run()
    assert seen.last["result"]["status"] == "success"
    assert client.run().last["result"] == seen.last["result"]
    assert [one["content"] for one in seen.messages if one["role"] == "user"] == ["Write"]


def test_an_answer_that_came_too_late(place: Place) -> None:
    server = place.serve(TASK)
    ada, bob = place.client(server), place.client(server)
    waiting = ada.run(text="Set the port")
    assert bob.run().interrupts == waiting.interrupts
    ada.run(**waiting.answer("1"))
    late = bob.run(**waiting.answer("2"))
    assert late.error[0] == "too_late"
    own = waiting.interrupts[0]["id"]
    seen = bob.run(resume=[{"interruptId": own, "status": "cancelled"}])
    assert seen.interrupts[0]["reason"] == "approval"
    assert "2" not in seen.results()


def test_fifty_megabytes_and_a_wrong_token(place: Place) -> None:
    server = place.serve(LONG)
    client = place.client(server)
    seen = client.run(messages=[{"id": "m", "role": "user", "content": "x" * 50_000_000}])
    assert seen.failed is not None
    assert (seen.failed["status"], "10,000,000" in seen.failed["message"]) == (413, True)
    seen = client.run(messages=[], text="Write")
    assert (seen.failed, seen.last["result"]["status"]) == (None, "success")
    stranger = place.client(server, token="wrong").run(text="Write")
    assert stranger.failed is not None
    assert stranger.failed["status"] == 401


# More than the buffers of a connection hold. It goes by the files: a prompt keeps only the last turns.
FLOOD = """[
    lambda messages: (
        lambda done: call("finish_task", summary="Written.")
        if done == 16
        else call("write_file", path=f"w{done}.txt", content=f"{done} " * 150_000)
    )(len(__import__("glob").glob(%r)))
] * 60"""


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_client_that_never_reads(place: Place) -> None:
    server = place.serve(FLOOD % str(place.bench.workspace / "w*.txt"))
    body = json.dumps(run_input("t1", "Write")).encode()
    host, _, port = server.origin.removeprefix("http://").partition(":")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect((host, int(port)))
        head = f"POST /agui HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        silent.sendall(head.encode() + body)
        client = place.client(server)
        until(lambda: client.run().last.get("result", {}).get("status") == "success")
        assert len(list(place.bench.workspace.glob("w*.txt"))) == 16


PAGE = blocks("docs/how-to/front-ends.md")
(PROGRAM,) = (block.text for block in PAGE if block.title == "client.mjs")
SAID = next(block.text for block in PAGE if block.text.startswith("question: "))
SHOP = """[
    call("ask_user", question="Which port?"),
    call("run_shell", command="echo PORT = 8080 > config.py"),
    call("finish_task", summary="The port is 8080."),
]"""


def test_the_program_of_the_page_prints_what_stands_there(place: Place, tmp_path: Path) -> None:
    server = place.serve(SHOP)
    command = npm_client("agui.mjs", tmp_path)[:1]
    (tmp_path / "client.mjs").write_text(PROGRAM)
    said = ""
    for words in ("Set the port", "8080", "approve"):
        run = [*command, "client.mjs", server.origin, server.token, "port", words]
        said += subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said == SAID


CUT = """[
    call("run_shell", command="echo it ran >> ran.txt; sleep 60"),
    call("finish_task", summary="Done."),
]"""


def test_a_command_in_which_the_server_was_killed_is_not_run_again(place: Place) -> None:
    server = place.serve(CUT)
    client = place.client(server)
    seen = client.run(text="Run it")
    client.run(leaveAt="STEP_STARTED", **seen.answer("approve"))
    until(lambda: (place.bench.workspace / "ran.txt").exists())
    # The server first: it would see its shell end, and ask what came of the command.
    children = server.children()
    server.end(signal.SIGKILL)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    server = place.serve(CUT)
    client = place.client(server)
    seen = client.run()
    (waiting,) = seen.interrupts
    assert (waiting["reason"], waiting["metadata"]["signoff"]["unknown"]) == ("action", True)
    assert seen.state["moves"] == ["stop"]
    assert place.client(server).run().interrupts == [waiting]
    seen = client.run(**seen.answer("It ran; I have looked."))
    assert seen.last["result"]["status"] == "success"
    assert "It ran; I have looked." in seen.results()
    assert place.ran() == "it ran\n"
