"""Tools that are called without LangChain's callbacks, and the threads in which they run."""

import copy
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer

from signoff import build_graph
from signoff.graph.inside.speed import acall as acall_plain
from signoff.graph.inside.speed import call as call_plain
from signoff.graph.inside.speed import in_thread, plain_tools
from signoff.graph.messages import append_messages, lineage
from signoff.models import ScriptedModel, call
from signoff.nodes.tool_calls.output import aread, read


def made(**given: Any) -> BaseTool:
    def act(n: int = 1) -> Any:
        """Act."""
        return n

    return StructuredTool.from_function(act, **given)


@tool
def configured(n: int, config: RunnableConfig) -> str:
    """Act."""
    return str(n)


@tool
def with_callbacks(n: int, callbacks: Any) -> str:
    """Act."""
    return str(n)


@tool
async def only_async(n: int) -> str:
    """Act."""
    return str(n)


async def _configured(n: int, config: RunnableConfig) -> str:
    return str(n)


def _twice(n: int) -> str:
    """Act."""
    return str(n)


both_ways = StructuredTool.from_function(_twice, _configured, name="both_ways")


@pytest.mark.parametrize(
    ("one", "plain"),
    [
        (made(), True),
        (made(handle_tool_error=True), False),
        (made(handle_validation_error=True), False),
        (made(response_format="content_and_artifact"), False),
        (made(callbacks=[BaseCallbackHandler()]), False),
        (made(verbose=True), False),
        (made(args_schema={"type": "object", "properties": {}}), False),
        (configured, False),
        (with_callbacks, False),
        (only_async, True),
        (both_ways, False),
    ],
)
def test_which_tools_are_plain(one: BaseTool, plain: bool) -> None:
    assert (one.name in plain_tools([one])) is plain


def message(given: Any) -> Any:
    """A text as `invoke` gives it."""
    return ToolMessage(given, name="act", tool_call_id="c1") if isinstance(given, str) else given


@pytest.mark.parametrize(
    "output", ["text", "", 7, None, {"a": 1}, ["x"], [{"type": "text", "text": "x"}], ()]
)
def test_what_a_plain_tool_gives_is_what_invoke_gives(output: Any) -> None:
    def act(n: int) -> Any:
        """Act."""
        return output

    one = StructuredTool.from_function(act)
    request = ToolCall(name="act", args={"n": "3"}, id="c1", type="tool_call")
    assert message(call_plain(one, request, read)) == one.invoke(request)


@pytest.mark.parametrize("output", ["text", None, {"a": 1}, [{"type": "text", "text": "x"}]])
async def test_what_a_plain_async_tool_gives_is_what_ainvoke_gives(output: Any) -> None:
    async def act(n: int) -> Any:
        """Act."""
        return output

    one = StructuredTool.from_function(coroutine=act)
    request = ToolCall(name="act", args={"n": "3"}, id="c1", type="tool_call")
    assert message(await acall_plain(one, request, aread)) == await one.ainvoke(request)


def test_what_a_plain_tool_raises_is_what_invoke_raises() -> None:
    def act(n: int) -> Any:
        """Act."""
        raise ToolException("no")

    one = StructuredTool.from_function(act)
    for args in ({"n": 1}, {"n": "x"}, {}):
        request = ToolCall(name="act", args=args, id="c1", type="tool_call")
        raised = []
        for run in (partial(call_plain, one, read=read), one.invoke):
            with pytest.raises(Exception) as told:  # noqa: PT011  the two are compared
                run(request)
            raised.append((type(told.value), str(told.value)))
        assert raised[0] == raised[1]


class Plain(BaseModel):
    n: int
    near: list[int] = []


class Renamed(BaseModel):
    n: int = Field(alias="number")


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")

    n: int


class Hidden(BaseModel):
    n: int = Field(default=3, exclude=True)


class Written(BaseModel):
    n: int = 3

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {}


class Doubled(Plain):
    @field_validator("n")
    @classmethod
    def _double(cls, given: int) -> int:
        return 2 * given


def of_schema(schema: type[BaseModel]) -> StructuredTool:
    def act(**given: Any) -> Any:
        return repr(sorted(given.items()))

    return StructuredTool.from_function(act, name="act", description="Act.", args_schema=schema)


def of_function(act: Callable[..., Any]) -> StructuredTool:
    return StructuredTool.from_function(act, name="act", description="Act.")


def plainly(n: int, near: list[int] | None = None, *, much: float = 1.5) -> str:
    return repr((n, near, much))


def variadic(n: int, *args: int, **kwargs: int) -> str:
    return repr((n, args, kwargs))


def identified(n: int, call_id: Annotated[str, InjectedToolCallId]) -> str:
    return repr((n, call_id))


def injected(n: int, key: Annotated[str, InjectedToolArg] = "none") -> str:
    return repr((n, key))


ARGUMENTS: dict[str, tuple[StructuredTool, bool]] = {
    "a function": (of_function(plainly), True),
    "variadic": (of_function(variadic), False),
    "with the call's id": (of_function(identified), False),
    "with an injected argument": (of_function(injected), False),
    "a schema of more than the function": (of_schema(Plain), False),
    "another name outside": (of_schema(Renamed), False),
    "any further argument": (of_schema(Wide), False),
    "left out when written": (of_schema(Hidden), False),
    "written by code of its own": (of_schema(Written), False),
    "a validator": (of_schema(Doubled), False),
    "a schema of the function's": (
        StructuredTool.from_function(
            lambda n, near: repr((n, near)), name="act", description="Act.", args_schema=Plain
        ),
        True,
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "args",
    [
        {"n": 1},
        {"n": "7", "near": ["1", 2]},
        {"number": 4},
        {"n": 1, "more": 2, "key": "given"},
        {"n": None},
        {},
        {"n": 1, "args": [1], "kwargs": {"a": 2}},
    ],
    ids=repr,
)
def test_a_plain_tool_gets_the_arguments_that_invoke_gives_it(name: str, args: dict[str, Any]) -> None:
    one, quick = ARGUMENTS[name]
    found = plain_tools([one])
    assert (found["act"] is not None) is quick

    def outcome(way: Callable[[ToolCall], Any]) -> Any:
        try:
            return message(way(ToolCall(name="act", args={**args}, id="c1", type="tool_call")))
        except Exception as error:  # noqa: BLE001  the two are compared
            return type(error), str(error)

    assert outcome(lambda request: call_plain(one, request, read, found["act"])) == outcome(one.invoke)


def test_a_listener_hears_of_the_tool_all_the_same() -> None:
    heard: list[str] = []

    class Ear(BaseCallbackHandler):
        def on_tool_start(self, serialized: dict[str, Any], *_: Any, **__: Any) -> None:
            heard.append(serialized["name"])

    script = [call("act", n=1), call("finish_task", summary="Done.")]
    graph = build_graph(ScriptedModel(script), [made()])
    graph.invoke({"messages": [("user", "go")]}, {"callbacks": [Ear()]})
    assert heard == ["act"]


class TestThreads:
    def test_one_that_is_free_is_used_again(self) -> None:
        names = [_run(threading.get_ident) for _ in range(5)]
        assert len(set(names)) < 5

    def test_one_that_hangs_holds_up_nothing(self) -> None:
        free, begun = threading.Event(), threading.Event()

        def hang() -> None:
            begun.set()
            free.wait(30)

        in_thread(hang)
        assert begun.wait(5)
        assert _run(lambda: 7) == 7
        free.set()

    def test_a_hundred_at_once(self) -> None:
        barrier = threading.Barrier(101)
        for _ in range(100):
            in_thread(lambda: barrier.wait(30))
        barrier.wait(30)


def _run(work: Callable[[], int]) -> int:
    done, found = threading.Event(), list[int]()

    def store() -> None:
        found.append(work())
        done.set()

    in_thread(store)
    assert done.wait(5)
    return found[0]


class TestHistory:
    """The list that the reducer makes knows how it grew."""

    base = append_messages(None, [[HumanMessage("a", id="1"), AIMessage("b", id="2")]])

    def test_what_is_appended_to_has_the_lineage_of_what_it_was(self) -> None:
        base = append_messages(None, [[HumanMessage("a", id="1")]])
        grown = append_messages(base, [[AIMessage("b", id="2")], [AIMessage("c", id="3")]])
        assert lineage(grown) is lineage(base) is not None
        assert grown[:1] == base

    @pytest.mark.parametrize(
        "write", [AIMessage("new", id="2"), RemoveMessage(id="2"), RemoveMessage(id="9")]
    )
    def test_what_was_changed_has_not(self, write: Any) -> None:
        base = append_messages(None, [[HumanMessage("a", id="1"), AIMessage("b", id="2")]])
        assert lineage(append_messages(base, [[write]])) is not lineage(base)

    def test_of_two_that_grew_from_one_only_the_first_has_it(self) -> None:
        base = append_messages(None, [[HumanMessage("a", id="1")]])
        left, right = (append_messages(base, [[AIMessage(text, id=text)]]) for text in ("left", "right"))
        assert lineage(left) is lineage(base)
        assert lineage(right) is not lineage(base)
        assert [m.id for m in right] == ["1", "right"]
        assert [m.id for m in append_messages(right, [[AIMessage("left", id="left")]])] == [
            "1",
            "right",
            "left",
        ]

    @pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_a_copy_is_a_list_like_any_other(self, way: Callable[[Any], Any]) -> None:
        found = way(self.base)
        assert type(found) is list
        assert found == self.base
        assert lineage(found) is None

    def test_it_is_saved_as_a_list(self) -> None:
        serde = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)
        found = serde.loads_typed(serde.dumps_typed(self.base))
        assert type(found) is list
        assert found == self.base

    def test_a_result_takes_its_place_in_a_long_one(self) -> None:
        messages = append_messages(None, [[AIMessage("", id=str(n))] for n in range(100)])
        changed = append_messages(messages, [[ToolMessage("x", id="50", tool_call_id="c")]])
        assert [m.id for m in changed] == [m.id for m in messages]
        assert changed[50].content == "x"


WHERE: dict[str, tuple[list[str], float | None, bool]] = {
    "alone, without a limit": (["where"], None, True),
    "alone, with a limit": (["where"], 60.0, False),
    "beside another, without a limit": (["where", "where"], None, False),
    "async alone, without a limit": (["where_async"], None, False),
}


@pytest.mark.parametrize("name", WHERE)
async def test_only_a_call_that_may_take_as_long_as_it_likes_needs_no_thread(name: str) -> None:
    """In a sync run inside of a running event loop, where an async tool cannot be run at once, either."""
    names, seconds, here = WHERE[name]
    found: list[bool] = []

    @tool
    def where() -> str:
        """Say where."""
        found.append(threading.current_thread() is threading.main_thread())
        return "ran"

    @tool
    async def where_async() -> str:
        """Say where."""
        found.append(threading.current_thread() is threading.main_thread())
        return "ran"

    where.metadata = where_async.metadata = {"kind": "read"}
    calls = [call(name) for name in names]
    with ScriptedModel([calls, call("finish_task", summary="Done.")]) as model:
        result = build_graph(model, [where, where_async], tool_seconds=seconds).invoke({"messages": ["go"]})
    results = [m.content for m in result["messages"] if isinstance(m, ToolMessage)]
    assert results[: len(calls)] == ["ran"] * len(calls)
    assert found == [here] * len(calls)
