"""Running calls: in order, beside each other where that is safe, and always with a result."""

import asyncio
import threading
import time
from inspect import iscoroutinefunction
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call

FINISH = call("finish_task", summary="x")


def run(tools: list[Any], *script: Any, **settings: Any) -> list[ToolMessage]:
    """The results of the calls before the finish."""
    with ScriptedModel([*script, FINISH]) as model:
        result = build_graph(model, tools, **settings).invoke({"messages": ["go"]})
    assert result["outcome"]["status"] == "success"
    return [message for message in result["messages"] if isinstance(message, ToolMessage)][:-1]


def of_kind(kind: str, work: Any) -> BaseTool:
    made = StructuredTool.from_function(work)
    made.metadata = {"kind": kind}
    return made


class Together:
    """Notes how many calls ran at the same moment."""

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def look(self, at: int) -> str:
        """Look."""
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.3)
        with self.lock:
            self.now -= 1
        return str(at)


@pytest.mark.parametrize(("kind", "calls", "most"), [("read", 5, 5), ("read", 20, 8), ("write", 3, 1)])
def test_reads_run_beside_each_other_and_all_else_alone(kind: str, calls: int, most: int) -> None:
    together = Together()
    results = run([of_kind(kind, together.look)], [call("look", at=i) for i in range(calls)])
    assert together.most == most
    assert [message.text for message in results] == [str(i) for i in range(calls)]


def reads(work: Any, calls: int, **settings: Any) -> tuple[float, list[ToolMessage]]:
    """How long the calls took, and their results, in a loop where `work` is async, else without one."""
    made = StructuredTool.from_function(**{"coroutine" if iscoroutinefunction(work) else "func": work})
    made.metadata = {"kind": "read"}
    script: Any = [[call(made.name, at=i) for i in range(calls)], FINISH]
    graph = build_graph(ScriptedModel(script), [made], **settings)
    given, began = {"messages": ["go"]}, time.monotonic()
    result = asyncio.run(graph.ainvoke(given)) if iscoroutinefunction(work) else graph.invoke(given)
    took = time.monotonic() - began
    return took, [m for m in result["messages"] if isinstance(m, ToolMessage)][:-1]


@pytest.mark.parametrize(("parallel", "most"), [(None, 20), (3, 3), (1, 1)])
def test_coroutines_are_bounded_only_where_it_is_said(parallel: int | None, most: int) -> None:
    now, seen = 0, 0

    async def look(at: int) -> str:
        """Look."""
        nonlocal now, seen
        now += 1
        seen = max(seen, now)
        await asyncio.sleep(0.02)
        now -= 1
        return str(at)

    _, results = reads(look, 20, parallel=parallel)
    assert seen == most
    assert [message.text for message in results] == [str(i) for i in range(20)]


def test_sync_tools_have_the_same_bound_in_an_event_loop() -> None:
    together = Together()
    look = of_kind("read", together.look)
    graph = build_graph(ScriptedModel([[call("look", at=i) for i in range(12)], FINISH]), [look], parallel=5)
    asyncio.run(graph.ainvoke({"messages": ["go"]}))
    assert together.most == 5


def test_the_next_read_begins_as_soon_as_one_has_ended() -> None:
    """One that takes long keeps only its own place: in waves the others would wait for it."""
    ended = dict[int, float]()

    def look(at: int) -> str:
        """Look."""
        time.sleep(1.2 if at == 0 else 0.1)
        ended[at] = time.monotonic()
        return str(at)

    _, results = reads(look, 6, parallel=2)
    assert [message.text for message in results] == [str(i) for i in range(6)]
    assert max(ended[at] for at in range(1, 6)) < ended[0]


@pytest.mark.timed
def test_a_read_that_is_late_gives_its_place_up() -> None:
    let_go = threading.Event()

    def look(at: int) -> str:
        """Look."""
        return str(at) if at else str(let_go.wait(30))

    took, results = reads(look, 4, parallel=1, tool_seconds=0.3)
    let_go.set()
    assert took < 10
    assert [message.status for message in results] == ["error", "success", "success", "success"]


def test_what_has_not_begun_does_not_begin_once_one_asks() -> None:
    """The reads before the one that pauses run again when it is answered; those after it run once."""
    begun = list[int]()

    def look(at: int) -> str:
        """Look."""
        begun.append(at)
        return interrupt("which?") if at == 1 else str(at)

    made = of_kind("read", look)
    config: Any = {"configurable": {"thread_id": "t"}}
    model = ScriptedModel([[call("look", at=i) for i in range(6)], FINISH])
    graph = build_graph(model, [made], parallel=1, checkpointer=InMemorySaver())
    graph.invoke({"messages": ["go"]}, config)
    assert begun == [0, 1]
    result = graph.invoke(Command(resume="that"), config)
    assert begun == [0, 1, 0, 1, 2, 3, 4, 5]
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)][:3] == ["0", "that", "2"]


@pytest.mark.parametrize("given", [0, -1, 1.5, "8", True])
def test_a_bound_that_is_none_is_told(given: Any) -> None:
    with pytest.raises(SetupError, match=r"parallel is .*; pass a whole number above 0, or None"):
        build_graph(ScriptedModel([]), parallel=given)


@pytest.mark.timed
def test_a_tool_that_hangs_is_given_up_on() -> None:
    let_go = threading.Event()

    def hang() -> str:
        """Hang."""
        let_go.wait(30)
        return "late"

    began = time.monotonic()
    # A claim over what is not known is refused once.
    (result, _) = run([hang], call("hang"), FINISH, tool_seconds=0.2)
    let_go.set()
    assert time.monotonic() - began < 10
    assert result.status == "error"
    assert result.text.startswith("hang did not come back within 0.2 seconds")


async def test_an_async_tool_that_hangs_is_given_up_on() -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(30)
        return "late"

    with ScriptedModel([call("hang"), FINISH, FINISH]) as model:
        result = await build_graph(model, [hang], tool_seconds=0.2).ainvoke({"messages": ["go"]})
    assert result["outcome"]["status"] == "success"
    assert "did not come back" in result["messages"][2].text


def raises(error: BaseException) -> Any:
    def work() -> str:
        """Work."""
        raise error

    return work


ERRORS = {
    "an error names its type": (raises(ValueError("no luck")), "ValueError: no luck"),
    "a tool's own message stands alone": (raises(ToolException("No such file.")), "No such file."),
    "leaving the program is an error too": (raises(SystemExit(3)), "SystemExit: 3"),
    "a timeout of the tool's own": (raises(TimeoutError("too slow")), "TimeoutError: too slow"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_a_result(name: str) -> None:
    work, text = ERRORS[name]
    (result,) = run([work], call("work"))
    assert (result.status, result.text) == ("error", text)


RETURNS: list[tuple[Any, str]] = [
    ({"a": 1}, '{"a": 1}'),
    (None, "null"),
    (7, "7"),
    ([1, 2], "[1, 2]"),
    ("", ""),
    ("\ud800 lone", "\ufffd lone"),
]


@pytest.mark.parametrize(("value", "text"), RETURNS)
def test_what_is_no_string_becomes_text(value: Any, text: str) -> None:
    def work() -> Any:
        """Work."""
        return value

    (result,) = run([work], call("work"))
    assert (result.status, result.text) == ("success", text)


def test_an_oversized_result_loses_its_middle_and_is_kept(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def work() -> str:
        """Work."""
        return "a" * 50_000 + "z" * 50_000

    (result,) = run([work], call("work"), result_chars=1_000)
    assert len(result.text) <= 1_000
    assert result.text.startswith("aaa")
    assert result.text.endswith("zzz")
    (kept,) = tmp_path.rglob("call_1-*.txt")
    assert str(kept) in result.text
    assert len(kept.read_text()) == 100_000


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_async_tools_run_in_both_ways(mode: str) -> None:
    @tool
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0)
        return "worked"

    with ScriptedModel([call("work"), FINISH]) as model:
        graph = build_graph(model, [work])
        result = (
            graph.invoke({"messages": ["a"]}) if mode == "sync" else await graph.ainvoke({"messages": ["a"]})
        )
    assert result["messages"][2].text == "worked"


@pytest.mark.timed
async def test_a_slow_sync_tool_does_not_hold_up_other_runs() -> None:
    def work() -> str:
        """Work."""
        time.sleep(1)
        return "worked"

    def graph() -> Any:
        return build_graph(ScriptedModel([call("work"), FINISH]), [work])

    began = time.monotonic()
    await asyncio.gather(*(graph().ainvoke({"messages": ["go"]}) for _ in range(10)))
    assert time.monotonic() - began < 7
