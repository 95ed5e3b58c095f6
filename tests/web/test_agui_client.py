"""AG-UI by the protocol's own client (npm's `@ag-ui/client`), in processes of Node."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.benches.agui import node_client
from tests.support.benches.served import ASK, DONE, LOOK, RUN, New, Place, Served, Thread
from tests.support.npm import client as npm_client
from tests.support.pages import blocks

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


def test_a_whole_task_that_goes_on_in_other_processes(place: Place, tmp_path: Path) -> None:
    steps = f"[call('think', thought='First.'), reply('I look.', {LOOK}), {ASK}, {RUN}, {DONE}]"
    with place.serve() as killed:
        thread = Thread(place, killed, steps)
        with node_client(tmp_path, thread) as run:
            seen = run(text=thread.task)
            assert {"REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_RESULT"} <= set(
                seen.types
            )
            assert [name for name, _ in seen.calls()] == ["read_file", "ask_user"]
            (waited,) = run(**seen.answer("1")).interrupts
            killed.end(signal.SIGKILL)
    with place.serve() as served, node_client(tmp_path, thread.on(served)) as run:
        seen = run()
        assert [one["id"] for one in seen.interrupts] == [waited["id"]], "the same in another process"
        assert [one["content"] for one in seen.messages if one["role"] == "user"] == [thread.task]
        seen = run(**seen.answer("approve"))
        assert (seen.failed, seen.messages[-1]["content"], thread.ran()) == (None, "Done.", "it ran\n")


PAGE = blocks("docs/how-to/front-ends.md")
(PROGRAM,) = (block.text for block in PAGE if block.title == "client.mjs")
SAID = next(block.text for block in PAGE if block.text.startswith("question: "))
SHOP = """[
    call("ask_user", question="Which port?"),
    call("run_shell", command="echo PORT = 8080 > config.py"),
    call("finish_task", summary="The port is 8080."),
]"""


def test_the_program_of_the_page_prints_what_stands_there(new: New, served: Served, tmp_path: Path) -> None:
    thread = new(SHOP)
    node = npm_client("agui.mjs", tmp_path)[0]
    (tmp_path / "client.mjs").write_text(PROGRAM)
    said = ""
    for words in (thread.task, "8080", "approve"):
        command = [node, "client.mjs", served.origin, served.token, thread.name, words]
        said += subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said == SAID
