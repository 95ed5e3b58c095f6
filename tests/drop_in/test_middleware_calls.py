"""What wraps calls of the model and of tools: LangChain's `wrap_model_call` and `wrap_tool_call`."""

import asyncio
import operator
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import factory
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelResponse,
    ToolRetryMiddleware,
    dynamic_prompt,
    wrap_model_call,
    wrap_tool_call,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from signoff import ControlTool, Effect, Limits, build_graph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from signoff.nodes.journal import DONE
from signoff.nodes.middleware.model_calls import Composed, Failures, alayer, layer

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
CONTROLS = ["finish_task", "ask_user", "think"]
RULES = "`finish_task` alone, after the last result"
CALLED: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()


@tool
def look(at: str = "it") -> str:
    """Look."""
    CALLED.append(at)
    return f"seen {at}"


look.metadata = {"kind": "read"}


@tool
def pay(amount: int) -> str:
    """Pay."""
    CALLED.append(amount)
    if amount > 5:
        raise ValueError("too much")
    return f"paid {amount}"


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def both(does: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """A middleware around model calls, in both ways: `does` is written once, as if nothing were awaited."""

    class Around(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return does(request, handler)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await _awaited(does, request, handler)

    return Around()


def around_tools(does: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """The same around calls of tools."""

    class AroundTools(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return does(request, handler)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await _awaited(does, request, handler)

    return AroundTools()


async def _awaited(does: Callable[..., Any], request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """Runs `does` beside the loop, in which its handler is awaited."""
    loop = asyncio.get_running_loop()

    def wait(request: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(handler(request), loop).result()  # type: ignore[arg-type]  # it is a coroutine

    return await asyncio.to_thread(does, request, wait)


def graph(steps: Sequence[Step] | ScriptedModel, *given: Any, **options: Any) -> Graph:
    model = steps if isinstance(steps, ScriptedModel) else ScriptedModel(steps)
    return build_graph(model, [look, pay], middleware=list(given), **options)


def run(built: Graph, given: Any = GO, way: str = "sync", **options: Any) -> dict[str, Any]:
    config = THREAD if built.checkpointer else None
    if way == "sync":
        return dict(built.invoke(given, config, **options))
    return dict(asyncio.run(built.ainvoke(given, config, **options)))


def ended(found: dict[str, Any]) -> tuple[str, str]:
    return found["outcome"]["status"], found["outcome"]["reason"]


def results(found: dict[str, Any]) -> list[str]:
    return [message.text for message in found["messages"] if message.type == "tool"]


OTHER = ScriptedModel([FINISH] * 40)


def prompt_of(model: ScriptedModel) -> str:
    return model.seen[0].messages[0].text


# What is put into the request, and what the first model call then is.
OVERRIDES: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[ScriptedModel], Any], Any]] = {
    "nothing": (lambda r: {}, lambda m: m.seen[0].tool_names, ["look", "pay", *CONTROLS]),
    "fewer tools": (
        lambda r: {"tools": [t for t in r.tools if t.name == "pay"]},
        lambda m: m.seen[0].tool_names,
        ["pay", *CONTROLS],
    ),
    "no tools": (lambda r: {"tools": []}, lambda m: m.seen[0].tool_names, CONTROLS),
    "a tool in other words": (
        lambda r: {"tools": [r.tools[0].model_copy(update={"description": "Mine."})]},
        lambda m: m.seen[0].tools[0]["function"]["description"],
        "Mine.",
    ),
    "a provider's own tool": (
        lambda r: {"tools": [*r.tools, {"type": "web_search"}]},
        lambda m: m.seen[0].tool_names,
        ["look", "pay", "web_search", *CONTROLS],
    ),
    "other messages": (
        lambda r: {"messages": [*r.messages, HumanMessage("P.S.")]},
        lambda m: [one.content for one in m.seen[0].messages[1:]],
        [[{"type": "text", "text": "go"}, {"type": "text", "text": "P.S."}]],
    ),
    "another prompt": (
        lambda r: {"system_message": SystemMessage("Be brief.")},
        lambda m: ("Be brief." in prompt_of(m), "Be kind." in prompt_of(m), RULES in prompt_of(m)),
        (True, False, True),
    ),
    "a longer prompt, in blocks": (
        lambda r: {
            "system_message": SystemMessage(
                content_blocks=[*r.system_message.content_blocks, {"type": "text", "text": "Be brief."}]
            )
        },
        lambda m: [word in prompt_of(m) for word in ("Be kind.", "Be brief.", RULES)],
        [True, True, True],
    ),
    "no prompt": (
        lambda r: {"system_message": None},
        lambda m: ("Be kind." in prompt_of(m), RULES in prompt_of(m)),
        (False, True),
    ),
    "a tool choice": (lambda r: {"tool_choice": "pay"}, lambda m: m.seen[0].tool_choice, "pay"),
    "settings": (
        lambda r: {"model_settings": {"temperature": 0.5}},
        lambda m: m.seen[0].kwargs.get("temperature"),
        0.5,
    ),
    "another model": (lambda r: {"model": OTHER}, lambda m: len(m.seen), 0),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", OVERRIDES)
def test_what_is_put_into_a_request_is_sent_and_changes_no_history(case: str, way: str) -> None:
    """The rules of the loop and the control tools are always told."""
    changes, looks, wanted = OVERRIDES[case]
    model = ScriptedModel([FINISH])
    given = both(lambda request, handler: handler(request.override(**changes(request))))
    found = run(graph(model, given, system_prompt="Be kind."), way=way)
    assert looks(model) == wanted
    assert ended(found) == ("success", "finish_task")
    assert [m.type for m in found["messages"]][:3] == ["human", "ai", "tool"]


def test_a_request_holds_what_the_graph_would_ask() -> None:
    seen: list[Any] = []
    model = ScriptedModel([call("look"), FINISH])

    def looks(request: Any, handler: Any) -> Any:
        seen.append(request)
        return handler(request)

    run(graph(model, both(looks), system_prompt="Be kind."))
    first, second = seen
    assert first.model is model
    assert (first.system_prompt, [t.name for t in first.tools]) == ("Be kind.", ["look", "pay"])
    assert [m.type for m in second.messages] == ["human", "ai", "tool"]
    assert second.state["messages"][0].text == "go"
    assert (first.tool_choice, first.response_format, first.model_settings) == (None, None, {})
    assert first.runtime.context is None


def test_the_ladder_of_replies_without_a_call_goes_before_a_tool_choice() -> None:
    model = ScriptedModel(["words"] * 4 + [FINISH])
    given = both(lambda r, handler: handler(r.override(tools=r.tools[:1], tool_choice="auto")))
    assert ended(run(graph(model, given))) == ("success", "finish_task")
    asked = [(one.tool_choice, one.tool_names) for one in model.seen]
    assert (
        asked
        == [("auto", ["look", *CONTROLS])] * 3
        + [
            ("required", ["look", *CONTROLS]),
        ]
        * 2
    )


def said(text: str) -> Callable[[Any, Any], Any]:
    return lambda request, handler: AIMessage(text)


def twice(request: Any, handler: Any) -> Any:
    handler(request)
    return handler(request)


def first_of_two(request: Any, handler: Any) -> Any:
    found = handler(request)
    handler(request)
    return found


def reworded(request: Any, handler: Any) -> Any:
    found = handler(request)
    return ModelResponse(result=[found.result[0].model_copy(update={"content": "reworded"})])


def anew(request: Any, handler: Any) -> Any:
    calls = handler(request).result[0].tool_calls
    return AIMessage("anew", tool_calls=calls)


def answered(request: Any, handler: Any) -> Any:
    found = handler(request)
    calls = [one for one in found.result[0].tool_calls if one["name"] == "pay"]
    told = [ToolMessage("answered", tool_call_id=one["id"]) for one in calls]
    return ModelResponse(result=[*found.result, *told])


USAGE = (100, 10)


def used(step: Any) -> Step:
    return reply(step, usage=USAGE)


# The script, each step of which costs 110 tokens; turns, tokens, what was called.
ANSWERS: dict[str, tuple[Callable[[Any, Any], Any], int, int, int, list[Any]]] = {
    "twice": (twice, 4, 2, 440, [2]),
    "twice, and the first counts": (first_of_two, 4, 2, 440, [1]),
    "in other words": (reworded, 3, 3, 330, [1, 2]),
    "as another message": (anew, 3, 3, 330, [1, 2]),
    "with results": (answered, 3, 3, 330, []),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", ANSWERS)
def test_a_reply_is_one_turn_and_all_that_came_counts(case: str, way: str) -> None:
    does, steps, turns, spent, called = ANSWERS[case]
    script = [used(call("pay", amount=1)), used(call("pay", amount=2)), used(FINISH), used(FINISH)][:steps]
    found = run(graph(script, both(does), **saved()), way=way)
    outcome = found["outcome"]
    assert (ended(found), outcome["turns"], CALLED) == (("success", "finish_task"), turns, called)
    assert outcome["usage"]["total_tokens"] == spent


def test_a_reply_of_its_own_costs_nothing() -> None:
    model = ScriptedModel([FINISH])
    asked: list[int] = []

    def cached(request: Any, handler: Any) -> Any:
        asked.append(1)
        return AIMessage("from the cache") if len(asked) == 1 else handler(request)

    found = run(graph(model, both(cached)))
    assert (found["outcome"]["turns"], len(model.seen)) == (2, 1)
    alone = run(graph([FINISH]))["outcome"]["usage"]["output_tokens"]
    assert found["outcome"]["usage"]["output_tokens"] == alone


def test_a_limit_of_tokens_holds_for_what_a_middleware_asks_for_again() -> None:
    def for_ever(request: Any, handler: Any) -> Any:
        for _ in range(50):
            found = handler(request)
            if found.result[0].response_metadata.get("signoff", {}).get("ended"):
                return found
        raise AssertionError("it was never ended")

    model = ScriptedModel(["word " * 100] * 60)
    found = run(graph(model, both(for_ever), limits=Limits(tokens=1_000)))
    assert ended(found) == ("limit", "tokens")
    assert len(model.seen) < 20


# How a middleware makes the reply anew that it was given.
COPIES: dict[str, Callable[[AIMessage], AIMessage]] = {
    "with its id": lambda one: AIMessage(one.content, id=one.id, tool_calls=one.tool_calls),
    "without": lambda one: AIMessage(one.content, tool_calls=one.tool_calls),
}


@pytest.mark.parametrize("streaming", ["always", "never"])
@pytest.mark.parametrize("case", COPIES)
def test_a_reply_that_was_cut_off_is_whole_in_no_copy_of_its_calls(case: str, streaming: Any) -> None:
    around = both(lambda request, handler: COPIES[case](handler(request).result[0]))
    model = ScriptedModel([reply(call("pay", amount=5), finish_reason="length"), FINISH])
    found = run(graph(model, around, streaming=streaming))
    results = [message.text for message in found["messages"] if message.type == "tool"]
    assert (CALLED, "the reply was cut off" in results[0]) == ([], True)
    assert found["outcome"]["models"] == {"scripted": 2}


BAD: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a text": (lambda r, h: "done", "returned a str; it must return a ModelResponse"),
    "no message": (lambda r, h: ModelResponse(result=[]), "returned nothing; it must return one AIMessage"),
    "a person's message": (
        lambda r, h: ModelResponse(result=[HumanMessage("no")]),
        "returned HumanMessage; it must return one AIMessage",
    ),
    "a tool that nobody has": (
        lambda r, h: h(r.override(tools=[tool(lambda: 1, description="x")])),
        "which the graph does not have",
    ),
    "a format of the answer": (
        lambda r, h: h(r.override(response_format=dict)),
        "pass response_format= to build_graph",
    ),
    "an error": (lambda r, h: 1 / 0, " failed (ZeroDivisionError: division by zero)"),
    "an error like one of a server": (lambda r, h: dict[str, int]()["x"], " failed (KeyError: 'x')"),
    "an error after the reply": (lambda r, h: [h(r), int("x")], " failed (ValueError: invalid literal"),
    "a way to elsewhere": (
        lambda r, h: ExtendedModelResponse(h(r), Command(goto="finish")),
        "a Command with goto",
    ),
    "a jump": (
        lambda r, h: ExtendedModelResponse(h(r), Command(update={"jump_to": "end"})),
        "jump in before_model",
    ),
    "an unknown channel": (
        lambda r, h: ExtendedModelResponse(h(r), Command(update={"typo": 1})),
        "the channel 'typo' cannot take",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_the_outcome_model_error(case: str) -> None:
    does, told = BAD[case]
    found = run(graph([FINISH], both(does)))
    assert ended(found) == ("error", "model_error")
    assert told in found["outcome"]["error"]
    assert "server" not in found["outcome"]["error"]


class Noting(AgentState[Any]):
    notes: Annotated[list[str], operator.add]


def test_a_command_beside_the_reply_is_written_with_it() -> None:
    def notes(request: Any, handler: Any) -> Any:
        update = {"notes": ["asked"], "messages": [HumanMessage("Noted.")]}
        return ExtendedModelResponse(handler(request), Command(update=update))

    given = both(notes)
    type(given).state_schema = Noting
    found = run(graph([call("look"), FINISH], given, **saved()))
    assert found["notes"] == ["asked", "asked"]
    assert found["outcome"]["turns"] == 2
    assert [m.text for m in found["messages"] if m.type == "human"] == ["go", "Noted.", "Noted."]


def test_the_inner_guard_ends_the_reply_at_a_finish() -> None:
    model = ScriptedModel([["x", FINISH, call("pay", amount=1), call("pay", amount=2)]])
    found = run(graph(model, both(lambda r, handler: handler(r))))
    plain = ScriptedModel([["x", FINISH, call("pay", amount=1), call("pay", amount=2)]])
    run(graph(plain))
    assert model.chunks_sent == plain.chunks_sent
    assert (ended(found), CALLED) == (("success", "finish_task"), [])


def test_a_silent_model_is_an_error_that_a_middleware_can_take() -> None:
    slow, quick = ScriptedModel([FINISH, FINISH], delay=5.0), ScriptedModel([FINISH])

    def falls_back(request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except TimeoutError:
            return handler(request.override(model=quick))

    built = graph(slow, both(falls_back), model_seconds=0.2, model_retries=None)
    assert (ended(run(built)), len(quick.seen)) == (("success", "finish_task"), 1)


def test_fallbacks_of_the_graph_stand_behind_fewer_tools() -> None:
    first, second = ScriptedModel([ConnectionError("down")]), ScriptedModel([FINISH])
    given = both(lambda r, handler: handler(r.override(tools=[])))
    found = run(graph(first, given, fallbacks=[second], model_retries=None))
    assert (ended(found), second.seen[0].tool_names) == (("success", "finish_task"), CONTROLS)


def test_a_request_names_the_tools_that_the_graph_picks_and_those_of_the_provider() -> None:
    seen: list[Any] = []

    def looks(request: Any, handler: Any) -> Any:
        seen.append([one if isinstance(one, dict) else one.name for one in request.tools])
        return handler(request if len(seen) < 2 else request.override(tools=[look]))

    model = ScriptedModel([call("pay", amount=1), FINISH])
    search = {"type": "web_search"}
    pick = lambda state, context: ["pay", "web_search"]  # noqa: E731  as a caller writes it
    given: Any = [look, pay, search]
    build_graph(model, given, middleware=[both(looks)], select_tools=pick).invoke(GO)
    assert seen == [["pay", search]] * 2
    assert model.seen[0].tool_names == ["pay", "web_search", *CONTROLS]
    assert model.seen[1].tool_names == ["look", *CONTROLS]


class Layered(AgentMiddleware[Any, Any, Any]):
    """Asks `times` times, and gives a command of its own where it has a name for it."""

    def __init__(self, name: str, times: int, log: list[str]) -> None:
        super().__init__()
        self._name, self.times, self.log = name, times, log

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        for _ in range(self.times):
            self.log.append(self.name)
            found = handler(request)
        if self.name.islower():
            return found.result[0]
        return ExtendedModelResponse(found, Command(update={"by": f"{self.name}{len(self.log)}"}))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        for _ in range(self.times):
            self.log.append(self.name)
            found = await handler(request)
        if self.name.islower():
            return found.result[0]
        return ExtendedModelResponse(found, Command(update={"by": f"{self.name}{len(self.log)}"}))


STACKS = ["A", "AB", "ABC", "aB", "Ab", "AbC", "abc"]


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 2)])
@pytest.mark.parametrize("names", STACKS)
def test_layers_are_those_of_langchains_own_chain(names: str, times: tuple[int, ...]) -> None:
    """Compared with `_chain_model_call_handlers` of its factory, which has no public name."""
    request: Any = None

    def stack(log: list[str]) -> list[Layered]:
        return [Layered(name, count, log) for name, count in zip(names, times, strict=False)]

    ours, theirs, ours_async, theirs_async = list[str](), list[str](), list[str](), list[str]()
    inner: Any = lambda _: Composed(ModelResponse(result=[AIMessage("x")]))  # noqa: E731  it stands for a model
    for one in reversed(stack(ours)):
        inner = layer(one, inner, Failures())
    found = inner(request)
    chain: Any = factory._chain_model_call_handlers([one.wrap_model_call for one in stack(theirs)])
    wanted = chain(request, lambda _: ModelResponse(result=[AIMessage("x")]))
    assert ([c.update for c in found.commands], ours) == ([c.update for c in wanted.commands], theirs)

    async def model(_: Any) -> Any:
        return ModelResponse(result=[AIMessage("x")])

    async def inmost(_: Any) -> Composed:
        return Composed(await model(_))

    awaited: Any = inmost
    for one in reversed(stack(ours_async)):
        awaited = alayer(one, awaited, Failures())
    found = asyncio.run(awaited(request))
    achain: Any = factory._chain_async_model_call_handlers(
        [one.awrap_model_call for one in stack(theirs_async)]
    )
    wanted = asyncio.run(achain(request, model))
    assert [c.update for c in found.commands] == [c.update for c in wanted.commands]
    assert ours_async == theirs_async == ours


def cheaper(request: Any, handler: Any) -> Any:
    call = {**request.tool_call, "args": {**request.tool_call["args"], "amount": 1}}
    return handler(request.override(tool_call=call))


def caught(request: Any, handler: Any) -> Any:
    try:
        return handler(request)
    except Exception as error:  # noqa: BLE001  it is a middleware for errors
        return ToolMessage(f"caught {error}", tool_call_id=request.tool_call["id"], status="error")


def louder(request: Any, handler: Any) -> Any:
    found = handler(request)
    return found.model_copy(update={"content": found.text.upper()})


@tool("pay")
def instead(amount: int, runtime: ToolRuntime[Any, Any]) -> str:
    """Stand in for it."""
    CALLED.append("instead")
    return f"{amount} of {runtime.tool_call_id}"


TOOL_CALLS: dict[str, tuple[Callable[[Any, Any], Any], Any, list[Any], str]] = {
    "as it is": (lambda r, h: h(r), call("pay", amount=2), [2], "paid 2"),
    "other arguments": (cheaper, call("pay", amount=2), [1], "paid 1"),
    "another result": (louder, call("pay", amount=2), [2], "PAID 2"),
    "another tool": (
        lambda r, h: h(r.override(tool=instead)),
        call("pay", amount=2),
        ["instead"],
        "2 of call_1",
    ),
    "without a run": (
        lambda r, h: ToolMessage("cached", tool_call_id=r.tool_call["id"]),
        call("pay", amount=2),
        [],
        "cached",
    ),
    "an error that is taken": (caught, call("pay", amount=9), [9], "caught too much"),
    "an error that is not": (lambda r, h: h(r), call("pay", amount=9), [9], "ValueError: too much"),
    "an error of its own": (lambda r, h: 1 / 0, call("pay", amount=9), [], "ZeroDivisionError"),
    "no result at all": (
        lambda r, h: 3,
        call("pay", amount=1),
        [],
        "pay has run, but returned something that",
    ),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", TOOL_CALLS)
def test_what_wraps_a_tool_call_makes_its_result(case: str, way: str) -> None:
    does, step, called, told = TOOL_CALLS[case]
    found = run(graph([step, FINISH], around_tools(does), **saved()), way=way)
    assert (CALLED, ended(found)) == (called, ("success", "finish_task"))
    assert told in results(found)[0]


def test_a_request_of_a_tool_call_holds_what_langgraph_gives() -> None:
    seen: list[Any] = []

    def looks(request: Any, handler: Any) -> Any:
        seen.append(request)
        return handler(request)

    given = saved()
    run(graph([call("look", at="x"), FINISH], around_tools(looks), **given))
    (request,) = seen
    assert request.tool_call == {"name": "look", "args": {"at": "x"}, "id": "call_1", "type": "tool_call"}
    assert (request.tool, request.state["messages"][0].text) == (look, "go")
    assert (request.runtime.tool_call_id, request.runtime.store) == ("call_1", given["store"])


KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "it may change something": ({}, 1),
    "it writes": ({"kind": "write"}, 1),
    "it reads": ({"kind": "read"}, 3),
    "it may repeat": ({"kind": "write", "idempotent": True}, 3),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("how", ["LangChain's", "one that takes every error", "one that repeats a success"])
@pytest.mark.parametrize("case", KINDS)
def test_a_tool_runs_again_only_where_that_is_the_same_as_once(case: str, how: str, way: str) -> None:
    metadata, runs = KINDS[case]
    fails = how != "one that repeats a success"
    ran: list[int] = []

    @tool
    def work() -> str:
        """Work."""
        ran.append(1)
        if fails:
            raise ValueError("no luck")
        return "worked"

    work.metadata = metadata

    def insists(request: Any, handler: Any) -> Any:
        found: Any = None
        for _ in range(3):
            try:
                found = handler(request)
            except Exception as error:  # noqa: BLE001  it takes every error
                found = ToolMessage(f"gave up: {error}", tool_call_id=request.tool_call["id"], status="error")
        return found

    given = ToolRetryMiddleware(initial_delay=0) if how == "LangChain's" else around_tools(insists)
    model = ScriptedModel([call("work"), FINISH])
    found = run(build_graph(model, [work], middleware=[given], **saved()), way=way)
    assert len(ran) == runs
    if runs == 1:
        came = "ValueError: no luck" if fails else "worked"
        assert results(found)[0].startswith("work may change something, so it has run once")
        assert results(found)[0].endswith(f"What came of it: {came}")
        assert next(m.status for m in found["messages"] if m.type == "tool") == "error"


def test_the_journal_holds_one_call_whatever_is_around_it() -> None:
    given = saved()
    found = run(graph([call("pay", amount=1), FINISH], around_tools(louder), **given))
    reply_id = found["messages"][1].id
    (item,) = given["store"].search(("signoff", "journal", "t", reply_id))
    assert (item.value["status"], item.value["attempt"]) == (DONE, 1)
    assert item.value["messages"][0]["data"]["content"] == "PAID 1"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_pause_around_a_tool_call_runs_it_once(way: str) -> None:
    def asks(request: Any, handler: Any) -> Any:
        if interrupt("sure?") == "no":
            return ToolMessage("refused", tool_call_id=request.tool_call["id"], status="error")
        return handler(request)

    class Asks(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return asks(request, handler)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            interrupt("sure?")
            return await handler(request)

    built = graph([call("pay", amount=1), FINISH], Asks(), **saved())
    (waiting,) = run(built, way=way)["__interrupt__"]
    assert (waiting.value, CALLED) == ("sure?", [])
    found = run(built, Command(resume={waiting.id: "yes"}), way)
    assert (CALLED, ended(found)) == ([1], ("success", "finish_task"))


def test_control_tools_pass_through_no_middleware() -> None:
    names: list[str] = []

    def notes(request: Any, handler: Any) -> Any:
        names.append(request.tool_call["name"])
        return handler(request)

    @tool
    def submit(text: str) -> str:
        """Submit."""
        return f"submitted {text}"

    steps: list[Step] = [call("look"), call("submit", text="x")]
    controls = [ControlTool(submit, Effect.FINISH)]
    found = run(graph(steps, around_tools(notes), control_tools=controls))
    assert (names, found["outcome"]["result"]) == (["look"], "submitted x")


def test_calls_that_read_run_beside_each_other_each_with_what_wraps_it() -> None:
    together = threading.Barrier(3, timeout=10)

    def waits(request: Any, handler: Any) -> Any:
        together.wait()
        return handler(request)

    found = run(graph([[call("look", at=at) for at in "abc"], FINISH], around_tools(waits)))
    assert results(found)[:3] == ["seen a", "seen b", "seen c"]


def test_decorators_of_langchain_make_middleware() -> None:
    model = ScriptedModel([call("look"), FINISH])

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"There are {len(request.messages)} messages."

    @wrap_model_call
    def fewer(request: Any, handler: Any) -> Any:
        return handler(request.override(tools=request.tools[:1]))

    @wrap_tool_call
    def shout(request: Any, handler: Any) -> Any:
        return louder(request, handler)

    found = run(graph(model, prompt, fewer, shout))
    assert results(found)[0] == "SEEN IT"
    assert "There are 3 messages." in model.seen[1].messages[0].text
    assert model.seen[1].tool_names == ["look", *CONTROLS]


class Refused(Exception):
    """What a middleware raises about a reply."""


@pytest.mark.parametrize("way", ["sync", "async"])
def test_who_stands_around_gets_the_error_of_a_middleware_as_it_is(way: str) -> None:
    tries = list[str]()

    def judge(request: Any, handler: Any) -> Any:
        found = handler(request)
        if not found.result[0].tool_calls:
            raise Refused("only words")
        return found

    def again(request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except Refused as error:
            tries.append(str(error))
            return handler(request)

    found = run(graph(["No.", FINISH], both(again), named(both(judge), "Judge")), way=way)
    assert (ended(found), tries) == (("success", "finish_task"), ["only words"])


def named(middleware: Any, name: str) -> Any:
    """Two of one class need two names."""
    type(middleware).name = name
    return middleware


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_failed_call_counts_the_tokens_of_its_replies(way: str) -> None:
    def judge(request: Any, handler: Any) -> Any:
        handler(request)
        raise Refused("never good enough")

    usage: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    model = ScriptedModel([AIMessage("No.", usage_metadata=usage)])
    outcome = run(graph(model, both(judge)), way=way)["outcome"]
    assert (outcome["reason"], outcome["usage"]["total_tokens"]) == ("model_error", 110)
    assert "wrap_model_call of the middleware Around failed (Refused: never good enough)" in outcome["error"]
