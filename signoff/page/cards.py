"""Cards: thoughts, reminders, questions with their answers, phases, finishes that did not count."""

from collections.abc import Mapping
from typing import Any

from signoff.front.cards import WHY
from signoff.page.html import Child, Html, line, tag
from signoff.page.words import block, prose, took
from signoff.session.events import Answered, CallFinished, Nudged, Thought, Wrote

_CALM = ("round", "tool")


def card(tone: str, sign: str, title: str, *body: Child, level: str = "p", id: str | None = None) -> Html:
    """tone: the colour, of what the sign and the title say as well. level: the element of the title."""
    mark = tag("span", sign, class_="mark", aria_hidden="true")
    return tag("section", tag(level, mark, " ", title, class_="title"), *body, class_=f"card {tone}", id=id)


def facts(*parts: str | None) -> Html | None:
    """Short facts on one line."""
    found = [tag("span", part) for part in parts if part]
    return tag("p", found, class_="facts") if found else None


def thought(event: Thought, most: int) -> Html:
    named = [("Approach", event.approach), ("Status", event.status)]
    rows = [
        tag("div", tag("dt", name), tag("dd", block(str(text), most), dir="auto"), class_="row")
        for name, text in named
        if text
    ]
    return card("blue", "✳", "Thought", prose(event.text, most), tag("dl", rows) if rows else None)


def nudged(event: Nudged, most: int) -> Html:
    """A reminder for the model, or the mark of a task that goes on."""
    if event.why == "resumed":
        return tag(
            "p", tag("span", "▸", class_="mark", aria_hidden="true"), " The task goes on", class_="note"
        )
    why = WHY.get(event.why, line(event.why, 80))
    told = f"The machine reminded the model: {why}"
    tone = "grey" if event.why in _CALM else "amber"
    summary = tag("summary", tag("span", "↻", class_="mark", aria_hidden="true"), " ", told)
    return tag("details", summary, prose(event.text, most), class_=f"nudge {tone}")


def answered(event: Answered, most: int) -> Html:
    waited = f"answered after {took(event.waited)}" if event.waited >= 1 else None
    return card(
        "violet",
        "?",
        "The model asked",
        prose(event.question, most),
        _answer(event.answer, most),
        facts(waited),
    )


def wrote(event: Wrote, most: int) -> Html:
    """Words of the user that answered what waited."""
    return tag("section", tag("p", "The user wrote", class_="title"), prose(event.text, most), class_="you")


def finish(found: CallFinished, notes: Mapping[str, Any], most: int) -> Html:
    """A finish that did not count: refused by the review, sent back by a person, or never run."""
    tone, sign, title = "amber", "⚑", "The finish was refused"
    if notes.get("sent_back"):
        tone, sign, title = "violet", "↩", "A person sent the finish back"
    elif "not_run" in notes:
        tone, sign, title = "grey", "⊘", "A finish that did not count"
    summary = str(found.args.get("summary") or "")
    waited = float(notes.get("waited", 0.0))
    return card(
        tone,
        sign,
        title,
        tag("blockquote", block(summary.strip(), most), dir="auto") if summary.strip() else None,
        prose(found.result, most),
        facts(f"answered after {took(waited)}" if waited >= 1 else None),
    )


def phase(reported: Mapping[str, Any], most: int) -> Html:
    """A part of the task that the model reported as done."""
    done = min(100.0, max(0.0, float(reported["percentage"])))
    following = str(reported.get("next_phase") or "").strip()
    return card(
        "blue",
        "◔",
        f"{float(reported['percentage']):g} % done",
        tag("progress", value=f"{done:g}", max=100, aria_label="Part of the task that is done"),
        prose(str(reported["summary"]), most),
        tag("p", "Next: ", block(following, most), class_="facts", dir="auto") if following else None,
    )


def _answer(text: str, most: int) -> Html:
    return tag("div", tag("span", "Answer", class_="label"), prose(text, most), class_="answer")
