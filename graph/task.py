"""The current task of a thread: all that the rules need to know."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from langchain_core.messages import HumanMessage

from signoff.graph.history import Reader, Stray, read_messages
from signoff.graph.marks import marks
from signoff.graph.replies import Call, Reply, Stop
from signoff.graph.section import Section, Tools, Words
from signoff.graph.state import AgentState, Decided
from signoff.tools.control import Effect

RESUMED = "resumed"


@dataclass(frozen=True)
class Task:
    """The current task of a thread.

    `due` are the open calls that are settled next; `ask` and `finish` are the standing control calls;
    `undecided` are those of `due` that a person must approve first; `decisions` are the decisions that hold.
    `answers` are words of the user for calls that waited, by call id, not yet written as results.
    In-a-row counts (`talk_turns`, `filtered`) start anew at a "resumed" mark. `before` is the task that came
    before this one.
    """

    id: str = ""
    messages: tuple[HumanMessage, ...] = ()
    replies: tuple[Reply, ...] = ()
    due: tuple[Call, ...] = ()
    ask: Call | None = None
    finish: Call | None = None
    strays: tuple[Stray, ...] = ()
    undecided: tuple[Call, ...] = ()
    decisions: Mapping[str, Decided] = field(default_factory=dict)
    answers: Mapping[str, Words] = field(default_factory=dict)
    nudges: tuple[str, ...] = ()
    nudged: frozenset[str] = frozenset()
    reminded: bool = False
    fresh: Reply | None = None
    talk_turns: int = 0
    filtered: int = 0
    answered: bool = False
    call_ids: AbstractSet[str] = frozenset()
    extra_turns: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False
    ended: bool = False
    can_ask: bool = True
    before: "Task | None" = None

    @property
    def turns(self) -> int:
        return len(self.replies)

    @property
    def last(self) -> Reply | None:
        return self.replies[-1] if self.replies else None

    @property
    def last_text(self) -> str:
        return next((reply.text for reply in reversed(self.replies) if reply.text), "")

    def reply_of(self, call: Call) -> Reply:
        """The reply that holds `call`."""
        return next(reply for reply in reversed(self.replies) if call in reply.calls)


def read(state: AgentState, tools: Tools, *, can_ask: bool = True) -> Task:
    """The current task of the thread whose state this is.

    `can_ask` says whether the run can pause for a person (it has a checkpointer).
    """
    return current_task(read_messages(state, tools), state, can_ask=can_ask)


def current_task(reader: Reader, state: AgentState, *, can_ask: bool = True) -> Task:
    """The task that the messages end in, with what the state says of it."""
    before = None if reader.before is None else _task(state, reader, reader.before, None)
    task = _task(state, reader, reader.section, before)
    kept = [*task.due, *(call for call in (task.ask, task.finish) if call)]
    return replace(task, strays=reader.strays(kept), call_ids=reader.call_ids, can_ask=can_ask)


def _task(state: AgentState, reader: Reader, section: Section, before: Task | None) -> Task:
    verdicts = _of_task(state, section.id)
    marked = max((at for kind, at in section.nudges if kind == RESUMED), default=0)
    since = section.replies[marked:]
    outcome, extra = state.get("outcome"), state.get("extra")
    return Task(
        id=section.id,
        messages=tuple(section.messages),
        replies=tuple(section.replies),
        due=section.due(),
        ask=section.ask(),
        finish=section.finish(verdicts),
        undecided=section.undecided(reader.tools, reader.decisions),
        decisions=reader.decisions,
        answers=dict(section.answers),
        nudges=tuple(kind for kind, _ in section.nudges),
        nudged=frozenset(kind for kind, at in section.nudges if at == len(section.replies)),
        reminded=any(kind == "near_limit" and at >= marked for kind, at in section.nudges),
        fresh=since[-1] if since else None,
        talk_turns=_talk_in_a_row(since),
        filtered=_filtered_in_a_row(since),
        answered=any(_answered(reply, section) for reply in section.replies[-1:]),
        extra_turns=extra["turns"] if extra and extra["task"] == section.id else 0,
        refused={call: why for call, why in verdicts.items() if why != "accepted"},
        stopped=bool(section.id) and state.get("stop") == section.id,
        ended=bool(outcome and outcome.get("task") == section.id),
        before=before,
    )


def _of_task(state: AgentState, task: str) -> Mapping[str, str]:
    verdicts = state.get("verdicts")
    return verdicts["calls"] if verdicts and verdicts["task"] == task else {}


def _talk_in_a_row(replies: Sequence[Reply]) -> int:
    count = 0
    for reply in reversed(replies):
        if reply.works:
            break
        count += not reply.calls
    return count


def _filtered_in_a_row(replies: Sequence[Reply]) -> int:
    count = 0
    for reply in reversed(replies):
        if reply.stop is not Stop.FILTERED:
            break
        count += 1
    return count


def _answered(reply: Reply, section: Section) -> bool:
    call = reply.control
    if call is None or call.effect is not Effect.ASK:
        return False
    found = reply.results.get(call.index)
    return call.id in section.answers or (found is not None and "not_run" not in marks(found))
