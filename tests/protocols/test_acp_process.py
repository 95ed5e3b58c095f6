"""`signoff acp` as an editor starts it: a process of its own, whose stdout is the protocol's alone."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError

from signoff.session.status import look, reading_graph
from tests.support.benches.acp import NEVER, SECONDS, AcpBench, raw

ASKS = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("run_shell", command="echo it ran >> ran.txt; cat ran.txt; exit 3"),
    call("finish_task", summary="The port is set."),
]"""
WRITES = """[
    call("run_shell", command="echo it ran >> ran.txt; cat ran.txt"),
    call("finish_task", summary="It ran."),
]"""
EVERYTHING = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("run_shell", command="echo it ran >> ran.txt"),
    lambda messages: call("finish_task", summary=__import__("pathlib").Path(r"FLAG").read_text() or 1 / 0),
]"""
TALKS = """[reply("x" * 200_000, call("list_files"))] * 200"""
NOISY = '''
import os, subprocess, sys, warnings
from signoff import build_graph
from signoff.models import ScriptedModel, call

print("while it is loaded")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("a print")
    os.write(1, b"a write\\n")
    subprocess.run(["sh", "-c", "echo a child; read line; echo $line"])
    warnings.warn("a warning")
    sys.__stdout__.write("the first stdout\\n")
    return a + b


graph = build_graph(ScriptedModel([call("add", a=19, b=23), call("finish_task", summary="42.")]), [add])
'''


@pytest.fixture
def bench(tmp_path: Path) -> AcpBench:
    return AcpBench(tmp_path)


def ran(bench: AcpBench) -> str:
    file = bench.workspace / "ran.txt"
    return file.read_text() if file.exists() else ""


def waits(bench: AcpBench, session: str) -> Any:
    with bench.database.open() as storage:
        return look(reading_graph(storage), session).wait()


INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}}


@pytest.mark.slow
async def test_a_task_over_two_processes_with_a_terminal_of_the_editor(bench: AcpBench) -> None:
    options = ("--approve", "terminal")
    async with bench.edited(ASKS, options=options) as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Set the port") == "end_turn"
        assert "Which port?" in opened.editor.said()
        assert await opened.ends() == 0
    async with bench.edited(ASKS, "approve", terminal=True, options=options) as opened:
        await opened.load(session)
        assert await opened.prompt(session, "9090") == "end_turn"
        assert "The port is set." in opened.editor.said()
        assert (opened.editor.printed, opened.editor.exits) == ({"terminal-0": b"it ran\r\n"}, [3])
        (shown,) = [one for one in opened.editor.of("tool_call_update") if one.content]
        assert shown.content[0].terminal_id == "terminal-0"
    assert ran(bench) == "it ran\n"


@pytest.mark.slow
async def test_nothing_but_the_protocol_stands_on_stdout(bench: AcpBench, tmp_path: Path) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    command = [sys.executable, "-m", "signoff.cli", "acp", "--graph", f"{file}:graph", "--config", "none"]
    async with raw([*command, "--database", bench.database.where], bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        assert (await client.answer(0))["result"]["protocolVersion"] == 1
        await client.send(id=1, method="session/new", params={"cwd": str(bench.workspace), "mcpServers": []})
        session = (await client.answer(1))["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Add"}]}
        await client.send(id=2, method="session/prompt", params=prompt)
        # `answer` reads every line of it as JSON.
        assert (await client.answer(2))["result"] == {"stopReason": "end_turn"}


@pytest.mark.thorough
async def test_an_edited_approval_a_limit_and_an_error_over_stdio(bench: AcpBench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    edited = {"arguments": '{"command": "echo edited >> ran.txt"}'}
    options = ("--approve", "terminal", "--turns", "2")
    script = EVERYTHING.replace("FLAG", str(flag))
    async with bench.edited(
        script, {"answer": "9090"}, "edit", edited, forms=True, options=options
    ) as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Do all of it") == "max_turn_requests"
        assert ran(bench) == "edited\n"
    async with bench.edited(script, options=options) as opened:
        await opened.load(session)
        assert opened.editor.said("user_message_chunk") == "Do all of it9090"
        with pytest.raises(RequestError, match="/continue tries again"):
            await opened.prompt(session, "/continue 5")
        flag.write_text("All of it.")
        assert await opened.prompt(session, "/continue") == "end_turn"
        assert "All of it." in opened.editor.said()
    assert ran(bench) == "edited\n"


@pytest.mark.thorough
async def test_an_editor_that_goes_away_in_the_middle_of_an_approval(bench: AcpBench) -> None:
    async with bench.edited(WRITES, NEVER, options=("--approve", "terminal")) as opened:
        session = await opened.new()
        prompt = asyncio.ensure_future(opened.prompt(session, "Run it"))
        await opened.editor.sees(lambda editor: editor.asked)
        assert await opened.ends() == 0
        prompt.cancel()
    assert waits(bench, session).document()["waits_for"] == "approval"
    async with bench.edited(WRITES, "approve", options=("--approve", "terminal")) as opened:
        await opened.load(session)
        assert await opened.prompt(session, "") == "end_turn"
    assert ran(bench) == "it ran\n"


@pytest.mark.thorough
async def test_an_approval_that_is_answered_twice_and_about_something_else(bench: AcpBench) -> None:
    async with raw(bench.command(WRITES, "--approve", "terminal"), bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        await client.send(id=1, method="session/new", params={"cwd": str(bench.workspace), "mcpServers": []})
        session = (await client.answer(1))["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Run it"}]}
        await client.send(id=2, method="session/prompt", params=prompt)
        asked = await client.asks("session/request_permission")
        yes = {"outcome": {"outcome": "selected", "optionId": "approve"}}
        await client.send(id=asked["id"] + 100, result=yes)
        assert ran(bench) == ""
        for _ in range(2):
            await client.send(id=asked["id"], result=yes)
        assert (await client.answer(2))["result"] == {"stopReason": "end_turn"}
    assert ran(bench) == "it ran\n"


BAD_ANSWERS: list[dict[str, Any]] = [
    {"error": "boom"},
    {"error": [1]},
    {"error": {"code": "x", "message": 5}},
    {"result": "approve"},
    {"result": None},
    {"result": {"outcome": {"outcome": "selected", "optionId": 5}}},
    {"result": {"outcome": "approve"}},
    {},
]


@pytest.mark.slow
async def test_an_answer_that_is_none_ends_neither_the_server_nor_the_prompt(bench: AcpBench) -> None:
    async with raw(bench.command(WRITES, "--approve", "terminal"), bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        await client.send(id=1, method="session/new", params={"cwd": str(bench.workspace), "mcpServers": []})
        session = (await client.answer(1))["result"]["sessionId"]
        text = "Run it"
        for number, bad in enumerate(BAD_ANSWERS, start=2):
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
            await client.send(id=number, method="session/prompt", params=prompt)
            asked = await client.asks("session/request_permission")
            await client.send(id=asked["id"], **bad)
            assert (await client.answer(number))["result"] == {"stopReason": "end_turn"}, bad
            text = "perhaps"
        assert ran(bench) == ""
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "approve"}]}
        await client.send(id=99, method="session/prompt", params=prompt)
        assert (await client.answer(99))["result"] == {"stopReason": "end_turn"}
    assert ran(bench) == "it ran\n"


@pytest.mark.slow
async def test_a_form_that_is_filled_in_with_anything_else_leaves_the_question_open(bench: AcpBench) -> None:
    forms = {**INITIALIZE, "clientCapabilities": {"elicitation": {"form": {}}}}
    async with raw(bench.command(ASKS), bench.workspace) as client:
        await client.send(id=0, method="initialize", params=forms)
        await client.send(id=1, method="session/new", params={"cwd": str(bench.workspace), "mcpServers": []})
        session = (await client.answer(1))["result"]["sessionId"]
        for number, bad in enumerate(
            ({"action": "accept", "content": 5}, {"action": "dance"}, None), start=2
        ):
            words = [{"type": "text", "text": "Set it"}] if number == 2 else []
            prompt = {"sessionId": session, "prompt": words}
            await client.send(id=number, method="session/prompt", params=prompt)
            asked = await client.asks("elicitation/create")
            await client.send(id=asked["id"], result=bad)
            assert (await client.answer(number))["result"] == {"stopReason": "end_turn"}, bad
    assert waits(bench, session).text == "Which port?"


@pytest.mark.thorough
async def test_lines_that_are_no_messages_and_one_of_70_mb(bench: AcpBench) -> None:
    async with raw(bench.command(WRITES), bench.workspace) as client:
        for line in (b"no JSON", b"[1, 2]", b'"text"', b'{"jsonrpc": "2.0"}', b""):
            await client.write(line)
        await client.send(id="big", method="session/prompt", params={"text": "x" * 70_000_000})
        assert "too long" in (await client.answer("big"))["error"]["message"]
        await client.send(id=1, method="session/new", params={"cwd": "/", "mcpServers": []})
        assert (await client.answer(1))["error"]["message"] == "Send initialize first."
        await client.send(id=2, method="initialize", params={})
        assert (await client.answer(2))["error"]["code"] == -32602
        await client.send(id=3, method="session/teleport", params={})
        assert (await client.answer(3))["error"]["code"] == -32601
        await client.send(id=4, method="initialize", params=INITIALIZE)
        assert (await client.answer(4))["result"]["agentInfo"]["name"] == "signoff"


@pytest.mark.thorough
async def test_a_client_that_never_reads_pauses_the_run_and_the_process_ends(bench: AcpBench) -> None:
    async with raw(bench.command(TALKS, "--turns", "100"), bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        await client.send(id=1, method="session/new", params={"cwd": str(bench.workspace), "mcpServers": []})
        session = (await client.answer(1))["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Talk"}]}
        await client.send(id=2, method="session/prompt", params=prompt)
        await asyncio.sleep(5)
        client.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            # Its output is full, and nobody reads it.
            assert await client.process.wait() == 0
    with bench.database.open() as storage:
        status = look(reading_graph(storage), session)
    assert 0 < status.task.turns <= 100


@pytest.mark.thorough
async def test_two_editors_answer_one_question(bench: AcpBench) -> None:
    async with bench.edited(ASKS) as one, bench.edited(ASKS) as other:
        session = await one.new()
        await one.prompt(session, "Set it")
        await other.load(session)
        ended = await asyncio.gather(
            one.prompt(session, "1"), other.prompt(session, "2"), return_exceptions=True
        )
    assert sorted(map(str, ended))[1:] == ["end_turn"]
    (late,) = [found for found in ended if isinstance(found, RequestError)]
    assert "too late" in str(late)
    assert ran(bench) == "it ran\n"


def without_package(name: str, folder: Path) -> None:
    """Checks what the command `signoff name` says where the package of this name is missing."""
    code = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {name!r} else found(name, *a)\n"
        f"sys.argv = ['signoff', {name!r}]; from signoff.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 2
    assert "install" in done.stderr
    assert f"[{name}]" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_without_its_package_it_names_the_command_that_installs_it(tmp_path: Path) -> None:
    without_package("acp", tmp_path)
