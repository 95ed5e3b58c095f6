"""Decides a stored thread again, turn by turn, without a model or a tool, and compares the result with what
is stored.

Each step of the thread starts from the state stored before it. The states that only decide (`DECIDED`) run
again, by their own functions. Their requests are answered from the record: the results of checks and of a
finishing tool, and the journal as it was at that moment. Nothing outside is called, and nothing is written.
The results of the other states (the model's replies, effects, people's answers) are taken as stored; for
these, only the event and its target are compared with the table. The relevant settings (limits, tools, texts,
`talk` and so on) are those of the given graph; the context of a run is not stored. The machines of delegates
follow the machine that called them, each decided by its own graph.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import GetOp, Item, Op, PutOp

from signoff.graph.build import Graph
from signoff.graph.compiled.states import works_of
from signoff.graph.errors import SetupError
from signoff.graph.foreign import OUTCOMES, label
from signoff.graph.history.reader import verdicts_of
from signoff.graph.history.usage import FROM_TOOL
from signoff.graph.inside.private import played
from signoff.graph.machine import LAST, TRANSITIONS, Event, State, next_state
from signoff.graph.messages import KEY, append_messages, is_reply, marks, nudge_kind
from signoff.graph.state import AgentState, Context
from signoff.nodes.finishing.checks import Checking, CheckResults
from signoff.nodes.journal import JOURNAL, STARTED, key_of
from signoff.nodes.node import NodeContext, Report, Steps, begin, keep_model_state
from signoff.nodes.requests import Files, Store, Swap
from signoff.nodes.tool_calls.run import ToolResult, ToolRuns
from signoff.session.machines import ThreadMachine, calls_below
from signoff.session.moments import ReplayStep, moments_of
from signoff.session.path import (
    Step,
    known_state,
    steps,
    trail,
)
from signoff.session.status import config_of, deps_of, readable

DECIDED = frozenset(
    {State.COMPRESS, State.DECIDE, State.ROUTE_TOOLS, State.NUDGE, State.REVIEW, State.FINISH}
)
"""The states that are decided again. The others have effects, or wait for a person."""

_SETTLE = (State.EXECUTE, State.HAND_OVER, State.REVIEW)
# The machine version does not affect decisions; the values read from a ledger are stored.
_NOT_COMPARED = frozenset({"machine", "tree"})
_CLOCK = frozenset({"seconds", "waited", "at"})


@dataclass(frozen=True)
class ReplayDifference:
    """A decision that differs from the stored one.

    turn: the turn of its task to which the step belongs. state: its name when it was saved. what: `rule` (of
    `decide`, with its reason), `event`, `next` (where the event leads), a channel of the state, `recorded
    outcome`, `state` if this version does not know it, or `error` if it raised. checkpoint_id: the checkpoint
    to which the step led. path: the delegates that lead to the machine.
    """

    turn: int
    state: str
    what: str
    stored: Any
    now: Any
    checkpoint_id: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "".join(f"{name} / " for name in self.path)
        told = f"{self.what} was {self.stored!r}, and now is {self.now!r}"
        return f"{where}turn {self.turn}, {self.state}: {told}"


@dataclass(frozen=True)
class Replay:
    """The result of a replay: the steps decided again, and those taken as stored, first of the thread, then
    of its delegates."""

    thread_id: str
    again: tuple[Step, ...]
    taken: tuple[Step, ...]
    differences: tuple[ReplayDifference, ...]


def replay(graph: Graph, thread_id: str, *, context: Any = None) -> Replay:
    """Decides the thread again, from its first step to its current state.

    context: the context of its runs. Steps of a run that saved only its end (`durability="exit"`) are taken
    as stored. Raises SetupError for a graph without a checkpointer, StorageError for data that cannot be
    read.
    """
    config_of(thread_id)
    deps = deps_of(graph)
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise SetupError("There is nothing to replay without a checkpointer; build the graph with storage=.")
    with readable(thread_id):
        return _replayed(ThreadMachine(graph, deps), graph, thread_id, context)


def _replayed(machine: ThreadMachine, root: Graph, thread_id: str, context: Any) -> Replay:
    """Decides a machine of the thread again, and those below it."""
    saver = cast(BaseCheckpointSaver[Any], root.checkpointer)
    moments = tuple(moments_of(machine.graph, trail(saver, thread_id, machine.ns)))
    found = [_Again(machine, root, thread_id, moments, context).replay()]
    for call in calls_below(machine, root, thread_id):
        if not call.is_machine:
            continue
        if call.machine is not None:
            found.append(_replayed(call.machine, root, thread_id, call.machine.context(context)))
        else:
            taken = tuple(step for step in steps(saver, thread_id, within=call.ns) if step.name)
            found.append(Replay(thread_id, (), taken, ()))
    return Replay(
        thread_id,
        again=tuple(step for one in found for step in one.again),
        taken=tuple(step for one in found for step in one.taken),
        differences=tuple(each for one in found for each in one.differences),
    )


class _NotKept(Exception):
    """The record does not have what a state requests."""


class _Again:
    """Decides the moments of one machine again. root: the graph of the thread, which has its storage."""

    def __init__(
        self,
        machine: ThreadMachine,
        root: Graph,
        thread_id: str,
        moments: Sequence[ReplayStep],
        context: Any,
    ) -> None:
        self._machine = machine
        self._graph = root
        self._context = Context() if context is None else context
        self._thread_id = thread_id
        # A separate cache: a concurrent run of the thread must not use these readers.
        self._deps = replace(machine.deps, readings={})
        self._works = works_of(self._deps)
        self._moments = moments
        self._settled, self._tried = _attempts(moments)
        self._recorded: dict[str, tuple[ReplayStep, int, Any]] = {}
        self._found: list[ReplayDifference] = []
        self._turn = 0

    def replay(self) -> Replay:
        again, taken = list[Step](), list[Step]()
        for at, moment in enumerate(self._moments):
            done = moment.whole and self._look(at, moment)
            (again if done else taken).append(moment.step)
        self._check_records()
        return Replay(self._thread_id, tuple(again), tuple(taken), tuple(self._found))

    def _look(self, at: int, moment: ReplayStep) -> bool:
        """Checks the moment; returns whether it could be decided again."""
        run = self._run(moment)
        task = run.task(moment.before)
        self._turn = task.turns + (moment.state is State.CALL_LLM)
        if moment.state is not LAST:
            # A task that went on: of an end that a kill kept from being saved, the record may be there.
            self._recorded.pop(task.id, None)
        if moment.state is None:
            self._differs(moment, "state", moment.step.name, f"one of: {', '.join(State)}")
            return False
        self._check_table(moment, moment.state)
        done = moment.state in DECIDED and self._decide(at, moment, moment.state, run)
        run.give_back()
        return done

    def _run(self, moment: ReplayStep) -> NodeContext:
        pad = SimpleNamespace(resume=[], get_null_resume=lambda consume=False: None, stop=0, step=0)
        runtime = SimpleNamespace(store=self._graph.store, context=self._context, control=None)
        own = played(runtime=runtime, pad=pad, saver=cast(Any, self._graph.checkpointer))
        here: dict[str, Any] = {"thread_id": self._thread_id, "checkpoint_ns": "", **own}
        if self._machine.descent is None:
            return NodeContext(self._deps, {"configurable": here})
        run = begin(self._deps, {"configurable": {**here, **self._machine.descent.config}})
        run.ns = self._machine.ns
        return run

    def _differs(self, moment: ReplayStep, what: str, stored: Any, now: Any) -> None:
        place = moment.step.checkpoint_id
        where = self._turn, moment.step.name
        self._found.append(ReplayDifference(*where, what, stored, now, place, self._machine.path))

    def _check_table(self, moment: ReplayStep, state: State) -> None:
        """Checks that the stored event belongs to its state, and leads where the thread went."""
        row, event = TRANSITIONS[state], moment.event
        led = [known_state(name) or name for name in moment.step.next]
        if state is LAST and (event is None or event not in row):
            if led:
                self._differs(moment, "next", led, [])
        elif event is None or event not in row:
            self._differs(moment, "event", moment.step.event, f"one of: {', '.join(row)}")
        elif led != [next_state(state, event)]:
            self._differs(moment, "next", led, [next_state(state, event)])

    def _decide(self, at: int, moment: ReplayStep, state: State, run: NodeContext) -> bool:
        """Runs the state again and compares. Returns False if the record does not have what it requests."""
        try:
            report = self._report(at, moment, self._works[state](moment.before, run))
        except _NotKept:
            self._forget_record(moment, state, run)
            return False
        except Exception as error:  # noqa: BLE001  a state that fails on a stored thread is what is looked for
            self._differs(moment, "error", moment.step.event, f"{type(error).__name__}: {error}")
            return True
        update = {"event": str(report.event or "ended"), **report.update}
        if self._deps.keeper is not None and not update.keys().isdisjoint(("messages", "task")):
            update |= keep_model_state(self._deps.keeper, moment.before, update)
        self._compare(moment, update)
        return True

    def _forget_record(self, moment: ReplayStep, state: State, run: NodeContext) -> None:
        """Drops the recorded outcome of a task whose end could not be decided again: it is not compared."""
        if state is State.FINISH:
            self._recorded.pop(run.task(moment.before).id, None)
        elif state is State.COMPRESS and moment.before.get("outcome") is None:
            # The outcome of a task that a new message interrupted.
            self._recorded.pop(moment.before.get("task") or "", None)

    def _report(self, at: int, moment: ReplayStep, work: Report | Steps) -> Report:
        if isinstance(work, Report):
            return work
        answer: Any = None
        try:
            while True:
                answer = self._answer(work.send(answer), at, moment)
        except StopIteration as end:
            report: Report = end.value
            return report

    def _answer(self, request: Any, at: int, moment: ReplayStep) -> Any:
        match request:
            case Store(ops=ops):
                return [self._operation(op, at, moment) for op in ops]
            case Swap():
                return True
            case Files():
                return None
            case Checking():
                return _checked(moment)
            case ToolRuns(jobs=jobs):
                return [_done(job.call.id, moment) for job in jobs]
        raise _NotKept

    def _operation(self, op: Op, at: int, moment: ReplayStep) -> Any:
        if isinstance(op, PutOp) and op.namespace[1] == OUTCOMES:
            self._recorded[op.key] = moment, self._turn, op.value
        if not isinstance(op, GetOp) or self._graph.store is None:
            return None
        item = self._graph.store.get(op.namespace, op.key)
        if item is None or op.namespace[1] != JOURNAL:
            return item
        return self._entry_then(item, op.namespace[-1], at)

    def _entry_then(self, item: Item, reply: str, at: int) -> Any:
        """The journal entry of a call at this moment, derived from the final one.

        Before the call was settled it had no entry, unless an attempt was interrupted. An entry that was
        never settled is visible to the step that closes the call, and after the step that found it
        interrupted.
        """
        settled = self._settled.get((reply, item.key))
        cut_short = any(tried < at for tried in self._tried.get(reply, ()))
        if settled is None:
            closes = self._moments[at].state in (State.COMPRESS, State.FINISH)
            return item if cut_short or closes else None
        if settled < at:
            return item
        begun = {**item.value, "status": STARTED, "attempt": max(1, item.value["attempt"] - 1)}
        return SimpleNamespace(value={**begun, "messages": []}) if cut_short else None

    def _compare(self, moment: ReplayStep, update: Mapping[str, Any]) -> None:
        now: dict[str, Any] = {**moment.before, **update, "messages": moment.after["messages"]}
        if moment.state is State.DECIDE and (rules := _rules(moment, now)):
            self._differs(moment, "rule", *rules)
            return
        event = moment.step.event if moment.state is State.FINISH else moment.event
        if event != now["event"]:
            self._differs(moment, "event", moment.step.event, now["event"])
            return
        if checks_refused(moment):
            # The exact output of the checks is not stored: only the refusal is compared.
            now["verdicts"] = _kinds(now["verdicts"])
            stored: dict[str, Any] = {**moment.after, "verdicts": _kinds(moment.after["verdicts"])}
        else:
            stored = dict(moment.after)
            written = _with_given_ids(update.get("messages", []), moment)
            now["messages"] = append_messages(moment.before["messages"], [written])
        if self._machine.path and stored.get("outcome") and now.get("outcome"):
            # A fork has the delegates of the thread that it comes from as they are.
            now["outcome"] = {**now["outcome"], "thread_id": stored["outcome"]["thread_id"]}
        for name in sorted(AgentState.__annotations__.keys() - _NOT_COMPARED - {"event"}):
            was, is_now = stored.get(name), now.get(name)
            if not _is_same(was, is_now):
                self._differs(moment, name, *_difference(name, moment, was, is_now))

    def _check_records(self) -> None:
        """Compares the outcomes in the store with the recomputed ones."""
        store = self._graph.store
        for task, (moment, turn, now) in self._recorded.items() if store is not None else ():
            assert store is not None, "as above"
            item = store.get(("signoff", OUTCOMES, label(self._thread_id)), task)
            stored = item.value if item else None
            if not _is_same(stored, now):
                self._turn = turn
                self._differs(moment, "recorded outcome", *_difference("", moment, stored, now))


def _attempts(moments: Sequence[ReplayStep]) -> tuple[dict[tuple[str, str], int], dict[str, list[int]]]:
    """When each call was settled by the state that ran it, by reply and call; and when a reply's next call
    was attempted without a result."""
    settled: dict[tuple[str, str], int] = {}
    tried: dict[str, list[int]] = {}
    for at, moment in enumerate(moments):
        if moment.state not in _SETTLE:
            continue
        replies = filter(is_reply, reversed(moment.before["messages"]))
        reply = label(getattr(next(replies, None), "id", None))
        results = [message for message in moment.written if isinstance(message, ToolMessage)]
        settled |= {(reply, key_of(message.tool_call_id)): at for message in results}
        if moment.state is State.EXECUTE and not results:
            tried.setdefault(reply, []).append(at)
    return settled, tried


def _done(call_id: str, moment: ReplayStep) -> Any:
    """The result of a call that ran in this step."""
    results = [message for message in moment.written if isinstance(message, ToolMessage)]
    found = [message for message in results if message.tool_call_id == call_id]
    if not found:
        raise _NotKept
    more = [message for message in moment.written if nudge_kind(message) == FROM_TOOL]
    return ToolResult(found[0], tuple(more))


def checks_run(moment: ReplayStep) -> bool:
    """Whether checks ran in the step, as far as recorded, and did not refuse the finish."""
    after: Any = moment.after
    if moment.event is Event.NEEDS_PERSON:
        return bool(after["verdicts"]["asked"]["checks"])
    return moment.event is Event.ACCEPTED and bool(after["ending"].get("checks"))


def _checked(moment: ReplayStep) -> CheckResults:
    """The results of the checks in this step, as far as recorded."""
    after, event = moment.after, moment.event
    if checks_refused(moment):
        return CheckResults(names=("a check",))
    runs: Sequence[dict[str, Any]] = ()
    if event is Event.NEEDS_PERSON:
        asked = after["verdicts"]["asked"]
        if asked["problem"]:
            raise _NotKept
        runs = asked["checks"]
        return CheckResults(tuple(runs), asked["seconds"])
    if event in (Event.ACCEPTED, Event.FAILED):
        runs = after["ending"].get("checks", ())
    elif event is Event.DEADLOCK:
        raise _NotKept
    seconds = [marks(message)["seconds"] for message in moment.written if "seconds" in marks(message)]
    return CheckResults(tuple(runs), seconds[0] if seconds else 0.0)


def checks_refused(moment: ReplayStep) -> bool:
    """Whether the step refused a finish because its checks did not pass."""
    if moment.state is not State.REVIEW or moment.event is not Event.REFUSED:
        return False
    now = moment.after.get("verdicts")
    before = verdicts_of(moment.before.get("verdicts"), now["task"] if now else "")
    fresh = [one for key, one in (now["calls"] if now else {}).items() if before.get(key) != one]
    return any(not isinstance(one, str) and one["kind"] == "checks" for one in fresh)


def _kinds(verdicts: Any) -> Any:
    """Verdicts without the text of their reasons."""
    calls = {key: one if isinstance(one, str) else one["kind"] for key, one in verdicts["calls"].items()}
    return {**verdicts, "calls": calls}


def _rules(moment: ReplayStep, now: Mapping[str, Any]) -> tuple[str, str] | None:
    """The rule that fired and the one that fires now, each with event and reason, if they differ."""
    stored = moment.after["decision"]
    if _is_same(stored, now["decision"]):
        return None
    return _describe(stored), _describe(now["decision"])


def _describe(decision: Mapping[str, Any]) -> str:
    return f"{decision['rule']} → {decision['event']}: {decision['why']}"


def _with_given_ids(written: Any, moment: ReplayStep) -> list[BaseMessage]:
    """The messages that a state appends now, with the stored ids for those that LangGraph gave an id."""
    known, fresh = {message.id for message in moment.before["messages"]}, iter(moment.written)
    named = list[BaseMessage]()
    for message in written:
        stored = next(fresh, None) if message.id not in known else None
        own = stored.id if stored is not None and message.id is None else message.id
        named.append(message.model_copy(update={"id": own}))
    return named


def _difference(name: str, moment: ReplayStep, stored: Any, now: Any) -> tuple[Any, Any]:
    """Two values that differ, reduced to the parts that differ."""
    if name == "messages":
        begin = len(moment.before["messages"])
        return _plain(stored[begin:]), _plain(now[begin:])
    if isinstance(stored, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**stored, **now} if not _is_same(stored.get(key), now.get(key))]
        return {key: stored.get(key) for key in keys}, {key: now.get(key) for key in keys}
    return stored, now


def _is_same(stored: Any, now: Any) -> bool:
    """Whether two values are the same, except for times."""
    if stored is now:
        return True
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_is_same, stored, now))
    return bool(_plain(stored) == _plain(now))


def _plain(value: Any) -> Any:
    """A value for comparison or display: messages without provider metadata and times."""
    if isinstance(value, BaseMessage):
        notes = {name: note for name, note in marks(value).items() if name not in _CLOCK}
        others = {name: one for name, one in value.additional_kwargs.items() if name != KEY}
        calls = getattr(value, "tool_calls", None), getattr(value, "invalid_tool_calls", None)
        answers = getattr(value, "tool_call_id", None), getattr(value, "status", None)
        return value.type, value.id, _plain(value.content), value.name, *calls, *answers, others, notes
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
