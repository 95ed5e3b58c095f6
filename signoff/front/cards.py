"""Cards and lines that show how a task ended, and what the model asks, thinks and does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from signoff import Action, Approval, PendingCall, Question, Waiting
from signoff.events import (
    Answered,
    CallFinished,
    Nudged,
    PhaseAccepted,
    Retrying,
    Said,
    SessionEvent,
    Thought,
    Wrote,
)
from signoff.front.calls import in_full, in_short
from signoff.front.report import CommandReport
from signoff.front.text import cut, one_line, plain
from signoff.text import STANDING, VERIFIED, WAITS, Tone, count_noun, heading
from signoff.tools.approvals import DECISIONS

AMBER = "yellow"
_LAST_TEXT = 600
_SUMMARY = 4_000
_LINE = 240
COLOURS: Mapping[Tone, str] = {
    "green": "green",
    "amber": AMBER,
    "red": "red",
    "blue": "cyan",
    "violet": "magenta",
}
"""The tones of the vocabulary, as rich names them."""
# A call with a result has run; its result says whether it succeeded.
_CAME = {"ok": "", "error": "✗ ", "unknown": "? "}
NOTHING_OPEN = "the task itself; no finish of it was accepted"
_SAID = 1200
WHY = {
    "talked": "it answered with text only",
    "empty": "its reply was empty",
    "reasoning": "it only thought",
    "truncated": "its reply was cut off",
    "filtered": "its reply was refused or filtered",
    "near_limit": "a limit is near",
    "repeating": "it repeats itself",
    "round": "look at the results before the next round",
    "refused": "its finish was refused",
    "sent_back": "its finish was sent back",
}


@dataclass(frozen=True)
class Card:
    """A title, a colour of rich, a text, facts below it, and commands. All texts are already sanitised."""

    title: str
    colour: str
    body: str | Text
    facts: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()


def card(content: Card, boxed: bool) -> RenderableType:
    """Renders the card as a box or as plain text, without its commands, which a box would break."""
    if not boxed:
        body = str(content.body).split("\n") if content.body else []
        head = content.title if ":" in content.title else f"{content.title}:"
        lines = [head, *body, *content.facts]
        return Text("\n".join(f"  {line}".rstrip() if at else line for at, line in enumerate(lines)))
    parts = [Text.assemble(content.body)] if content.body else []
    if content.facts:
        parts.append(Text("\n".join(content.facts), style="dim"))
    title = Text(content.title, style=f"bold {content.colour}")
    return Panel(Group(*parts), title=title, title_align="left", border_style=content.colour, padding=(0, 1))


def in_text(content: Card) -> str:
    """Returns the card as plain text, for a client that shows texts."""
    return "\n".join(part for part in (content.title, str(content.body), *content.facts) if part)


def ending(report: CommandReport) -> Card:
    """Returns the card of a report: the outcome and how to continue."""
    if report.waiting:
        return asking(report.waiting, report.ways)
    if report.status == "queued":
        return Card(
            "Submitted to the workers",
            "green",
            f"thread {one_line(report.thread_id or '')}",
            commands=report.ways,
        )
    if report.status == "stopped":
        if report.resume is None:
            return Card("Stopped", AMBER, "Nothing was saved yet; run the command again.")
        body = (
            "Everything up to the last finished step is saved."
            if report.thread_id
            else "Nothing was changed."
        )
        return Card("Stopped", AMBER, body, commands=[("Go on", report.resume)])
    if report.outcome is None:
        told = plain(report.error or "")
        return Card("Error", "red", told, commands=_command("Try again", report))
    return _outcome(report.outcome, report)


def _outcome(outcome: Mapping[str, Any], report: CommandReport) -> Card:
    found, facts = heading(outcome), [f"{facts_of(outcome)} · thread {one_line(report.thread_id or '')}"]
    title, colour = one_line(found.title), COLOURS[found.tone]
    if outcome["status"] == "success":
        points = [f"• {one_line(point)}" for point in outcome["open_points"]]
        body = "\n".join([_outcome_text(outcome), *points, *undoing(outcome)])
        return Card(title, colour, body, [*rests_on(outcome), *facts])
    more = "Continue with more turns" if outcome["status"] == "limit" else "Try again"
    said = plain(outcome["error"] or "")
    where = "\n".join([_where_it_was(outcome), *undoing(outcome)]).strip("\n")
    body = "\n".join(part for part in (said, _claimed(outcome), where) if part)
    return Card(title, colour, body, facts, _command(more, report))


def rests_on(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the basis of a finish: how it was verified, and every check with its verdict, in a line
    each.
    """
    return [VERIFIED[outcome["verified"] or "asserted"].meaning, *map(one_line, checked(outcome))]


def checked(outcome: Mapping[str, Any]) -> list[str]:
    """Returns every check that ran, with its verdict, in a line each."""
    return [
        f"{'✓' if check['passed'] else '✗'} {check['name']}: {check['said']}".removesuffix(": ")
        for check in outcome["checks"]
    ]


def _command(label: str, report: CommandReport) -> list[tuple[str, str]]:
    return [(label, report.resume)] if report.resume else []


def asking(waiting: Waiting, commands: Sequence[tuple[str, str]] = ()) -> Card:
    """Returns the card of what a thread waits for, whole: a question with its options, or calls in full."""
    document = waiting.document()
    confirms = document["waits_for"] == "confirmation"
    title = WAITS[document["waits_for"]].title
    if waiting.path:
        title = f"{title} ({' / '.join(map(one_line, waiting.path))})"
    if isinstance(waiting, Question):
        options = [f"{number}. {one_line(option)}" for number, option in enumerate(waiting.options, start=1)]
        body = "\n".join([plain(waiting.text.strip()), *options])
        return Card(title, "cyan", body, commands=commands)
    if isinstance(waiting, Action):
        facts = ["Run it yourself; its result is the answer."]
        if waiting.unknown:
            facts = ["It was handed out before and may already have been done: check before you run it."]
        return Card(title, "cyan", in_full(waiting.tool, waiting.args), facts, commands)
    assert isinstance(waiting, Approval), "there are no others"
    calls = [_confirming(document)] if confirms else [approving(call) for call in waiting.calls]
    if len(calls) > 1:
        calls = [Text.assemble(f"{number}. ", told) for number, told in enumerate(calls, start=1)]
    before = "The review refused it twice" if confirms else "The previous answer was not valid"
    problem = [f"{before}: {one_line(waiting.problem).rstrip('.')}."] if waiting.problem else []
    return Card(title, "magenta", Text("\n\n").join(calls), problem, commands)


def _confirming(document: Mapping[str, Any]) -> Text:
    """Returns a finish that waits for a person, with the issues that it leaves open."""
    issues = [f"• {one_line(issue)}" for issue in document["pending_issues"]]
    return Text("\n".join([plain(document["summary"].strip()), *issues]))


def approving(call: PendingCall) -> Text:
    """Returns one of the waiting calls, with everything that it would do."""
    parts = [in_full(call.name, call.args)]
    if call.note and not call.note.endswith("waits for approval."):
        parts += [Text(f"  {line}", style="dim") for line in plain(call.note).splitlines()]
    if set(call.allowed) != set(DECISIONS):
        parts.append(Text(f"  Allowed: {', '.join(map(one_line, call.allowed))}", style="dim"))
    return Text("\n").join(parts)


def facts_of(outcome: Mapping[str, Any]) -> str:
    """Returns the figures of a task on one line."""
    tokens = outcome["usage"]["total_tokens"]
    parts = [
        count_noun(outcome["turns"], "turn"),
        count_noun(outcome["tool_calls"], "tool call"),
        *([count_noun(tokens, "token")] if tokens else []),
        f"{outcome['seconds_active']:.1f} s",
    ]
    if again := outcome["retries"]:
        parts.append(f"tried again {count_noun(again, 'time')} ({outcome['seconds_retrying']:.1f} s)")
    return " · ".join(parts)


def changed(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the last calls that may have changed something, in a line each, with their results."""
    return [f"{_CAME[change['came']]}{change['call']} → {change['result']}" for change in outcome["changes"]]


def undone_calls(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the calls whose effects were undone, the newest first, in a line each."""
    return [_undo_line(one) for one in (outcome["undo"] or {}).get("undone", ())]


def standing_calls(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the calls whose effects stand after an undo, in a line each, with the reason."""
    return [
        f"{_undo_line(one)} ({STANDING.get(one['why'], one['why'])})"
        for one in (outcome["undo"] or {}).get("standing", ())
    ]


def _undo_line(found: Mapping[str, Any]) -> str:
    told = " / ".join([*found["path"], found["call"]])
    return f"{told} → {found['said']}" if found["said"] not in ("", "null") else told


def undoing(outcome: Mapping[str, Any]) -> list[str]:
    """Returns what became of the effects of a task that was undone, in lines; none of one that was not."""
    if outcome["undo"] is None:
        return []
    parts = [("Undone:", undone_calls(outcome)), ("Not undone, and standing:", standing_calls(outcome))]
    lines = [
        line
        for title, found in parts
        if found
        for line in (title, *(f"  • {cut(one_line(one), _LINE)}" for one in found))
    ]
    return lines or ["There was nothing to undo."]


def is_open(outcome: Mapping[str, Any]) -> bool:
    """Whether the outcome of a task names open work."""
    return bool(outcome["open_work"] or outcome["open_points"] or outcome["pending_issues"])


def _outcome_text(outcome: Mapping[str, Any]) -> str:
    issues = [f"• {one_line(issue)}" for issue in outcome["pending_issues"]]
    return "\n".join([cut(plain(outcome["summary"].strip()), _SUMMARY), *issues])


def _claimed(outcome: Mapping[str, Any]) -> str:
    """Returns the claim of a finish that could not be accepted without a person."""
    return f"It claims “{one_line(outcome['claim'])}”: {_outcome_text(outcome)}" if _holds(outcome) else ""


def _holds(outcome: Mapping[str, Any]) -> bool:
    return outcome["reason"] == "needs_person" and bool(outcome["claim"])


def _where_it_was(outcome: Mapping[str, Any]) -> str:
    """Returns what a person needs to continue the work: what was done, and what is open."""
    parts = [
        f"Reported: {phase['percentage']:g} % done: {cut(one_line(phase['summary']), 120)}"
        for phase in outcome["phases"]
    ]
    if done := changed(outcome):
        parts += ["Changed last:", *(f"  • {cut(one_line(line), _LINE)}" for line in done)]
    if outcome["last_text"]:
        parts.append(f"It last said: {cut(plain(outcome['last_text']), _LAST_TEXT)}")
    return "\n".join([*parts, *_open(outcome)])


def _open(outcome: Mapping[str, Any]) -> list[str]:
    """Returns the open work, as far as it is known."""
    left = [f"not run: {work}" for work in outcome["open_work"]] + [*outcome["open_points"]]
    if not _holds(outcome):
        left += outcome["pending_issues"]
    if not left and outcome["status"] == "limit":
        left = [NOTHING_OPEN]
    return ["Open:", *(f"  • {cut(one_line(point), _LINE)}" for point in left)] if left else []


def waiting_for(told: Retrying) -> str:
    """Returns a wait for a provider in words: `waits 20 s: rate limit (try 1 of 5)`."""
    said = f"waits {told.seconds:.1f} s: {told.why} (try {told.tries} of {told.most})"
    return f"{said}; the partial reply does not count" if told.dropped else said


@dataclass
class Lines:
    """Renders events in order; the number of a turn is on its first line.

    boxed: draw cards as boxes and fit lines to the terminal; otherwise everything is plain, unwrapped text.
    asked: the question that a card has just shown; then only its answer is printed.
    """

    boxed: bool
    turn: int = 0
    asked: str = ""

    def render(self, event: SessionEvent) -> RenderableType | None:
        """Returns what to print for `event`; None for an event without a line."""
        match event:
            case Wrote(text=text, answers=False):
                self.turn = 0
                return self._row("you", "bold cyan", Text(cut(plain(text.strip()), _SAID)))
            case Said(turn=turn) if said := event.text if event.beside is None else event.beside:
                return self._numbered(turn, Text(cut(plain(said), _SAID)))
            case CallFinished():
                return self._numbered(event.turn, *map(_fitted, in_short(event)))
            case Answered(turn=turn, question=question, answer=answer):
                asked = [] if question == self.asked else [Text(f"? {one_line(question)}", style="cyan")]
                return self._numbered(turn, *asked, Text(f"  {one_line(answer)}", style="bold"))
            case Thought(turn=turn):
                return self._numbered(turn, card(_thought(event), self.boxed))
            case PhaseAccepted(turn=turn):
                return self._numbered(turn, _fitted(_phase(event)))
            case Nudged(why=why):
                told = "the task goes on" if why == "resumed" else f"reminded: {WHY.get(why, one_line(why))}"
                return self._row("", "", Text(f"↻ {told}", style="dim yellow"))
            case Retrying():
                return self._row("", "", Text(f"↻ {waiting_for(event)}", style=AMBER))
        return None

    def remark(self, turn: int, text: str) -> RenderableType:
        """Returns a line about a turn: the states of the machine in it."""
        return self._numbered(turn, Text(text, style="dim"))

    def _numbered(self, turn: int, *parts: RenderableType) -> RenderableType:
        fresh, self.turn = turn != self.turn, turn
        return self._row(str(turn) if fresh else "", "bold", *parts)

    def _row(self, mark: str, style: str, *parts: RenderableType) -> RenderableType:
        if not self.boxed:
            return _indented(mark, parts)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(width=3, justify="right", style=style)
        row.add_column(ratio=1, overflow="fold")
        row.add_row(Text(mark), Group(*parts))
        return row


def _indented(mark: str, parts: tuple[RenderableType, ...]) -> RenderableType:
    lines = "\n".join(str(part) for part in parts).split("\n")
    marks = [mark, *[""] * (len(lines) - 1)]
    return Text("\n".join(f"{left:>3} {line}".rstrip() for left, line in zip(marks, lines, strict=True)))


def _fitted(line: Text) -> Text:
    """Truncates the line to the width of the terminal."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _phase(phase: PhaseAccepted) -> Text:
    done = Text(f"◔ {phase.percentage:g} % done: ", style="blue")
    return done + Text(cut(one_line(phase.summary), _LINE), style="default")


def _thought(thought: Thought) -> Card:
    facts = [f"{name}: {one_line(str(text))}" for name, text in
             (("approach", thought.approach), ("status", thought.status)) if text]  # fmt: skip
    return Card("think", "blue", cut(plain(thought.text.strip()), _SAID), facts)
