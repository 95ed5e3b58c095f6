"""One turn of the model as it stands on the page."""

from collections.abc import Mapping
from typing import Any

from signoff.graph.foreign import counted
from signoff.graph.machine import State
from signoff.graph.texts import FINISH_NAME
from signoff.graph.vocabulary import heading
from signoff.page import cards
from signoff.page.calls import call, person
from signoff.page.html import Html, hidden, line, tag
from signoff.page.run import Run
from signoff.page.way import way
from signoff.page.words import folded, moment, prose, tokens, took
from signoff.session.events import Answered, CallFinished, Event, Nudged, Thought, Wrote
from signoff.session.history import Turn

_MOST_EVENTS = 60
_LEAST = 200


def turn(run: Run, found: Turn, anchor: str, most: int) -> Html:
    """What the model said and did in a turn, what came of it, and the way of the machine.

    most: characters of one text; less where the turn has many.
    """
    each = max(_LEAST, most * 8 // max(8, len(found.events)))
    said = found.text if found.beside is None else found.beside
    head, left, tail = folded(found.events, _MOST_EVENTS)
    note = (
        tag("p", f"… {counted(left, 'more event')} left out of this page", class_="left-out")
        if left
        else None
    )
    steps = run.way(found)
    phases = [phase for phase in run.phases(found.task) if phase["turn"] == found.number]
    return tag(
        "article",
        _head(found),
        prose(said, each, "said") if said.strip() else None,
        tag("p", "Status: ", line(found.status, 80), class_="facts") if found.status else None,
        [_event(run, event, each) for event in head],
        note,
        [_event(run, event, each) for event in tail],
        [cards.phase(phase, each) for phase in phases],
        _decided(run, found),
        _signed(run, found),
        way(steps),
        class_="turn",
        id=anchor,
    )


def ends_well(run: Run, found: Turn) -> bool:
    """Whether the finish of this turn is the one that ended its task."""
    outcome = run.outcomes.get(found.task)
    return bool(outcome and outcome["status"] == "success" and outcome["turns"] == found.number)


def _rests(run: Run, found: Turn) -> tuple[str, str]:
    """The sign and the colour of what the finish of this turn rests on."""
    shown = heading(run.outcomes[found.task])
    return shown.sign, shown.tone


def sign_of(run: Run, found: Turn) -> tuple[str, str, str]:
    """A sign, a colour and a word for what came of a turn."""
    if ends_well(run, found):
        return *_rests(run, found), "signed off"
    if any(phase["turn"] == found.number for phase in run.phases(found.task)):
        return "◔", "blue", "a part is done"
    finishes = [event for event in found.events if _is_finish(event)]
    if finishes:
        return "⚑", "amber", "finish did not count"
    if any(isinstance(event, CallFinished) and not event.ok for event in found.events):
        return "✗", "red", "a call failed"
    if any(isinstance(event, Answered | Wrote) for event in found.events):
        return "?", "violet", "a person answered"
    if any(isinstance(event, CallFinished) for event in found.events):
        return "▪", "plain", "worked"
    if any(isinstance(event, Nudged) and event.why != "resumed" for event in found.events):
        return "↻", "amber", "reminded"
    if any(isinstance(event, Thought) for event in found.events):
        return "✳", "blue", "thought"
    return "·", "plain", "replied"


def _head(found: Turn) -> Html:
    at = moment(found.steps[0].at, day=False) if found.steps else None
    parts = [
        tag("span", tokens(found.tokens)) if found.tokens else None,
        tag("span", took(found.seconds)) if found.seconds >= 0.05 else None,
        tag("span", at) if at else None,
    ]
    title = tag("h3", hidden("Turn "), tag("span", str(found.number), class_="number"))
    return tag("header", title, tag("p", parts, class_="facts"))


def _event(run: Run, event: Event, most: int) -> Html | None:
    match event:
        case Thought():
            return cards.thought(event, most)
        case Answered():
            return cards.answered(event, most)
        case Nudged():
            return cards.nudged(event, most)
        case Wrote():
            return cards.wrote(event, most)
        case CallFinished():
            notes = run.notes.get(event.call_id, {})
            if _is_finish(event):
                return cards.finish(event, notes, most)
            return call(event, notes, run.decisions.get(event.call_id, {}), most)
    return None


def _is_finish(event: Event) -> bool:
    return isinstance(event, CallFinished) and event.name == FINISH_NAME


def _signed(run: Run, found: Turn) -> Html | None:
    if not ends_well(run, found):
        return None
    sign, tone = _rests(run, found)
    mark = tag("span", f"{sign} ", class_="mark", aria_hidden="true")
    return tag("p", mark, "The model signed off, and its finish was accepted.", class_=f"signed {tone}")


def _decided(run: Run, found: Turn) -> Html | None:
    """Says that a person decided on calls, where the thread no longer knows on which and how."""
    if not any(step.state is State.APPROVE for step in found.steps):
        return None
    if any(_known(run.notes, run.decisions, event) for event in found.events):
        return None
    return tag("p", "A person decided on calls of this turn.", class_="person")


def _known(notes: Mapping[str, Any], decisions: Mapping[str, Any], event: Event) -> bool:
    return isinstance(event, CallFinished) and bool(
        person(notes.get(event.call_id, {}), decisions.get(event.call_id, {}))
    )
