"""A call that may have run is never said to be not run: where no journal tells, the stored state does."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import (
    ControlTool,
    Session,
    build_graph,
    delegate,
    outcome_of,
    standard_controls,
    stop,
)
from signoff.graph.errors import JournalWarning
from signoff.graph.messages import marks
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.ends import is_failed

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "Pay them.")]}
NEXT: Any = {"messages": [("user", "Were they paid?")]}
PARTIAL = call("finish_task", summary="I do not know.", outcome="partial")
UNKNOWN, NOT_RUN = "unknown", "not run"
pytestmark = pytest.mark.filterwarnings(f"ignore::{JournalWarning.__module__}.JournalWarning")


class Shop:
    """Tools that take for ever when they are called for Eve."""

    def __init__(self) -> None:
        self.works = asyncio.Event()

    async def pay(self, to: str) -> str:
        """Pay somebody."""
        return await self._work(to)

    async def look(self, at: str) -> str:
        """Look at something."""
        return await self._work(at)

    async def _work(self, name: str) -> str:
        if name == "eve":
            self.works.set()
            await asyncio.sleep(60)
        return "ok"

    @property
    def tools(self) -> list[Any]:
        look = tool(self.look)
        look.metadata = {"kind": "read"}
        return [self.pay, look]

    async def cut_short(self, graph: Any) -> None:
        """Runs the graph until it is cancelled within a tool."""
        run = asyncio.ensure_future(graph.ainvoke(GO, THREAD))
        await asyncio.wait([asyncio.ensure_future(self.works.wait()), run], return_when="FIRST_COMPLETED")
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


def saved(*, store: bool) -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), **({"store": InMemoryStore()} if store else {})}


def machine(script: Sequence[Any], tools: Sequence[Any], *, store: bool) -> Any:
    return build_graph(ScriptedModel(script), list(tools), **saved(store=store))


def plain_guards(script: Sequence[Any], tools: Sequence[Any], *, store: bool) -> Any:
    return create_agent(ScriptedModel(script), list(tools), middleware=[Guards()], **saved(store=store))


def guarded_agent(script: Sequence[Any], tools: Sequence[Any], *, store: bool) -> Any:
    return guarded(plain_guards(script, tools, store=store))


def came(values: Any) -> list[str]:
    """What the model reads of each call of the first task."""
    found = [message for message in values["messages"] if isinstance(message, ToolMessage)]
    return [_came(message) for message in found if message.name != "finish_task"]


def _came(message: ToolMessage) -> str:
    if "not_run" in marks(message):
        assert "not run" in message.text.lower()
        return NOT_RUN
    if marks(message).get("unknown"):
        assert "not run" not in message.text.lower()
        return UNKNOWN
    return message.text


EVE, BOB = call("pay", to="eve"), call("pay", to="bob")
READS = [call("look", at="ann"), call("look", at="eve"), call("look", at="ann"), BOB]
CALLS: dict[str, tuple[Callable[..., Any], bool, Any, list[str]]] = {
    "one": (machine, False, EVE, [UNKNOWN]),
    "the next batch has not begun": (machine, False, [EVE, BOB], [UNKNOWN, NOT_RUN]),
    "what came before has its result": (machine, False, [BOB, EVE, BOB], ["ok", UNKNOWN, NOT_RUN]),
    "reads run side by side": (machine, False, READS, [UNKNOWN] * 3 + [NOT_RUN]),
    "a journal tells": (machine, True, [EVE, BOB], [UNKNOWN, NOT_RUN]),
    "LangChain runs all of them": (plain_guards, False, [EVE, BOB], [UNKNOWN, UNKNOWN]),
    "guarded, too": (guarded_agent, False, [EVE, BOB], [UNKNOWN, UNKNOWN]),
    "Guards with a journal": (plain_guards, True, EVE, [UNKNOWN]),
    "guarded with a journal": (guarded_agent, True, EVE, [UNKNOWN]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_new_task_closes_what_was_cut_short(name: str) -> None:
    make, store, reply, expected = CALLS[name]
    shop = Shop()
    graph = make([reply, PARTIAL], shop.tools, store=store)
    await shop.cut_short(graph)
    assert came(await graph.ainvoke(NEXT, THREAD)) == expected


@pytest.mark.parametrize("store", [False, True])
async def test_a_stop_closes_it_too(store: bool) -> None:
    shop = Shop()
    graph = machine([[EVE, BOB]], shop.tools, store=store)
    await shop.cut_short(graph)
    ended = await Session(graph, "t").arun(stop())
    assert is_failed(ended)
    outcome = ended.outcome
    assert came((await graph.aget_state(THREAD)).values) == [UNKNOWN, NOT_RUN]
    assert [(change.call, change.came) for change in outcome.changes] == [("pay(to='eve')", UNKNOWN)]
    assert outcome.open_work == ["pay({'to': 'bob'})"]


@pytest.mark.parametrize("store", [False, True])
async def test_a_fork_of_it_says_the_same(store: bool) -> None:
    shop = Shop()
    graph = machine([[EVE, BOB], PARTIAL], shop.tools, store=store)
    await shop.cut_short(graph)
    await asyncio.to_thread(Session(graph, "t").fork, None, "u")
    assert came(await graph.ainvoke(NEXT, {"configurable": {"thread_id": "u"}})) == [UNKNOWN, NOT_RUN]


@pytest.mark.parametrize("store", [False, True])
async def test_what_waits_for_an_approval_has_not_run(store: bool) -> None:
    shop, given = Shop(), saved(store=store)
    graph = build_graph(ScriptedModel([EVE, PARTIAL]), shop.tools, approvals={"pay": True}, **given)
    await graph.ainvoke(GO, THREAD)
    session = Session(graph, "t", on_pending="supersede")
    await session.arun("Were they paid?")
    assert came((await graph.aget_state(THREAD)).values) == [NOT_RUN]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("change", ["without the tool", "with an approval"])
async def test_a_graph_that_was_built_anew_says_it(change: str, store: bool) -> None:
    shop, given = Shop(), saved(store=store)
    await shop.cut_short(build_graph(ScriptedModel([EVE]), shop.tools, **given))
    if change == "without the tool":
        graph = build_graph(ScriptedModel([PARTIAL]), shop.tools[1:], **given)
    else:
        graph = build_graph(ScriptedModel([PARTIAL]), shop.tools, approvals={"pay": True}, **given)
    assert came(await graph.ainvoke(None, THREAD)) == [UNKNOWN]


@pytest.mark.parametrize("store", [False, True])
async def test_a_finishing_tool_may_have_run(store: bool) -> None:
    shop = Shop()
    hand_in = tool("hand_in")(shop.pay)
    controls = [*standard_controls(), ControlTool(hand_in, "finish")]
    model = ScriptedModel([call("hand_in", to="eve"), PARTIAL])
    graph = build_graph(model, control_tools=controls, **saved(store=store))
    await shop.cut_short(graph)
    assert came(await graph.ainvoke(NEXT, THREAD)) == [UNKNOWN]


@pytest.mark.parametrize("store", [False, True])
async def test_a_delegate_tells_what_may_have_run_below(store: bool) -> None:
    shop = Shop()
    helper = delegate("helper", build_graph(ScriptedModel([[EVE, BOB]]), shop.tools), description="Pays.")
    script = [call("helper", task="Pay them."), PARTIAL]
    graph = build_graph(ScriptedModel(script), [helper], **saved(store=store))
    await shop.cut_short(graph)
    values = await graph.ainvoke(NEXT, THREAD)
    (told,) = [
        message for message in values["messages"] if message.type == "tool" and "delegate" in marks(message)
    ]
    assert [(change["call"], change["came"]) for change in marks(told)["delegate"]["changes"]] == [
        ("pay(to='eve')", UNKNOWN)
    ]


@pytest.mark.parametrize("make", [machine, guarded_agent])
@pytest.mark.parametrize("store", [False, True])
async def test_the_calls_of_an_import_may_have_run_elsewhere(make: Any, store: bool) -> None:
    calls: Any = [{"name": "pay", "args": {"to": name}, "id": name} for name in ("ann", "bob")]
    calls.append({"name": "of_another_program", "args": {}, "id": "x"})
    history: Any = [HumanMessage("Pay them."), AIMessage("", tool_calls=calls), HumanMessage("Were they?")]
    graph = make([PARTIAL], Shop().tools, store=store)
    values = await graph.ainvoke({"messages": history}, THREAD)
    assert came(values) == [UNKNOWN] * 3
    assert outcome_of(values).status == "success"
