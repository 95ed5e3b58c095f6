"""The card at the end of a task: what it came to, or what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from signoff.front.cards import NOTHING_OPEN, changed, checked, ending, is_open
from signoff.front.report import Report
from signoff.graph.vocabulary import CLAIMS, VERIFIED, heading
from signoff.nodes.results import as_json
from signoff.page.calls import in_full
from signoff.page.cards import card, facts
from signoff.page.html import Child, Html, joined, line, tag
from signoff.page.words import block, listed, pre, prose, tokens, took
from signoff.session.decisions import Action, Approval, Confirmation, PendingCall, Question, Waiting
from signoff.tools.output import counted
from signoff.tools.reviews import DECISIONS

_MOST_ROWS = 40
_CALLS_SHOWN = 20


def title_of(report: Report) -> str:
    """What a thread waits for, or that it was stopped, in a few words."""
    # Without the long texts, which the title needs none of.
    return ending(replace(report, waiting=_bare(report.waiting))).title


def _bare(found: Waiting | None) -> Waiting | None:
    match found:
        case Question():
            return Question("", "")
        case Approval():
            return Approval("", ())
        case Action():
            return Action("", "", {})
        case Confirmation():
            return Confirmation("", "")
    return None


def ended(report: Report, confirmed: str | None, most: int) -> Html:
    """The end of a task. confirmed: what a person said who confirmed it; None when nobody did."""
    outcome = report.outcome or {}
    found, limit = heading(outcome), outcome["status"] == "limit"
    body: list[Child] = [
        tag("p", block(outcome["error"], most), class_="prose", dir="auto") if outcome["error"] else None,
        prose(outcome["summary"], most, "prose summary") if outcome["summary"].strip() else None,
        _badges(outcome, confirmed),
        _named("Checks", checked(outcome), most),
        _phases(outcome["phases"], most),
        _named("Still open", outcome["pending_issues"], most),
        _result(outcome["result"], most),
        _named("Changed last", changed(outcome), most) if outcome["status"] != "success" else None,
        _last_text(outcome["last_text"], most) if outcome["status"] != "success" else None,
        _named("Not run", outcome["open_work"], most),
        _named("Open", outcome.get("open_points") or _unknown(outcome), most),
        tag("p", outcome["next"], class_="facts") if limit and outcome["next"] else None,
        _way_on("Go on with" if limit else "Try again with", report.resume),
        _figures(outcome),
    ]
    return card(found.tone, found.sign, line(found.title, 200), *body, level="h3")


def waiting(found: Waiting, report: Report, most: int) -> Html:
    """What the thread waits for, with all that a person needs to see, and the commands that answer."""
    ways = [_way_on(label, command) for label, command in report.ways]
    title = title_of(report)
    if isinstance(found, Question):
        body: list[Child] = [prose(found.text, most), _options(found.options, most)]
        if found.default is not None:
            body.append(tag("p", "Nobody answering, it takes: ", line(found.default, 200), class_="facts"))
        return card("violet", "?", title, *body, ways, level="h3")
    if isinstance(found, Confirmation):
        refused = f"The review refused it twice: {line(found.problem, 400)}" if found.problem else None
        open_ = _named("Still open", found.pending_issues, most)
        claim = _claim(found.claim)
        body = [prose(found.summary, most, "prose summary"), open_, facts(claim, refused)]
        return card("violet", "?", title, *body, ways, level="h3")
    if isinstance(found, Action):
        told = "It was handed out before and may have been done already." if found.unknown else None
        shown = [tag("code", line(found.tool, 80), class_="tool"), in_full(found.tool, found.args, most)]
        return card("violet", "⇢", title, *shown, facts(told), ways, level="h3")
    return card("violet", "?", title, _pending(found, most), ways, level="h3")


def stopped(report: Report, *, running: bool) -> Html:
    """A thread with work left: it runs somewhere, or was stopped or killed."""
    if running:
        told = "It was running when this page was made."
        return card("blue", "▶", "Running", tag("p", told), level="h3")
    told = "Everything up to the last finished step is saved."
    return card("amber", "‖", "Stopped", tag("p", told), _way_on("Go on with", report.resume), level="h3")


def _badges(outcome: Mapping[str, Any], confirmed: str | None) -> Html | None:
    found = [_claim(outcome["claim"]) if outcome["claim"] else None]
    if rests := VERIFIED.get(outcome["verified"] or ""):
        found.append(f"{rests.shown}: {rests.meaning}")
    if confirmed is not None:
        found.append(f"A person confirmed it: {line(confirmed, 200)}".removesuffix(": "))
    shown = [tag("li", text) for text in found if text]
    return tag("ul", shown, class_="badges") if shown else None


def _claim(claim: str) -> str:
    known = CLAIMS.get(claim)
    return f"Claim: {known.shown if known else line(claim, 80)}"


def _phases(phases: Sequence[Mapping[str, Any]], most: int) -> Html | None:
    told = [f"{float(phase['percentage']):g} %: {phase['summary']}" for phase in phases]
    return _named("Reported on the way", told, most)


def _unknown(outcome: Mapping[str, Any]) -> Sequence[str]:
    """What is said where a limit has ended the work, and nothing tells what is left of it."""
    return () if is_open(outcome) or outcome["status"] != "limit" else (NOTHING_OPEN,)


def _named(title: str, texts: Sequence[str], most: int) -> Html | None:
    if not texts:
        return None
    room = max(200, most // min(len(texts), _MOST_ROWS))
    return tag("div", tag("p", title, class_="label"), listed(texts, _MOST_ROWS, room), class_="named")


def _result(result: Any, most: int) -> Html | None:
    if result is None:
        return None
    told = result if isinstance(result, str) else as_json(result)
    return tag("div", tag("p", "Result", class_="label"), pre(told, most, "result"), class_="named")


def _last_text(text: str, most: int) -> Html | None:
    if not text.strip():
        return None
    shown = prose(text, min(most, 2_000))
    return tag("div", tag("p", "It last said", class_="label"), shown, class_="named")


def _figures(outcome: Mapping[str, Any]) -> Html | None:
    usage, waited = outcome["usage"], outcome["seconds_waiting"]
    used = usage["total_tokens"]
    return facts(
        counted(outcome["turns"], "turn"),
        counted(outcome["tool_calls"], "tool call") if outcome["tool_calls"] else None,
        tokens(used, estimated=usage["estimated"]) if used else None,
        f"{took(outcome['seconds_active'])} of work",
        f"{took(waited)} of waiting for people" if waited >= 0.05 else None,
        counted(outcome["nudges"], "reminder") if outcome["nudges"] else None,
        counted(outcome["refusals"], "refused finish").replace("finishs", "finishes")
        if outcome["refusals"]
        else None,
    )


def _options(options: Sequence[str], most: int) -> Html | None:
    if not options:
        return None
    rows = [tag("li", block(option, most), dir="auto") for option in options[:_MOST_ROWS]]
    return tag("ol", rows, class_="options")


def _pending(found: Approval, most: int) -> Html:
    each = max(400, most // max(1, min(len(found.calls), _CALLS_SHOWN)))
    left = len(found.calls) - _CALLS_SHOWN
    note = tag("p", f"… {left:,} more calls left out of this page", class_="left-out") if left > 0 else None
    problem = facts(f"The answer before did not fit: {line(found.problem, 300)}") if found.problem else None
    return joined([problem, [_pending_call(call, each) for call in found.calls[:_CALLS_SHOWN]], note])


def _pending_call(call: PendingCall, most: int) -> Html:
    note = line(call.note, 400) if call.note and not call.note.endswith("waits for approval.") else None
    allowed = f"Allowed: {', '.join(call.allowed)}" if set(call.allowed) != set(DECISIONS) else None
    name = tag("p", tag("code", line(call.name, 80), class_="tool"))
    return tag("div", name, in_full(call.name, call.args, most), facts(note, allowed), class_="pending")


def _way_on(label: str, command: str | None) -> Html | None:
    if not command:
        return None
    return tag(
        "p", tag("span", label, class_="label"), " ", tag("code", line(command, 900)), class_="command"
    )
