"""The current task of a thread: everything that the rules need to know, and its reported phases."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage

from signoff.graph.history.reader import (
    Reader,
    Stray,
    TaskSection,
    Tools,
    UserWords,
    Verdict,
    Wait,
    read_messages,
    refusals_of,
    undecided,
    verdicts_of,
)
from signoff.graph.history.reasons import StopReason
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.usage import NOTHING, RESUMED, RepeatCount, Repeats, Used
from signoff.graph.kinds import SENT_BACK
from signoff.graph.state import AgentState, CallDecision, Phase, Phases, RefusedFinish, Spent, TreeBudget

KEPT = 1_000
"""The characters of a phase's text that the state keeps; the history has all of it."""


def percentage(claim: Mapping[str, Any]) -> float:
    """How much of the task a finish claims is done; 100 if its tool has no such argument."""
    value = claim.get("completion_percentage", 100)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 100


def is_phase(claim: Mapping[str, Any]) -> bool:
    """Whether a finish claims that only a part of the task is done."""
    left = percentage(claim) < 100 or bool(claim.get("next_phase"))
    return claim.get("outcome", "done") == "done" and left


def phases_of(found: Phases | None, task: str) -> list[Phase]:
    """The reported phases of `task`, oldest first."""
    return found["done"] if found and found["task"] == task else []


def with_phase(found: Phases | None, task: str, claim: Mapping[str, Any], turn: int) -> Phases:
    """The phases of `task`, with the one that `claim` reports in turn number `turn`."""
    phase = Phase(
        percentage=percentage(claim),
        summary=str(claim.get("summary", ""))[:KEPT],
        next_phase=str(claim.get("next_phase") or "")[:KEPT],
        turn=turn,
    )
    return Phases(task=task, done=[*phases_of(found, task), phase])


def is_new(claim: Mapping[str, Any], before: Sequence[Phase]) -> bool:
    """Whether a phase differs from the last one: more is done, or the next phase is another."""
    if not before:
        return True
    following = str(claim.get("next_phase") or "")[:KEPT]
    return percentage(claim) > before[-1]["percentage"] or following != before[-1]["next_phase"]


def open_phases(found: Phases | None, task: str, turns: int | None = None) -> list[str]:
    """What the phases of `task` leave to do, one line each, for the model.

    turns: only phases reported in this many first turns. Empty if there are none.
    """
    reported = [phase for phase in phases_of(found, task) if turns is None or phase["turn"] <= turns]
    return [_line(phase) for phase in reported]


def _line(phase: Phase) -> str:
    following = f"; next: {phase['next_phase']}" if phase["next_phase"] else ""
    return f"{phase['percentage']:g} % done: {phase['summary']}{following}"


# The channels, beside the messages, from which the task is read.
_FACTS = ("verdicts", "outcome", "extra", "spent", "stop", "phases", "approvals", "tree")
READ = ("messages", "ended", *_FACTS)
"""All channels from which the task is read, and whether it has ended."""


@dataclass(slots=True)
class Task:
    """The current task of a thread.

    `due` are the open calls that are settled next; `ask` and `finish` are the standing control calls;
    `undecided` are those of `due` that a person must approve first; `decisions` are the decisions that hold.
    `answers` are the user's answers to waiting calls, by call id, not yet written as results. `spoke` is the
    reply that is put to the user in a dialogue; `batch` is the number of calls in the last reply, if the
    model works in rounds. `replies` is the list of the reader that made the task, and grows with it: use a
    task before more is read. Consecutive counts (`talk_turns`, `filtered`) restart at a "resumed" mark.
    `extra_turns` were granted by `go_on`; `reach` and `tree_reach` are the turns that they allow at least,
    see `most_turns`. `total` is the usage of the task, `used` the part that counts against its limits,
    `spent` the cost of its summaries.
    `row` is how often its last work was repeated, by `repeats`. `resumed` is the number of replies before the
    last "resumed" mark. `before` is the task before this one. `tree` is the last known budget of the task's
    tree. `unready` says what `compress` must do before the rules can be applied. `decided` is what `decide`
    has found, with the limits for which it holds.
    """

    id: str = ""
    messages: tuple[HumanMessage, ...] = ()
    replies: Sequence[Reply] = ()
    due: tuple[Call, ...] = ()
    ask: Call | None = None
    finish: Call | None = None
    strays: tuple[Stray, ...] = ()
    undecided: tuple[Call, ...] = ()
    decisions: Mapping[str, CallDecision] = field(default_factory=dict)
    answers: Mapping[str, UserWords] = field(default_factory=dict)
    nudges: tuple[str, ...] = ()
    nudged: frozenset[str] = frozenset()
    reminded: bool = False
    fresh: Reply | None = None
    spoke: Reply | None = None
    batch: int = 0
    talk_turns: int = 0
    filtered: int = 0
    answered: bool = False
    call_ids: AbstractSet[str] = frozenset()
    extra_turns: int = 0
    reach: int = 0
    tree_reach: int = 0
    total: Used = NOTHING
    used: Used = NOTHING
    repeats: Repeats = field(default_factory=Repeats)
    refused: Mapping[str, RefusedFinish] = field(default_factory=dict)
    stopped: bool = False
    ended: bool = False
    can_ask: bool = True
    resumed: int = 0
    phases: Sequence[Phase] = ()
    spent: Spent | None = None
    before: "Task | None" = None
    tree: TreeBudget | None = None
    unready: str | None = None
    decided: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)
    _row: RepeatCount | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def row(self) -> RepeatCount:
        if self._row is None:
            self._row = self.repeats.row()
        return self._row

    @property
    def turns(self) -> int:
        return len(self.replies)

    def most_turns(self, limit: int) -> int:
        """The turns that this task may take, with the limit of its graph.

        Granted turns add to the limit, but count at least from the turns that were used by then: these may be
        above it, after answered questions, or if the graph was built again with a lower limit.
        """
        return max(limit + self.extra_turns, self.reach)

    def most_tree_turns(self, limit: int) -> int:
        """The same for the turns of this task and all delegates below it together."""
        return max(limit + self.extra_turns, self.tree_reach)

    def lost(self, name: str, *, since_extended: bool = True) -> float:
        """The cost of this machine's replies that were lost in a crash. since_extended: only those since the
        task was last extended."""
        if not self.tree or not ("lost" in self.tree or "counted" in self.tree):
            return 0
        before = self.tree.get("counted", {}).get(name, 0) if since_extended else 0
        return self.tree.get("lost", {}).get(name, 0) - before

    @property
    def last(self) -> Reply | None:
        return self.replies[-1] if self.replies else None

    @property
    def unstreamed(self) -> bool:
        """Whether the provider of the last reply has refused to stream."""
        return self.last is not None and self.last.unstreamed

    @property
    def last_text(self) -> str:
        return next((reply.text for reply in reversed(self.replies) if reply.text), "")

    def reply_of(self, call: Call) -> Reply:
        """The reply that contains `call`."""
        # By identity: an imported history may contain two equal calls. Nearly always it is the last reply.
        for reply in reversed(self.replies):
            for held in reply.calls:
                if held is call:
                    return reply
        raise AssertionError("the call is of this task")


def read(state: AgentState, tools: Tools, *, can_ask: bool = True) -> Task:
    """The current task of the thread with this state.

    `can_ask` says whether the run can pause for a person (it has a checkpointer).
    """
    return current_task(read_messages(state, tools), state, can_ask=can_ask)


def current_task(reader: Reader, state: AgentState, *, can_ask: bool = True) -> Task:
    """The task at the end of the messages, with its values from the state."""
    read, facts = (len(reader.messages), can_ask), [state.get(name) for name in _FACTS]
    if reader.task is None or reader.task[0] != read or not all(map(is_, reader.task[1], facts)):
        reader.task = read, facts, _current(reader, state, can_ask=can_ask)
    found: Task = reader.task[2]
    return found


def _current(reader: Reader, state: AgentState, *, can_ask: bool) -> Task:
    before = None if reader.before is None else _task(state, reader, reader.before)
    return _task(state, reader, reader.section, before=before, call_ids=reader.call_ids, can_ask=can_ask)


def _task(state: AgentState, reader: Reader, section: TaskSection, **more: Any) -> Task:
    verdicts = verdicts_of(state.get("verdicts"), section.id)
    reminders = _reminders(section) if section.nudges else _NO_REMINDERS
    marked = reminders.resumed
    since = len(section.replies) - marked
    outcome, extra, spent = state.get("outcome"), state.get("extra"), state.get("spent")
    tree = state.get("tree")
    spent = spent if spent and spent["task"] == section.id else None
    tally = section.tally
    total = tally.total(spent)
    due, ask, finish = section.due(), section.ask(), section.finish(verdicts)
    # Open calls of the previous task are strays in this one.
    newest = section is reader.section
    return Task(
        id=section.id,
        messages=tuple(section.messages),
        replies=section.replies,
        due=due,
        ask=ask,
        finish=finish,
        strays=reader.strays([call for call in (*due, ask, finish) if call]) if newest else (),
        undecided=undecided(due, reader.tools, reader.decisions),
        decisions=reader.decisions,
        answers=dict(section.answers),
        nudges=reminders.kinds,
        nudged=reminders.last,
        reminded=reminders.near_limit,
        fresh=section.replies[-1] if since else None,
        spoke=section.spoke() if reader.tools.dialogue else None,
        batch=_batch(section.replies[-1]) if reader.tools.rounds and since else 0,
        talk_turns=_talk_in_a_row(_newest(section.replies, max([marked, *section.heard]))),
        filtered=_filtered_in_a_row(_newest(section.replies, marked)),
        answered=_answered(section),
        extra_turns=extra["turns"] if extra and extra["task"] == section.id else 0,
        reach=tally.reach,
        tree_reach=tally.tree_reach,
        total=total,
        used=tally.used(total),
        repeats=tally.repeats,
        refused=_refused(section, verdicts),
        stopped=bool(section.id) and state.get("stop") == section.id,
        ended=bool(outcome and outcome.get("task") == section.id),
        resumed=marked,
        phases=tuple(phases_of(state.get("phases"), section.id)),
        spent=spent,
        tree=tree if tree and tree["task"] == section.id else None,
        **more,
    )


class _Reminders(NamedTuple):
    """The reminders of a task: their kinds, those since the last reply, the number of replies before the last
    "resumed" mark, and whether the model was warned since then that a limit is near."""

    kinds: tuple[str, ...] = ()
    last: frozenset[str] = frozenset()
    resumed: int = 0
    near_limit: bool = False


_NO_REMINDERS = _Reminders()


def _reminders(section: TaskSection) -> _Reminders:
    resumed = max((at for kind, at in section.nudges if kind == RESUMED), default=0)
    return _Reminders(
        kinds=tuple(kind for kind, _ in section.nudges),
        last=frozenset(kind for kind, at in section.nudges if at == len(section.replies)),
        resumed=resumed,
        near_limit=any(kind == "near_limit" and at >= resumed for kind, at in section.nudges),
    )


def _refused(section: TaskSection, verdicts: Mapping[str, Verdict]) -> dict[str, RefusedFinish]:
    """The refused finishes, by `Reply.key`, and why."""
    if not section.sent_back and not verdicts:
        # Most tasks have no refused finish.
        return {}
    return dict.fromkeys(section.sent_back, RefusedFinish(kind=SENT_BACK, why="")) | refusals_of(verdicts)


def _newest(replies: Sequence[Reply], since: int) -> Iterator[Reply]:
    """The replies from index `since` on, newest first; without a copy, since a run may be long."""
    return islice(reversed(replies), max(0, len(replies) - since))


def _talk_in_a_row(newest: Iterator[Reply]) -> int:
    count = 0
    for reply in newest:
        # A call that did not run because only a control call was requested does not reset the ladder.
        if reply.works and not reply.only_controls:
            break
        # A reply that the provider merely paused is not talk.
        count += not reply.calls and reply.stop is not StopReason.PAUSED
    return count


def _batch(reply: Reply) -> int:
    """The work calls of a reply that could run."""
    if reply.only_controls:
        return 0
    return sum(call.effect is None and call.problem is None and call.known for call in reply.calls)


def _filtered_in_a_row(newest: Iterator[Reply]) -> int:
    count = 0
    for reply in newest:
        if reply.stop is not StopReason.FILTERED:
            break
        count += 1
    return count


def _answered(section: TaskSection) -> bool:
    """Whether a person has answered, or sent a finish back, since the last reply."""
    now, answers = len(section.replies), section.answers.values()
    sent_back = answers and any(words.wait is Wait.CONFIRMATION for words in answers)
    if sent_back or now in section.sent_back.values() or now in section.heard:
        return True
    call = section.replies[-1].control if section.replies else None
    if call is None or call.effect != "ask":
        return False
    return call.id in section.answers or section.replies[-1].was_run(call)
