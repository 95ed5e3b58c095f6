"""The machine without LangGraph: the real node functions, table and reducers, one state at a time.

It can start from any point, any number of times. Only what is outside the machine is simulated: the model,
the tools, the checks, the person, the database. What the model may say is data: one entry is one reply, or
one way in which the model fails. A work call names its result (`ok` or `fail`), so that one tool of a kind is
enough. The store can be copied, and a process can be killed at any operation on it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp
from langgraph.types import Interrupt

from signoff.graph.compiled.states import NODES
from signoff.graph.foreign import strict_serde
from signoff.graph.inside.private import played
from signoff.graph.machine import LAST, Event, State, enters, next_state
from signoff.graph.messages import NOTES, append_messages, latest, result
from signoff.graph.state import AgentState
from signoff.nodes.finishing.checks import Checking, CheckResults
from signoff.nodes.model.calling import Stream
from signoff.nodes.node import Dependencies, NodeContext, Report, Work
from signoff.nodes.tool_calls.run import ToolResult, ToolRun, ToolRuns

Entries = Mapping[tuple[tuple[str, ...], str], Mapping[str, Any]]


class Killed(BaseException):
    """The process ends here, as with `kill -9`."""


class Shelf(BaseStore):
    """A small store that can be copied; after `lives` operations the process is killed."""

    def __init__(self, entries: Entries, lives: int | None = None) -> None:
        self.entries: dict[tuple[tuple[str, ...], str], Mapping[str, Any]] = dict(entries)
        self.operations = 0
        self._lives = lives

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        self._live()
        return [self._one(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        self._live()
        if self.entries.get((namespace, key)) != before:
            return False
        self.entries[namespace, key] = after
        return True

    def _live(self) -> None:
        if self.operations == self._lives:
            raise Killed
        self.operations += 1

    def _one(self, op: Op) -> Any:
        if isinstance(op, GetOp):
            found = self.entries.get((op.namespace, op.key))
            moment = cast(Any, None)
            return (
                None
                if found is None
                else Item(
                    value=dict(found),
                    key=op.key,
                    namespace=op.namespace,
                    created_at=moment,
                    updated_at=moment,
                )
            )
        if isinstance(op, PutOp) and op.value is not None:
            self.entries[op.namespace, op.key] = op.value
            return None
        raise NotImplementedError(f"{op!r} is no operation of a node")


Part = tuple[str, Mapping[str, Any]]
Role = Literal["read", "write", "finish", "ask", "think"]

OK: Mapping[str, Any] = {"plays": "ok"}
FAIL: Mapping[str, Any] = {"plays": "fail"}
NONE: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Symbol:
    """One reply of the model.

    calls: the role of each call (or the name of a tool that does not exist), and its arguments in addition to
    the required ones. raw: calls that are not JSON. ids: their ids, if a provider sends bad ones. error: what
    is raised instead of a reply. twin: the symbol that must lead to the same state, since only its
    `finish_reason` differs.
    """

    text: str = ""
    calls: Sequence[Part] = ()
    raw: Sequence[str] = ()
    stop: str = ""
    ids: Sequence[str] = ()
    error: str = ""
    twin: str = ""

    @property
    def roles(self) -> list[str]:
        return [role for role, _ in self.calls]


_FINISH: Part = ("finish", NONE)
_ASK: Part = ("ask", NONE)
_THINK: Part = ("think", NONE)
_READ: Part = ("read", OK)
_WRITE: Part = ("write", OK)
_FAILING: Part = ("write", FAIL)

ALPHABET: Mapping[str, Symbol] = {
    "talk": Symbol("I'll patch it now."),
    "talk, tool_calls": Symbol("I'll patch it now.", stop="tool_calls", twin="talk"),
    "talk, no reason": Symbol("I'll patch it now.", stop="none", twin="talk"),
    "done!": Symbol("Done. The task is finished. TASK_COMPLETE finish_task()"),
    "empty": Symbol(),
    "only thoughts": Symbol("<think>So.</think>"),
    "cut words": Symbol("so I wi", stop="length"),
    "cut write": Symbol(calls=[_WRITE], stop="length"),
    "cut write + finish": Symbol(calls=[_WRITE, _FINISH], stop="length"),
    "cut finish": Symbol(raw=["finish"], stop="length"),
    "refusal": Symbol("I cannot", stop="content_filter"),
    "think": Symbol(calls=[_THINK]),
    "read": Symbol(calls=[_READ]),
    "write": Symbol(calls=[_WRITE]),
    "write, stop": Symbol(calls=[_WRITE], stop="stop", twin="write"),
    "failing write": Symbol(calls=[_FAILING]),
    "two reads + write": Symbol(calls=[_READ, _READ, _WRITE]),
    "two writes": Symbol(calls=[_WRITE, _WRITE]),
    "malformed": Symbol(raw=["write"]),
    "unknown tool": Symbol(calls=[("no_such_tool_at_all", NONE)]),
    "repeated id": Symbol(calls=[_WRITE, _WRITE], ids=["call_0", "call_0"]),
    "no id": Symbol(calls=[_WRITE], ids=[""]),
    "finish": Symbol(calls=[_FINISH]),
    "finish, stop": Symbol(calls=[_FINISH], stop="stop", twin="finish"),
    "words + finish": Symbol("All done.", calls=[_FINISH]),
    "finish + write": Symbol(calls=[_FINISH, _WRITE]),
    "write + finish": Symbol(calls=[_WRITE, _FINISH]),
    "failing write + finish": Symbol(calls=[_FAILING, _FINISH]),
    "unknown tool + finish": Symbol(calls=[("no_such_tool_at_all", NONE), _FINISH]),
    "two finishes": Symbol(calls=[_FINISH, _FINISH]),
    "think + finish": Symbol(calls=[_THINK, _FINISH]),
    "empty finish": Symbol(calls=[("finish", {"summary": " "})]),
    "blank finish": Symbol(calls=[("finish", {"summary": ""})]),
    "finish without a result": Symbol(calls=[("finish", {"result": None})]),
    "phase": Symbol(calls=[("finish", {"completion_percentage": 60})]),
    "finish to confirm": Symbol(calls=[("finish", {"requires_user_confirmation": True})]),
    "unproven finish": Symbol(calls=[("finish", {"summary": "Unproven."})]),
    "blocked": Symbol(calls=[("finish", {"outcome": "blocked"})]),
    "ask": Symbol(calls=[_ASK]),
    "bad ask": Symbol(calls=[("ask", {"question": ""})]),
    "write + ask": Symbol(calls=[_WRITE, _ASK]),
    "finish + ask": Symbol(calls=[_FINISH, _ASK]),
    "ask + finish": Symbol(calls=[_ASK, _FINISH]),
    "error": Symbol(error="the connection was lost"),
    "too long": Symbol(error="context_length_exceeded: maximum context length is 10 tokens"),
}
STOPPED = Symbol(stop="stopped")
"""The stream was closed because of a stop request: nothing of the reply counts."""
CORE = (
    "talk",
    "empty",
    "cut write",
    "think",
    "write",
    "failing write + finish",
    "write + finish",
    "finish",
    "finish + write",
    "ask",
    "ask + finish",
    "unknown tool",
)
"""One reply of each kind, for longer sequences."""

Names = Mapping[str, tuple[str, Mapping[str, Any]]]
"""For each role a tool of the graph, with valid arguments."""


def message(symbol: Symbol, names: Names, message_id: str) -> AIMessage:
    """Returns the reply as a chat model returns it, with ids made from `message_id`."""
    parts = [(*names.get(role, (role, NONE)), args) for role, args in symbol.calls]
    ids = list(symbol.ids) or [f"{message_id}-{at}" for at in range(len(parts))]
    calls = [
        {"name": name, "args": {**needed, **args}, "id": call_id, "type": "tool_call"}
        for (name, needed, args), call_id in zip(parts, ids, strict=True)
    ]
    bad = [
        InvalidToolCall(
            type="invalid_tool_call",
            name=names[role][0],
            args='{"summary": "Fixed a',
            id=f"{message_id}-bad{at}",
            error="it is cut off",
        )
        for at, role in enumerate(symbol.raw)
    ]
    reason = symbol.stop or ("tool_calls" if calls or bad else "stop")
    metadata: dict[str, Any] = {} if reason == "none" else {"finish_reason": reason}
    if symbol is STOPPED:
        metadata = {NOTES: {"stopped": True}}
    return AIMessage(
        symbol.text,
        id=message_id,
        tool_calls=calls,
        invalid_tool_calls=bad,
        usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        response_metadata=metadata,
    )


THREAD = "a thread"
# A node may ask only if there is a checkpointer; nothing is ever saved.
_SAVER = InMemorySaver()


@dataclass(frozen=True)
class MachinePoint:
    """A point in a run: the machine's next state (None: the task has ended), and the database contents.

    waiting: what a person is asked, once it is known. outside: how many events from outside may still come.
    fresh: the reply at which the task began that was sent when nothing was open. ran: how often each call
    ran, by id. undone: the same for undo calls. agreed: the calls that a person approved. via: the event that
    led here.
    """

    place: State | None
    state: AgentState
    shelf: Entries = field(default_factory=dict)
    waiting: Mapping[str, Any] | None = None
    outside: int = 0
    fresh: int = 0
    ran: Mapping[str, int] = field(default_factory=dict)
    undone: Mapping[str, int] = field(default_factory=dict)
    agreed: frozenset[str] = frozenset()
    via: Event | None = None
    path: tuple[str, ...] = ()

    @property
    def messages(self) -> Sequence[BaseMessage]:
        return self.state["messages"]


@dataclass(frozen=True)
class MachineStep:
    """The step of one state: the point after it, and what was observed from outside during it.

    asked: what it waits for, if it did not complete.
    """

    before: MachinePoint
    after: MachinePoint
    said: str = ""
    prompt: list[BaseMessage] | None = None
    ran: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    update: Mapping[str, Any] = field(default_factory=dict)
    operations: int = 0
    asked: tuple[Interrupt, ...] = ()


@dataclass(frozen=True)
class Pad:
    """LangGraph's scratchpad for one invocation of a node: its answers, and how many it has requested."""

    resume: list[Any]
    interrupt_counter: Callable[[], int]
    subgraph_counter: Callable[[], int] | None = None

    def get_null_resume(self, consume: bool = False) -> None:
        """Returns None: every answer names the interrupt that it answers."""


class Machine:
    """Runs the nodes of one graph. can_ask: whether there is a checkpointer to wait with."""

    def __init__(self, deps: Dependencies, names: Names, *, can_ask: bool = True) -> None:
        self.deps = deps
        self.names = names
        self.can_ask = can_ask

    def name_of(self, role: str) -> str:
        """Returns the tool with this role; empty if the graph has none."""
        return self.names[role][0] if role in self.names else ""

    def place(self) -> Mapping[str, Any]:
        """Returns the machine's own part of its nodes' configuration, beside the thread."""
        return {"checkpoint_ns": ""}

    def saver(self) -> BaseCheckpointSaver[Any] | None:
        return _SAVER if self.can_ask else None

    def work(self, state: State) -> Work:
        """Returns the work of a state."""
        return NODES[state]

    def carry_out(self, request: Any, run: NodeContext) -> Any:
        """Carries out a request of a node that the simulated world does not answer."""
        return request.do(run)

    def begin(self, messages: Iterable[Any], outside: int) -> MachinePoint:
        """Returns a new thread to which these messages were sent."""
        state = cast(AgentState, {"messages": append_messages([], [list(messages)])})
        return MachinePoint(enters(Event.INPUT), state, outside=outside, via=Event.INPUT)

    def step(
        self, point: MachinePoint, symbol: Symbol | None = None, answer: Any = None, lives: int | None = None
    ) -> MachineStep:
        """Runs the state at `point`. symbol: the model's reply, answer: the person's.

        lives: after how many operations on the store the process is killed; the point after that is the same,
        with whatever the store and the world have recorded by then.
        """
        assert point.place is not None, "a thread that has ended does nothing"
        shelf, prompt = Shelf(point.shelf, lives), list[BaseMessage]()
        ran, undone = list[str](), list[str]()
        run = self._run(shelf, answer, drained=symbol is STOPPED)
        seen = _World(self, point, symbol, undone if point.place is State.UNDO else ran, prompt)
        token = var_child_runnable_config.set(run.config)
        try:
            report = seen.drive(self.work(point.place)(point.state, run), run)
        except GraphInterrupt as stop:
            asked = tuple(stop.args[0])
            after = replace(point, waiting=asked[0].value, shelf=shelf.entries)
            return MachineStep(point, after, operations=shelf.operations, asked=asked)
        except Killed:
            more, less = _more(point.ran, ran), _more(point.undone, undone)
            after = replace(point, waiting=None, shelf=shelf.entries, ran=more, undone=less)
            return MachineStep(
                point, after, ran=tuple(ran), undone=tuple(undone), operations=shelf.operations
            )
        finally:
            var_child_runnable_config.reset(token)
        run.give_back()
        after = replace(
            point,
            place=None if _is_over(point.place, report) else next_state(point.place, report.event),
            state=merged(point.state, {"event": str(report.event or "ended"), **report.update}),
            shelf=shelf.entries,
            waiting=None,
            ran=_more(point.ran, ran),
            undone=_more(point.undone, undone),
            via=report.event,
        )
        shown = prompt if symbol is not None else None
        told = tuple(ran), tuple(undone)
        return MachineStep(point, after, "", shown, *told, report.update, shelf.operations)

    def _run(self, shelf: Shelf, answer: Any, *, drained: bool) -> NodeContext:
        counter = count()
        pad = Pad([] if answer is None else [answer], lambda: next(counter))
        control = SimpleNamespace(drain_requested=drained)
        runtime = SimpleNamespace(store=shelf, context=None, control=control)
        given: dict[str, Any] = {
            "thread_id": THREAD,
            **self.place(),
            **played(runtime=runtime, pad=pad, saver=self.saver()),
        }
        config: RunnableConfig = {"configurable": given}
        return NodeContext(self.deps, config)


@dataclass
class _World:
    """The outside of the machine, for one step."""

    machine: Machine
    point: MachinePoint
    symbol: Symbol | None
    ran: list[str]
    prompt: list[BaseMessage]

    def drive(self, work: Any, run: NodeContext) -> Report:
        if isinstance(work, Report):
            return work
        report: Report = drive(work, partial(self.answer, run=run))
        return report

    def answer(self, request: Any, run: NodeContext) -> Any:
        if isinstance(request, Stream):
            return self._reply(request)
        if isinstance(request, ToolRuns):
            return [self._result_of(job) for job in request.jobs]
        if isinstance(request, Checking):
            bad = str(request.given["claim"].get("summary", "")).startswith("Unproven")
            ran = ({"name": "the check", "passed": not bad, "said": ""},)
            return CheckResults(ran, 0.0, ("the check",) if bad else (), "It does not hold." if bad else "")
        return self.machine.carry_out(request, run)

    def _reply(self, request: Stream) -> list[BaseMessage]:
        assert self.symbol is not None, "the model is asked only where it is played"
        self.prompt.extend(request.prompt)
        if self.symbol.error:
            raise RuntimeError(self.symbol.error)
        return list[BaseMessage]([message(self.symbol, self.machine.names, f"r{len(self.point.messages)}")])

    def _result_of(self, job: ToolRun) -> ToolResult:
        self.ran.append(job.call.id)
        given = job.edited or job.call.args
        # An undo gets the arguments of its call as a whole.
        ok = given.get("args", given).get("plays") != "fail"
        return ToolResult(
            result(job.call.id, job.call.name, "It has run." if ok else "It has failed.", ok=ok)
        )


def _is_over(place: State, report: Report) -> bool:
    return place is LAST and report.event is None


def drive(work: Any, answer: Callable[[Any], Any]) -> Any:
    """Answers each request of a node, or of a part of one; returns its result."""
    go_on = partial(work.send, None)
    while True:
        try:
            request = go_on()
        except StopIteration as end:
            return end.value
        try:
            go_on = partial(work.send, answer(request))
        except Exception as error:  # noqa: BLE001  the node decides what an error means
            go_on = partial(work.throw, error)


def merged(state: AgentState, update: Mapping[str, Any]) -> AgentState:
    """Returns the state after a node's writes, merged by the reducers of its channels."""
    after: dict[str, Any] = {**state, **update}
    after["messages"] = state["messages"]
    if "messages" in update:
        after["messages"] = append_messages(state["messages"], [update["messages"]])
    if "digest" in update:
        after["digest"] = latest(state.get("digest"), [update["digest"]])
    return cast(AgentState, after)


def reopened(state: AgentState) -> AgentState:
    """Returns the state as another process reads it from the database."""
    return cast(AgentState, strict_serde().loads_typed(strict_serde().dumps_typed(dict(state))))


def _more(before: Mapping[str, int], ran: Iterable[str]) -> Mapping[str, int]:
    after = dict(before)
    for call_id in ran:
        after[call_id] = after.get(call_id, 0) + 1
    return after
