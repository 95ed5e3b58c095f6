"""The machine as a picture, with the path that a thread took through it."""

from itertools import pairwise

from signoff.graph.drawing.diagram import Line, drawn_path, lines
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
    Point,
    Route,
)
from signoff.graph.machine import FIRST, TRANSITIONS, WHAT_IT_DOES, State
from signoff.page.html import Html, joined, tag
from signoff.page.run import Run
from signoff.page.taken import Taken, numbers, taken, times_of, visits_of
from signoff.session.standing import Condition

_DIGIT, _PILL = 8.5, 13
_RING = 9
_LAST = next(state for state, row in TRANSITIONS.items() if not row)
# In the order in which they lie on each other.
_LOOKS = ("pale", "plain", "main", "as", "limit", "error", "success")


def machine(run: Run) -> Html:
    """The picture, and the same in words."""
    found = taken(run.steps)
    here = run.stands_in
    picture = _picture(found, here, _word(run))
    return tag(
        "aside",
        tag("h2", "The machine"),
        tag(
            "p",
            "Lit is where this run has been; the numbers say how often.",
            tag("span", " Swipe to see all of it.", class_="swipe"),
            class_="quiet",
        ),
        tag("div", picture, class_="picture", tabindex="0", role="group", aria_label="The machine"),
        numbers(found),
        aria_label="The machine and the path that this run took",
    )


def _word(run: Run) -> str:
    """What the thread does in the state that it has come to."""
    if run.running:
        return "runs here"
    if run.standing.condition is Condition.ENDED:
        return "ended here"
    return "waits here" if run.standing.waiting else "stopped here"


def _picture(found: Taken, here: State | None, word: str) -> Html:
    drawn = sorted(lines(), key=lambda line: _LOOKS.index(_look(line, found)))
    return tag(
        "svg",
        tag("title", "The states of the machine, and the path that this run took"),
        _markers(),
        [_ends(found)],
        [_edge(line, found) for line in drawn],
        [_box(state, found, here, word) for state in TRANSITIONS],
        [_door(line, found) for line in _doors()],
        [_pill(line, found.along(line)) for line in drawn if found.along(line)],
        _here(here, word) if here else None,
        viewBox=f"10 16 {WIDTH - 20} {HEIGHT - 28}",
        role="img",
        aria_label="The states of the machine and the path that this run took, as in the tables below",
    )


def _doors() -> list[Line]:
    """One line for each door of the last state."""
    return list({line.exit: line for line in lines() if line.exit in DOORS}.values())


def _look(line: Line, found: Taken) -> str:
    """The first word of the line's look, or `pale` for a line that was not taken."""
    return line.look.split()[0] if found.along(line) else "pale"


def _markers() -> Html:
    made = [
        tag(
            "marker",
            tag("path", d="M0 0.5 L10 5 L0 9.5 Z", class_=f"tip {look}"),
            id=f"tip-{look}",
            viewBox="0 0 10 10",
            refX=2,
            refY=5,
            markerWidth=10 if look == "pale" else 12,
            markerHeight=10 if look == "pale" else 12,
            markerUnits="userSpaceOnUse",
            orient="auto",
        )
        for look in _LOOKS
    ]
    return tag("defs", made)


def _edge(line: Line, found: Taken) -> Html:
    look, count = _look(line, found), found.along(line)
    points = ROUTES[line.source, line.target, line.exit].points
    events = [str(event) for event in line.events if found.moves[line.source, event]] or [line.label]
    told = f"{line.source} to {line.target}: {' / '.join(events)}, {times_of(count)}"
    path = tag("path", d=drawn_path(points), class_=f"edge {look}", marker_end=f"url(#tip-{look})")
    return tag("g", tag("title", told), path)


def _pill(line: Line, count: int) -> Html:
    """The count of a line, on the line."""
    at = _place(ROUTES[line.source, line.target, line.exit])
    return _labelled(at.x, at.y, f"{count:,}", f"pill {line.look.split()[0]}")


def _labelled(x: float, y: float, text: str, class_: str, most: float = 26) -> Html:
    width = max(most, _DIGIT * len(text) + _PILL)
    box = tag("rect", x=f"{x - width / 2:g}", y=f"{y - 10:g}", width=f"{width:g}", height=20, rx=10)
    return tag("g", box, tag("text", text, x=f"{x:g}", y=f"{y + 5:g}"), class_=class_)


def _place(route: Route) -> Point:
    """The point of the line that is nearest to where its label would stand, clear of its tip."""
    near = [_nearest(route.label, *piece) for piece in pairwise(route.points)]
    return min(near, key=lambda at: abs(at.x - route.label.x) + abs(at.y - route.label.y))


def _nearest(label: Point, start: Point, end: Point) -> Point:
    return Point(_between(label.x, start.x, end.x), _between(label.y, start.y, end.y))


def _between(wanted: int, start: int, end: int) -> int:
    if start == end:
        return start
    # Room for half a label at the start, and for the tip too at the end.
    sign = 1 if end > start else -1
    first, last = start + sign * 14, end - sign * 22
    if (last - first) * sign < 0:
        return (start + end) // 2 - sign * 4
    return sorted((first, wanted, last))[1]


def _box(state: State, found: Taken, here: State | None, word: str) -> Html:
    box, visits = BOXES[state], found.visits[state]
    look = "main" if state in MAIN_PATH else "pause" if state in PAUSES else "plain"
    parts = [look, "lit" if visits else "", "here" if state is here else ""]
    middle = box.y if TRANSITIONS[state] else max(DOORS.values()) + 38
    rect = tag("rect", rx=10, x=f"{box.left:g}", y=f"{box.top:g}", width=box.width, height=box.height)
    told = f"{visits_of(visits)}; {word}" if state is here else visits_of(visits)
    count = tag("text", visits_of(visits), x=box.x, y=middle + 17, class_="visits") if visits else None
    return tag(
        "g",
        tag("title", f"{state}: {WHAT_IT_DOES[state]}; {told}"),
        rect,
        tag("text", state, x=box.x, y=middle - 1 if visits else middle + 6, class_="name"),
        count,
        class_=" ".join(["box", *filter(None, parts)]),
    )


def _door(line: Line, found: Taken) -> Html:
    box, height = BOXES[_LAST], DOORS[line.exit] if line.exit else 0
    used = any(found.along(other) for other in lines() if other.exit is line.exit)
    look = line.look.split()[0] if used else "pale"
    x, width = f"{box.left + 8:g}", box.width - 16
    rect = tag("rect", x=x, y=height - 12, width=width, height=24, rx=12)
    return tag("g", rect, tag("text", line.exit, x=box.x, y=height + 5), class_=f"door {look}")


def _here(state: State, word: str) -> Html:
    """A flag under the state that the thread has come to."""
    box = BOXES[state]
    return _labelled(box.x, box.bottom, word, "flag", 100)


def _ends(found: Taken) -> Html:
    """Where a run begins and ends: a disc with an arrow to the first state, a ring after the last."""
    first, last = BOXES[FIRST], BOXES[_LAST]
    begin = (Point(START_AT.x + _RING, START_AT.y), Point(int(first.left), START_AT.y))
    end = (Point(END_AT.x, int(last.bottom)), Point(END_AT.x, END_AT.y - _RING))
    looks = ["plain" if found.visits[state] else "pale" for state in (FIRST, _LAST)]
    ways = [
        tag("path", d=drawn_path(way), class_=f"edge {look}", marker_end=f"url(#tip-{look})")
        for way, look in zip((begin, end), looks, strict=True)
    ]
    return joined(
        [
            ways,
            tag("circle", cx=START_AT.x, cy=START_AT.y, r=_RING, class_=f"disc {looks[0]}"),
            tag("circle", cx=END_AT.x, cy=END_AT.y, r=_RING, class_=f"ring {looks[1]}"),
            tag("circle", cx=END_AT.x, cy=END_AT.y, r=_RING - 4, class_=f"disc {looks[1]}"),
            tag("text", "start", x=START_AT.x, y=START_AT.y + 28, class_="end"),
            tag("text", "end", x=END_AT.x + 32, y=END_AT.y + 5, class_="end"),
        ]
    )
