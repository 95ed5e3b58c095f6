"""`signoff mcp`, driven by the client of its package, with forms and without: each answer counts once."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import messages_from_dict
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

from signoff import build_graph
from signoff.models import ScriptedModel, call
from tests.support.benches.mcp import FAILS, NEVER, McpBench

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
]"""
EDITED = '{"command": "echo edited >> ran.txt; cat ran.txt"}'
EDIT = {"decision": "edit", "arguments": EDITED}


@pytest.fixture
def bench(tmp_path: Path) -> McpBench:
    return McpBench(tmp_path)


def ran(bench: McpBench) -> str:
    file = bench.workspace / "ran.txt"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize(
    ("forms", "wrote"),
    [
        ([{"decision": "approve"}], "it ran\n"),
        ([{"decision": "reject", "message": "No"}], ""),
        ([EDIT], "edited\n"),
        ([{"decision": "approve", "arguments": EDITED}, EDIT], "edited\n"),
        ([{"decision": "edit", "arguments": "no JSON"}, EDIT], "edited\n"),
    ],
    ids=["approved", "rejected", "edited", "changed, but not as an edit", "edited wrongly first"],
)
async def test_a_call_is_decided_in_a_form(bench: McpBench, forms: list[Any], wrote: str) -> None:
    async with bench.inside(WRITES, *forms, forms=True, approve="terminal") as client:
        found = await client.told("run_task", task="Run it")
        assert (found["status"], found["outcome"]["summary"]) == ("success", "It ran.")
        assert ran(bench) == wrote
        assert len(client.asked) == len(forms)
        fields = client.asked[0].requestedSchema["properties"]
        assert fields["decision"]["enum"] == ["approve", "edit", "reject", "respond"]
        assert json.loads(fields["arguments"]["default"])["command"].startswith("echo it ran")


@pytest.mark.parametrize(
    ("answer", "wrote"),
    [("approve", "it ran\n"), ("reject: No", ""), (f"edit: {EDITED}", "edited\n"), (["approve"], "it ran\n")],
)
async def test_a_client_without_forms_answers_by_resume(bench: McpBench, answer: Any, wrote: str) -> None:
    async with bench.inside(WRITES, approve="terminal") as client:
        waits = await client.told("run_task", task="Run it")
        assert (waits["status"], waits["waits_for"], ran(bench)) == ("waiting", "approval", "")
        thread, waiting_id = waits["thread"], waits["waiting_id"]
        assert "waiting_id" in await client.refused("resume", thread=thread, answer=answer)
        other = waiting_id.replace(waiting_id[:4], "abcd")
        assert "too late" in await client.refused("resume", thread=thread, answer=answer, waiting_id=other)
        assert "reject: why" in await client.refused(
            "resume", thread=thread, answer="maybe", waiting_id=waiting_id
        )
        assert await client.told("resume", thread=thread) == waits
        assert ran(bench) == ""
        found = await client.told("resume", thread=thread, answer=answer, waiting_id=waiting_id)
        assert found["status"] == "success"
        assert ran(bench) == wrote
        assert "too late" in await client.refused(
            "resume", thread=thread, answer=answer, waiting_id=waiting_id
        )
        assert ran(bench) == wrote


@pytest.mark.parametrize(
    ("filled", "written"),
    [
        ({"answer": "9090"}, "9090"),
        ({"answer": "9090", "words": "port 7070"}, "port 7070"),
        ({"words": "1"}, "8080"),
    ],
)
async def test_a_question_is_a_form(bench: McpBench, filled: Mapping[str, str], written: str) -> None:
    async with bench.inside(ASKS, filled, forms=True) as client:
        assert (await client.told("run_task", task="Set it"))["status"] == "success"
        assert (bench.workspace / "port.txt").read_text() == written


async def test_a_form_that_is_put_away_leaves_the_thread_waiting(bench: McpBench) -> None:
    async with bench.inside(ASKS, None, {"answer": "8080"}, forms=True) as client:
        waits = await client.told("run_task", task="Set it")
        assert (waits["status"], waits["question"]["question"]) == ("waiting", "Which port?")
        assert (await client.told("resume", thread=waits["thread"]))["status"] == "success"


async def test_a_form_that_fails_leaves_the_thread_waiting(bench: McpBench) -> None:
    async with bench.inside(WRITES, FAILS, forms=True, approve="terminal") as client:
        waits = await client.told("run_task", task="Run it")
        assert (waits["status"], ran(bench)) == ("waiting", "")
        answer = {"thread": waits["thread"], "waiting_id": waits["waiting_id"], "answer": "approve"}
        assert (await client.told("resume", **answer))["status"] == "success"
        assert ran(bench) == "it ran\n"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"decision": "approve", "arguments": EDITED}, "The arguments were changed, but the decision is"),
        ({"decision": "edit", "arguments": "no JSON"}, "The arguments are not valid JSON"),
    ],
)
async def test_a_form_that_is_shown_again_says_why(bench: McpBench, wrong: Any, why: str) -> None:
    right = {"decision": "approve"}
    async with bench.inside(TWO_CALLS, right, wrong, right, right, forms=True, approve="terminal") as client:
        assert (await client.told("run_task", task="Both"))["status"] == "success"
        messages = [asked.message for asked in client.asked]
        assert [message.startswith(why) for message in messages] == [False, False, True, False]
        assert messages[2].endswith(messages[0])


async def test_each_of_two_calls_has_a_form(bench: McpBench) -> None:
    forms = [{"decision": "approve"}, {"decision": "reject"}]
    async with bench.inside(TWO_CALLS, *forms, forms=True, approve="terminal") as client:
        assert (await client.told("run_task", task="Both"))["status"] == "success"
        assert ran(bench) == "one\n"


async def test_a_finish_is_confirmed_or_sent_back(bench: McpBench) -> None:
    async with bench.inside(
        CONFIRMED, {"decision": "reject", "message": "Not yet"}, {"decision": "approve"}, forms=True
    ) as client:
        found = await client.told("run_task", task="Do it")
        assert found["outcome"]["summary"] == "All of it."


async def test_a_limit_more_turns_and_progress(bench: McpBench) -> None:
    async with bench.inside(LONG, turns=3) as client:
        found = await client.told("run_task", task="Write")
        assert (found["status"], found["outcome"]["reason"]) == ("limit", "turns")
        steps = [step for step, _, _ in client.progress]
        assert steps == sorted(set(steps))
        assert any(f"thread {found['thread']} · write_file" == told for _, _, told in client.progress)
        assert (await client.told("go_on", thread=found["thread"], turns=5))["status"] == "success"
        assert "ended" in await client.refused("resume", thread=found["thread"])


async def test_an_error_is_told_and_tried_again(bench: McpBench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with bench.inside(LATER.replace("FLAG", str(flag))) as client:
        failed = await client.call("run_task", task="Try")
        assert failed.isError
        assert failed.structuredContent
        assert failed.structuredContent["outcome"]["reason"] == "model_error"
        flag.write_text("Better.")
        again = await client.told("go_on", thread=failed.structuredContent["thread"])
        assert again["outcome"]["summary"] == "Better."


async def test_resources_tell_the_outcome_and_the_record(bench: McpBench) -> None:
    async with bench.inside(ASKS) as client:
        thread = (await client.told("run_task", task="Set it", thread="a/b c"))["thread"]
        listed = [str(found.uri) for found in (await client.session.list_resources()).resources]
        assert listed == [f"signoff://threads/a%2Fb%20c/{what}" for what in ("outcome", "record")]
        outcome, record = [
            json.loads((await client.session.read_resource(AnyUrl(uri))).contents[0].text)  # type: ignore[union-attr]
            for uri in listed
        ]
        assert (thread, outcome["status"], outcome["question"]["question"]) == (
            "a/b c",
            "waiting",
            "Which port?",
        )
        assert record == {**outcome, "messages": record["messages"]}
        for uri in ("signoff://threads/none/outcome", "signoff://threads/a", "file:///etc/passwd"):
            with pytest.raises(McpError, match="There is no"):
                await client.session.read_resource(AnyUrl(uri))


async def test_the_record_of_a_thread_has_its_messages(bench: McpBench) -> None:
    async with bench.inside(LONG) as client:
        for thread in ("a", "ab"):
            await client.told("run_task", task="Write", thread=thread)
        uri = AnyUrl("signoff://threads/a/record")
        record = json.loads((await client.session.read_resource(uri)).contents[0].text)  # type: ignore[union-attr]
    assert (record["thread"], record["outcome"]["summary"]) == ("a", "Written.")
    kinds = [message.type for message in messages_from_dict(record["messages"])]
    assert kinds == ["human", *["ai", "tool"] * 5, "ai"]


async def test_a_time_limit_of_the_client_does_not_stop_the_task(bench: McpBench) -> None:
    async with bench.inside(LONG, delay=0.1) as client:
        with pytest.raises(McpError, match="Timed out"):
            await client.session.call_tool(
                "run_task", {"task": "Write", "thread": "t"}, read_timeout_seconds=timedelta(seconds=0.2)
            )
        assert "running" in await client.refused("run_task", task="Write", thread="t")
        while not (bench.workspace / "3.txt").exists():
            await asyncio.sleep(0.05)
        assert client.server
        while client.server.drivers["t"].running:
            await asyncio.sleep(0.05)
        found = await client.session.read_resource(AnyUrl("signoff://threads/t/outcome"))
        assert json.loads(found.contents[0].text)["status"] == "success"  # type: ignore[union-attr]


async def test_a_thread_that_another_process_runs_is_not_called_waiting(bench: McpBench) -> None:
    uri = AnyUrl("signoff://threads/t/outcome")

    async def outcome() -> dict[str, Any]:
        found: Any = await client.session.read_resource(uri)
        return dict(json.loads(found.contents[0].text))

    async with bench.inside(ASKS) as client:
        waits = await client.told("run_task", task="Set it", thread="t")
        with bench.database.open() as storage, storage.checkpointer.runner("t"):
            found = await outcome()
            assert (found["status"], found["note"]) == ("running", "Another process runs it.")
            assert "question" not in found
            assert "running elsewhere" in await client.refused("resume", thread="t")
            assert "too late" in await client.refused(
                "resume", thread="t", answer="1", waiting_id=waits["waiting_id"]
            )
        found = await outcome()
        assert (found["status"], "note" in found) == ("waiting", False)


async def test_a_form_that_is_never_filled_in_hangs_nothing(bench: McpBench) -> None:
    async with bench.inside(WRITES, NEVER, forms=True, approve="terminal") as client:
        running = asyncio.ensure_future(client.call("run_task", task="Run it", thread="t"))
        while not client.asked:
            await asyncio.sleep(0.01)
        running.cancel()
    async with bench.inside(WRITES, {"decision": "approve"}, forms=True, approve="terminal") as client:
        assert (await client.told("resume", thread="t"))["status"] == "success"
        assert ran(bench) == "it ran\n"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("run_task", {"task": " "}, "The task is empty"),
        ("run_task", {}, "task: Field required"),
        ("run_task", {"task": "x", "mode": "fast"}, "mode: Extra inputs"),
        ("run_task", {"task": "x" * 50_000_000}, "has 50,000,012 characters"),
        ("resume", {"thread": "none"}, "no thread 'none'"),
        ("go_on", {"thread": "none"}, "no thread 'none'"),
        ("go_on", {"thread": "none", "turns": 0}, "greater than or equal to 1"),
        ("go_on", {"thread": "none", "turns": 10**29}, "less than or equal to 100000"),
        ("go_on", {"thread": "x" * 900}, "at most 500 characters"),
        ("teleport", {}, "no tool 'teleport'"),
    ],
)
async def test_a_wrong_call_is_refused_in_a_sentence(
    bench: McpBench, name: str, arguments: Any, told: str
) -> None:
    async with bench.inside(WRITES) as client:
        why = await client.refused(name, **arguments)
        assert told in why
        assert len(why) < 300
        assert ran(bench) == ""


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("resume", {"thread": "none"}, {"thread": "none"}),
        ("resume", {"thread": "t", "answer": "1", "waiting_id": "0"}, {"thread": "t"}),
        ("resume", {"thread": "t", "answer": "1"}, {"thread": "t"}),
        ("go_on", {"thread": "t", "turns": 0}, {"thread": "t"}),
        ("run_task", {"task": "Another", "thread": "t"}, {"thread": "t"}),
        ("run_task", {"task": " "}, {}),
        ("go_on", {"thread": "x" * 900}, {}),
        ("go_on", {"thread": 5}, {}),
        ("go_on", {"thread": "a\0"}, {}),
    ],
)
async def test_a_refusal_names_the_thread_that_it_is_about(
    bench: McpBench, name: str, arguments: Any, named: Any
) -> None:
    async with bench.inside(ASKS) as client:
        await client.told("run_task", task="Set it", thread="t")
        found = await client.call(name, **arguments)
        assert (found.isError, found.structuredContent) == (True, {**named, "status": "refused"})


async def test_a_new_thread_that_cannot_run_is_named(bench: McpBench) -> None:
    async with bench.inside(ASKS, approve="nothing_like_it") as client:
        found = await client.call("run_task", task="Set it")
        assert found.structuredContent
        assert (found.isError, found.structuredContent["status"]) == (True, "refused")
        assert found.structuredContent["thread"]


async def test_a_graph_of_ones_own(bench: McpBench) -> None:
    steps = [call("ask_user", question="Which port?"), call("finish_task", summary="Done.")]
    async with bench.inside(
        "[]", {"words": "8080"}, forms=True, own=build_graph(ScriptedModel(steps))
    ) as one:
        assert (await one.told("run_task", task="Set it"))["status"] == "success"
