"""A tool that returns something which has not run yet: it is awaited, or read out, or an error."""

import asyncio
import functools
import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import build_graph, outcome_of
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.nodes.tool_calls.output import MOST_ITEMS

GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
RAN: list[str] = []
Work = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


async def refund(order: str) -> str:
    """Refund an order."""
    await asyncio.sleep(0)
    RAN.append(order)
    return f"refunded {order}"


def behind(work: Work) -> Work:
    @functools.wraps(work)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    return inner


def piecewise(order: str) -> Iterator[Any]:
    """Refund an order."""
    RAN.append(order)
    yield f"refunded {order}"
    yield "and told"


async def apiecewise(order: str) -> AsyncIterator[Any]:
    """Refund an order."""
    RAN.append(order)
    yield f"refunded {order}"
    yield "and told"


class Later:
    def __init__(self, order: str) -> None:
        self.order = order

    def __iter__(self) -> Iterator[str]:
        return piecewise(self.order)


class Caller:
    """Refund an order."""

    async def __call__(self, order: str) -> str:
        return await refund(order)


class Receipt(NamedTuple):
    status: int
    body: Any


@dataclass
class Envelope:
    body: Any


def says_at_its_end(order: str) -> Generator[str, None, str]:
    """Refund an order."""
    yield "refunding"
    RAN.append(order)
    return f"refunded {order}"


def says_at_once(order: str) -> Generator[str, None, str | None]:
    """Refund an order."""
    RAN.append(order)
    if order:
        return f"refunded {order}"
    yield "never"
    return None


async def of_its_own_loop(order: str) -> AsyncIterator[str]:
    """Refund an order."""
    queue = asyncio.Queue[str]()

    async def fill() -> None:
        await queue.put(await refund(order))

    task = asyncio.create_task(fill())

    async def read() -> AsyncIterator[str]:
        yield await queue.get()
        await task

    return read()


def returns(make: Callable[[str], Any]) -> Work:
    def refund(order: str) -> Any:
        """Refund an order."""
        return make(order)

    return refund


async def of_a_generator(order: str) -> Any:
    """Refund an order."""
    return piecewise(order)


def in_a_pool(order: str) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: next(piecewise(order)))


ONE = "refunded 7"
TWO = "refunded 7\nand told"
UNFINISHED: dict[str, tuple[Work, str]] = {
    "an async function behind a sync decorator": (behind(refund), ONE),
    "a lambda with a coroutine": (returns(lambda order: refund(order)), ONE),
    "a partial of an async function": (returns(functools.partial(refund)), ONE),
    "an object with an async call": (returns(Caller()), ONE),
    "a coroutine of a coroutine": (returns(lambda order: behind(of_a_generator)(order)), TWO),
    "a generator": (piecewise, TWO),
    "an async generator": (apiecewise, TWO),
    "an async function that returns a generator": (of_a_generator, TWO),
    "a map": (returns(lambda order: map(str, piecewise(order))), TWO),
    "an object that can only be iterated": (returns(Later), TWO),
    "a future of a pool": (returns(in_a_pool), ONE),
    "coroutines in a list": (returns(lambda order: [refund(order), 1]), '["refunded 7", 1]'),
    "a generator of coroutines": (returns(lambda order: (refund(order) for _ in range(1))), ONE),
    "coroutines in a dict": (returns(lambda order: {"a": refund(order)}), '{"a": "refunded 7"}'),
    "coroutines deeper": (returns(lambda order: [{"a": [refund(order)]}]), '[{"a": ["refunded 7"]}]'),
    "a coroutine in a tuple with names": (returns(lambda o: Receipt(200, refund(o))), '[200, "refunded 7"]'),
    "a coroutine in a deque": (returns(lambda order: deque([refund(order), 1])), '["refunded 7", 1]'),
    "coroutines in the values of a dict": (
        returns(lambda o: {"a": refund(o), "b": 1}.values()),
        '["refunded 7", 1]',
    ),
    "coroutines in another dict": (returns(lambda o: OrderedDict(a=refund(o))), '{"a": "refunded 7"}'),
    "a generator that returns": (says_at_its_end, "refunding\nrefunded 7"),
    "a generator that only returns": (says_at_once, ONE),
    "an async generator over a queue": (of_its_own_loop, ONE),
    "numbers": (returns(lambda order: (int(order) for _ in piecewise(order))), "[7, 7]"),
}


def as_tool(work: Work) -> BaseTool:
    made = tool(work)
    made.name = "refund"
    return made


def own_class(work: Work) -> BaseTool:
    class Own(BaseTool):
        name: str = "refund"
        description: str = "Refund an order."
        calls: int = 0

        def _run(self, order: str) -> Any:
            self.calls += 1
            return work(order)

    return Own()


def with_artifact(work: Work) -> BaseTool:
    def refund(order: str) -> Any:
        return work(order), {"order": order}

    return StructuredTool.from_function(
        refund, description="Refund an order.", response_format="content_and_artifact"
    )


MADE = {"a function": as_tool, "a class of its own": own_class, "with an artifact": with_artifact}


async def result_of(how: str, made: Any, **settings: Any) -> ToolMessage:
    # A refund that timed out may have taken effect, so that the first claim over it is refused.
    script = ScriptedModel([call("refund", order="7"), FINISH, FINISH])
    agent: Any
    if how.startswith("guards"):
        agent = create_agent(script, [made], middleware=[Guards()], store=InMemoryStore())
    else:
        agent = build_graph(script, [made], **settings)
    given = await asyncio.to_thread(agent.invoke, GO) if how.endswith("sync") else await agent.ainvoke(GO)
    assert given["outcome"]["status"] == "success"
    return next(m for m in given["messages"] if isinstance(m, ToolMessage))


WAYS = ["graph, sync", "graph", "guards, sync", "guards"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("name", UNFINISHED)
@pytest.mark.filterwarnings("error:coroutine:RuntimeWarning")
async def test_what_a_tool_has_only_begun_is_run_to_its_end(name: str, made: str, how: str) -> None:
    work, text = UNFINISHED[name]
    if work in (of_a_generator, of_its_own_loop) and (how, made) == ("guards, sync", "a function"):
        pytest.skip("LangChain's own loop runs no async tool in a sync run")
    result = await result_of(how, MADE[made](work))
    assert (result.status, result.text, set(RAN)) == ("success", text, {"7"})


@pytest.mark.parametrize("how", WAYS)
async def test_a_tool_of_a_class_keeps_what_it_counts(how: str) -> None:
    made: Any = own_class(piecewise)
    await result_of(how, made)
    assert made.calls == 1


Registry = dict[str, type]()


class Listed(BaseTool):
    name: str = "refund"
    description: str = "Refund an order."

    def __init_subclass__(cls, *, code: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if code in Registry:
            raise ValueError(f"two tools are called {code}")
        Registry[code] = cls


class Refund(Listed, code="refund"):
    def _run(self, order: str) -> str:
        RAN.append(order)
        return f"refunded {order}"


@pytest.mark.parametrize("how", WAYS)
async def test_a_tool_of_a_class_that_lists_its_subclasses_runs(how: str) -> None:
    result = await result_of(how, Refund())
    assert (result.status, result.text, list(Registry)) == ("success", ONE, ["refund"])


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
async def test_a_coroutine_that_nobody_can_await_is_an_error(how: str) -> None:
    result = await result_of(how, as_tool(returns(lambda order: Envelope(refund(order)))))
    assert (result.status, RAN) == ("error", [])


@pytest.mark.parametrize("how", WAYS)
async def test_the_id_that_a_tool_gives_its_message_replaces_no_other(how: str) -> None:
    def make(order: str) -> ToolMessage:
        return ToolMessage(f"refunded {order}", tool_call_id="call_0", id="u1")

    work, script = as_tool(returns(make)), [call("refund", order="7"), call("refund", order="8"), FINISH]
    agent: Any
    if how.startswith("guards"):
        agent = create_agent(ScriptedModel(script), [work], middleware=[Guards()])
    else:
        agent = build_graph(ScriptedModel(script), [work])
    given = {"messages": [HumanMessage("go", id="u1")]}
    found = (
        await asyncio.to_thread(agent.invoke, given) if how.endswith("sync") else await agent.ainvoke(given)
    )
    said = [message.text for message in found["messages"] if message.type in ("human", "tool")]
    assert (found["outcome"]["status"], said[:3]) == ("success", ["go", "refunded 7", "refunded 8"])


async def fails(order: str) -> str:
    """Refund an order."""
    raise ValueError("no money")


def fails_late(order: str) -> Iterator[str]:
    """Refund an order."""
    yield "begun"
    raise ValueError("no money")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("work", [behind(fails), fails_late])
async def test_what_fails_then_is_an_error(work: Work, how: str) -> None:
    result = await result_of(how, as_tool(work))
    assert (result.status, result.text) == ("error", "ValueError: no money")


class Own:
    def __repr__(self) -> str:
        return "own"

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it shows itself")


ORDINARY: dict[str, tuple[Any, str]] = {
    "a range": (range(3), "range(0, 3)"),
    "a set": ({1}, "{1}"),
    "bytes": (b"x", "b'x'"),
    "an empty list": ([], "[]"),
    "an empty tuple": ((), "[]"),
    "an empty dict": ({}, "{}"),
    "nothing": (None, "null"),
    "an object that shows itself": (Own(), "own"),
    "sound, by its data": (
        ["heard", {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}],
        "heard\n[audio: audio/wav, 3 bytes] It cannot be shown here.",
    ),
    "rows that look like content": (
        [{"type": "video", "url": "https://x.y", "n": 5}],
        '[{"type": "video", "url": "https://x.y", "n": 5}]',
    ),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ORDINARY)
async def test_an_ordinary_value_is_left_as_it_is(name: str, how: str) -> None:
    value, text = ORDINARY[name]
    assert (await result_of(how, as_tool(returns(lambda order: value)))).text == text


async def without_end() -> AsyncIterator[str]:
    for number in itertools.count():
        yield str(number)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("make", [lambda order: map(str, itertools.count()), lambda order: without_end()])
async def test_what_never_ends_is_read_up_to_a_bound(make: Callable[[str], Any], how: str) -> None:
    result = await result_of(how, as_tool(returns(make)))
    assert result.status == "success"
    assert result.text.startswith("0\n1\n2\n")
    assert f"more than {MOST_ITEMS:,} items" in result.text


async def adrips() -> AsyncIterator[str]:
    for _ in range(40):
        RAN.append("drip")
        await asyncio.sleep(0.05)
        yield "drip"


async def waits() -> str:
    for _ in range(40):
        RAN.append("drip")
        await asyncio.sleep(0.05)
    return "late"


@pytest.mark.parametrize("how", ["graph, sync", "graph"])
@pytest.mark.parametrize("make", [adrips, waits])
async def test_the_time_limit_ends_it(make: Callable[[], Any], how: str) -> None:
    result = await result_of(how, as_tool(returns(lambda order: make())), tool_seconds=0.2)
    assert result.status == "error"
    assert "0.2 seconds" in result.text
    await asyncio.sleep(0.8)
    ran = len(RAN)
    await asyncio.sleep(0.3)
    assert (len(RAN), ran < 40) == (ran, True), "nothing of it goes on"


async def test_a_coroutine_runs_in_the_loop_of_an_async_run() -> None:
    found = list[Any]()

    async def where(order: str) -> str:
        found.append((asyncio.get_running_loop(), threading.current_thread()))
        return "here"

    for how in ("graph", "guards"):
        await result_of(how, as_tool(returns(where)))
    assert found == [(asyncio.get_running_loop(), threading.current_thread())] * 2


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_effect_that_was_only_begun_is_not_done(mode: str) -> None:
    graph = build_graph(
        ScriptedModel([call("refund", order="7"), FINISH]),
        [as_tool(behind(fails))],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    given = (
        await asyncio.to_thread(graph.invoke, GO, config)
        if mode == "sync"
        else await graph.ainvoke(GO, config)
    )
    assert [change.came for change in outcome_of(given).changes] == ["error"]
