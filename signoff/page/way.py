"""The states that the machine went through in a turn, and which rules fired why."""

from collections.abc import Sequence

from signoff.graph.machine import State
from signoff.page.html import Html, hidden, joined, line, tag
from signoff.page.words import folded, moment
from signoff.session.path import Step

# They fire in nearly every turn, and say only that work goes on.
_USUAL = ("think", "calls_open")
_MOST_STATES = 40
_MOST_STEPS = 80
_WHY = 240
_NAME = 80


def way(steps: Sequence[Step]) -> Html | None:
    """The way in short, its rules beside those of every turn, and behind it all steps."""
    ran = [step for step in steps if step.name]
    if not ran:
        return None
    summary = tag("summary", hidden("The way of the machine: "), tag("span", _states(ran), class_="states"))
    rules = [_rule(step) for step in folded(ran, _MOST_STEPS)[0] if step.rule and step.rule not in _USUAL]
    return tag("div", tag("details", summary, _table(ran)), rules, class_="way")


def _states(ran: Sequence[Step]) -> Html:
    head, left, tail = folded(ran, _MOST_STATES)
    gap = [tag("span", f"… {left:,} more …", class_="left-out")] if left else []
    shown = [[_state(step) for step in part] for part in (head, tail)]
    arrow = tag("span", " → ", class_="arrow")
    chips = [*shown[0], *gap, *shown[1]]
    return joined([[arrow if at else None, chip] for at, chip in enumerate(chips)])


def _state(step: Step) -> Html:
    look = "state pause" if step.state in _PAUSES else "state"
    return tag("code", line(step.name, _NAME), class_=look)


_PAUSES = (State.ASK_USER, State.APPROVE, State.HAND_OVER, State.CONFIRM)


def _rule(step: Step) -> Html:
    why = tag("span", f" {line(step.why, _WHY)}")
    return tag("p", "Rule ", tag("code", line(step.rule, _NAME)), why, class_="rule")


def _table(ran: Sequence[Step]) -> Html:
    names = tag("tr", [tag("th", name, scope="col") for name in ("At", "State", "Reported", "Rule and why")])
    head, left, tail = folded(ran, _MOST_STEPS)
    note = f"… {left:,} more steps left out of this page"
    gap = tag("tr", tag("td", note, colspan=4, class_="left-out")) if left else None
    rows = [[_row(step) for step in part] for part in (head, tail)]
    return tag("div", tag("table", tag("thead", names), tag("tbody", rows[0], gap, rows[1])), class_="scroll")


def _row(step: Step) -> Html:
    rule = joined([tag("code", line(step.rule, _NAME)), f" {line(step.why, _WHY)}"]) if step.rule else None
    return tag(
        "tr",
        tag("td", moment(step.at, day=False)),
        tag("td", tag("code", line(step.name, _NAME))),
        tag("td", line(step.event, _NAME)),
        tag("td", rule),
    )
