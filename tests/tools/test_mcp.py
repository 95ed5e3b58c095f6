"""Tools of real MCP servers over stdio: how long a server runs, what reaches it, what reaches the model, and
that it may ask a person."""

import asyncio
import gc
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from signoff import Graph, Question, Session, SetupError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.tools import mcp_tools
from tests.support.plays import FINISH, GO, THREAD, saved
from tests.support.process_table import gone, runs
from tests.support.servers.mcp_rough import NAMES

SERVERS = Path(__file__).parents[1] / "support" / "servers"


def connection(program: str, *words: str | Path) -> dict[str, Any]:
    return {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(SERVERS / f"{program}.py"), *map(str, words)],
    }


def rough(how: str, pids: Path) -> dict[str, Any]:
    return connection("mcp_rough", how, pids)


def tools_of(server: Mapping[str, Any], name: str = "table", **options: Any) -> list[BaseTool]:
    return asyncio.run(mcp_tools({name: server}, **options))


def started(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def graph_calling(tools: Sequence[BaseTool], *calls: Any, **options: Any) -> Graph:
    replies = [call(name) if isinstance(name, str) else name for name in calls]
    return build_graph(ScriptedModel([*replies, FINISH]), tools, **options)


def told(values: Any) -> list[tuple[str, str]]:
    """The text and the status of each result but that of the finish."""
    return [(str(m.text), str(m.status)) for m in values["messages"] if isinstance(m, ToolMessage)][:-1]


# How long a server runs.


@pytest.mark.slow
def test_one_server_serves_every_call_and_ends_with_its_graph(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    tools = tools_of(rough("leaves a child", pids))
    fails = call("give", result={"content": [{"type": "text", "text": "no luck"}], "isError": True})
    graph = graph_calling(tools, "look", fails, "put")
    server, child = started(pids)
    by_server = (f"by {server}", "success")
    assert told(graph.invoke(GO)) == [by_server, ("no luck", "error"), by_server]
    assert told(asyncio.run(graph_calling(tools, "look").ainvoke(GO))) == [by_server]
    assert len(started(pids)) == 2
    gc.collect()
    assert runs(server), "one of the two graphs is gone"
    graph.close()
    assert gone(server, child)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["die", pytest.param("hang", marks=pytest.mark.thorough)])
def test_a_server_that_dies_or_hangs_in_a_call_serves_the_next_one(how: str, tmp_path: Path) -> None:
    tools = tools_of(rough("serves", tmp_path / "pids"))
    for tool in tools:
        tool.metadata = {"kind": "write", "seconds": 0.3 if tool.name == "hang" else 60}
    failed, after = told(graph_calling(tools, how, "look").invoke(GO))
    first, second = started(tmp_path / "pids")
    assert (failed[1], after) == ("error", (f"by {second}", "success"))
    assert gone(first)


# A word that says why, and the seconds that it has: of those that never answer, enough to have started.
UNUSABLE = {
    "hangs": ("1.5", 1.5),
    "mumbles and ends": ("listening on port 80", 60),
    "garbage": ("garbage 0", 60),
    "many tools": ("128", 60),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", UNUSABLE)
def test_a_server_that_cannot_be_used_is_one_error_and_is_ended(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    why, seconds = UNUSABLE[how]
    servers = {name: rough(way, tmp_path / name) for name, way in (("bad", how), ("good", "serves"))}
    with pytest.raises(SetupError, match=f"'bad'.*{why}"):
        asyncio.run(mcp_tools(servers, seconds=seconds))
    assert not any(runs(pid) for name in servers for pid in started(tmp_path / name))
    assert "Traceback" not in capfd.readouterr().err


WRONG: dict[str, tuple[dict[str, Any], float, str]] = {
    "no program": ({"transport": "stdio", "command": "/no/such/program", "args": []}, 60, "command"),
    "no command": ({"transport": "stdio", "args": []}, 60, "'command'"),
    "nobody there": ({"transport": "streamable_http", "url": "http://127.0.0.1:1/mcp"}, 60, "'table'"),
    "no time": (connection("mcp_asks"), 0, "seconds"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_started_is_told(name: str) -> None:
    server, seconds, why = WRONG[name]
    with pytest.raises(SetupError, match=why):
        tools_of(server, seconds=seconds)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_mcp_adapters.client", None)
    with pytest.raises(SetupError, match=r"\[mcp\]|extra mcp"):
        tools_of(connection("mcp_asks"))


# What a server says of its tools.

TRUSTED: dict[str, dict[str, Any]] = {
    "look": {"kind": "read"},
    "put": {"kind": "write", "idempotent": True},
    "claim": {"kind": "read", "idempotent": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [{}, TRUSTED], ids=["not trusted", "trusted"])
def test_hints_count_only_when_they_are_trusted(trusted: dict[str, Any], tmp_path: Path) -> None:
    tools = tools_of(rough("serves", tmp_path / "pids"), trust_hints=bool(trusted))
    said = {tool.name: tool.metadata for tool in tools}
    assert said == {name: {"kind": "write"} for name in said} | trusted
    assert {*TRUSTED, "shout"} <= set(said)


def look() -> str:
    """Look."""
    return "looked"


def test_hints_on_a_tool_from_elsewhere_are_no_kind() -> None:
    tool = StructuredTool.from_function(look, metadata={"readOnlyHint": True, "idempotentHint": True})
    graph = build_graph(ScriptedModel([call("look")]), [tool], approvals={"write": True}, **saved())
    assert graph.invoke(GO, THREAD)["__interrupt__"]


@pytest.mark.parametrize("key", ["kind", "hand_over"])
def test_metadata_that_a_server_wrote_says_nothing_of_ours(key: str) -> None:
    tool = StructuredTool.from_function(look, metadata={"readOnlyHint": None, key: "read"})
    with pytest.raises(SetupError, match=key):
        build_graph(ScriptedModel([]), [tool])


# What reaches a server, and what of its results reaches the model.


def answers(pids: Path, *calls: Any) -> list[ToolMessage]:
    """The results of these calls."""
    values = graph_calling(tools_of(rough("serves", pids)), *calls).invoke(GO)
    assert values["outcome"]["status"] == "success"
    return [message for message in values["messages"] if isinstance(message, ToolMessage)][: len(calls)]


@pytest.mark.slow
def test_every_argument_reaches_the_server_whatever_its_name(tmp_path: Path) -> None:
    each: list[dict[str, Any]] = [{name: {"deep": [name]}} for name in NAMES]
    each.append({name: f"the model's {name}" for name in NAMES})
    results = answers(tmp_path / "pids", *(call("echo", args=given) for given in each))
    assert [json.loads(result.text) for result in results] == each


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
PDF = {"type": "file", "base64": "JVBERi0x", "mime_type": "application/pdf", "filename": "document.pdf"}
TEXT = {"type": "text", "text": "made it"}
LINK = {"type": "resource_link", "uri": "file:///may.txt", "name": "May", "description": "The report."}


def resource(uri: str = "x:a", **fields: str) -> dict[str, Any]:
    return {"content": [{"type": "resource", "resource": {"uri": uri, **fields}}]}


def parts(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"content": content, **fields}


# A result, and what reaches the model: text as it is, blocks, or of a text a list of what must be in it.
RESULTS: dict[str, tuple[dict[str, Any], Any]] = {
    "text": (parts(TEXT), "made it"),
    "a link beside text": (parts(TEXT, LINK), ["made it\n", "May", "file:///may.txt", "\nThe report."]),
    "sound": (parts({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}), ["audio/wav", "3 bytes"]),
    "a picture": (parts(TEXT, {"type": "image", "data": PIXEL, "mimeType": "image/png"}), [TEXT, PICTURE]),
    "a text in a resource": (resource(text="inside"), ["x:a", "\ninside"]),
    "a PDF": (resource("x://r/a.pdf", blob="JVBERi0x", mimeType="application/pdf"), [PDF]),
    "a part of a later version": (parts(TEXT, {"type": "hologram", "depth": 3}), ["made it\n", "hologram"]),
    "only a structure": (parts(structuredContent={"result": []}), '{"result": []}'),
    "nothing": ({}, [""]),
    "a failure": (parts(TEXT, isError=True), "made it"),
    "a failure without a word": (parts(isError=True), [""]),
}


@pytest.mark.slow
def test_every_part_of_a_result_reaches_the_model(tmp_path: Path) -> None:
    calls = [call("give", result=result) for result, _ in RESULTS.values()]
    answered = answers(tmp_path / "pids", *calls)
    for (name, (result, shown)), answer in zip(RESULTS.items(), answered, strict=True):
        assert answer.status == ("error" if "isError" in result else "success"), name
        # A call that says nothing is answered with something.
        assert answer.content, name
        if isinstance(shown, list) and isinstance(shown[0], str):
            assert [text for text in shown if text not in answer.text] == [], name
        else:
            assert answer.content == shown, name


@pytest.mark.slow
def test_a_result_that_does_not_fit_its_schema_is_of_a_call_that_has_run(tmp_path: Path) -> None:
    given = [{"content": [TEXT], "structuredContent": {"n": "seven"}}, {"content": [TEXT]}]
    results = answers(tmp_path / "pids", *(call("checked", result=one) for one in given))
    assert [(one.status, one.content) for one in results] == [("success", "made it")] * 2
    assert results[0].artifact == {"structured_content": {"n": "seven"}}


# Servers that ask a person: a question of the thread.


@dataclass(frozen=True)
class Table:
    """The tools of a server that asks, and where it notes what it does."""

    tools: list[BaseTool]
    ledger: Path

    def lines(self) -> list[str]:
        """What it has noted since this was asked before."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        self.ledger.unlink(missing_ok=True)
        return lines


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    ledger = tmp_path_factory.mktemp("table") / "ledger"
    tools = tools_of(connection("mcp_asks", ledger))
    # The server runs as long as a graph has its tools.
    with build_graph(ScriptedModel([]), tools):
        yield Table(tools, ledger)


BOTH = '{"guests": 4, "name": "Ada"}'
# A form, the answers, of which only the last fits it, and what the server is told.
FORMS = {
    "a choice by its number": ("day", ["Sunday", "2"], "accept {'day': 'Tuesday'}"),
    "yes or no": ("sure", ["perhaps", "yes"], "accept {'sure': True}"),
    "a refusal": ("sure", ["decline"], "decline"),
    "a whole number": ("guests", ["four", "4.5", "nan", "4"], "accept {'guests': 4}"),
    "several fields": (
        "both",
        ["four", '{"guests": 4}', '{"guests": 4, "name": "Ada", "x": 1}', BOTH],
        "accept {'guests': 4, 'name': 'Ada'}",
    ),
    "no answer": ("both", [""], "cancel"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_question_of_a_server_waits_for_the_person(name: str, table: Table) -> None:
    form, replies, result = FORMS[name]
    session = Session(graph_calling(table.tools, call("book", forms=[form]), **saved()), "t")
    decision = session.run("Book")
    shown = set()
    assert table.lines() == ["began"]
    for reply in replies:
        assert isinstance(decision, Question)
        assert ("'table'" in decision.text, f"Tell me: {form}" in decision.text) == (True, True)
        assert table.lines() == []
        shown.add(decision.text)
        decision = session.resume(reply, decision.interrupt_id)
    assert (len(shown) > 1) == (len(replies) > 1), "it says what was wrong with the answer before"
    assert told(session.status().values) == [(f"booked: {[result]}", "success")]
    assert table.lines() == [f"booked {[result]}"]


@pytest.mark.slow
def test_two_questions_of_a_call_while_another_thread_is_served(table: Table) -> None:
    booking = call("book", forms=["day", "sure"])
    waiting = Session(graph_calling(table.tools, booking, **saved()), "waits")
    assert isinstance(waiting.run("Book"), Question)
    other = Session(graph_calling(table.tools, "walk", **saved()), "walks")
    other.run("Walk")
    assert told(other.status().values) == [("walked", "success")]
    second = waiting.resume("Monday")
    assert isinstance(second, Question)
    assert "Are you sure?" in second.text
    waiting.resume("yes")
    booked = ["accept {'day': 'Monday'}", "accept {'sure': True}"]
    assert table.lines() == ["began", "walked", f"booked {booked}"]


@pytest.mark.slow
def test_an_answer_to_a_server_that_has_ended_runs_a_read_again_and_no_write(tmp_path: Path) -> None:
    asks, results = {"writes": call("book", forms=["day"]), "reads": call("search")}, []
    for is_first in (True, False):
        tools = tools_of(connection("mcp_asks", tmp_path / "ledger"), trust_hints=True, resources=False)
        assert [tool.name for tool in tools] == ["book", "search", "walk"]
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            for thread, asking in asks.items():
                session = Session(
                    graph_calling(tools, *([asking] if is_first else []), storage=storage), thread
                )
                session.run("Go") if is_first else session.resume("Monday")
                results += told(session.status().values)
    assert (tmp_path / "ledger").read_text().split() == ["began", "searched", "searched"]
    # The answer is told in both, that of the server only after the read.
    assert [("Monday" in text, status) for text, status in results] == [(True, "error"), (True, "success")]


@pytest.mark.slow
def test_where_nobody_can_be_asked_the_server_is_told_so(table: Table) -> None:
    ((_, status),) = told(graph_calling(table.tools, call("book", forms=["day"])).invoke(GO))
    assert (status, table.lines()) == ("error", ["began"])


@pytest.mark.slow
def test_resources_and_prompts_are_tools_that_read(table: Table) -> None:
    tools = {tool.name: tool for tool in table.tools}
    resource, prompt = "table_read_resource", "table_get_prompt"
    assert list(tools) == ["book", "search", "walk", resource, prompt]
    assert [(tools[name].metadata or {})["kind"] for name in (resource, prompt)] == ["read", "read"]
    assert "menu://{day}/dish" in tools[resource].description
    assert "greet(name)" in tools[prompt].description
    calls = [
        call(resource, uri="menu://today"),
        call(resource, uri="menu://Monday/dish"),
        call(prompt, name="greet", arguments={"name": "Ada"}),
        call(resource, uri="menu://none/at/all"),
        call(prompt, name="nobody"),
    ]
    results = told(graph_calling(table.tools, calls).invoke(GO))
    assert [text for text, _ in results[:3]] == ["soup", "fish on Monday", "user: Say hello to Ada."]
    assert [status for _, status in results] == ["success"] * 3 + ["error"] * 2
