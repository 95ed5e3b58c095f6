"""Cards: how a task ended, what the model asks, what it thinks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from signoff.cli.report import Exit, Report
from signoff.cli.safe import cut, one_line, plain
from signoff.cli.standing import Question
from signoff.tools.output import counted

AMBER = "dark_orange"
_LAST_TEXT = 600
_HONEST = {"partial": "Partly done", "blocked": "Blocked", "impossible": "Not possible"}
_LIMITS = {"turns": "Turn limit reached", "talk_turns": "Stopped: it only talked"}
_ERRORS = {
    "model_error": "The model failed",
    "content_filter": "The model refused",
    "superseded": "Replaced by a new task",
    "cancelled": "Cancelled",
    "no_task": "No task",
}


@dataclass(frozen=True)
class Card:
    """A title, a colour of rich, a text, and facts below it. All texts are already harmless."""

    title: str
    colour: str
    body: str
    facts: Sequence[str] = ()
    command: tuple[str, str] | None = field(default=None)


def card(content: Card, boxed: bool) -> RenderableType:
    """The card as a box, or as plain text. Its command is not in it: a box would break it."""
    if not boxed:
        lines = [f"{content.title}:", *content.body.split("\n"), *content.facts]
        return Text("\n".join(f"  {line}".rstrip() if at else line for at, line in enumerate(lines)))
    parts = [Text(content.body)] if content.body else []
    if content.facts:
        parts.append(Text("\n".join(content.facts), style="dim"))
    title = Text(content.title, style=f"bold {content.colour}")
    return Panel(Group(*parts), title=title, title_align="left", border_style=content.colour, padding=(0, 1))


def ending(report: Report) -> Card:
    """The card of a report: what it came to and how it goes on."""
    if report.question:
        return asking(report.question, report.resume)
    if report.status == "stopped":
        if report.resume is None:
            return Card("Stopped", AMBER, "Nothing was saved yet; run the command again.")
        body = "Everything up to the last finished step is saved."
        return Card("Stopped", AMBER, body, command=("Go on", report.resume))
    if report.outcome is None:
        told = plain(report.error or "")
        return Card("Error", "red", told, command=_command("Try again", report))
    return _outcome(report.outcome, report)


def _outcome(outcome: Mapping[str, Any], report: Report) -> Card:
    facts = [f"{facts_of(outcome)} · thread {one_line(report.thread_id or '')}"]
    if report.exit_code is Exit.SUCCESS:
        return Card("Done", "green", _told(outcome), facts)
    if report.exit_code is Exit.HONEST:
        return Card(_HONEST[outcome["claim"]], AMBER, _told(outcome), facts)
    if report.exit_code is Exit.LIMIT:
        title = _LIMITS.get(outcome["reason"], f"Limit reached: {one_line(outcome['reason'])}")
        command = _command("Go on with more turns", report)
        return Card(title, AMBER, _where_it_was(outcome), facts, command)
    title = _ERRORS.get(outcome["reason"], f"Error: {one_line(outcome['reason'])}")
    body = "\n".join(part for part in (plain(outcome["error"] or ""), _where_it_was(outcome)) if part)
    return Card(title, "red", body, facts, _command("Try again", report))


def _command(label: str, report: Report) -> tuple[str, str] | None:
    return (label, report.resume) if report.resume else None


def asking(question: Question, resume: str | None = None) -> Card:
    """The card of a question, its options numbered."""
    options = [f"{number}. {one_line(option)}" for number, option in enumerate(question.options, start=1)]
    body = "\n".join([plain(question.text.strip()), *options])
    return Card("The model asks", "cyan", body, command=("Answer", resume) if resume else None)


def facts_of(outcome: Mapping[str, Any]) -> str:
    """The numbers of a task on one line."""
    tokens = outcome["usage"]["total_tokens"]
    parts = [
        counted(outcome["turns"], "turn"),
        counted(outcome["tool_calls"], "tool call"),
        *([counted(tokens, "token")] if tokens else []),
        f"{outcome['seconds_active']:.1f} s",
    ]
    return " · ".join(parts)


def _told(outcome: Mapping[str, Any]) -> str:
    issues = [f"• {one_line(issue)}" for issue in outcome["pending_issues"]]
    return "\n".join([plain(outcome["summary"].strip()), *issues])


def _where_it_was(outcome: Mapping[str, Any]) -> str:
    parts = []
    if outcome["last_text"]:
        parts.append(f"It last said: {cut(plain(outcome['last_text']), _LAST_TEXT)}")
    parts += [f"Not run: {cut(one_line(work), 120)}" for work in outcome["open_work"]]
    return "\n".join(parts)
