"""How often the states ran on a path, and how often each move was made."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from signoff.graph.drawing.diagram import Line
from signoff.graph.foreign import counted
from signoff.graph.machine import TRANSITIONS, Event, State
from signoff.page.html import Html, tag
from signoff.session.path import Step


@dataclass(frozen=True)
class Taken:
    """How often each state ran, and how often each event was reported from each; the rest: steps of states
    or events that this version of the machine does not have."""

    visits: Counter[State]
    moves: Counter[tuple[State, Event]]
    unknown: int = 0

    def along(self, line: Line) -> int:
        return sum(self.moves[line.source, event] for event in line.events)


def taken(steps: Sequence[Step]) -> Taken:
    """What the steps of a path add up to."""
    visits, moves, unknown = Counter[State](), Counter[tuple[State, Event]](), 0
    for step in steps:
        if step.state is None:
            unknown += bool(step.name)
            continue
        visits[step.state] += 1
        row = {str(event): event for event in TRANSITIONS[step.state]}
        if step.event in row:
            moves[step.state, row[step.event]] += 1
        elif row:
            unknown += 1
    return Taken(visits, moves, unknown)


def numbers(found: Taken) -> Html | None:
    """The path as tables."""
    if not found.visits:
        return tag("p", "This thread has no steps of its own yet.", class_="quiet")
    states = [
        (tag("code", state), f"{found.visits[state]:,}") for state in TRANSITIONS if found.visits[state]
    ]
    moves = [
        (tag("code", state), event, tag("code", row[event]), f"{count:,}")
        for state, row in TRANSITIONS.items()
        for event in row
        if (count := found.moves[state, event])
    ]
    return tag(
        "details",
        tag("summary", "The path in numbers"),
        _table(("State", "Visits"), states),
        _table(("From", "Reported", "To", "Times"), moves),
        tag("p", f"{counted(found.unknown, 'step')} of another version of the machine.", class_="quiet")
        if found.unknown
        else None,
        class_="numbers",
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[Html | str]]) -> Html:
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    body = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", body))


def visits_of(count: int) -> str:
    return counted(count, "visit") if count else "not visited"


def times_of(count: int) -> str:
    return f"taken {counted(count, 'time')}" if count else "not taken"
