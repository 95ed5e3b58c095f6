"""AG-UI by the protocol's own client (npm's `@ag-ui/client`), in processes of Node."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.benches.agui import NodeClient, node_client
from tests.support.benches.served import New, Place, Served, Thread
from tests.support.npm import client as npm_client
from tests.support.pages import blocks

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'
RUN = 'call("run_shell", command=f"echo it ran >> {folder}/ran.txt")'
LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="Done.")'


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def client_of(stack: ExitStack, folder: Path, thread: Thread, token: str = "") -> NodeClient:
    served = thread.served
    return stack.enter_context(node_client(folder, served.origin, token or served.token, thread.name))


def test_a_whole_task_that_goes_on_in_other_processes(place: Place, stack: ExitStack, folder: Path) -> None:
    with place.serve() as killed:
        thread = Thread(
            place,
            killed,
            f"[call('think', thought='First.'), reply('I look.', {LOOK}), {ASK}, {RUN}, {DONE}]",
        )
        client = client_of(stack, folder, thread)
        seen = client.run(text=thread.task)
        assert {"REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_RESULT"} <= set(seen.types)
        assert [name for name, _ in seen.calls()] == ["read_file", "ask_user"]
        assert seen.interrupts[0]["message"] == "Which port?"
        (waited,) = client.run(**seen.answer("1")).interrupts
        killed.end(signal.SIGKILL)
    with place.serve() as served:
        client = client_of(stack, folder, thread.on(served))
        seen = client.run()
        assert [one["id"] for one in seen.interrupts] == [waited["id"]], "the same in another process"
        assert [one["content"] for one in seen.messages if one["role"] == "user"] == [thread.task]
        args = {"command": f"echo edited >> {thread.folder}/ran.txt", "timeout": 30}
        edited = {"type": "edit", "edited_action": {"name": "run_shell", "args": args}}
        seen = client.run(**seen.answer(edited))
        assert ("run_shell", args) in seen.calls()
        assert (seen.failed, seen.messages[-1]["content"], thread.ran()) == (None, "Done.", "edited\n")


def test_a_client_that_goes_comes_back_and_is_too_late(new: New, stack: ExitStack, folder: Path) -> None:
    thread = new(f"[{LOOK}, held({LOOK}), {ASK}, {RUN}, {DONE}]")
    ada, bob = client_of(stack, folder, thread), client_of(stack, folder, thread)
    left = ada.run(text=thread.task, leaveAt="TOOL_CALL_END")
    assert "RUN_FINISHED" not in left.types
    assert ada.run(text="SECOND").error[0] == "busy"
    thread.release()
    waiting = ada.run()
    assert [one["content"] for one in waiting.messages if one["role"] == "user"] == [thread.task]
    assert waiting.messages == bob.run().messages
    ada.run(**waiting.answer("1"))
    assert bob.run(**waiting.answer("2")).error[0] == "too_late"
    seen = bob.run(resume=[{"interruptId": waiting.interrupts[0]["id"], "status": "cancelled"}])
    assert (seen.interrupts[0]["reason"], "9090" in seen.results()) == ("approval", False)


def test_fifty_megabytes_and_a_wrong_token(new: New, stack: ExitStack, folder: Path) -> None:
    thread = new(f"[{DONE}]")
    client = client_of(stack, folder, thread)
    seen = client.run(messages=[{"id": "m", "role": "user", "content": "x" * 50_000_000}])
    stranger = client_of(stack, folder, thread, token="wrong").run(text=thread.task)
    assert [one.failed and one.failed["status"] for one in (seen, stranger)] == [413, 401]
    assert client.run(messages=[], text=thread.task).last["result"]["status"] == "success"


PAGE = blocks("docs/how-to/front-ends.md")
(PROGRAM,) = (block.text for block in PAGE if block.title == "client.mjs")
SAID = next(block.text for block in PAGE if block.text.startswith("question: "))
SHOP = """[
    call("ask_user", question="Which port?"),
    call("run_shell", command="echo PORT = 8080 > config.py"),
    call("finish_task", summary="The port is 8080."),
]"""


def test_the_program_of_the_page_prints_what_stands_there(new: New, served: Served, folder: Path) -> None:
    thread = new(SHOP)
    node = npm_client("agui.mjs", folder)[0]
    (folder / "client.mjs").write_text(PROGRAM)
    said = ""
    for words in (thread.task, "8080", "approve"):
        command = [node, "client.mjs", served.origin, served.token, thread.name, words]
        said += subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert said == SAID
