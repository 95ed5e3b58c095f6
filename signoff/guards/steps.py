"""Runs the states of the machine inside the hooks of LangChain's loop.

A hook continues where the last one stopped: the channel `guards` holds the next state. The work of each state
is the machine's own (`nodes/`), and so is the transition table. A walk stops where LangChain's loop takes
over: before a model call, before the tools run, and at the end.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import is_not
from typing import Any, NotRequired
from uuid import uuid4

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from typing_extensions import TypedDict

from signoff.graph.history.reader import read_messages
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.machine import ENTRIES, LAST, Event, State, next_state
from signoff.graph.messages import append_messages, follow, is_reply, lineage
from signoff.graph.prompt.prompt import build_prompt
from signoff.graph.state import MIDDLEWARE, AgentState, EndedTask, Ending
from signoff.guards.ledger import Whole, seen_in, whole_history
from signoff.guards.ledger import begin as begin_ledger
from signoff.guards.persons import as_reminder, by_person, in_users_role
from signoff.nodes.ask_user import ask_user
from signoff.nodes.compress import compress
from signoff.nodes.confirm import confirm
from signoff.nodes.decide import decide
from signoff.nodes.finish import finish
from signoff.nodes.node import Dependencies, NodeContext, Report, Work
from signoff.nodes.nudge import nudge
from signoff.nodes.requests import Part
from signoff.nodes.review import review
from signoff.nodes.route_tools import route_tools

WORKS: Mapping[State, Work] = {
    State.COMPRESS: compress,
    State.DECIDE: decide,
    State.ROUTE_TOOLS: route_tools,
    State.NUDGE: nudge,
    State.ASK_USER: ask_user,
    State.REVIEW: review,
    State.CONFIRM: confirm,
    State.FINISH: finish,
}
"""The work of the states that run in a hook."""

WAITS = frozenset({State.ASK_USER, State.CONFIRM})
"""The states that pause the run."""

TOO_LONG = "__signoff_too_long"
"""The key in a run's configuration of a model's error which nobody took up. LangGraph saves no such key."""

TOLD_OF_NO_JOURNAL = "__signoff_told_of_no_journal"
"""The key in a run's configuration of an agent whose builder was warned. LangGraph saves no such key."""

NO_JOURNAL = (
    "{name} may change something, and without a store there is no journal: a call that is cut short by a "
    "crash may run twice. Pass store= to create_agent."
)

_OVER = (
    "The calls of the last reply have no result: another middleware jumped past them, back to the model, or "
    "removed their results. Go on, and the thread continues from here."
)
_FIRST = ENTRIES[Event.INPUT]
_NOTHING = object()


class GuardPosition(TypedDict):
    """The position of a guarded thread. at: the next state; empty if the task has ended. tools: the kinds of
    the working tools last offered to the model, by name. first: the id of the thread's first message. after:
    the id of the message before the current task, which is in the ledger. enters: the node of the agent that
    processes an input."""

    at: str
    tools: dict[str, str]
    first: str
    after: str
    enters: NotRequired[str]


@dataclass
class GuardedRun(NodeContext):
    """One invocation of a hook. first: the id of the first message, which identifies a run without a
    thread."""

    first: str = ""

    def _place(self, history: object) -> object:
        return self.thread_id, self.first

    @property
    def last_history(self) -> Sequence[BaseMessage]:
        """The history as last read in this process; empty if it was not."""
        found = self.deps.readings.get(self._place(None))
        return found.source if found is not None else ()

    def forget_changed_reply(self) -> None:
        """Drops a cached reader whose last reply would be read differently now: other middleware may have
        modified that message."""
        reply = self.last_reply
        if reply is not None and not _is_of(reply, reply.message):
            self.deps.readings.pop(self._place(None), None)

    @property
    def last_reply(self) -> Reply | None:
        """The last reply of that reader, if it was read with the current tools."""
        found = self.deps.readings.get(self._place(None))
        known = found is not None and found.tools is self.deps.toolbox and found.replies
        return known[-1] if known else None


def begin(deps: Dependencies, config: RunnableConfig, state: Mapping[str, Any]) -> GuardedRun:
    """The context of a hook that gets this state."""
    position, messages = state.get("guards"), state.get("messages") or ()
    first = position["first"] if position else (messages[0].id or "") if messages else ""
    return GuardedRun(deps, config, first=first)


def with_ids(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state with an id for each message: deepagents stores messages of an input as plain values without
    ids."""
    messages = state.get("messages") or ()
    if all(message.id is not None for message in messages):
        return state
    return {**state, "messages": append_messages([], [list(messages)])}


@dataclass
class Walk:
    """The states that one hook runs, and their writes. at: the next state; None at the end. enters: the node
    of the hook that processes an input; is_input: whether it is this one. pauses_here: no other hook could
    pause the run. paused: whether the run has paused in this one."""

    given: Mapping[str, Any]
    run: GuardedRun
    enters: str
    is_input: bool = False
    pauses_here: bool = False
    paused: bool = field(default=False, init=False)
    at: State | None = field(init=False)
    state: AgentState = field(init=False)
    whole: Whole = field(init=False)
    before: Sequence[BaseMessage] = field(init=False)
    written: dict[str, Any] = field(default_factory=dict, init=False)
    after: str = field(init=False)

    def __post_init__(self) -> None:
        position: GuardPosition | None = self.given.get("guards")
        self.at = State(position["at"]) if position is not None and position["at"] else _FIRST
        self.after = position["after"] if position is not None else ""
        self.run.forget_changed_reply()
        self.whole = whole_history(
            self.given.get("messages") or (),
            self.given.get("past") or (),
            self.after,
            self.run.deps.toolbox,
            is_input=self.is_input,
        )
        self.before = follow(self.run.last_history, self.whole.messages)
        state: Any = {**self.given, "messages": self.before}
        self.state = state

    @property
    def task(self) -> Task:
        return self.run.task(self.state)

    def hear(self, *, ends: bool = False) -> Part[None]:
        """Marks the messages in the user's role that tools and other middleware have written since the last
        hook.

        ends: whether the run ends here; else such a message after the end of a task begins the next one.
        """
        position: GuardPosition | None = self.given.get("guards")
        over = position is None or not position["at"]
        said = in_users_role(self.whole.unseen) if position is not None and (ends or not over) else []
        if not said:
            return
        person = set[str]()
        if not self.given.get("begun"):
            person = yield from by_person(said, self.run.config, over=over)
        marked = [as_reminder(one, MIDDLEWARE) for one in said if one.id not in person]
        if marked:
            state: Any = {**self.state, "messages": append_messages(self.before, [marked])}
            self.state = state

    @property
    def is_over(self) -> bool:
        """Whether the task has already ended. The position of the last hook may belong to the previous task:
        other middleware can jump over the hook in which a task begins."""
        position: GuardPosition | None = self.given.get("guards")
        if position is None or position["at"]:
            return False
        ended: EndedTask | None = self.given.get("ended")
        if ended is None:
            return False
        # Nearly always nothing has arrived since then, and nothing must be read.
        messages = self.given.get("messages") or ()
        last = messages[-1].id if messages else None
        return ended["message"] == last or ended["task"] == self.task.id

    @property
    def said_since(self) -> bool:
        """Whether there are messages after the end of the task."""
        messages: Sequence[BaseMessage] = self.given.get("messages") or ()
        return bool(messages) and self.given["ended"]["message"] != messages[-1].id

    def end_later(self) -> None:
        """Moves the end of the ended task to the last message."""
        self.at = None
        self.written["ended"] = {**self.given["ended"], "message": self.given["messages"][-1].id}

    def take(self, report: Report) -> None:
        """Applies the report of a state, and moves to the next state in the table."""
        assert self.at is not None, "there is a state that reports"
        ends = report.event is None and self.at is LAST
        self.at = None if ends else next_state(self.at, report.event)
        update = {"event": str(report.event or "ended"), **report.update}
        messages = [_with_id(message) for message in update.pop("messages", [])]
        self.written |= update
        state: Any = {**self.state, **update}
        if messages:
            state["messages"] = append_messages(state["messages"], [messages])
        self.state = state

    def step(self) -> Part[None]:
        """Runs the next state."""
        assert self.at is not None, "there is a state to run"
        self.paused = self.paused or self.at in WAITS
        work = WORKS[self.at](self.state, self.run)
        self.take((yield from work) if isinstance(work, Generator) else work)

    def go(self) -> Part[None]:
        """Runs states until LangChain's loop takes over, or their writes must be saved."""
        while self.at in WORKS and not self._saves_first():
            yield from self.step()

    def _saves_first(self) -> bool:
        """Whether the next state pauses the run and must be left to the next hook.

        LangGraph saves nothing of a hook that pauses, and runs it again. The steps that lead to a question
        follow from the history, so nearly always there is nothing to save; but a review may have run checks.
        """
        if "event" not in self.written or self.pauses_here:
            # It was saved before, or there would be no end of it where somebody speaks before each hook.
            return False
        if self.at is State.ASK_USER:
            return bool(self.added or self.changed())
        return self.at is State.CONFIRM

    def to_model(self) -> Part[None]:
        """Runs states until the model is due, a person is asked, or the task ends. LangChain's loop has run
        the calls of the last reply by then."""
        yield from self.hear()
        ran = self.at is State.EXECUTE
        if ran:
            self.take(Report(Event.DONE))
        yield from self.go()
        if self.at is State.EXECUTE and ran:
            yield from self.fail("middleware", _OVER)

    def fail(self, reason: str, error: str) -> Part[None]:
        """Ends the task with an error, from any state."""
        if self.at is State.EXECUTE:
            self.take(Report(Event.DONE))
        while self.at not in (State.DECIDE, State.CALL_LLM):
            yield from self.step()
        ending = Ending(task=self.task.id, status="error", reason=reason, error=error)
        self.take(Report(Event.FAILED, {"ending": ending}))
        yield from self.go()

    def changed(self, since: int = 0) -> list[BaseMessage]:
        """The messages from this index on for which the states have written a new version."""
        before, now = self.before, self.state.get("messages") or ()
        if lineage(now) is lineage(before):
            return []
        pairs = islice(zip(now, before, strict=False), since, None)
        return [new for new, old in pairs if is_not(new, old)]

    @property
    def added(self) -> list[BaseMessage]:
        """The messages that the states have appended."""
        messages: Sequence[BaseMessage] = self.state.get("messages") or ()
        return list(messages[len(self.before) :])

    @property
    def messages(self) -> list[BaseMessage]:
        """The update for the messages of the thread."""
        if not self.whole.lost:
            return [*self.changed(), *self.added]
        there: Sequence[BaseMessage] = self.given.get("messages") or ()
        ids = {message.id for message in there}
        return seen_in(there, [*(one for one in self.changed() if one.id in ids), *self.added])

    def note(self) -> None:
        """Records new messages in the ledger; if a task has begun, all its messages so far."""
        whole = self.whole
        if whole.known and "task" not in self.written:
            noted = [*self.before[whole.known :], *self.changed(whole.start), *self.added]
        else:
            messages = self.state.get("messages") or ()
            start = self.run.reader(self.state).begins
            noted = begin_ledger(messages[start:])
            if start or not whole.lost:
                self.after = (messages[start - 1].id or "") if start else ""
        if noted:
            self.written["past"] = noted

    def channels(self, tools: Mapping[str, str]) -> dict[str, Any]:
        """The update of the other channels."""
        position = GuardPosition(
            at=str(self.at or ""),
            tools=dict(tools),
            first=self.run.first,
            after=self.after,
            enters=self.enters,
        )
        # A person writes before a run begins, so later messages of the run are not theirs.
        written = {**self.written, "guards": position, "begun": True}
        # Saving takes LangGraph extra work for each channel that is written.
        return {key: value for key, value in written.items() if self.given.get(key, _NOTHING) != value}


def _with_id(message: BaseMessage) -> BaseMessage:
    """The message with an id: a random one, which nothing that runs in parallel generates, too."""
    return message if message.id is not None else message.model_copy(update={"id": str(uuid4())})


def due_calls(messages: Sequence[BaseMessage], run: GuardedRun) -> Mapping[str, tuple[str, Call]]:
    """The calls of the last reply that must run now, each with the id of its reply.

    Nothing before that reply is read, and the reply is not read again if the hook that received it from the
    model has cached its reader.
    """
    reply, box = run.last_reply, run.deps.toolbox
    if reply is None or not messages or not _is_of(reply, messages[-1]):
        last = next((at for at in range(len(messages) - 1, -1, -1) if is_reply(messages[at])), None)
        if last is None:
            return {}
        # Messages of other middleware in the user's role after the reply do not belong to it.
        newest: Any = {"messages": [one for one in messages[last:] if one.type != "human"]}
        (reply,) = read_messages(newest, box).section.replies
    reply_id = reply.message.id or ""
    return {call.id: (reply_id, call) for call in reply.before_control if reply.open(call)}


def _is_of(reply: Reply, message: BaseMessage) -> bool:
    """Whether the message would still be read like this: other middleware may change its calls."""
    given = reply.message.tool_calls
    if reply.message is not message or len(given) != len(reply.calls):
        return False
    # A loop: a generator costs more than what it looks at, and this is asked twice a turn.
    for call, raw in zip(reply.calls, given, strict=True):
        if call.args is not raw["args"] or call.name != raw["name"] or call.id != raw["id"]:
            return False
    return True


def prompt_of(walk: Walk, shown: Sequence[BaseMessage], system: Any) -> tuple[SystemMessage, list[Any]]:
    """The system message and the messages of the next model call: every call in them is answered, right after
    its reply.

    shown: the messages that other middleware shows the model instead of the history. system: the agent's own.
    """
    run, state, reader = walk.run, walk.state, walk.run.reader(walk.state)
    given = walk.before
    if len(shown) != len(given) or any(map(is_not, shown, given)):
        # It does not contain the messages that the states have added.
        news = {message.id: message for message in walk.changed()}
        added = (message for message in walk.messages if message.id not in news)
        seen: Any = {**state, "messages": [*(news.get(one.id, one) for one in shown), *added]}
        state, reader = seen, read_messages(seen, run.deps.toolbox)
    told = run.deps.whole_prompt if system is None else run.deps.prompt_with(system)
    prompt = build_prompt(state, reader, told, run.deps.texts)
    first = prompt[0]
    assert isinstance(first, SystemMessage), "a prompt begins with the system message"
    return first, prompt[1:]
