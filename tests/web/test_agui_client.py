"""AG-UI by the protocol's own client (npm's `@ag-ui/client`) in Node: the program of the page."""

import subprocess
from pathlib import Path

import pytest

from tests.support.benches.served import New, Served
from tests.support.npm import node_in
from tests.support.pages import blocks

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

PAGE = blocks("docs/how-to/front-ends.md")
(PROGRAM,) = (block.text for block in PAGE if block.title == "client.mjs")
SAID = next(block.text for block in PAGE if block.text.startswith("question: "))
SHOP = """[
    call("ask_user", question="Which port?"),
    call("run_shell", command="echo PORT = 8080 > config.py"),
    call("finish_task", summary="The port is 8080."),
]"""


def test_the_program_of_the_page_prints_what_stands_there(new: New, served: Served, tmp_path: Path) -> None:
    thread, node = new(SHOP), node_in(tmp_path)
    (tmp_path / "client.mjs").write_text(PROGRAM)
    said = ""
    for words in (thread.task, "8080", "approve"):
        command = [node, "client.mjs", served.origin, served.token, thread.name, words]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        # What the client has to repair or to leave out it would warn of.
        assert done.stderr == ""
        said += done.stdout
    assert said == SAID
