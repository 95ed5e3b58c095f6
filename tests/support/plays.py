"""A task played by a script: what the model says, what is sent, what runs, and how it must end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from string import Formatter
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Graph, Texts, build_graph
from signoff.models import ScriptedModel, call
from tests.support.ways import Way

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?", options=["red", "blue"])
THINK = call("think", thought="hm")
WRITE, READ, FAIL = call("write", text="x"), call("read"), call("fail")
_LIMITS = {"turns", "tool_calls", "tokens", "cost", "seconds", "talk_turns", "repeats", "review_deadlock"}
_ERRORS = {"model_error", "content_filter", "cancelled", "needs_person", "no_task"}


_ARGS = {"finish_task": {"summary": "All of it."}, "ask_user": {"question": "Which one?"}}


def user(text: str = "do it") -> HumanMessage:
    return HumanMessage(text)


def ai(*parts: Any) -> AIMessage:
    """A reply that was made elsewhere: words are text, `(name, id)` or `(name, id, args)` a call."""
    calls = [(*part, _ARGS.get(part[0], {}))[:3] for part in parts if isinstance(part, tuple)]
    return AIMessage(
        " ".join(part for part in parts if isinstance(part, str)),
        tool_calls=[{"name": name, "id": call_id, "args": args} for name, call_id, args in calls],
    )


def done(call_id: str, text: str = "ok") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def labelled(defaults: Mapping[str, str]) -> dict[str, str]:
    """Each text as its name and what is filled in: `<rejected> {reason}`."""
    return {
        name: " ".join(
            [f"<{name}>", *(f"{{{found}}}" for _, found, _, _ in Formatter().parse(text) if found)]
        )
        for name, text in defaults.items()
    }


TEXTS = replace(
    Texts(),
    nudges=labelled(Texts().nudges),
    results=labelled(Texts().results) | {"responded": "{message}"},
    refusals=labelled(Texts().refusals),
)
"""Texts by whose names a test says what the model is told, whatever the words are."""


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


class Bench:
    """Working tools, and the names of those that ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def tools(self) -> list[BaseTool]:
        def write(text: str) -> str:
            """Write."""
            self.ran.append("write")
            return f"wrote {text}"

        def read(n: int = 0) -> str:
            """Read."""
            self.ran.append("read")
            return f"read {n}"

        def fail() -> str:
            """Fail."""
            self.ran.append("fail")
            raise ValueError("no luck")

        reading = StructuredTool.from_function(read, metadata={"kind": "read"})
        return [StructuredTool.from_function(write), reading, StructuredTool.from_function(fail)]


@dataclass(frozen=True)
class Play:
    """See `play`."""

    script: Sequence[Any]
    sent: Sequence[Any]
    ends: Mapping[str, Any] | None
    ran: Sequence[str]
    told: Sequence[str]
    waits: Sequence[str] | None
    options: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    rules: Mapping[str, Any]
    saved: bool
    whole: bool


def play(
    script: Sequence[Any],
    *,
    sent: Sequence[Any] = ("do it",),
    then: Any = (),
    reason: str | None = "finish_task",
    ran: str = "",
    told: str | Sequence[str] = (),
    waits: str | None = None,
    limits: Any = None,
    approvals: Any = None,
    checks: Sequence[Any] = (),
    form: Any = None,
    options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    saved: bool = True,
    whole: bool = False,
    **outcome: Any,
) -> Play:
    """A task played by a script, and how it must end: `check` runs it.

    sent: one after another the text of a user, messages, or a Command. then: what is sent after "do it".
    reason, outcome: of the outcome, by which its status is known, and more of it; None for a task that waits.
    ran: the tools that ran. told: what the model reads in a result or a reminder, by the labels of `TEXTS`.
    waits: the types of all that it waited for, `finish` for a finish; "" for nothing.
    form: the `response_format`. options: others of `build_graph`, or a function that makes them for each run.
    saved: whether it can wait. whole: replies are not streamed, so that what follows a finish arrives, too.
    """
    ended = "limit" if reason in _LIMITS else "error" if reason in _ERRORS else "success"
    claimed = {"claim": "done"} if ended == "success" else {"verified": None}
    return Play(
        script,
        [*sent, *(then if isinstance(then, list | tuple) else [then])],
        None if reason is None else {"status": ended, "reason": reason, **claimed, **outcome},
        ran.split(),
        [told] if isinstance(told, str) else told,
        None if waits is None else waits.split(),
        options or {},
        {"limits": limits, "approvals": approvals, "checks": checks, "response_format": form},
        saved,
        whole,
    )


@dataclass
class Played:
    graph: Graph
    model: ScriptedModel
    result: Mapping[str, Any]
    waits: list[Mapping[str, Any]]
    ran: list[str]


def run(play: Play, way: Way = Graph.invoke) -> Played:
    """What came of it, unchecked but for that the whole script was said. way: how the graph is run."""
    bench, waits, result = Bench(), list[Any](), dict[str, Any]()
    options = dict(play.options() if callable(play.options) else play.options)
    options["policy"] = {"texts": TEXTS, "model_retries": None, **options.get("policy", {})}
    tools = [*bench.tools, *options.pop("tools", ())]
    options |= saved() if play.saved else {}
    with ScriptedModel([*play.script], disable_streaming=play.whole) as model:
        graph = build_graph(model, tools, **play.rules, **options)
        for given in play.sent:
            result = way(graph, input_of(given), THREAD)
            waits += [wait.value for wait in result.get("__interrupt__", ())]
    return Played(graph, model, result, waits, bench.ran)


def check(play: Play, way: Way = Graph.invoke) -> Played:
    """Runs it. Fails unless it goes as it must, and every prompt could be sent to a strict provider and
    begins with the one before."""
    played = run(play, way)
    outcome, messages = played.result["outcome"], played.result["messages"]
    assert played.ran == list(play.ran)
    if play.ends is None:
        assert outcome is None
        assert played.result["__interrupt__"]
    else:
        assert {name: outcome[name] for name in play.ends} == play.ends
        assert _answered(messages)
    shown = "\n".join(message.text for message in messages if not isinstance(message, AIMessage))
    assert [text for text in play.told if text not in shown] == []
    if play.waits is not None:
        assert [_kind(value) for value in played.waits] == list(play.waits)
    prompts = [seen.messages for seen in played.model.seen]
    for prompt in prompts:
        assert_sendable(prompt)
    shown_as = [[(message.type, message.content) for message in prompt] for prompt in prompts]
    assert all(after[: len(before)] == before for before, after in pairwise(shown_as))
    return played


def input_of(given: Any) -> Any:
    """The input of a graph: of a text of the user, of messages, or a Command."""
    if isinstance(given, Command):
        return given
    return {"messages": [("user", given)] if isinstance(given, str) else given}


def _kind(value: Any) -> str:
    if not isinstance(value, Mapping):
        return "foreign"
    return "finish" if value.get("finish") else str(value["type"])


def results(values: Mapping[str, Any], name: str | None = None) -> list[str]:
    """The texts of the results of calls, in order; of the tool `name` only."""
    found = (message for message in values["messages"] if isinstance(message, ToolMessage))
    return [message.text for message in found if name in (None, message.name)]


def _answered(messages: Sequence[BaseMessage]) -> bool:
    """Whether every call of the history has exactly one result."""
    replies = [message for message in messages if isinstance(message, AIMessage)]
    calls = [found["id"] for one in replies for found in [*one.tool_calls, *one.invalid_tool_calls]]
    answers = [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
    return sorted(map(str, calls)) == sorted(answers)


_FOLLOWS = {"human": {"ai", "calls"}, "ai": {"human"}, "calls": {"tool"}, "tool": {"tool", "ai", "calls"}}


def assert_in_turn(prompt: Sequence[BaseMessage]) -> None:
    """The roles alternate as strict providers want it."""
    shown = [message for message in prompt if message.type != "system"]
    kinds = ["calls" if getattr(message, "tool_calls", None) else message.type for message in shown]
    assert kinds[0] == "human", kinds
    assert all(second in _FOLLOWS[first] for first, second in pairwise(kinds)), kinds


def assert_sendable(prompt: Sequence[BaseMessage]) -> None:
    """A provider accepts it: one system message, first; every call answered right after its reply."""
    assert [message.type for message in prompt].count("system") == 1
    assert prompt[0].type == "system"
    assert_in_turn(prompt)
    waiting: list[str | None] = []
    for message in prompt:
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.tool_call_id
        else:
            assert not waiting
        if isinstance(message, AIMessage):
            assert not message.invalid_tool_calls
            assert message.text or message.tool_calls
            waiting = [found["id"] for found in message.tool_calls]
    assert not waiting
