"""The timeline of a run as values for its template: each task with its turns, their calls, and its end."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from signoff import Action, Approval, PendingCall, Turn, Waiting
from signoff.events import (
    Answered,
    CallFinished,
    Confirmed,
    Nudged,
    PhaseAccepted,
    SessionEvent,
    Thought,
    Wrote,
)
from signoff.front.calls import SHELL_END, arguments
from signoff.front.record.run import Run
from signoff.front.record.text import Fold, fold, line
from signoff.graph.blocks import as_json
from signoff.graph.texts import FINISH_NAME
from signoff.machine import State
from signoff.session import Condition, Step
from signoff.session.history import Chapter
from signoff.text import heading
from signoff.tools.approvals import DECISIONS

_MOST_SIGNS = 160
_MOST_MESSAGES = 20
_MOST_EVENTS = 60
_MOST_CALLS = 20
_MOST_ARGUMENTS = 24
_MOST_STEPS = 80
_MOST_STATES = 40
_MOST_BELOW = 40
_SHORT = 160
_SHORT_PATH = 50
_DIFF_LINES = 400
_CONTEXT = 2
_OPEN_LINES = 16
_HUNK = re.compile(r"^@@ .*@@", re.MULTILINE)
_LOOKS = {"+": "add", "-": "del", "@": "hunk"}
# They fire in nearly every turn, and only say that work continues.
_USUAL_RULES = ("think", "calls_open")
Change = Sequence[tuple[str, str]]
"""The lines of a changed text, each after its sign: `+`, `-` or a space."""


@dataclass(frozen=True)
class Way:
    """The states of a turn, and the rules that fired except those of every turn."""

    states: Fold[Step]
    rules: Sequence[Step]
    steps: Fold[Step]


@dataclass(frozen=True)
class Beginning:
    """The message that begins a task. number: None for the only task of a thread."""

    number: int | None
    messages: Fold[str]
    way: Way | None


@dataclass(frozen=True)
class Fork:
    """The point at which a thread was forked from another one."""

    at: str
    way: Way | None


@dataclass(frozen=True)
class Sign:
    """The result of a turn: a sign, a colour and a word."""

    sign: str
    tone: str
    meaning: str


@dataclass(frozen=True)
class Arguments:
    """All arguments of a call, or those missing in its first line.

    rows: by name. change: the lines of an
    edit. content: of a file that is written. script: a command or code, with the look of its box.
    """

    rows: Fold[tuple[str, str]]
    change: Change = ()
    content: str | None = None
    script: tuple[str, str] | None = None

    def difference(self, most: int | None) -> Change:
        """Returns the changed lines, with at most this many characters of a content; None for all of it."""
        if self.content is None:
            return self.change
        return [("+", row) for row in self.content[:most].split("\n")]

    def beyond(self, most: int | None) -> int:
        """Returns how many characters of a content are omitted."""
        return 0 if most is None else max(0, len(self.content or "") - most)


@dataclass(frozen=True)
class Difference:
    """A difference that a program printed: its lines, each after its look. left: omitted characters."""

    rows: Sequence[tuple[str, str]]
    left: int
    scrolls: bool


@dataclass(frozen=True)
class Below:
    """The machine of a delegate below the call that began it; folded when its task has ended. pieces: its
    turns and ends; left: how many of them are omitted."""

    path: Sequence[str]
    sign: Sign
    turns: int
    tokens: int
    ended: bool
    pieces: Sequence["Piece"]
    left: int = 0


@dataclass(frozen=True)
class CallBox:
    """A call that has ended, except a finish.

    look: of its box. summary: its arguments in short. glance: its result in short. person: a person's
    decision on it, as its type and their words; None without one. opened: it is unfolded. below: the machine
    of a delegate; None for every other call.
    """

    event: CallFinished
    sign: str
    verdict: str
    look: str
    summary: str
    glance: str
    person: tuple[str, str] | None
    opened: bool
    arguments: Arguments
    below: Below | None = None

    def printed_difference(self, most: int) -> Difference | None:
        """Returns the result as a difference; None when it is not one."""
        text = self.event.result
        if not _HUNK.search(text[:most]):
            return None
        rows = text[:most].split("\n")
        left = len(text) - sum(len(row) + 1 for row in rows[:_DIFF_LINES])
        return Difference([(look(row), row) for row in rows[:_DIFF_LINES]], left, len(rows) > _OPEN_LINES)


@dataclass(frozen=True)
class Finish:
    """A finish that did not count, and the marks on its result."""

    event: CallFinished
    notes: Mapping[str, Any]


@dataclass(frozen=True)
class TurnBox:
    """A turn of the model: its text and calls, their results, and the states of the machine.

    signed: the basis of the accepted finish; None for a turn without one. decided: a person decided on calls
    of the turn, but the thread no longer stores on which and how. below: delegates whose calls have no result
    yet.
    """

    turn: Turn
    anchor: str
    events: Fold[SessionEvent | CallBox | Finish]
    phases: Sequence[Mapping[str, Any]]
    decided: bool
    signed: Sign | None
    way: Way | None
    below: Sequence[Below] = ()

    def room(self, most: int) -> int:
        """Returns the limit of one text, in characters; lower where the turn has many texts."""
        return max(200, most * 8 // max(8, len(self.turn.events)))


@dataclass(frozen=True)
class End:
    """The end of a task.

    outcome: with the fields of `Outcome`. result: as a text. confirmed: what the person said who confirmed
    it; None when nobody did. command: the one that continues; None without one.
    """

    outcome: Mapping[str, Any]
    phases: Sequence[str]
    result: str | None
    confirmed: str | None
    command: str | None


@dataclass(frozen=True)
class Pause:
    """What a thread waits for.

    calls: the first of those that a person decides on or runs. left: how many
    more there are. ways: the commands that answer, each after its label.
    """

    waiting: Waiting
    calls: Sequence[tuple[PendingCall, Arguments]]
    left: int
    ways: Sequence[tuple[str, str]]

    @property
    def document(self) -> dict[str, Any]:
        return self.waiting.document()


@dataclass(frozen=True)
class Gap:
    """The middle of a run that is too long for one page. turns: how many are omitted."""

    turns: int


@dataclass(frozen=True)
class Unfinished:
    """A thread with unfinished work: it runs now, or was stopped or killed."""

    running: bool
    command: str | None


Piece = Beginning | Fork | TurnBox | End | Pause | Unfinished
"""A part of the timeline that is shown completely or not at all."""


@dataclass(frozen=True)
class Link:
    """The sign of a turn, as a link to it. begins: a task after the first begins with this turn."""

    anchor: str
    sign: Sign
    title: str
    begins: bool


def overview(run: Run) -> list[Link]:
    """Returns a link for each turn; none when there are too few or too many."""
    turns = [(at, turn) for at, chapter in enumerate(run.chapters, 1) for turn in chapter.turns]
    if not 3 < len(turns) <= _MOST_SIGNS:
        return []
    return [_link(run, at, turn) for at, turn in turns]


def _link(run: Run, at: int, turn: Turn) -> Link:
    sign, several = sign_of(run, turn), len(run.chapters) > 1
    name = f"Task {at}, turn {turn.number}" if several else f"Turn {turn.number}"
    return Link(_anchor(at, turn), sign, f"{name}: {sign.meaning}", several and turn.number == 1 and at > 1)


def pieces(run: Run) -> Iterator[tuple[int, Piece]]:
    """Yields the whole timeline, each piece after the number of its task, from 1."""
    forked = run.fork is None
    for at, chapter in enumerate(run.chapters, 1):
        yield at, _beginning(run, at, chapter)
        for turn in chapter.turns:
            if not forked and turn.steps:
                forked = True
                yield at, _fork(run, chapter)
            yield at, _reply(run, at, turn)
        if not forked and chapter is run.chapters[-1]:
            yield at, _fork(run, chapter)
        for end in _end(run, chapter):
            yield at, end
    known = {chapter.task for chapter in run.chapters}
    outcome = run.status.outcome
    if not run.chapters or (outcome and outcome.task not in known):
        for last in _last(run):
            yield len(run.chapters) + 1, last


def _anchor(task: int, turn: Turn) -> str:
    return f"turn-{task}-{turn.number}"


def _beginning(run: Run, at: int, chapter: Chapter) -> Beginning:
    entry = run.entries.get(chapter.task, ())
    fork_here = run.fork is not None and run.fork in entry
    number = at if len(run.chapters) > 1 else None
    return Beginning(number, fold(chapter.words, _MOST_MESSAGES), None if fork_here else _way(entry))


def _fork(run: Run, chapter: Chapter) -> Fork:
    return Fork(run.fork.at if run.fork else "", _way(run.entries.get(chapter.task, ())))


def _way(steps: Sequence[Step]) -> Way | None:
    ran = [step for step in steps if step.name]
    if not ran:
        return None
    rows = fold(ran, _MOST_STEPS)
    first = rows.rows[: rows.gap] if rows.left else rows.rows
    rules = [step for step in first if step.rule and step.rule not in _USUAL_RULES]
    return Way(fold(ran, _MOST_STATES), rules, rows)


# A turn.


def sign_of(run: Run, turn: Turn) -> Sign:
    """Returns the sign of a turn's result."""
    if signed := _signed(run, turn):
        return signed
    if _phases(run, turn):
        return Sign("◔", "blue", "a part is done")
    calls = [event for event in turn.events if isinstance(event, CallFinished)]
    if any(call.name == FINISH_NAME for call in calls):
        return Sign("⚑", "amber", "finish did not count")
    if any(not call.ok for call in calls):
        return Sign("✗", "red", "a call failed")
    if any(isinstance(event, Answered | Wrote) for event in turn.events):
        return Sign("?", "violet", "a person answered")
    if calls:
        return Sign("▪", "plain", "worked")
    if any(isinstance(event, Nudged) and event.why != "resumed" for event in turn.events):
        return Sign("↻", "amber", "reminded")
    if any(isinstance(event, Thought) for event in turn.events):
        return Sign("✳", "blue", "thought")
    return Sign("·", "plain", "replied")


def _signed(run: Run, turn: Turn) -> Sign | None:
    """Returns the basis of this turn's finish, if it ended its task."""
    outcome = run.outcomes.get(turn.task)
    if not outcome or outcome["status"] != "success" or outcome["turns"] != turn.number:
        return None
    rests = heading(outcome)
    return Sign(rests.sign, rests.tone, "signed off")


def _phases(run: Run, turn: Turn) -> list[Mapping[str, Any]]:
    return [phase for phase in run.phases(turn.task) if phase["turn"] == turn.number]


def _reply(run: Run, at: int, turn: Turn) -> TurnBox:
    return TurnBox(
        turn=turn,
        anchor=_anchor(at, turn),
        events=fold([event for event in turn.events if _is_drawn(event)], _MOST_EVENTS).each(
            partial(_view, run)
        ),
        phases=_phases(run, turn),
        decided=_decided(run, turn),
        signed=_signed(run, turn),
        way=_way(run.way(turn)),
        below=_at_work(run, turn),
    )


def _at_work(run: Run, turn: Turn) -> Sequence[Below]:
    """Returns the delegates that this turn called and that have no result yet."""
    ended = {event.call_id for event in turn.events if isinstance(event, CallFinished)}
    ids = (call.call_id for call in turn.calls if call.call_id not in ended)
    return tuple(_below(run.below[call_id]) for call_id in ids if call_id in run.below)


def _below(child: Run) -> Below:
    """Returns what is drawn of a delegate's machine, without its beginning, which the call above shows."""
    stands = child.heading
    every = [piece for _, piece in pieces(child) if isinstance(piece, TurnBox | End)]
    shown = [
        replace(piece, command=None)
        if isinstance(piece, End)
        # Another turn of this page has the same number.
        else replace(piece, anchor="-".join((*child.path, piece.anchor, piece.turn.message_id)))
        for piece in every[:_MOST_BELOW]
    ]
    sign = Sign(stands.sign, stands.tone, stands.title)
    totals, ended = child.totals, child.status.condition is Condition.ENDED
    return Below(child.path, sign, totals.turns, totals.tokens, ended, shown, len(every) - len(shown))


def _is_drawn(event: SessionEvent) -> bool:
    """Whether it is drawn with the events: a phase and a confirmation have cards elsewhere."""
    return not isinstance(event, PhaseAccepted | Confirmed)


def _view(run: Run, event: SessionEvent) -> SessionEvent | CallBox | Finish:
    if not isinstance(event, CallFinished):
        return event
    if event.name == FINISH_NAME:
        return Finish(event, run.notes.get(event.call_id, {}))
    made = _call(event, run.decisions.get(event.call_id, {}))
    child = run.below.get(event.call_id)
    return made if child is None else replace(made, below=_below(child))


def _decided(run: Run, turn: Turn) -> bool:
    if not any(step.state is State.APPROVE for step in turn.steps):
        return False
    calls = [event for event in turn.events if isinstance(event, CallFinished)]
    return not any(_person(call, run.decisions.get(call.call_id, {})) for call in calls)


# A call.


def _call(call: CallFinished, decision: Mapping[str, Any]) -> CallBox:
    sign, verdict, look = _verdict(call)
    change = _change(call.args) if call.name == "edit_file" else ()
    # What the line above already says in full is not repeated.
    path = call.args.get("path")
    rest = dict(call.args)
    if isinstance(path, str) and len(path) < _SHORT_PATH:
        del rest["path"]
    return CallBox(
        event=call,
        sign=sign,
        verdict=verdict,
        look=look,
        summary=_summary(call.name, call.args),
        glance=_glance(call.result, change) if look == "ok" else "",
        person=_person(call, decision),
        opened=look != "ok" or 0 < len(change) <= _OPEN_LINES,
        arguments=arguments_of(call.name, rest, change),
    )


def _verdict(call: CallFinished) -> tuple[str, str, str]:
    """Returns the sign of a call, its text, and its look."""
    if not call.ok and call.not_run:
        return "⊘", "Not run", "not-run"
    if not call.ok:
        return "✗", "Failed", "bad"
    end = SHELL_END.search(call.result[-400:])
    if end and end[1] != "0":
        return "✗", f"Exit code {line(end[1], 20)}", "bad"
    return "✓", "Done", "ok"


def _summary(name: str, args: Mapping[str, Any]) -> str:
    command = args.get("command")
    if isinstance(command, str):
        return f"$ {command.strip()}"
    short = {key: value[:_SHORT] if isinstance(value, str) else value for key, value in args.items()}
    if name == "edit_file":
        short = {key: value for key, value in short.items() if key == "path"}
    return arguments(dict(list(short.items())[:_MOST_ARGUMENTS]))


def _glance(result: str, change: Change) -> str:
    """Returns one line of the result, shown under the call: its text, or how its command ended."""
    if change:
        signs = [sign for sign, _ in change]
        return f"+{signs.count('+')} -{signs.count('-')} lines"
    output = result[:4_000].strip().partition("\n")[0]
    if end := SHELL_END.search(result[-400:]):
        return f"exit code {end[1]}" + ("" if output.startswith("[exit code") else f" · {output}")
    return output


def _person(call: CallFinished, decision: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns a person's decision on a call: its type, and their words."""
    kind = str(decision.get("type", ""))
    if call.not_run == "rejected":
        kind = "reject"
    elif call.person:
        kind = {"responded": "respond", "edited": "edit"}[call.person]
    return (kind, str(decision.get("message") or "")) if kind in DECISIONS else None


def arguments_of(
    name: str, args: Mapping[str, Any], change: Change | None = None, *, whole: bool = False
) -> Arguments:
    """The arguments of a call: commands and code as such, a change of a text as a difference.

    whole: all arguments, and all lines of a change, also those that stay.
    """
    rest, content, script = dict(args), None, None
    change = _change(args, whole) if change is None else change
    if change:
        del rest["old"], rest["new"]
    elif name == "write_file" and isinstance(rest.get("content"), str):
        content = rest.pop("content")
    elif isinstance(rest.get("command"), str):
        script = f"$ {rest.pop('command')}", "command"
    elif isinstance(rest.get("code"), str):
        script = rest.pop("code"), "code"
    rows = fold(list(rest.items()), None if whole else _MOST_ARGUMENTS)
    return Arguments(rows.each(lambda row: (row[0], _as_text(row[1]))), change, content, script)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def _change(args: Mapping[str, Any], whole: bool = False) -> Change:
    """Returns the lines of an edit, or those around what it changes; empty when the arguments are no edit."""
    old, new = args.get("old"), args.get("new")
    if not (isinstance(old, str) and isinstance(new, str)):
        return ()
    rows = (text.removesuffix("\n").split("\n") if text else [] for text in (old, new))
    return list(_compared(*rows, whole=whole))


def _compared(old: Sequence[str], new: Sequence[str], *, whole: bool) -> Iterator[tuple[str, str]]:
    if max(len(old), len(new)) > _DIFF_LINES:
        yield from (("-", row) for row in old)
        yield from (("+", row) for row in new)
        return
    matched = SequenceMatcher(None, old, new, autojunk=False)
    for group in [matched.get_opcodes()] if whole else matched.get_grouped_opcodes(_CONTEXT):
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from ((" ", row) for row in old[a:b])
                continue
            yield from (("-", row) for row in old[a:b])
            yield from (("+", row) for row in new[c:d])


def look(row: str) -> str:
    """Returns the look of a line in a difference that a program printed."""
    return "file" if row.startswith(("--- ", "+++ ", "diff ")) else _LOOKS.get(row[:1], "")


# The end of a task, and the status of an unfinished thread.


def _end(run: Run, chapter: Chapter) -> Sequence[End | Pause | Unfinished]:
    outcome, current = run.outcomes.get(chapter.task), chapter is run.chapters[-1]
    if outcome and not (current and run.now.outcome is None):
        return [_ended(outcome, run.ending(outcome).resume, run.confirmation(chapter))]
    return _last(run) if current else ()


def _last(run: Run) -> Sequence[End | Pause | Unfinished]:
    """Returns the status of a thread that has not ended, or that has ended without a task: all that it waits
    for."""
    report = run.now
    if report.outcome is not None:
        return [_ended(report.outcome, report.resume)]
    if report.waiting:
        return [_pause(one.waiting, one.ways) for one in run.waits if one.waiting]
    return [Unfinished(run.running, report.resume)]


def _ended(outcome: Mapping[str, Any], command: str | None, confirmed: str | None = None) -> End:
    phases = [f"{float(phase['percentage']):g} %: {phase['summary']}" for phase in outcome["phases"]]
    result = outcome["result"]
    return End(outcome, phases, None if result is None else _as_text(result), confirmed, command)


def _pause(waiting: Waiting, ways: Sequence[tuple[str, str]]) -> Pause:
    calls: Sequence[PendingCall] = ()
    if isinstance(waiting, Approval):
        calls = waiting.calls
    elif isinstance(waiting, Action):
        calls = (PendingCall(waiting.tool, waiting.args),)
    rows = [(call, arguments_of(call.name, call.args)) for call in calls[:_MOST_CALLS]]
    return Pause(waiting, rows, max(0, len(calls) - _MOST_CALLS), ways)
