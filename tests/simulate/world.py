"""A schedule, played: a person and a program move threads, while processes die, stall and are cut off."""

import asyncio
import contextvars
import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.types import Command

from signoff import (
    Action,
    Answer,
    Approval,
    BadAnswer,
    Ended,
    Question,
    Session,
    SetupError,
    StorageError,
    ThreadBusy,
    ThreadError,
    ThreadStatus,
    ThreadUnknown,
    Waiting,
    go_on,
    outcome_of,
    stop,
    undo,
)
from signoff.events import Decided, Entered
from signoff.session import Condition, expire, request_pause
from tests.simulate.cast import LOOPS, MAY_I, Stage, graph_of
from tests.simulate.choices import Choices
from tests.simulate.clock import VirtualClock
from tests.simulate.laws import Laws
from tests.simulate.storage import Database, Killed, MemoryStorage, Process

THREADS = ("a", "b")
NONSENSE: tuple[Any, ...] = (
    "approve@zzzz", "7", 7, "", None, {}, [], "[", {"decisions": []}, {"type": "edit"}, True,
    {"decisions": [{"type": "approve"}] * 3}, {"output": "done", "status": "what"}, float("nan"),
)  # fmt: skip
Move = tuple[str, Any, bool]
FAULTS = (
    "kill", "kill", "fail", "fail after", "torn", "torn, killed", "second runner", "cut off", "stall",
    "pause", "stop", "request", "look",
)  # fmt: skip
UNKNOWN = "0" * 32
"""The id of no interrupt."""
HANGS = "law 1: what another process runs does not end"
STALL = 3_600
"""Seconds for which a process stands still: its hold has run out by then."""


@dataclass(frozen=True)
class Expire:
    """Somebody looks whether a question has waited too long. ago: seconds since its deadline."""

    wait: Question
    ago: float


@dataclass(frozen=True)
class Fork:
    """Somebody copies the thread. turns: as it was after so many; None as it is."""

    target: str
    turns: int | None


def said(status: ThreadStatus) -> list[Any]:
    """The history of a thread, without ids, and where it stands."""
    messages = status.values.get("messages", ())
    calls = [[(call["name"], call["args"]) for call in getattr(m, "tool_calls", ())] for m in messages]
    texts = [(m.type, m.text) for m in messages]
    return [*zip(texts, calls, strict=True), status.condition]


class Failing(RuntimeError):
    """What the storage raises when the schedule has it fail."""


class World:
    """The threads of one schedule, and what is known of them."""

    def __init__(self, choices: Choices, met: Counter[str]) -> None:
        self.choices, self.met = choices, met
        self.database = Database()
        self.loop = LOOPS[choices.below(len(LOOPS))]
        self.clock = VirtualClock()
        self.stage = Stage(choices, self.clock)
        self.threads = [*THREADS]
        self.other: Iterator[Any] | None = None
        self._context = contextvars.Context()
        self.by_loop = choices.once_in(6)
        self.laws = Laws(self.loop, self.stage, self.database, met)
        self.plan: tuple[str, int] | None = None
        self.settled: list[str] = []
        self.unheard: dict[str, str] = {}
        self.numbers = 0
        self.open()

    def open(self) -> None:
        """As a new process does."""
        self.process = Process(moment=self.moment)
        self.stage.moment = self.moment
        self.storage = MemoryStorage(self.database, self.process)
        self.graph = graph_of(self.loop, self.stage, self.storage)

    def play(self) -> None:
        """Plays the schedule. Raises AssertionError with the law that was broken."""
        with self.clock.ticks():
            for _ in range(2 + self.choices.below(7)):
                self.move(
                    self.threads[self.choices.below(len(self.threads)) if self.choices.once_in(4) else 0]
                )

    def _copied(self) -> "World":
        """The same threads and effects on another machine."""
        twin = copy.copy(self)
        twin.database, twin.met, twin.clock = self.database.copied(), Counter[str](), replace(self.clock)
        twin.stage = self.stage.copied(twin.clock)
        twin.settled, twin.threads, twin.unheard = [*self.settled], [*self.threads], {}
        twin.open()
        return twin

    def _compare(self, twin: "World", thread: str, kind: str, command: Any) -> None:
        """Law 3: what was said and decided is the same on the other machine."""
        with twin.clock.ticks():
            twin._guarded(kind, lambda: twin._run(thread, command), True)
        ours, theirs = (said(world.session(thread).status()) for world in (self, twin))
        differing = [pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1]]
        assert not differing, f"law 3: after {kind}, this machine and another say: {differing[0]}"
        self.laws.meets(3)

    def session(self, thread: str) -> Session[Any]:
        return Session(self.graph, thread, on_pending=self.choices.of(("answer", "answer", "supersede")))

    def move(self, thread: str) -> None:
        """One move, and what must hold after it."""
        self.stage.running = thread
        self.clock.passes(self.choices.of((0, 0, 60, 7_200)))
        before = self.session(thread).status()
        kind, command, is_legal = self.choices.of([*self._moves(before), *self._again(before)])()
        self.plan = None
        if is_legal and self.choices.once_in(3):
            # A copy has a name that nobody else knows.
            faults = ("kill", "fail", "fail after") if isinstance(command, Fork) else FAULTS
            self.plan = self.choices.of(faults), self.choices.below(25)
        content = None if is_legal else self.database.content()
        self.laws.begins(thread, command, before)
        self.unheard.pop(thread, None)
        repeats = is_legal and self.plan is None and self.choices.once_in(8)
        twin = self._copied() if repeats else None
        taken = len(self.choices.taken)
        decision = self._guarded(kind, lambda: self._run(thread, command), is_legal)
        self.plan = self.process.tears = None
        if twin is not None and not self.stage.has_two_at_once:
            twin.choices = twin.stage.choices = Choices(given=self.choices.taken[taken:])
            self._compare(twin, thread, kind, command)
        self._other_ends()
        if kind == "stop":
            self.laws.stopped(decision)
        if decision is None and kind in ("task", "message"):
            self.unheard[thread] = command
        if content is not None and not self.process.is_dead:
            self.laws.unchanged(kind, content, before, self.session(thread).status())
        if self.process.is_dead:
            self.met["fault: kill"] += 1
            if self.stage.effects:
                self.laws.meets(6)
            self.open()
        self.laws.hold(thread, self.session(thread).status(), decision)

    # What may be done where a thread stands: its name, the command, and whether it must be taken.

    def _moves(self, status: ThreadStatus) -> Sequence[Callable[[], Move]]:
        match status.condition:
            case Condition.UNKNOWN:
                nothing = (lambda: ("go on", go_on(), False)), (lambda: ("answer", Answer("x"), False))
                return (self._task, self._task, self._task, self._task, self._task, *nothing)
            case Condition.ENDED:
                late = partial(self._late, status)
                back, copied = (lambda: ("undo", undo(), True)), partial(self._fork, status)
                return (self._task, self._further, self._task, late, back, copied)
            case Condition.WAITING:
                right, wrong = partial(self._answer, status), partial(self._wrong, status)
                rare = (partial(self._late, status), self._further, self._message, self._stop)
                timed = [wait for wait in status.waits if isinstance(wait, Question) and wait.deadline]
                expires = [partial(self._expires, timed)] * 3 if timed else []
                return (right, right, right, wrong, wrong, *rare, partial(self._fork, status), *expires)
        copied, late = partial(self._fork, status), partial(self._late, status)
        return (self._onward, self._onward, self._onward, self._stop, late, copied)

    def _again(self, status: ThreadStatus) -> Sequence[Callable[[], Move]]:
        """The message that got no answer, sent again: until something has replied to it, or asks a person, it
        counts once."""
        text = self.unheard.get(status.thread_id)
        newest = [m for m in status.values.get("messages", ()) if m.type in ("human", "ai")][-1:]
        is_new = all(m.text != text for m in status.values.get("messages", ()))
        if text is None or status.waits or not (is_new or newest[0].text == text):
            return ()
        return [lambda: ("task", text, True)] * 3

    def _further(self) -> Move:
        return "go on", self._go_on(), True

    def _onward(self) -> Move:
        return "go on", self.choices.of((None, None, self._go_on())), True

    def _stop(self) -> Move:
        return "stop", stop(), True

    def _go_on(self) -> Command[Any]:
        name = self.choices.of((None, None, "click"))
        return go_on(self.choices.of((None, 1, 2)), name)

    def _task(self) -> Move:
        return "task", self._text("do it"), True

    def _text(self, what: str) -> str:
        self.numbers += 1
        return f"{what} #{self.numbers}"

    def _message(self) -> Move:
        # While several wait, and where it is a bare yes, it changes nothing, and is no error.
        return "message", self._text("rather this"), True

    def _answer(self, status: ThreadStatus) -> Move:
        wait = self.choices.of(status.waits)
        return "answer", Answer(self._fitting(wait), wait.interrupt_id, by="ada"), True

    def _fitting(self, wait: Waiting) -> Any:
        match wait:
            case Action(args=args):
                return self._drives(wait, str(args["name"]))
            case Approval(calls=calls):
                rejected = {"type": "reject", "message": self._text("not now")}
                decision = self.choices.of(({"type": "approve"}, {"type": "approve"}, rejected))
                self.laws.approves(wait, decision["type"] == "approve")
                return {"decisions": [decision] * len(calls)}
            case Question(options=options):
                return self.choices.of((*options, self._text("something else")))
        raise AssertionError(wait)

    def _drives(self, action: Action, token: str) -> str:
        """Does what was handed over, as a careful driver: it looks first where it may have been done."""
        if self.stage.effects[self.stage.running, token]:
            return f"did {token}"
        self.plan = None
        return self.stage.happen(token)

    def _wrong(self, status: ThreadStatus) -> Move:
        """An answer that does not fit its wait; a question takes nearly anything."""
        wait = self.choices.of(status.waits)
        # What a tool waits for takes anything by `invoke`.
        of_tool = isinstance(wait, Question) and wait.text == MAY_I
        for value in () if of_tool else (self.choices.of(NONSENSE), *NONSENSE):
            try:
                wait.read(value)
            except BadAnswer:
                return "wrong answer", Answer(value, wait.interrupt_id), False
        return "wrong answer", Answer("red", UNKNOWN), False

    def _late(self, status: ThreadStatus) -> Move:
        known = [name for name in self.settled if all(name != wait.interrupt_id for wait in status.waits)]
        return "late answer", Answer("approve", self.choices.of([*known, UNKNOWN])), False

    def _expires(self, timed: Sequence[Question]) -> Move:
        wait = self.choices.of(timed)
        return "expire", Expire(wait, self.choices.of((1, -1))), True

    def _fork(self, status: ThreadStatus) -> Move:
        self.numbers += 1
        target = f"copy {self.numbers}"
        return "fork", Fork(target, self.choices.of((None, 0, 1))), True

    # How it runs.

    def _run(self, thread: str, command: Any) -> Any:
        match command:
            case Expire():
                return self._expired(thread, command)
            case Fork():
                return self._forked(thread, command)
        if isinstance(command, Answer) and command.interrupt_id:
            self.settled.append(command.interrupt_id)
        way = self.choices.of(("events", "events", "invoke", "step"))
        if way == "invoke":
            return self._invoked(thread, command)
        if way == "step" and not self.by_loop:
            return self.session(thread).step(command)
        if self.by_loop:
            return asyncio.run(self.session(thread).arun(command))
        decision = None
        for event in self.session(thread).events(command):
            if isinstance(event, Entered):
                self.met[f"transition: {event.source} → {event.state}"] += 1
            elif isinstance(event, Decided):
                decision = event.decision
        return decision

    def _invoked(self, thread: str, command: Any) -> Any:
        given: Any = {"messages": [("user", command)]} if isinstance(command, str) else command
        if isinstance(command, Answer):
            given = Command(
                resume={command.interrupt_id: command.value} if command.interrupt_id else command.value
            )
        result = self.graph.invoke(given, {"configurable": {"thread_id": thread}})
        if result and result.get("__interrupt__"):
            return next(iter(self.session(thread).status().waits), None)
        return Ended(outcome_of(result)) if result and result.get("outcome") else None

    def _expired(self, thread: str, command: Expire) -> None:
        """A question takes its default when its deadline has passed, and not before."""
        before, deadline = self.session(thread).status(), command.wait.deadline
        content = self.database.content()
        assert deadline is not None, "it has one"
        is_due = max(self.clock.time, deadline + command.ago) >= deadline
        self.clock.time = max(self.clock.time, deadline + command.ago)
        expired = expire(self.graph, thread)
        if not is_due:
            self.laws.unchanged("a look before the deadline", content, before, self.session(thread).status())
            assert expired is None, "law 9: a question was answered before its deadline"
            return
        # A process that died may have answered it, in the machine of a delegate.
        is_answered = expired is not None or command.wait.interrupt_id in self.settled
        assert is_answered, "law 9: nobody answers a question, and it does not take its default"
        self.settled.append(command.wait.interrupt_id)
        self.met["deadline passed"] += 1

    def _forked(self, thread: str, command: Fork) -> None:
        turns = command.turns
        try:
            self.session(thread).fork(turns, command.target)
        except ThreadError:
            # It has no such turn.
            assert turns is not None, "law 14: a thread cannot be copied as it is"
            return
        self.stage.forked(thread, command.target)
        self.laws.forked(thread, command.target)
        self.threads.append(command.target)

    def _guarded(self, kind: str, work: Callable[[], Any], is_legal: bool) -> Any:
        """The decision; None for a move that was refused, failed or killed, as the schedule says."""
        fault = self.plan[0] if self.plan else ""
        try:
            decision = work()
        except Killed:
            assert self.process.is_dead, "nobody has killed it"
            return None
        except BaseException as error:  # noqa: BLE001  a dead process may raise anything
            if self.process.is_dead:
                return None
            self._excused(kind, error, fault, is_legal)
            return None
        assert is_legal or self.process.is_dead, f"law 9: {kind} was taken"
        self.met[f"move: {kind}"] += 1
        return decision

    def _excused(self, kind: str, error: BaseException, fault: str, is_legal: bool) -> None:
        """Fails for an exception that nothing explains."""
        if not is_legal and isinstance(error, ThreadError | SetupError):
            self.met[f"refused: {kind}"] += 1
            return
        excuses: dict[str, tuple[type[BaseException], ...]] = {
            "fail": (Failing, StorageError),
            "fail after": (Failing, StorageError),
            "torn": (Failing, StorageError),
            "cut off": (ThreadError,),
            "stall": (ThreadError,),
        }
        excused = self.plan is None and isinstance(error, excuses.get(fault, ()))
        assert excused, f"law 2: {kind} raised {error!r}"
        self.met[f"fault: {fault}"] += 1

    # What happens in the middle of it.

    def moment(self, what: str) -> None:
        """A moment at which the schedule may let something happen."""
        if self.plan is None:
            return
        fault, left = self.plan
        if left:
            self.plan = fault, left - 1
            return
        if fault.startswith("fail") and "effect" in what:
            return
        self.plan = None
        match fault:
            case "kill":
                self.process.die()
            case "fail" | "fail after":
                raise Failing("the disk is full")
            case "torn" | "torn, killed":
                self.process.tears = partial(self._tears, fault)
            case "second runner":
                self._elsewhere(self._second)
            case "cut off":
                self._loses_hold()
                self._elsewhere(self._taken_over)
            case "stall":
                self.clock.passes(STALL)
                self._loses_hold()
                self._elsewhere(self._taken_over_for_a_while, self._context)
            case "look":
                self._elsewhere(self._looks)
            case _:
                self._elsewhere(partial(self._asks, fault))

    def _tears(self, fault: str) -> None:
        self.met[f"fault: {fault}"] += 1
        if fault == "torn":
            raise Failing("the disk is full")
        self.process.die()

    def _asks(self, fault: str) -> None:
        """Somebody elsewhere asks the run to pause, or to end its task."""
        self.met[f"fault: {fault}"] += 1
        other = self._other()
        match fault:
            case "pause":
                other.pause()
            case "stop":
                # It has ended just now.
                with suppress(ThreadError):
                    other.stop()
            case _:
                store = other.graph.store
                assert isinstance(store, BaseStore), "it was built with one"
                request_pause(store, self.stage.running)

    def _looks(self) -> None:
        other = self._other()
        other.status()
        other.history()
        self.met["fault: look"] += 1

    def _loses_hold(self) -> None:
        """Unknown to the process, which runs on."""
        self.process.lost.add(self.stage.running)
        self.database.holders.pop(self.stage.running, None)

    def _other(self, thread: str | None = None) -> Session[Any]:
        """A session of another process."""
        storage = MemoryStorage(self.database, Process())
        return Session(graph_of(self.loop, self.stage, storage), thread or self.stage.running)

    def _second(self) -> None:
        try:
            self._other().run(None)
        except ThreadBusy:
            self.laws.meets(11)
            self.met["fault: second runner"] += 1
        else:
            raise AssertionError("law 11: two runners had the thread at once")

    def _taken_over(self) -> None:
        """Another process goes on with the thread, as far as it comes."""
        with suppress(ThreadUnknown):
            self._other().run(None)
        self.laws.meets(11)

    def _taken_over_for_a_while(self) -> None:
        """Another process has the thread, and is in the middle of it when the first one wakes up."""
        self.other = iter(self._other().events(None))
        with suppress(ThreadUnknown):
            for _ in range(1 + self.choices.below(12)):
                next(self.other, None)
        self.laws.meets(11)

    def _other_ends(self) -> None:
        """The process that has taken over comes to its end."""
        if self.other is not None:
            rest, self.other = self.other, None
            with suppress(ThreadUnknown):
                self._elsewhere(lambda: [*rest], self._context)

    def _elsewhere(self, work: Callable[[], Any], context: contextvars.Context | None = None) -> None:
        """Does it as another process would: nothing of the run shows in there."""
        raised = list[BaseException]()

        def done() -> None:
            try:
                (context or contextvars.Context()).run(work)
            except BaseException as error:  # noqa: BLE001  it is raised below
                raised.append(error)

        thread = threading.Thread(target=done, daemon=True)
        thread.start()
        thread.join(60)
        if thread.is_alive():
            raise AssertionError(HANGS)
        if raised:
            raise raised[0]
