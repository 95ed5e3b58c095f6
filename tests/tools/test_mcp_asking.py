"""Servers of MCP that ask a person: a question of the thread. What they have to be read: tools that read."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.types import ElicitRequestFormParams

from signoff import build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.kinds import Kind
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.session.decisions import Question
from signoff.session.session import Session
from signoff.tools import mcp_tools
from signoff.tools.mcp_asking import make_question, read_answer

SERVER = Path(__file__).parents[1] / "support" / "servers" / "mcp_asks.py"
pytestmark = pytest.mark.slow


def servers(ledger: Path) -> dict[str, Any]:
    return {"table": {"transport": "stdio", "command": sys.executable, "args": [str(SERVER), str(ledger)]}}


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def results(graph: Graph, thread: str) -> list[str]:
    state = graph.get_state({"configurable": {"thread_id": thread}})
    return [str(found.text) for found in state.values["messages"] if found.type == "tool"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("form", "answers", "told"),
    [
        ("day", ["Tuesday"], "accept {'day': 'Tuesday'}"),
        ("day", ["Sunday", "2"], "accept {'day': 'Tuesday'}"),
        ("sure", ["yes"], "accept {'sure': True}"),
        ("sure", ["decline"], "decline"),
        ("both", ["four", '{"guests": 4, "name": "Ada"}'], "accept {'guests': 4, 'name': 'Ada'}"),
        ("both", [""], "cancel"),
    ],
)
async def test_a_question_of_a_server_waits_for_the_person(
    form: str, answers: list[str], told: str, tmp_path: Path
) -> None:
    tools = await mcp_tools(servers(ledger := tmp_path / "ledger"))
    model = ScriptedModel([call("book", forms=[form]), call("finish_task", summary="Booked.")])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session = Session(build_graph(model, tools, storage=storage), "t")
        decision = await session.arun("Book")
        for answer in answers:
            assert isinstance(decision, Question)
            assert f"'table' asks: Tell me: {form}" in decision.text
            assert lines(ledger) == ["began"]
            decision = await session.aresume(answer, decision.interrupt_id)
        assert results(session.graph, "t")[0] == f"booked: {[told]}"
        assert lines(ledger) == ["began", f"booked {[told]}"]


def test_two_questions_of_a_call_in_a_sync_graph_while_another_thread_is_served(tmp_path: Path) -> None:
    tools = asyncio.run(mcp_tools(servers(ledger := tmp_path / "ledger")))
    asks = [call("book", forms=["day", "sure"]), call("finish_task", summary="Booked.")]
    walks = [call("walk"), call("finish_task", summary="Walked.")]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        waiting = Session(build_graph(ScriptedModel(asks), tools, storage=storage), "waits")
        first = waiting.run("Book")
        assert isinstance(first, Question)
        other = Session(build_graph(ScriptedModel(walks), tools, storage=storage), "walks")
        other.run("Walk")
        assert results(other.graph, "walks")[0] == "walked"
        second = waiting.resume("Monday")
        assert isinstance(second, Question)
        assert "Are you sure?" in second.text
        waiting.resume("yes")
        assert lines(ledger) == [
            "began",
            "walked",
            """booked ["accept {'day': 'Monday'}", "accept {'sure': True}"]""",
        ]


async def test_an_answer_to_a_server_that_has_ended_runs_nothing_twice(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    steps = [call("book", forms=["day"]), call("finish_task", summary="Booked.")]
    for moment in ("asked", "answered"):
        tools = await mcp_tools(servers(ledger))
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            model = ScriptedModel(lambda messages: steps[sum(map(is_reply, messages))])
            session = Session(build_graph(model, tools, storage=storage), "t")
            await (session.arun("Book") if moment == "asked" else session.aresume("Monday"))
            told = results(session.graph, "t")
    assert lines(ledger) == ["began"]
    assert "answered 'Monday'. Whether the call took effect is not known" in told[0]


async def test_a_read_that_asks_is_asked_again_in_another_process(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    steps = [call("search"), call("finish_task", summary="Found.")]
    for moment in ("asked", "answered"):
        tools = await mcp_tools(servers(ledger), trust_hints=True)
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            model = ScriptedModel(lambda messages: steps[sum(map(is_reply, messages))])
            session = Session(build_graph(model, tools, storage=storage), "t")
            await (session.arun("Search") if moment == "asked" else session.aresume("Monday"))
            told = results(session.graph, "t")
    assert told[0] == "free: accept {'day': 'Monday'}"


async def test_where_nobody_can_be_asked_the_server_is_told_so(tmp_path: Path) -> None:
    tools = await mcp_tools(servers(tmp_path / "ledger"))
    model = ScriptedModel([call("book", forms=["day"]), call("finish_task", summary="Not booked.")])
    found = await build_graph(model, tools).ainvoke({"messages": [("user", "Book")]})
    assert "keeps nothing, so it cannot wait" in found["messages"][2].text


async def test_resources_and_prompts_are_tools_that_read(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in await mcp_tools(servers(tmp_path / "ledger"))}
    reading = ["table_read_resource", "table_get_prompt"]
    assert list(tools) == ["book", "search", "walk", *reading]
    assert [(tools[name].metadata or {})["kind"] for name in reading] == [Kind.READ, Kind.READ]
    assert "menu://today (menu: The menu of today.)" in tools[reading[0]].description
    assert "menu://{day}/dish" in tools[reading[0]].description
    assert "greet(name) (greet: Greet a guest.)" in tools[reading[1]].description
    steps: list[Any] = [
        [
            call(reading[0], uri="menu://today"),
            call(reading[0], uri="menu://Monday/dish"),
            call(reading[1], name="greet", arguments={"name": "Ada"}),
            call(reading[0], uri="menu://none/at/all"),
            call(reading[0], uri="no address"),
            call(reading[1], name="nobody"),
        ],
        call("finish_task", summary="Read."),
    ]
    graph = build_graph(ScriptedModel(steps), [*tools.values()])
    found = (await graph.ainvoke({"messages": [("user", "Read")]}))["messages"]
    told = [str(message.text) for message in found if message.type == "tool"]
    assert told[:3] == ["soup", "fish on Monday", "user: Say hello to Ada."]
    assert all("refused it" in text or "not an address" in text for text in told[3:6])
    assert len(await mcp_tools(servers(tmp_path / "ledger"), resources=False)) == 3


FORM = {"type": "object", "properties": {"guests": {"type": "integer"}}, "required": ["guests"]}


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("4", {"guests": 4}),
        ('{"guests": 4}', {"guests": 4}),
        ("four", "number"),
        ("4.5", "whole"),
        ("nan", "whole"),
    ],
)
def test_an_answer_fits_the_form_or_is_asked_for_again(answer: str, content: Any) -> None:
    params = ElicitRequestFormParams(message="How many?", requestedSchema=FORM)
    if isinstance(content, dict):
        assert read_answer(params, answer).content == content
    else:
        with pytest.raises(ValueError, match=content):
            read_answer(params, answer)
    assert make_question("x", params, "Not so.")["question"].startswith(
        "Not so.\nThe MCP server 'x' asks: How"
    )
