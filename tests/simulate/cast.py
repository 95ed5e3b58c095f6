"""Who plays in a schedule: a model that says anything, tools with effects that are counted, and a person."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import catch_warnings, simplefilter

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt
from pydantic import BaseModel

from signoff import Graph, Limits, Storage, build_graph, delegate
from signoff.models import ScriptedModel, call, reply
from tests.simulate.choices import Choices
from tests.simulate.clock import VirtualClock
from tests.simulate.storage import MemoryStorage


@dataclass(frozen=True)
class Loop:
    """How the loop of a schedule is built."""

    turns: int = 6
    talk: str = "balanced"
    unknown_outcomes: str = "tell"
    on_failure: str = "keep"
    streaming: str = "never"
    has_result: bool = False
    tool_calls: int | None = None
    seconds: float | None = None
    delegates: bool = False
    prompt_tokens: int | None = None


LOOPS = (
    Loop(),
    Loop(turns=2),
    Loop(has_result=True),
    Loop(unknown_outcomes="ask"),
    Loop(on_failure="undo"),
    Loop(talk="strict", streaming="always"),
    Loop(talk="natural", turns=3),
    Loop(tool_calls=2, turns=4, has_result=True),
    Loop(seconds=60),
    Loop(prompt_tokens=700, turns=5),
    Loop(delegates=True),
    Loop(delegates=True, unknown_outcomes="ask", seconds=200),
    Loop(delegates=True, on_failure="undo", turns=3),
)

QUICK, SLOW = 1, 45
DEADLINE = 600
"""Seconds that a reply takes, and that a person has for an answer."""


@dataclass
class Stage:
    """What happens outside of the threads, and is seen by whoever looks there.

    running: the thread that is moved. has_two_at_once: two delegates have drawn from the choices, in an order
    that nobody knows. effects, undone: how often each took place, by its thread and token.
    approved: what a person has been shown. never: what must not run. again: how often a person has let one
    run once more. worked: the seconds in models and tools, by thread.
    """

    choices: Choices
    clock: VirtualClock
    running: str = ""
    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    undone: Counter[tuple[str, str]] = field(default_factory=Counter)
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    worked: Counter[str] = field(default_factory=Counter)
    approved: set[tuple[str, str]] = field(default_factory=set)
    never: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    moment: Callable[[str], None] = lambda what: None
    has_two_at_once: bool = False
    tokens: int = 0
    counted: int = 0

    def copied(self, clock: VirtualClock) -> "Stage":
        """The same stage on another machine."""
        counts = ("effects", "undone", "again", "worked", "approved")
        return replace(self, clock=clock, **{name: getattr(self, name).copy() for name in counts})

    def forked(self, thread: str, target: str) -> None:
        """What has happened in a thread must not happen again in its copy."""
        for counts in (self.effects, self.undone, self.again):
            counts.update({(target, token): n for (own, token), n in counts.items() if own == thread})
        self.approved |= {(target, token) for own, token in self.approved if own == thread}
        self.worked[target] = self.worked[thread]

    def token(self, *, never: bool = False) -> str:
        self.tokens += 1
        token = f"e{self.tokens}"
        if never:
            self.never.add(token)
        return token

    def works(self, seconds: int) -> None:
        """Something takes its time, which counts for the task."""
        self.clock.passes(seconds)
        self.worked[self.running] += seconds

    def happen(self, name: str) -> str:
        """An effect, in the middle of which a process may die."""
        self.moment("before an effect")
        self.effects[self.running, name] += 1
        self.works(QUICK)
        self.moment("after an effect")
        return f"did {name}"

    def count(self) -> str:
        """An effect that looks like any other of its kind, with a number of its own."""
        self.moment("before an effect")
        self.counted += 1
        counted = f"counted {self.counted}"
        self.works(QUICK)
        self.moment("after an effect")
        return counted

    def take_back(self, name: str) -> str:
        self.moment("before an effect")
        self.undone[self.running, name] += 1
        self.moment("after an effect")
        return f"took {name} back"

    def pay(self, name: str) -> str:
        """An effect that a person must have approved."""
        if (self.running, name) not in self.approved:
            self.faults.append(f"law 10: {name} was paid, and nobody has approved it")
        return self.happen(name)

    def say(self, messages: list[BaseMessage], replies: Sequence[str]) -> Any:
        self.faults += prompt_faults(messages)
        with self.clock.one_call():
            self.moment("before a reply")
            said = SAID[self.choices.of(replies)](self)
            self.works(self.choices.of((QUICK, QUICK, QUICK, SLOW)))
        return said


def prompt_faults(prompt: Sequence[BaseMessage]) -> Iterator[str]:
    """Every call that a model is shown has its result right behind the reply, and every result its call."""
    due = list[str]()
    for message in prompt:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in due:
                yield f"law 4: a model is shown a result of no call, {message.tool_call_id!r}"
                continue
            due.remove(message.tool_call_id)
            continue
        if due:
            yield f"law 4: a model is shown calls without a result: {due}"
        due = [call["id"] or "" for call in message.tool_calls] if isinstance(message, AIMessage) else []
        if "" in due or len(set(due)) < len(due):
            yield f"law 4: a model is shown calls without an id of their own: {due}"
    if due:
        yield f"law 4: a model is shown calls without a result: {due}"


MAY_I = "May I?"
"""What a tool asks by itself."""


def _act(stage: Stage, tool: str = "act", *, never: bool = False, id: str | None = None) -> Any:
    return call(tool, name=stage.token(never=never), id=id)


def _finish(stage: Stage, **more: Any) -> Any:
    # The first of these fits a graph that asks for a result; another ignores it.
    results: tuple[dict[str, Any], ...] = ({"total": 1}, {"total": 1}, {"total": "much"}, {})
    result = stage.choices.of(results)
    return call("finish_task", args={"summary": "Done.", **({"result": result} if result else {}), **more})


_ASK = call("ask_user", question="Which?", options=["red", "blue"])
_SOON = call(
    "ask_user", question="Which?", options=["red", "blue"], default_answer="blue", deadline_seconds=DEADLINE
)


def _deep(stage: Stage) -> Any:
    return call("deep", task=f"dig for {stage.token()[1:]}")


def _two_at_once(stage: Stage) -> Any:
    stage.has_two_at_once = True
    return [_deep(stage), _deep(stage)]


SAID: Mapping[str, Callable[[Stage], Any]] = {
    "finish": _finish,
    "act": _act,
    "act, look, act": lambda s: [_act(s), call("look", where="a"), _act(s)],
    "pay": lambda s: _act(s, "pay"),
    "drive": lambda s: _act(s, "drive"),
    "act, pay, drive": lambda s: [_act(s), _act(s, "pay"), _act(s, "drive")],
    "ask": lambda s: _ASK,
    "ask, soon": lambda s: _SOON,
    "finish, ask": lambda s: [_finish(s), _ASK],
    "deep": _deep,
    "deep, deep": _two_at_once,
    "deep, act, finish": lambda s: [_deep(s), _act(s), _finish(s)],
    "wait": lambda s: _act(s, "wait"),
    "talk": lambda s: "I have finished the task. Done!",
    "think": lambda s: call("think", thought="hm"),
    "look, look": lambda s: [call("look", where="a"), call("look", where="b")],
    "act, finish": lambda s: [_act(s), _finish(s)],
    "fail, finish": lambda s: [call("fail"), _finish(s)],
    "pay, finish": lambda s: [_act(s, "pay"), _finish(s)],
    "finish, act": lambda s: [_finish(s), _act(s, never=True)],
    "finish, finish": lambda s: [_finish(s), _finish(s)],
    "ask, finish": lambda s: [_ASK, _finish(s)],
    "act, ask, act": lambda s: [_act(s), _ASK, _act(s, never=True)],
    "unsure finish": lambda s: _finish(s, requires_user_confirmation=True),
    "phase": lambda s: _finish(s, completion_percentage=50),
    "blocked": lambda s: call("finish_task", summary="No access.", outcome="blocked"),
    "empty finish": lambda s: call("finish_task", summary=""),
    "malformed": lambda s: [
        call("act", raw='{"name": "' + s.token(never=True)),
        call("finish_task", raw="{"),
    ],
    "cut act": lambda s: reply(_act(s, never=True), _finish(s), finish_reason="length"),
    "cut finish": lambda s: reply("So", _finish(s), finish_reason="length"),
    "filtered": lambda s: reply(_act(s, never=True), finish_reason="content_filter"),
    "stopped": lambda s: reply(_finish(s), finish_reason="stop"),
    "unknown tool": lambda s: call("act2", name="x"),
    "bad arguments": lambda s: call("act", nome="x"),
    "count": lambda s: call("count", id="call_0"),
    "count twice": lambda s: [call("count", id="call_0"), call("count", id="call_0")],
    "same ids, pay": lambda s: [_act(s, "pay", id="call_0"), _act(s, "drive", id="call_0")],
    "same ids": lambda s: [_act(s, id="call_0"), _act(s, id="call_0"), _act(s, id="")],
    "empty": lambda s: reply(),
    "refusal": lambda s: reply(refusal="No."),
    "broken": lambda s: RuntimeError("the provider is gone"),
    "too long": lambda s: ContextOverflowError("too long"),
}
"""What the model may say, by a short name."""
REPLIES = ("finish", "act", "pay", "drive", "ask", "finish", "act", "act, finish", "count", "count", *SAID)
LEADING = ("finish", "deep", "deep", "deep, deep", *REPLIES)
BELOW = (
    "finish",
    "finish",
    "finish",
    "act",
    "act",
    "pay",
    "drive",
    "ask",
    "ask, soon",
    "act, finish",
    "count",
    *SAID,
)
"""What is drawn from: by a model alone, by one that has a delegate, and by that delegate."""

RESULT = {
    "title": "Total",
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
}


def graph_of(loop: Loop, stage: Stage, storage: MemoryStorage) -> Graph:
    """The graph of a process."""
    tools = tools_of(stage)
    if loop.delegates:
        with catch_warnings():
            # It has the storage of the graph that delegates to it.
            simplefilter("ignore")
            below = _built(replace(loop, turns=4, seconds=None, has_result=False), stage, BELOW, tools)
        tools = [*tools, delegate("deep", below, description="Digs.")]
    own: dict[str, Any] = {"storage": Storage(storage.checkpointer, storage.store)}
    return _built(loop, stage, LEADING if loop.delegates else REPLIES, tools, **own)


def _built(loop: Loop, stage: Stage, replies: Sequence[str], tools: Sequence[BaseTool], **own: Any) -> Graph:
    return build_graph(
        ScriptedModel(lambda messages: stage.say(messages, replies), chunk_size=1_000),
        tools,
        limits=Limits(turns=loop.turns, tool_calls=loop.tool_calls, seconds=loop.seconds),
        response_format=RESULT if loop.has_result else None,
        approvals={"pay": True, "drive": "hand_over"},
        policy={
            "talk": loop.talk,
            "streaming": loop.streaming,
            "unknown_outcomes": loop.unknown_outcomes,
            "on_failure": loop.on_failure,
            "model_retries": None,
            "tool_seconds": None,
            "model_seconds": None,
            "compaction": "lines",
            **({"prompt_tokens": loop.prompt_tokens} if loop.prompt_tokens else {}),
        },
        **own,
    )


class Nothing(BaseModel):
    pass


class Named(BaseModel):
    name: str


class Somewhere(BaseModel):
    where: str


def tools_of(stage: Stage) -> list[BaseTool]:
    def act(name: str) -> str:
        """Act."""
        return stage.happen(name)

    def pay(name: str) -> str:
        """Pay."""
        return stage.pay(name)

    def drive(name: str) -> str:
        """Drive."""
        raise AssertionError("the program runs it")

    def wait(name: str) -> str:
        """Wait for a person, then act."""
        interrupt({"question": MAY_I})
        return stage.happen(name)

    def count() -> str:
        """Count."""
        return stage.count()

    def look(where: str) -> str:
        """Look."""
        return where

    def fail() -> str:
        """Fail."""
        raise ValueError("it failed")

    made: Mapping[str, tuple[Callable[..., str], type[BaseModel], dict[str, Any]]] = {
        "act": (
            act,
            Named,
            {"kind": "write", "undo": lambda args, result: stage.take_back(str(args["name"]))},
        ),
        "pay": (pay, Named, {"kind": "write"}),
        "drive": (drive, Named, {"kind": "write"}),
        "wait": (wait, Named, {"kind": "write"}),
        "count": (count, Nothing, {"kind": "write"}),
        "look": (look, Somewhere, {"kind": "read"}),
        "fail": (fail, Nothing, {"kind": "read"}),
    }
    return [
        StructuredTool.from_function(work, name=name, args_schema=schema, metadata=metadata)
        for name, (work, schema, metadata) in made.items()
    ]
