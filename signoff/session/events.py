"""Runs a graph and tells what happens, one happening at a time; reads a finished history the same way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import RunControl

from signoff.cli.standing import TOOLS, config_of
from signoff.graph.build import Graph
from signoff.graph.machine import Event, State, next_state
from signoff.graph.marks import is_genuine, nudge_kind
from signoff.graph.task import Task
from signoff.tools.control import Effect


@dataclass(frozen=True)
class Moved:
    """The machine entered `state`.

    turn: replies so far, of at most `turns`. tokens: of the task so far. doing: the tool that runs now.
    command: what it runs in a terminal.
    """

    state: State
    turn: int
    turns: int
    tokens: int
    doing: str = ""
    command: str = ""


@dataclass(frozen=True)
class Wrote:
    """The user wrote this; `answers` when it answers a question."""

    text: str
    answers: bool = False


@dataclass(frozen=True)
class Said:
    """The model said this, beside its calls or without any."""

    turn: int
    text: str


@dataclass(frozen=True)
class Called:
    """A call of a work tool, or a control call that was refused, and its result."""

    turn: int
    name: str
    args: Mapping[str, Any]
    ok: bool
    result: str


@dataclass(frozen=True)
class Thought:
    """The model noted a thought."""

    turn: int
    text: str
    approach: str | None = None
    status: str | None = None


@dataclass(frozen=True)
class Answered:
    """A question of the model and the answer to it."""

    turn: int
    question: str
    answer: str


@dataclass(frozen=True)
class Reminded:
    """A reminder that the machine wrote for the model, and why (`talked`, `near_limit`, …)."""

    why: str
    text: str


@dataclass(frozen=True)
class Ended:
    """The task has ended; `outcome` has the fields of Outcome."""

    outcome: Mapping[str, Any]


Happening = Moved | Wrote | Said | Called | Thought | Answered | Reminded | Ended


class Streamed(BaseCallbackHandler):
    """Counts the pieces of the reply that is coming in; about one a token."""

    def __init__(self) -> None:
        self.pieces = 0

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.pieces += 1


class Follower:
    """Turns messages and updates into happenings, in order.

    task: what the history holds already. turns: the limit of one task. extra: turns granted on top of it.
    """

    def __init__(self, task: Task, turns: int, extra: int = 0) -> None:
        self.turns = turns
        self.extra = extra
        self.turn = task.turns
        self.tokens = sum(_tokens(reply.message) for reply in task.replies)
        self.open: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._last_reply: str | None = None
        for reply in task.replies[-1:]:
            self._last_reply = reply.message.id
            self.open = {call.id: (call.name, call.args) for call in reply.calls if reply.open(call)}

    def update(self, state: State, written: Mapping[str, Any]) -> Iterator[Happening]:
        """What the update of one state of the machine means."""
        for message in written.get("messages", ()):
            yield from self.message(message)
        if "task" in written:
            self.begin()
        if written.get("outcome"):
            yield Ended(written["outcome"])
        if state is not State.FINISH:
            to = next_state(state, Event(written["event"]))
            doing, command = self._doing() if to is State.EXECUTE else ("", "")
            yield Moved(to, self.turn, self.turns + self.extra, self.tokens, doing, command)

    def _doing(self) -> tuple[str, str]:
        name, args = next(iter(self.open.values()), ("", {}))
        return name, str(args.get("command", "")) if name == "run_shell" else ""

    def begin(self) -> None:
        """A new task begins."""
        self.turn = self.tokens = self.extra = 0
        self.open.clear()

    def message(self, message: BaseMessage) -> Iterator[Happening]:
        if isinstance(message, AIMessage):
            if message.id == self._last_reply:
                self._register(message)
                return
            self.turn += 1
            self.tokens += _tokens(message)
            self._register(message)
            if text := message.text.strip():
                yield Said(self.turn, text)
        elif isinstance(message, ToolMessage):
            yield from self._result(message)
        elif isinstance(message, HumanMessage) and is_genuine(message):
            yield Wrote(message.text)
        elif why := nudge_kind(message):
            yield Reminded(why, message.text)

    def _register(self, message: AIMessage) -> None:
        """Notes the calls of a reply; again when the machine gave them other ids."""
        self._last_reply = message.id
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        self.open = {
            call["id"] or "": (call["name"] or "", call["args"] if isinstance(call["args"], dict) else {})
            for call in calls
        }

    def _result(self, message: ToolMessage) -> Iterator[Happening]:
        name, args = self.open.pop(message.tool_call_id, (message.name or "", {}))
        ok, effect = message.status != "error", TOOLS.effect(name)
        if effect is Effect.CONTINUE and ok:
            yield Thought(self.turn, str(args.get("thought", "")), args.get("approach"), args.get("status"))
        elif effect is Effect.ASK and ok:
            yield Answered(self.turn, str(args.get("question", "")), message.text)
        elif effect is not Effect.FINISH or not ok:
            yield Called(self.turn, name, args, ok, message.text)


def _tokens(message: AIMessage) -> int:
    return message.usage_metadata["total_tokens"] if message.usage_metadata else 0


def drive(
    graph: Graph, thread_id: str, given: Any, follower: Follower, streamed: Streamed, control: RunControl
) -> Iterator[Happening]:
    """Runs the thread on `given` until it ends or waits for a person, and yields what happens.

    Each step is saved before the next begins. Only `updates` are streamed: then the nodes run in the
    caller's thread, where Ctrl-C reaches them at once. With `custom` too, LangGraph would run them in other
    threads and wait for them; so what a shell writes comes to the display from the shell itself.
    """
    config: RunnableConfig = {**config_of(thread_id), "callbacks": [streamed]}
    states = set(State)
    for update in graph.stream_held(given, config, stream_mode="updates", control=control):
        for node, written in update.items():
            if node in states:
                streamed.pieces = 0
                yield from follower.update(State(node), written)
