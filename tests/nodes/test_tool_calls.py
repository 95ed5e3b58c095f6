"""Which calls run, with which arguments, in which order, and what those count that do not."""

import asyncio
import json
import threading
from collections.abc import Iterable
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer

from signoff import Limits, SetupError, build_graph
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="All of it.")
RAN: list[Any] = []
LONG = 30
"""Seconds after which a thread that waits for others gives up, which fails its test."""


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def results(state: Any) -> list[ToolMessage]:
    """The results of the calls before the finish."""
    found = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return [message for message in found if message.name != "finish_task"]


def texts(state: Any) -> list[str]:
    return [message.text for message in results(state)]


def of_kind(kind: str, work: Any, name: str = "look") -> BaseTool:
    how = "coroutine" if asyncio.iscoroutinefunction(work) else "func"
    made = StructuredTool.from_function(name=name, description="Look.", **{how: work})
    made.metadata = {"kind": kind}
    return made


# Beside each other.


class Together:
    """Notes how many calls ran at the same moment; each waits until so many do."""

    def __init__(self, most: int) -> None:
        self.barrier, self.lock = threading.Barrier(most), threading.Lock()
        self.now = self.most = 0

    def look(self, at: int) -> str:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.barrier.wait(LONG)
        with self.lock:
            self.now -= 1
        return str(at)


BOUNDS: dict[str, tuple[str, int, int | None, int]] = {
    "reads": ("read", 5, None, 5),
    "eight reads at most": ("read", 16, None, 8),
    "as many reads as the policy says": ("read", 12, 3, 3),
    "one read, if it says so": ("read", 4, 1, 1),
    "writes, one after the other": ("write", 3, None, 1),
}


@pytest.mark.parametrize(("kind", "calls", "parallel", "most"), BOUNDS.values(), ids=BOUNDS)
def test_reads_run_beside_each_other_and_all_else_alone(
    kind: str, calls: int, parallel: int | None, most: int
) -> None:
    together = Together(most)
    script: Any = [[call("look", at=at) for at in range(calls)], FINISH]
    graph = build_graph(ScriptedModel(script), [of_kind(kind, together.look)], policy={"parallel": parallel})
    assert texts(graph.invoke(GO)) == [str(at) for at in range(calls)], "in the order of the calls"
    assert together.most == most


@pytest.mark.parametrize(("parallel", "most"), [(None, 20), (3, 3)], ids=["no bound", "a bound"])
def test_coroutines_are_bounded_only_where_the_policy_says_so(parallel: int | None, most: int) -> None:
    now, seen, all_here = 0, 0, asyncio.Event()

    async def look(at: int) -> str:
        nonlocal now, seen
        now += 1
        seen = max(seen, now)
        if seen == most:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), LONG)
        await asyncio.sleep(0)
        now -= 1
        return str(at)

    script: Any = [[call("look", at=at) for at in range(20)], FINISH]
    graph = build_graph(ScriptedModel(script), [of_kind("read", look)], policy={"parallel": parallel})
    assert texts(asyncio.run(graph.ainvoke(GO))) == [str(at) for at in range(20)]
    assert seen == most


async def test_sync_tools_of_several_runs_do_not_hold_up_their_loop() -> None:
    together = Together(6)

    def run() -> Any:
        model = ScriptedModel([call("look", at=1), FINISH])
        return build_graph(model, [of_kind("write", together.look)]).ainvoke(GO)

    await asyncio.gather(*(run() for _ in range(6)))
    assert together.most == 6


def test_the_next_read_begins_as_soon_as_one_has_ended() -> None:
    """One that takes long keeps only its own place: in waves the others would wait for it."""
    ended, others = list[int](), threading.Event()

    def look(at: int) -> str:
        if at == 0:
            others.wait(LONG)
        ended.append(at)
        if len(ended) == 5:
            others.set()
        return str(at)

    model = ScriptedModel([[call("look", at=at) for at in range(6)], FINISH])
    build_graph(model, [of_kind("read", look)], policy={"parallel": 2}).invoke(GO)
    assert ended == [1, 2, 3, 4, 5, 0]


def test_a_read_that_is_late_gives_its_place_up() -> None:
    let_go = threading.Event()

    def look(at: int) -> str:
        return str(at) if at else str(let_go.wait(LONG))

    model = ScriptedModel([[call("look", at=at) for at in range(4)], FINISH])
    policy = {"parallel": 1, "tool_seconds": 0.3}
    found = results(build_graph(model, [of_kind("read", look)], policy=policy).invoke(GO))
    let_go.set()
    assert [message.status for message in found] == ["error", "success", "success", "success"]


def test_what_has_not_begun_does_not_begin_once_one_asks() -> None:
    """The reads before the one that pauses run again when it is answered; those after it run once."""

    def look(at: int) -> str:
        RAN.append(at)
        return interrupt("which?") if at == 1 else str(at)

    model = ScriptedModel([[call("look", at=at) for at in range(6)], FINISH])
    graph = build_graph(model, [of_kind("read", look)], policy={"parallel": 1}, **saved())
    graph.invoke(GO, THREAD)
    assert RAN == [0, 1]
    state = graph.invoke(Command(resume="that"), THREAD)
    assert (RAN[2:], texts(state)[:3]) == ([0, 1, 2, 3, 4, 5], ["0", "that", "2"])


POLICIES: dict[str, Iterable[Any]] = {
    "parallel": [0, -1, 1.5, "8", True],
    "tool_seconds": [0, -1, float("inf"), float("nan"), "2", True],
    "result_chars": [0, -1, 1.5, "8"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in POLICIES.items() for value in values]
)
def test_a_bound_that_is_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SetupError) as refusal:
        build_graph(ScriptedModel([]), policy={name: value})
    assert name in str(refusal.value)


# How a tool is called: directly, or by LangChain as soon as somebody listens. Nothing else differs.


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard = list[str]()

    def on_tool_start(self, serialized: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        self.heard.append(serialized["name"])


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
    def _double(cls, value: int) -> int:
        return 2 * value


def simple(n: int, near: list[int] | None = None, *, much: float = 1.5) -> str:
    return repr((n, near, much))


def identified(n: int, call_id: Annotated[str, InjectedToolCallId]) -> str:
    return repr((n, call_id))


def injected(n: int, key: Annotated[str, InjectedToolArg] = "none") -> str:
    return repr((n, key))


async def awaited(n: int) -> str:
    return repr(n)


def any_arguments(**given: Any) -> str:
    return repr(sorted(given.items()))


def made_of(work: Any, **settings: Any) -> StructuredTool:
    how = "coroutine" if asyncio.iscoroutinefunction(work) else "func"
    return StructuredTool.from_function(name="act", description="Act.", **{how: work, **settings})


SIGNATURES: dict[str, StructuredTool] = {
    "a function": made_of(simple),
    "a coroutine": made_of(awaited),
    "with the call's id": made_of(identified),
    "with an injected argument": made_of(injected),
    "a schema of more than the function": made_of(any_arguments, args_schema=Plain),
    "a schema of the function's": made_of(lambda n, near: repr((n, near)), args_schema=Plain),
    "another name outside": made_of(any_arguments, args_schema=Renamed),
    "any further argument": made_of(any_arguments, args_schema=Wide),
    "left out when written": made_of(any_arguments, args_schema=Hidden),
    "written by code of its own": made_of(any_arguments, args_schema=Written),
    "a validator": made_of(any_arguments, args_schema=Doubled),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "fitting": {"n": 1},
    "as texts": {"n": "7", "near": ["1", 2]},
    "by another name": {"number": 4},
    "more of them": {"n": 1, "more": 2, "key": "given"},
    "null": {"n": None},
    "none": {},
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_tool_gets_the_same_arguments_whoever_listens(signature: str) -> None:
    script = [call("act", args=args) for args in ARGUMENTS.values()]
    limits, listener, said = Limits(turns=99, refusals=None, repeats=None), Listener(), list[Any]()
    configs: list[Any] = [{}, {"callbacks": [listener]}]
    for config in configs:
        graph = build_graph(ScriptedModel([*script, FINISH]), [SIGNATURES[signature]], limits=limits)
        said.append([(m.status, m.text) for m in results(graph.invoke(GO, config))])
    assert said[0] == said[1]
    assert len(said[0]) == len(ARGUMENTS)
    ran = [message for message in said[0] if message[0] == "success"]
    assert listener.heard.count("act") >= len(ran) > 0


# Arguments that do not fit.


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("it is even")
        return value


def pay(n: int) -> str:
    """Pay."""
    RAN.append(n)
    return "paid"


def pay_with_id(n: int, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Pay."""
    return pay(n)


class OfAClass(BaseTool):
    name: str = "pay"
    description: str = "Pay."
    args_schema: Any = Even

    def _run(self, n: int) -> str:
        return pay(n)


PAYING: dict[str, BaseTool] = {
    "a function": tool("pay")(pay),
    "with a schema": StructuredTool.from_function(pay, args_schema=Even),
    "with something injected": StructuredTool.from_function(pay_with_id, name="pay"),
    "a class": OfAClass(),
    "with words for the model": StructuredTool.from_function(
        pay, handle_validation_error="A number, please."
    ),
    "with a function for them": StructuredTool.from_function(pay, handle_validation_error=lambda _: "No."),
}
ONE, MANY, UNKNOWN = call("pay", n=1), call("pay", n="many"), call("spend", n=1)


def outcome_and_texts(*script: Any, made: BaseTool, **limits: Any) -> tuple[Any, list[str]]:
    with ScriptedModel(list(script)) as model:
        state = build_graph(model, [made], limits=Limits(**limits)).invoke(GO)
    return state["outcome"], texts(state)


@pytest.mark.parametrize("kind", PAYING)
def test_a_call_whose_arguments_do_not_fit_is_not_run(kind: str) -> None:
    outcome, told = outcome_and_texts(MANY, ONE, FINISH, made=PAYING[kind], tool_calls=1)
    assert (outcome["status"], outcome["tool_calls"], RAN, told[1]) == ("success", 1, [1], "paid")
    own_words = {"with words for the model": "A number, please.", "with a function for them": "No."}
    assert own_words.get(kind, "n") in told[0]


@pytest.mark.parametrize("kind", ["with a schema", "a class"])
def test_validators_of_the_schema_count(kind: str) -> None:
    outcome, _ = outcome_and_texts(call("pay", n=2), ONE, FINISH, made=PAYING[kind], tool_calls=1)
    assert (outcome["tool_calls"], RAN) == (1, [1])


def test_a_validator_that_panics_is_an_error_of_its_tool() -> None:
    class Panic(BaseException):
        """What an extension in Rust raises when it panics."""

    class Panicky(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def _panics(cls, value: int) -> int:
            raise Panic("out of bounds")

    made = StructuredTool.from_function(pay, args_schema=Panicky)
    outcome, told = outcome_and_texts(ONE, FINISH, made=made)
    assert (outcome["status"], RAN, told) == ("success", [], ["Panic: out of bounds"])


def test_the_same_error_in_the_tool_itself_is_work_that_ran() -> None:
    def broken(n: int) -> str:
        """Pay."""
        return str(Even(n=pay(n)))

    outcome, _ = outcome_and_texts(ONE, FINISH, made=StructuredTool.from_function(broken, name="pay"))
    assert (outcome["tool_calls"], RAN) == (1, [1])


both_kinds = pytest.mark.parametrize("bad", [MANY, UNKNOWN], ids=["does not fit", "no such tool"])


@both_kinds
def test_a_call_that_is_not_run_uses_up_no_call(bad: Any) -> None:
    outcome, _ = outcome_and_texts([bad, ONE], FINISH, made=PAYING["a function"], tool_calls=1)
    assert (outcome["status"], outcome["tool_calls"], RAN) == ("success", 1, [1])


@both_kinds
def test_a_call_that_is_not_run_is_no_work_between_two_finishes(bad: Any) -> None:
    outcome, _ = outcome_and_texts([bad, FINISH], [bad, FINISH], made=PAYING["a function"])
    assert (outcome["status"], outcome["reason"]) == ("limit", "review_deadlock")


@both_kinds
@pytest.mark.parametrize("rule", [True, "hand_over"], ids=["approval", "handing over"])
def test_nobody_is_asked_about_a_call_that_is_not_run(bad: Any, rule: Any) -> None:
    graph = build_graph(
        ScriptedModel([bad, FINISH]), [PAYING["a function"]], approvals={"pay": rule}, **saved()
    )
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


# Slips. A reply comes in pieces, or is whole.


def write(text: str) -> str:
    """Write."""
    RAN.append(text)
    return "written"


def read_page(page: int = 1) -> str:
    """Read."""
    return str(page)


def run_slip(slip: Any, way: str, tools: Any = (write, read_page)) -> tuple[Any, str, ScriptedModel]:
    model = ScriptedModel([slip, FINISH], chunk_size=100_000)
    streaming = "always" if way == "in pieces" else "never"
    state = build_graph(model, list(tools), policy={"streaming": streaming}).invoke(GO)
    assert state["outcome"]["status"] == "success"
    return state, "\n".join(texts(state)), model


both_ways = pytest.mark.parametrize("way", ["in pieces", "whole"])
MEANS_WRITE = [
    "functions.write", "function:write", "default_api.write", " write\n", "Write", "writewrite",
    "write<|channel|>commentary", "functions.write:0",
]  # fmt: skip
MEANS_NOTHING: dict[str, str] = {
    "wrote": "write",
    "write_page": "read_page",
    "readpage": "read_page",
    "zzz": "zzz",
    "a b/c": "a b/c",
    "": "read_page",
    "w" * 1_000_000: "www",
}


@both_ways
@pytest.mark.parametrize("name", [*MEANS_WRITE, *MEANS_NOTHING], ids=lambda name: repr(name[:20]))
def test_a_slip_in_a_name_is_read_past_and_another_name_is_answered(name: str, way: str) -> None:
    _, told, model = run_slip(call(name, text="x"), way)
    assert (["x"] if name in MEANS_WRITE else []) == RAN
    assert MEANS_NOTHING.get(name, "written") in told
    assert len(told) < 1_000
    (sent,) = [message for message in model.seen[-1].messages if isinstance(message, AIMessage)]
    names = [made["name"] for made in sent.tool_calls]
    assert all(0 < len(name) <= 64 and name.replace("_", "").isalnum() for name in names), "providers take it"


def test_a_name_that_could_mean_two_tools_is_not_guessed() -> None:
    twins = [tool(name)(write) for name in ("write", "Write")]
    _, told, _ = run_slip(call("WRITE", text="x"), "whole", twins)
    assert (RAN, "WRITE" in told) == ([], True)


FITS: dict[str, str] = {
    "an object": '{"text": "x"}',
    "space around it": ' \n{"text": "x"}\n',
    "an object in a string": json.dumps('{"text": "x"}'),
    "a line end inside of a string": '{"text": "x", "more": "a\nb"}',
}
DOES_NOT_FIT: dict[str, tuple[str, str]] = {
    "null": ("null", "text"),
    "nothing": ("", "text"),
    "an empty string": ('""', "text"),
    "another argument": ('{"words": "x"}', "text"),
    "a list": ('[{"text": "x"}]', "JSON"),
    "a number": ("7", "JSON"),
    "words": ("write x", "JSON"),
    "cut": ('{"text": "x', "JSON"),
    "two objects": ('{"text": "x"}{"text": "y"}', "JSON"),
    "no number": ('{"text": "x", "n": NaN}', "NaN"),
    "minus infinity": ('{"text": "x", "n": -Infinity}', "-Infinity"),
    "a number beyond all": ('{"text": "x", "n": 1e999}', "JSON"),
    "an integer beyond 64 bits": ('{"text": "x", "n": 1' + "0" * 40 + "}", "JSON"),
    "nested too deep to read": ('{"text": ' + "[" * 100_000, "JSON"),
    "nested too deep to save": ('{"text": ' + "[" * 200 + "]" * 200 + "}", "JSON"),
}


# A client that reads a whole reply, as this model does, cannot read these.
ONLY_IN_PIECES = {"an object in a string", "nested too deep to read"}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for name in [*FITS, *DOES_NOT_FIT]
        for way in ("in pieces", "whole")
        if way == "in pieces" or name not in ONLY_IN_PIECES
    ],
)
def test_arguments_are_read_or_answered(name: str, way: str) -> None:
    raw, named = DOES_NOT_FIT[name] if name in DOES_NOT_FIT else (FITS[name], "written")
    _, told, _ = run_slip(call("write", raw=raw), way)
    assert (RAN, named in told) == (["x"] if name in FITS else [], True), told


@both_ways
def test_arguments_of_a_megabyte_are_just_arguments(way: str) -> None:
    run_slip(call("write", text="x" * 1_000_000), way)
    assert [len(text) for text in RAN] == [1_000_000]


@both_ways
def test_a_malformed_call_beside_others_takes_its_place_and_no_other(way: str) -> None:
    calls = [call("write", text="a"), call("write", raw='{"text": '), call("write", text="c")]
    state, _, _ = run_slip(calls, way)
    assert RAN == ["a", "c"]
    assert {m.tool_call_id: m.status for m in results(state)} == {
        "call_1": "success",
        "call_2": "error",
        "call_3": "success",
    }
