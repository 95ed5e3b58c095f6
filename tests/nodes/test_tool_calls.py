"""Which calls run, with which arguments, in which order, and what those count that do not."""

import asyncio
import json
import threading
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field, field_validator

from signoff import Limits, build_graph
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, THREAD, saved
from tests.support.ways import WAYS

RAN: list[Any] = []
LONG = 15
"""Seconds after which a thread that waits for others gives up, which fails its test."""


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def results(state: Any) -> list[ToolMessage]:
    """The results of the calls before the finish."""
    return [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name != "finish_task"]


def texts(state: Any) -> list[str]:
    return [message.text for message in results(state)]


def made_of(work: Any, name: str = "act", **settings: Any) -> StructuredTool:
    how = "coroutine" if asyncio.iscoroutinefunction(work) else "func"
    return StructuredTool.from_function(name=name, description="Act.", **{how: work, **settings})


# Side by side.


def looking(work: Any, calls: int, *, kind: str = "read", saver: Any = None, **policy: Any) -> Any:
    """A graph whose model calls `look` so many times in a reply, then finishes."""
    script: Any = [[call("look", at=at) for at in range(calls)], FINISH]
    look = made_of(work, "look", metadata={"kind": kind})
    return build_graph(ScriptedModel(script), [look], policy=policy, **(saver or {}))


BOUNDS: dict[str, tuple[str, int, int | None, int, str]] = {
    "eight reads at most": ("read", 16, None, 8, "invoke"),
    "as many reads as the policy says": ("read", 12, 3, 3, "invoke"),
    "also in an event loop": ("read", 2, None, 2, "ainvoke"),
    "writes, one after the other": ("write", 3, None, 1, "invoke"),
}


@pytest.mark.parametrize(("kind", "calls", "parallel", "most", "way"), BOUNDS.values(), ids=BOUNDS)
def test_reads_run_side_by_side_and_all_else_alone(
    kind: str, calls: int, parallel: int | None, most: int, way: str
) -> None:
    barrier, lock, running = threading.Barrier(most), threading.Lock(), [0]

    def look(at: int) -> str:
        with lock:
            running.append(running[-1] + 1)
        barrier.wait(LONG)
        with lock:
            running.append(running[-1] - 1)
        return str(at)

    state = WAYS[way](looking(look, calls, kind=kind, parallel=parallel), GO, {})
    assert texts(state) == [str(at) for at in range(calls)], "in the order of the calls"
    assert max(running) == most


def test_a_read_that_is_late_gives_its_place_up() -> None:
    let_go = threading.Event()

    def look(at: int) -> str:
        return str(at) if at else str(let_go.wait(LONG))

    state = looking(look, 4, parallel=1, tool_seconds=0.3).invoke(GO)
    let_go.set()
    assert [message.status for message in results(state)] == ["error", "success", "success", "success"]


def test_what_has_not_begun_does_not_begin_once_one_asks() -> None:
    """The reads before the one that pauses run again when it is answered; those after it run once."""

    def look(at: int) -> str:
        RAN.append(at)
        return interrupt("which?") if at == 1 else str(at)

    graph = looking(look, 6, saver=saved(), parallel=1)
    graph.invoke(GO, THREAD)
    assert RAN == [0, 1]
    state = graph.invoke(Command(resume="that"), THREAD)
    assert (RAN[2:], texts(state)[:3]) == ([0, 1, 2, 3, 4, 5], ["0", "that", "2"])


# How a tool is called: directly, or by LangChain as soon as somebody listens. Nothing else differs.


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard = list[str]()

    def on_tool_start(self, serialized: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        self.heard.append(serialized["name"])


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("it is even")
        return value


class Renamed(BaseModel):
    n: int = Field(alias="number")


def simple(n: int, near: list[int] | None = None, *, much: float = 1.5) -> str:
    return repr((n, near, much))


def injected(n: int, key: Annotated[str, InjectedToolArg] = "none") -> str:
    return repr((n, key))


def any_arguments(**given: Any) -> str:
    return repr(sorted(given.items()))


SIGNATURES: dict[str, StructuredTool] = {
    "a function": made_of(simple),
    "with an injected argument": made_of(injected),
    "another name outside": made_of(any_arguments, args_schema=Renamed),
    "a validator": made_of(any_arguments, args_schema=Even),
}
ARGUMENTS: list[dict[str, Any]] = [
    {"n": 1},
    {"n": "7", "near": ["1", 2]},
    {"number": 4},
    {"n": 1, "more": 2, "key": "given"},
    {"n": None},
    {},
]


@pytest.mark.parametrize("made", SIGNATURES.values(), ids=SIGNATURES)
def test_a_tool_gets_the_same_arguments_whoever_listens(made: StructuredTool) -> None:
    script = [*(call("act", args=args) for args in ARGUMENTS), FINISH]
    limits, listener = Limits(turns=99, refusals=None, repeats=None), Listener()

    def told(config: Any) -> list[Any]:
        graph = build_graph(ScriptedModel(script), [made], limits=limits)
        return [(message.status, message.text) for message in results(graph.invoke(GO, config))]

    alone, heard = told({}), told({"callbacks": [listener]})
    assert (alone, len(alone)) == (heard, len(ARGUMENTS))
    assert listener.heard.count("act") >= [status for status, _ in alone].count("success") > 0


# Arguments that do not fit.


def pay(n: int) -> str:
    """Pay."""
    RAN.append(n)
    return "paid"


PLAIN, WORDS = tool("pay")(pay), "A number, please."
ONE, MANY, EVEN, UNKNOWN = call("pay", n=1), call("pay", n="many"), call("pay", n=2), call("spend", n=1)
# The tool, a call of it that does not fit, and what the model is told of.
PAYING: dict[str, tuple[BaseTool, Any, str]] = {
    "a function": (PLAIN, MANY, "n"),
    "no such tool": (PLAIN, UNKNOWN, "spend"),
    "with a validator": (made_of(pay, "pay", args_schema=Even), EVEN, "even"),
    "with words for the model": (made_of(pay, "pay", handle_validation_error=WORDS), MANY, WORDS),
}


def paying(*script: Any, made: BaseTool = PLAIN, **limits: Any) -> tuple[Any, list[str]]:
    """The outcome, and what the model was told."""
    with ScriptedModel(list(script)) as model:
        state = build_graph(model, [made], limits=Limits(**limits)).invoke(GO)
    return state["outcome"], texts(state)


@pytest.mark.parametrize(("made", "bad", "named"), PAYING.values(), ids=PAYING)
def test_a_call_that_does_not_fit_is_answered_not_run_and_uses_up_no_call(
    made: BaseTool, bad: Any, named: str
) -> None:
    outcome, told = paying([bad, ONE], FINISH, made=made, tool_calls=1)
    assert (outcome["status"], outcome["tool_calls"], RAN, told[1]) == ("success", 1, [1], "paid")
    assert named in told[0]


def test_the_same_error_in_the_tool_itself_is_work_that_ran() -> None:
    def broken(n: int) -> str:
        return str(Even(n=pay(n)))

    outcome, _ = paying(EVEN, FINISH, made=made_of(broken, "pay"))
    assert (outcome["tool_calls"], RAN) == (1, [2])


def test_a_call_that_is_not_run_is_no_work_between_two_finishes() -> None:
    outcome, _ = paying([UNKNOWN, FINISH], [UNKNOWN, FINISH])
    assert (outcome["status"], outcome["reason"]) == ("limit", "review_deadlock")


@pytest.mark.parametrize("rule", [True, "hand_over"], ids=["approval", "handing over"])
def test_nobody_is_asked_about_a_call_that_is_not_run(rule: Any) -> None:
    graph = build_graph(ScriptedModel([[MANY, UNKNOWN], FINISH]), [PLAIN], approvals={"pay": rule}, **saved())
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


# Slips.


def write(text: str) -> str:
    """Write."""
    RAN.append(text)
    return "written"


def read_page(page: int = 1) -> str:
    """Read."""
    return str(page)


def run_slip(slip: Any) -> tuple[Any, str, Any]:
    """The state, what the model is told, and its own calls as it is shown them."""
    model = ScriptedModel([slip, FINISH], chunk_size=100_000)
    state = build_graph(model, [write, read_page]).invoke(GO)
    assert state["outcome"]["status"] == "success"
    (sent,) = [message for message in model.seen[-1].messages if isinstance(message, AIMessage)]
    return state, "\n".join(texts(state)), sent.tool_calls


MEANS_WRITE = [
    "functions.write", "function:write", "default_api.write", " write\n", "Write", "writewrite",
    "write<|channel|>commentary", "functions.write:0",
]  # fmt: skip
# What the model is told of.
MEANS_NOTHING = {
    "wrote": "write",
    "write_page": "read_page",
    "zzz": "zzz",
    "a b/c": "a b/c",
    "": "read_page",
    "w" * 1_000_000: "www",
}


@pytest.mark.parametrize("name", [*MEANS_WRITE, *MEANS_NOTHING], ids=lambda name: repr(name[:20]))
def test_a_slip_in_a_name_is_read_past_and_another_name_is_answered(name: str) -> None:
    _, told, shown = run_slip(call(name, text="x"))
    assert (["x"] if name in MEANS_WRITE else []) == RAN
    assert MEANS_NOTHING.get(name, "written") in told
    assert len(told) < 1_000
    names = [made["name"] for made in shown]
    assert all(0 < len(name) <= 64 and name.replace("_", "").isalnum() for name in names), "providers take it"


FITS = {
    "an object": '{"text": "x"}',
    "an object in a string": json.dumps('{"text": "x"}'),
    "a line end inside of a string": '{"text": "x", "more": "a\nb"}',
}
# The text of the arguments, and what the model is told of.
DOES_NOT_FIT = {
    "null": ("null", "text"),
    "nothing": ("", "text"),
    "a list": ('[{"text": "x"}]', "JSON"),
    "no number": ('{"text": "x", "n": NaN}', "NaN"),
    "cut": ('{"text": "x', "JSON"),
    "two objects": ('{"text": "x"}{"text": "y"}', "JSON"),
    "a number beyond all": ('{"text": "x", "n": 1e999}', "JSON"),
    "an integer beyond 64 bits": ('{"text": "x", "n": 1' + "0" * 40 + "}", "JSON"),
}


@pytest.mark.parametrize("name", [*FITS, *DOES_NOT_FIT])
def test_arguments_are_read_or_answered(name: str) -> None:
    raw, named = DOES_NOT_FIT[name] if name in DOES_NOT_FIT else (FITS[name], "written")
    _, told, _ = run_slip(call("write", raw=raw))
    assert (RAN, named in told) == (["x"] if name in FITS else [], True), told


def test_a_malformed_call_among_others_takes_its_place_and_no_other() -> None:
    state, _, _ = run_slip([call("write", text="a"), call("write", raw='{"te'), call("write", text="c")])
    assert RAN == ["a", "c"]
    statuses = {message.tool_call_id: message.status for message in results(state)}
    assert statuses == {"call_1": "success", "call_2": "error", "call_3": "success"}
