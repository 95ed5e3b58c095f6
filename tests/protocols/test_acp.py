"""`signoff acp`, driven by the client of its package: sessions are threads, and each answer counts once."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError

from signoff import build_graph
from signoff.models import ScriptedModel, call
from tests.support.benches.acp import FAILS, NEVER, AcpBench

WRITES = """[
    call("run_shell", command="echo it ran >> ran.txt; cat ran.txt"),
    call("finish_task", summary="It ran."),
    call("finish_task", summary="The second task is done."),
]"""
ASKS = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    lambda messages: call("write_file", path="port.txt", content=messages[-1].text),
    call("finish_task", summary="The port is set."),
]"""
TWO_CALLS = """[
    [call("run_shell", command="echo one >> ran.txt"), call("run_shell", command="echo two >> ran.txt")],
    call("finish_task", summary="Both."),
]"""
CONFIRMED = """[
    call("finish_task", summary="Half of it.", requires_user_confirmation=True),
    call("finish_task", summary="All of it.", requires_user_confirmation=True),
]"""
LONG = """[call("write_file", path=f"{at}.txt", content="x") for at in range(4)] + [
    call("finish_task", summary="Written."),
]"""
LATER = """[
    lambda messages: call("finish_task", summary=__import__("pathlib").Path(r"FLAG").read_text() or 1 / 0),
    lambda messages: call("finish_task", summary="Better."),
]"""
EDITED = '{"command": "echo edited >> ran.txt; cat ran.txt"}'


@pytest.fixture
def bench(tmp_path: Path) -> AcpBench:
    return AcpBench(tmp_path)


def ran(bench: AcpBench) -> str:
    file = bench.workspace / "ran.txt"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize(
    ("decisions", "forms", "wrote", "stops"),
    [
        (["approve"], False, "it ran\n", "end_turn"),
        (["reject"], False, "", "end_turn"),
        (["edit", {"arguments": EDITED}], True, "edited\n", "end_turn"),
        (["edit", {"arguments": "no JSON"}, "approve"], True, "it ran\n", "end_turn"),
        (["edit", None], True, "", "cancelled"),
        ([None], False, "", "cancelled"),
    ],
    ids=["approved", "rejected", "edited", "edited wrongly first", "edit given up", "cancelled"],
)
async def test_a_call_is_decided_in_the_dialog_of_the_editor(
    bench: AcpBench, decisions: list[Any], forms: bool, wrote: str, stops: str
) -> None:
    async with bench.inside(WRITES, *decisions, forms=forms, approve="terminal") as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Run it") == stops
        assert ran(bench) == wrote
        asked, options = opened.editor.asked[0]
        assert options == ["approve", *(["edit"] if forms else []), "reject"]
        updates = opened.editor.of("tool_call", "tool_call_update")
        assert {update.tool_call_id for update in updates} == {asked.tool_call_id}
        assert updates[0].status == "pending"
        if stops == "end_turn":
            assert updates[-1].status == ("completed" if wrote else "failed")
            assert "It ran." in opened.editor.said()
        if wrote == "edited\n":
            assert [update.raw_input for update in updates if update.raw_input][-1]["command"].startswith(
                "echo edited"
            )


async def test_each_of_two_calls_is_decided_and_none_runs_before(bench: AcpBench) -> None:
    async with bench.inside(TWO_CALLS, "approve", "reject", approve="terminal") as opened:
        assert await opened.prompt(await opened.new(), "Both") == "end_turn"
        assert ran(bench) == "one\n"
        assert len(opened.editor.asked) == 2


@pytest.mark.parametrize(
    ("filled", "written"),
    [
        ({"answer": "9090"}, "9090"),
        ({"answer": "9090", "words": "port 7070"}, "port 7070"),
        ({"words": "1"}, "8080"),
    ],
)
async def test_a_question_is_a_form_where_the_editor_has_forms(
    bench: AcpBench, filled: Mapping[str, str], written: str
) -> None:
    async with bench.inside(ASKS, filled, forms=True) as opened:
        assert await opened.prompt(await opened.new(), "Set it") == "end_turn"
        assert (bench.workspace / "port.txt").read_text() == written


@pytest.mark.parametrize(("forms", "decisions"), [(False, []), (True, [None])])
async def test_a_question_is_text_elsewhere_and_the_next_prompt_is_the_answer(
    bench: AcpBench, forms: bool, decisions: list[Any]
) -> None:
    async with bench.inside(ASKS, *decisions, forms=forms) as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Set it") == "end_turn"
        assert "Which port?\n1. 8080\n2. 9090" in opened.editor.said()
        assert await opened.prompt(session, "2") == "end_turn"
        assert (bench.workspace / "port.txt").read_text() == "9090"
        (diff,) = opened.editor.of("tool_call")[-1].content
        assert (diff.type, diff.new_text, diff.old_text) == ("diff", "9090", None)
        assert diff.path == str(bench.workspace / "port.txt")


async def test_a_finish_is_confirmed_or_sent_back(bench: AcpBench) -> None:
    async with bench.inside(CONFIRMED, "reject", "approve") as opened:
        assert await opened.prompt(await opened.new(), "Do it") == "end_turn"
        assert "All of it." in opened.editor.said()
        assert len(opened.editor.asked) == 2


async def test_a_limit_and_more_turns(bench: AcpBench) -> None:
    async with bench.inside(LONG, turns=3) as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Write") == "max_turn_requests"
        assert "Turn limit reached" in opened.editor.said()
        assert await opened.prompt(session, "/continue 5") == "end_turn"
        assert "Written." in opened.editor.said()


async def test_an_error_is_an_error_and_is_tried_again(bench: AcpBench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with bench.inside(LATER.replace("FLAG", str(flag))) as opened:
        session = await opened.new()
        with pytest.raises(RequestError, match=r"division by zero.*/continue tries again"):
            await opened.prompt(session, "Try")
        flag.write_text("Better.")
        assert await opened.prompt(session, "/continue") == "end_turn"
        assert "Better." in opened.editor.said()


async def test_cancelling_a_run_pauses_it_and_an_empty_prompt_goes_on(bench: AcpBench) -> None:
    async with bench.inside(LONG, delay=0.1) as opened:
        session = await opened.new()
        prompt = asyncio.ensure_future(opened.prompt(session, "Write"))
        await opened.editor.sees(lambda editor: editor.of("tool_call"))
        with pytest.raises(RequestError, match="still works"):
            await opened.prompt(session, "Another")
        await opened.client.cancel(session_id=session)
        assert await prompt == "cancelled"
        assert not (bench.workspace / "3.txt").exists()
        assert await opened.prompt(session, "") == "end_turn"
        assert (bench.workspace / "3.txt").exists()
        with pytest.raises(RequestError, match="ended; there is nothing to continue"):
            await opened.prompt(session, "")


async def test_a_session_that_is_closed_while_it_runs_is_paused(bench: AcpBench) -> None:
    async with bench.inside(LONG, delay=0.2) as opened:
        session = await opened.new()
        prompt = asyncio.ensure_future(opened.prompt(session, "Write"))
        await opened.editor.sees(lambda editor: editor.of("tool_call"))
        # In the middle of the next reply: it ends with the piece that comes next.
        await asyncio.sleep(0.5)
        closing = asyncio.ensure_future(opened.client.close_session(session_id=session))
        with pytest.raises(RequestError, match="works on a prompt here"):
            await opened.load(session)
        await closing
        assert await prompt == "cancelled"
        assert not (bench.workspace / "3.txt").exists()
        await opened.load(session)
        assert await opened.prompt(session, "/continue") == "end_turn"
        assert (bench.workspace / "3.txt").exists()


async def test_a_permission_that_is_never_answered_hangs_nothing(bench: AcpBench) -> None:
    async with bench.inside(WRITES, NEVER, "approve", approve="terminal") as opened:
        session = await opened.new()
        prompt = asyncio.ensure_future(opened.prompt(session, "Run it"))
        await opened.editor.sees(lambda editor: editor.asked)
        await opened.client.cancel(session_id=session)
        assert await prompt == "cancelled"
        assert ran(bench) == ""
        assert await opened.prompt(session, "") == "end_turn"
        assert ran(bench) == "it ran\n"


async def test_a_saved_session_is_told_again_and_words_count_only_for_what_was_shown(bench: AcpBench) -> None:
    async with bench.inside(ASKS) as opened:
        session = await opened.new()
        await opened.prompt(session, "Set it")
    async with bench.inside(ASKS) as opened:
        with pytest.raises(RequestError, match="load it with session/load"):
            await opened.prompt(session, "9090")
        await opened.load(session)
        assert opened.editor.said("user_message_chunk") == "Set it"
        assert "Which port?" in opened.editor.said()
        assert await opened.prompt(session, "9090") == "end_turn"
        assert (bench.workspace / "port.txt").read_text() == "9090"
    async with bench.inside(ASKS) as opened:
        (listed,) = (await opened.client.list_sessions(cwd=str(bench.workspace))).sessions
        assert (listed.session_id, listed.title) == (session, "Set it")
        assert (await opened.client.list_sessions(cwd="/elsewhere")).sessions == []
        await opened.load(session)
        assert opened.editor.said("user_message_chunk") == "Set it9090"
        assert [update.status for update in opened.editor.of("tool_call")] == ["completed"]
        with pytest.raises(RequestError, match="no session 'none'"):
            await opened.load("none")


async def test_an_answer_of_somebody_else_makes_ours_too_late(bench: AcpBench) -> None:
    async with bench.inside(ASKS) as ours, bench.inside(ASKS) as theirs:
        session = await ours.new()
        await ours.prompt(session, "Set it")
        await theirs.load(session)
        assert await theirs.prompt(session, "1") == "end_turn"
        (file := bench.workspace / "port.txt").write_text("kept")
        # The thread has ended by now: what was meant as an answer would be a new task.
        with pytest.raises(RequestError, match="too late"):
            await ours.prompt(session, "2")
        assert file.read_text() == "kept"


async def test_words_that_were_written_before_a_question_was_seen_do_not_answer_it(bench: AcpBench) -> None:
    async with bench.inside(ASKS) as ours, bench.inside(ASKS) as theirs:
        session = await ours.new()
        await ours.prompt(session, "Set it")
        await theirs.client.resume_session(cwd=str(bench.workspace), session_id=session, mcp_servers=[])
        theirs.agent.sessions[session].shown = ("", "")
        assert await theirs.prompt(session, "9090") == "end_turn"
        assert "was not delivered" in theirs.editor.said()
        assert not (bench.workspace / "port.txt").exists()
        assert await theirs.prompt(session, "9090") == "end_turn"
        assert (bench.workspace / "port.txt").read_text() == "9090"


async def test_phases_are_the_plan_of_a_graph_of_ones_own(bench: AcpBench) -> None:
    steps = [
        call("finish_task", summary="Read it", completion_percentage=40, next_phase="Write it"),
        call("finish_task", summary="Done."),
    ]
    async with bench.inside("[]", own=build_graph(ScriptedModel(steps))) as opened:
        assert await opened.prompt(await opened.new(), "Go") == "end_turn"
        plans = [[(one.content, one.status) for one in plan.entries] for plan in opened.editor.of("plan")]
        assert plans[0] == [("Read it (40 %)", "completed"), ("Write it", "in_progress")]
        assert all(status == "completed" for _, status in plans[-1])


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"cwd": "somewhere"}, "send the absolute path"),
        ({"cwd": "/there/is/none"}, "is not an existing folder"),
        (
            {"mcp_servers": [{"type": "http", "name": "far", "url": "http://x", "headers": []}]},
            "does not use stdio",
        ),
    ],
)
async def test_a_session_that_cannot_begin_says_why(bench: AcpBench, what: Any, told: str) -> None:
    async with bench.inside(WRITES) as opened:
        with pytest.raises(RequestError, match=told):
            await opened.client.new_session(**{"cwd": str(bench.workspace), "mcp_servers": [], **what})


async def test_an_older_client_is_told_to_be_updated(bench: AcpBench) -> None:
    async with bench.inside(WRITES, version=0) as opened:
        with pytest.raises(RequestError, match="speaks version 1"):
            await opened.new()
    async with bench.inside(WRITES, version=2) as opened:
        assert await opened.new(), "it has been told of our version, and goes on with that"


async def test_a_prompt_of_50_mb_is_refused_and_the_session_goes_on(bench: AcpBench) -> None:
    async with bench.inside(WRITES) as opened:
        session = await opened.new()
        with pytest.raises(RequestError, match="has 50,000,000 characters"):
            await opened.prompt(session, "x" * 50_000_000)
        assert await opened.prompt(session, "Run it") == "end_turn"


async def test_a_dialog_that_fails_is_said_instead(bench: AcpBench) -> None:
    async with bench.inside(WRITES, FAILS, FAILS, approve="terminal") as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Run it") == "end_turn"
        assert "Your next message is the answer" in opened.editor.said()
        assert await opened.prompt(session, "perhaps") == "end_turn"
        assert "'reject: why'" in opened.editor.said()
        assert opened.editor.said().count("Your next message is the answer") == 2
        assert ran(bench) == ""
        assert await opened.prompt(session, "approve") == "end_turn"
        assert ran(bench) == "it ran\n"


@pytest.mark.parametrize(
    ("words", "dialogs", "wrote"),
    [
        ("something else entirely", ["approve"], "it ran\n"),
        ("something else entirely", ["reject"], ""),
        ("edit: no JSON", ["approve"], "it ran\n"),
        ("reject: not like this", [], ""),
        (f"edit: {EDITED}", [], "edited\n"),
    ],
)
async def test_words_after_a_cancelled_permission_are_a_decision_or_it_is_asked_for_again(
    bench: AcpBench, words: str, dialogs: list[str], wrote: str
) -> None:
    async with bench.inside(WRITES, None, *dialogs, approve="terminal") as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Run it") == "cancelled"
        assert await opened.prompt(session, words) == "end_turn"
        assert (ran(bench), opened.editor.decisions) == (wrote, [])
        assert "It ran." in opened.editor.said()
        assert "button" not in opened.editor.said()


async def test_an_option_that_was_not_offered_decides_nothing(bench: AcpBench) -> None:
    async with bench.inside(WRITES, "allow_always", "approve", approve="terminal") as opened:
        session = await opened.new()
        assert await opened.prompt(session, "Run it") == "end_turn"
        assert "not one of the options" in opened.editor.said()
        assert ran(bench) == "it ran\n"
