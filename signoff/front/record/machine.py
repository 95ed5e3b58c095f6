"""Draws the machine with the path of a thread through it, as a picture and as tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from signoff.front.record.run import Run
from signoff.graph.drawing.diagram import Line, lines, round_path
from signoff.graph.drawing.layout import (
    BOXES,
    DOORS,
    END_AT,
    HEIGHT,
    MAIN_PATH,
    PAUSES,
    ROUTES,
    START_AT,
    WIDTH,
    Box,
    Point,
    Route,
)
from signoff.graph.machine import FIRST, LAST, WHAT_IT_DOES
from signoff.machine import TRANSITIONS, Event, State
from signoff.session import Condition, Step
from signoff.text import count_noun

_RING = 9
# In drawing order.
_LOOKS = ("pale", "plain", "main", "as", "limit", "error", "success")


@dataclass(frozen=True)
class Counts:
    """How often each state ran, and how often each event was reported from it.

    unknown: the steps with states or events that this version of the machine does not have.
    """

    visits: Counter[State]
    moves: Counter[tuple[State, Event]]
    unknown: int = 0

    def along(self, line: Line) -> int:
        return sum(self.moves[line.source, event] for event in line.events)

    def look(self, line: Line) -> str:
        """Returns the first word of the line's look; `pale` for a line that is not on the path."""
        return line.look.split()[0] if self.along(line) else "pale"


@dataclass(frozen=True)
class Edge:
    """A line of the picture. pill: the position of the count of its transitions."""

    title: str
    path: str
    look: str
    count: int
    pill: Point


@dataclass(frozen=True)
class StateBox:
    """A state of the picture. middle: the vertical position of its name. flag: what the thread does in it."""

    state: State
    title: str
    looks: str
    box: Box
    middle: int
    visits: str
    flag: str


@dataclass(frozen=True)
class Picture:
    """Everything that is drawn, in drawing order, and the rows of the tables below it.

    last: the box of the last state, which holds the doors. doors: the word, the vertical position and the
    look of each. ends: the paths from the start and to the end, with their looks.
    """

    edges: Sequence[Edge]
    nodes: Sequence[StateBox]
    doors: Sequence[tuple[str, int, str]]
    ends: Sequence[tuple[str, str]]
    states: Sequence[tuple[State, int]]
    moves: Sequence[tuple[State, Event, State, int]]
    unknown: int
    looks: Sequence[str] = _LOOKS
    view: str = f"10 16 {WIDTH - 20} {HEIGHT - 28}"
    start: Point = START_AT
    end: Point = END_AT
    ring: int = _RING
    last: Box = BOXES[LAST]


_MOST_BELOW = 12


@dataclass(frozen=True)
class PictureBelow:
    """The machine of a delegate beside that of its thread. path: the names that lead to it; stands: how it is
    with it, and its colour."""

    path: Sequence[str]
    stands: str
    tone: str
    picture: Picture


def pictures_below(run: Run) -> list[PictureBelow]:
    """Returns the machines of the delegates of `run`, the last ones of too many."""
    shown = run.all_below[-_MOST_BELOW:]
    return [
        PictureBelow(child.path, child.heading.title, child.heading.tone, picture(child)) for child in shown
    ]


def picture(run: Run) -> Picture:
    """Returns the picture of the machine with the path of `run`."""
    counts = count_path(run.steps)
    drawn = sorted(lines(), key=lambda line: _LOOKS.index(counts.look(line)))
    visits, moves = counts.visits, counts.moves
    return Picture(
        edges=[_edge(line, counts) for line in drawn],
        nodes=[_node(state, visits[state], _flag(run, state)) for state in TRANSITIONS],
        doors=_doors(drawn, counts),
        ends=_ends(visits),
        states=[(state, visits[state]) for state in TRANSITIONS if visits[state]],
        moves=[
            (state, event, target, moves[state, event])
            for state, row in TRANSITIONS.items()
            for event, target in row.items()
            if moves[state, event]
        ],
        unknown=counts.unknown,
    )


def count_path(steps: Sequence[Step]) -> Counts:
    """Returns the counts of a path."""
    visits, moves, unknown = Counter[State](), Counter[tuple[State, Event]](), 0
    for step in steps:
        if step.state is None:
            unknown += bool(step.name)
            continue
        visits[step.state] += 1
        row = {str(event): event for event in TRANSITIONS[step.state]}
        if step.event in row:
            moves[step.state, row[step.event]] += 1
        elif step.state is not LAST:
            unknown += 1
    return Counts(visits, moves, unknown)


def _edge(line: Line, counts: Counts) -> Edge:
    route, moves = ROUTES[line.source, line.target, line.exit], counts.along(line)
    events = [str(event) for event in line.events if counts.moves[line.source, event]] or [line.label]
    often = f"taken {count_noun(moves, 'time')}" if moves else "not taken"
    title = f"{line.source} to {line.target}: {' / '.join(events)}, {often}"
    return Edge(title, round_path(route.points), counts.look(line), moves, _pill(route))


def _pill(route: Route) -> Point:
    """Returns the point of the line that is nearest to the place of its label, clear of its tip."""
    label = route.label
    near = [
        Point(_between(label.x, start.x, end.x), _between(label.y, start.y, end.y))
        for start, end in pairwise(route.points)
    ]
    return min(near, key=lambda at: abs(at.x - label.x) + abs(at.y - label.y))


def _between(wanted: int, start: int, end: int) -> int:
    if start == end:
        return start
    # Space for half a label at the start, and also for the tip at the end.
    sign = 1 if end > start else -1
    first, last = start + sign * 14, end - sign * 22
    if (last - first) * sign < 0:
        return (start + end) // 2 - sign * 4
    return sorted((first, wanted, last))[1]


def _node(state: State, visits: int, flag: str) -> StateBox:
    box, often = BOXES[state], count_noun(visits, "visit") if visits else ""
    look = "main" if state in MAIN_PATH else "pause" if state in PAUSES else "plain"
    looks = ["box", look, *(["lit"] if visits else []), *(["here"] if flag else [])]
    title = f"{state}: {WHAT_IT_DOES[state]}; {often or 'not visited'}" + (f"; {flag}" if flag else "")
    middle = max(DOORS.values()) + 38 if state is LAST else box.y
    return StateBox(state, title, " ".join(looks), box, middle, often, flag)


def _flag(run: Run, state: State) -> str:
    """Returns what the thread does in its current state; empty for every other state."""
    if state is not run.stands_in:
        return ""
    if run.running:
        return "runs here"
    if run.status.condition is Condition.ENDED:
        return "ended here"
    return "waits here" if run.status.wait() else "stopped here"


def _doors(drawn: Sequence[Line], counts: Counts) -> list[tuple[str, int, str]]:
    """Returns the doors of the last state; each is highlighted when any of its lines is."""
    looks = {line.exit: line.look.split()[0] for line in drawn if counts.along(line)}
    # In the order of the table, for screen readers.
    exits = dict.fromkeys(line.exit for line in lines() if line.exit)
    return [(exit, DOORS[exit], looks.get(exit, "pale")) for exit in exits]


def _ends(visits: Counter[State]) -> list[tuple[str, str]]:
    """Returns the arrows to the first state and from the last."""
    first, last = BOXES[FIRST], BOXES[LAST]
    begin = (Point(START_AT.x + _RING, START_AT.y), Point(int(first.left), START_AT.y))
    end = (Point(END_AT.x, int(last.bottom)), Point(END_AT.x, END_AT.y - _RING))
    return [
        (round_path(way), "plain" if visits[state] else "pale")
        for way, state in ((begin, FIRST), (end, LAST))
    ]
