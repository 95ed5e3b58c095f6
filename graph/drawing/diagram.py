"""Draws the machine from its transition table, as Mermaid and as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from signoff.graph.drawing.layout import (
    BOXES,
    DOORS,
    END_AT,
    ENTRIES_AT,
    EXITS,
    HEIGHT,
    LINE_HEIGHT,
    MAIN_LINES,
    MAIN_PATH,
    OTHER_STARTS,
    PAUSES,
    ROUTES,
    START_AT,
    WIDTH,
    ExitWord,
    Point,
)
from signoff.graph.machine import (
    ENTRIES,
    FIRST,
    LAST,
    TRANSITIONS,
    WHAT_IT_DOES,
    Event,
    State,
    edges,
    entries,
)

_TIP = 8
_CORNER = 9
_RING = 9
_COLOURS = {
    "main": ("#0969da", "#ddf4ff"),
    "pause": ("#8250df", "#fbefff"),
    "plain": ("#57606a", "#f6f8fa"),
    ExitWord.SUCCESS: ("#1a7f37", "#dafbe1"),
    ExitWord.LIMIT: ("#9a6700", "#fff8c5"),
    ExitWord.ERROR: ("#cf222e", "#ffebe9"),
    ExitWord.AS_BEFORE: ("#57606a", "#eaeef2"),
}
_STYLE = """\
  text { font: 13px ui-sans-serif, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; }
  .name { font: 600 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .caption { font-size: 11.5px; fill: #57606a; }
  .edge { fill: none; stroke-width: 1.5; }
  .edge.main { stroke-width: 2.5; }"""


@dataclass(frozen=True)
class Line:
    """One line of the picture: the events that lead from one state to another, in table order.

    Events that lead to the last state have one line per exit, all others one line per target.
    """

    source: State
    target: State
    exit: ExitWord | None
    events: tuple[Event, ...]

    @property
    def label(self) -> str:
        return " / ".join(self.events)

    @property
    def look(self) -> str:
        if self.exit is not None:
            return str(self.exit)
        return "main" if (self.source, self.target) in MAIN_LINES else "plain"


def mermaid() -> str:
    """The machine as a Mermaid state diagram."""
    rows = ["stateDiagram-v2", "    direction LR"]
    rows += [f"    [*] --> {state}: {label}" for state, label in entries().items()]
    for source, targets in edges().items():
        rows += [f"    {source} --> {target}: {label}" for target, label in targets.items()]
        if source is LAST:
            rows.append(f"    {source} --> [*]")
    return "\n".join(rows) + "\n"


def lines() -> list[Line]:
    """The lines of the picture. Raises LookupError for an event that ends a task and has no known exit."""
    grouped: dict[tuple[State, State, ExitWord | None], list[Event]] = {}
    for source, row in TRANSITIONS.items():
        for event, target in row.items():
            grouped.setdefault((source, target, _exit(event, target)), []).append(event)
    return [Line(*key, tuple(events)) for key, events in grouped.items()]


def _exit(event: Event, target: State) -> ExitWord | None:
    if target is not LAST or event is Event.UNDONE:
        return None
    if event not in EXITS:
        raise LookupError(
            f"The picture knows no exit for the event {str(event)!r}: add it to graph/drawing/layout.py."
        )
    return EXITS[event]


def svg() -> str:
    """The machine as an SVG picture on its own card, so that it is readable on dark and light pages.

    Raises LookupError when the layout and the table do not name the same states and edges.
    """
    drawn = lines()
    _same("states", set(TRANSITIONS), set(BOXES))
    _same("ways in", set(entries()), {FIRST, *OTHER_STARTS})
    _same("edges", {(line.source, line.target, line.exit) for line in drawn}, set(ROUTES))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">The states of Signoff and the events that lead from one to the next</title>',
        f"<style>\n{_STYLE}\n</style>",
        *_markers(),
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="#ffffff" '
        'stroke="#d0d7de"/>',
        *_ends(),
        *(_edge(line) for line in sorted(drawn, key=lambda line: line.look == "main")),
        *(_box(state) for state in TRANSITIONS),
        *(_door(exit, height) for exit, height in DOORS.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _same(what: str, table: set[object], layout: set[object]) -> None:
    missing, stale = table - layout, layout - table
    if missing or stale:
        raise LookupError(
            f"graph/drawing/layout.py and the table differ in their {what}: "
            f"missing {_words(missing)}, left over {_words(stale)}."
        )


def _words(keys: set[object]) -> str:
    named = [
        " -> ".join(str(part) for part in key if part) if isinstance(key, tuple) else str(key) for key in keys
    ]
    return ", ".join(sorted(named)) or "none"


def _markers() -> Iterator[str]:
    yield "<defs>"
    for look, (colour, _) in _COLOURS.items():
        yield (
            f'<marker id="{_marker(look)}" viewBox="0 0 10 10" refX="{10 - _TIP}" refY="5" markerWidth="10" '
            f'markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0.5 L10 5 L0 9.5 Z" fill="{colour}"/></marker>'
        )
    yield "</defs>"


def _marker(look: str) -> str:
    return "arrow-" + look.replace(" ", "-")


def _edge(line: Line) -> str:
    route, colour = ROUTES[line.source, line.target, line.exit], _COLOURS[line.look][0]
    name = escape(f"{line.source} to {line.target}: {line.label}")
    return (
        f"<g><title>{name}</title>"
        f'<path class="edge {line.look.split()[0]}" d="{round_path(route.points)}" stroke="{colour}" '
        f'marker-end="url(#{_marker(line.look)})"/>'
        f'<text x="{route.label.x}" y="{route.label.y}" text-anchor="{route.anchor}" fill="{colour}">'
        f"{escape(line.label)}</text></g>"
    )


def round_path(points: Sequence[Point]) -> str:
    """The line through `points` with round corners, ending where the arrowhead begins."""
    steps = [f"M{points[0].x} {points[0].y}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, _CORNER), _towards(corner, after, _CORNER)
        steps.append(f"L{start.x} {start.y} Q{corner.x} {corner.y} {end.x} {end.y}")
    end = _towards(points[-1], points[-2], _TIP)
    return " ".join([*steps, f"L{end.x} {end.y}"])


def _towards(here: Point, there: Point, distance: int) -> Point:
    """The point at `distance` from `here` towards `there`, horizontally or vertically."""
    dx, dy = there.x - here.x, there.y - here.y
    length = abs(dx) + abs(dy)
    return Point(here.x + distance * dx // length, here.y + distance * dy // length)


def _box(state: State) -> str:
    box = BOXES[state]
    look = "main" if state in MAIN_PATH else "pause" if state in PAUSES else "plain"
    stroke, fill = _COLOURS[look]
    y = max(DOORS.values()) + 42 if state is LAST else box.y
    return (
        f"<g><title>{state}: {escape(WHAT_IT_DOES[state])}</title>"
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.width}" height="{box.height}" rx="10" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        f'<text class="name" x="{box.x}" y="{y - 2}" text-anchor="middle" fill="#1f2328">{state}</text>'
        f'<text class="caption" x="{box.x}" y="{y + 15}" text-anchor="middle">'
        f"{escape(box.caption)}</text></g>"
    )


def _door(exit: ExitWord, height: int) -> str:
    stroke, fill = _COLOURS[exit]
    box = BOXES[LAST]
    return (
        f'<g><rect x="{box.left + 8:g}" y="{height - 12}" width="{box.width - 16}" height="24" rx="12" '
        f'fill="{fill}" stroke="{stroke}"/><text x="{box.x}" y="{height + 4}" text-anchor="middle" '
        f'fill="{stroke}">{exit}</text></g>'
    )


def _ends() -> Iterator[str]:
    """The start and the end of a run: a disc with an arrow to the first state, labelled with the events that
    enter there; a ring after the last state."""
    colour = _COLOURS["plain"][0]
    first, last, tip = BOXES[FIRST], BOXES[LAST], _marker("plain")
    begin = round_path([Point(START_AT.x + _RING, START_AT.y), Point(int(first.left), START_AT.y)])
    end = round_path([Point(END_AT.x, int(last.bottom)), Point(END_AT.x, END_AT.y - _RING)])
    entering = [event for event, state in ENTRIES.items() if state is FIRST]
    yield f"<g><title>START to {FIRST}: {' / '.join(entering)}</title>"
    yield f'<path class="edge" d="{begin}" stroke="{colour}" marker-end="url(#{tip})"/>'
    for at, event in enumerate(entering):
        below = ENTRIES_AT.y + at * LINE_HEIGHT
        yield f'<text x="{ENTRIES_AT.x}" y="{below}" text-anchor="middle" fill="{colour}">{event}</text>'
    yield "</g>"
    for state, place in OTHER_STARTS.items():
        up = round_path([Point(place.x, place.y - _RING), Point(place.x, int(BOXES[state].bottom))])
        word = entries()[state]
        yield f"<g><title>START to {state}: {word}</title>"
        yield f'<path class="edge" d="{up}" stroke="{colour}" marker-end="url(#{tip})"/>'
        yield f'<circle cx="{place.x}" cy="{place.y}" r="{_RING}" fill="{colour}"/>'
        yield f'<text x="{place.x + 15}" y="{place.y + 4}" fill="{colour}">{word}</text></g>'
    yield f'<path class="edge" d="{end}" stroke="{colour}" marker-end="url(#{tip})"/>'
    yield f'<circle cx="{START_AT.x}" cy="{START_AT.y}" r="{_RING}" fill="{colour}"/>'
    yield f'<circle cx="{END_AT.x}" cy="{END_AT.y}" r="{_RING}" fill="none" stroke="{colour}"/>'
    yield f'<circle cx="{END_AT.x}" cy="{END_AT.y}" r="{_RING - 4}" fill="{colour}"/>'
    yield f'<text class="caption" x="{START_AT.x}" y="{START_AT.y - 16}" text-anchor="middle">START</text>'
    yield f'<text class="caption" x="{END_AT.x + 15}" y="{END_AT.y + 4}">END</text>'
