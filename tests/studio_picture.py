"""The graph as a LangGraph server describes it, as a picture: `python -m tests.studio_picture` draws it anew.

What is drawn, and every word in it, comes from the server's answer to GET /assistants/{id}/graph. Only where
things stand comes from `graph/drawing/layout.py`.
"""

import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from langgraph_sdk import get_sync_client

from signoff.graph.drawing.layout import BOXES, END_AT, MAIN_PATH, PAUSES, ROUTES, START_AT, Box, Route
from signoff.graph.machine import FIRST, State
from tests.support.servers.dev_server import REPOSITORY, Server, langgraph_dev, quiet_environment

PICTURE = REPOSITORY / "docs/pictures/studio-graph.svg"

# The layout's boxes hold two words; a description needs room.
SCALE = 1.5
WIDTH, HEIGHT = 1440, 980
START, END = "__start__", "__end__"
_LINE = 14
_CORNER = 12
_TIP = 8
_COLOURS = {"main": ("#0969da", "#ddf4ff"), "pause": ("#8250df", "#fbefff"), "plain": ("#57606a", "#f6f8fa")}
_STYLE = """\
  text { font: 13px ui-sans-serif, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; }
  .name { font: 600 15px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .small { font-size: 11px; fill: #57606a; }
  .edge { fill: none; stroke-width: 1.5; }
  .conditional { stroke-dasharray: 6 4; }"""


class At(NamedTuple):
    x: float
    y: float


# Where the layout has several lines for what is one edge to the server, and room for its longer label.
_ONE_OF: Mapping[tuple[str, str], tuple[int, At]] = {
    ("decide", "finish"): (0, At(404, 403)),
    ("review", "finish"): (1, At(410, 459)),
    ("call_llm", "compress"): (0, At(385, 607)),
}


def describe(server: Server) -> dict[str, Any]:
    """The nodes and edges that the server tells of its only graph."""
    with get_sync_client(url=server.url, api_key=None) as client:
        (only,) = client.assistants.search()
        return client.assistants.get_graph(only["assistant_id"])


def draw(described: Mapping[str, Any]) -> str:
    """The picture. Raises LookupError for a node or an edge that has no place in the layout."""
    nodes, edges = described["nodes"], described["edges"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">The graph of Signoff as a LangGraph server describes it</title>',
        f"<style>\n{_STYLE}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="2" refY="5" markerWidth="10" markerHeight="10" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L10 5 L0 9.5 Z" fill="#57606a"/></marker>'
        "</defs>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="#ffffff" '
        'stroke="#d0d7de"/>',
        *(_edge(edge) for edge in edges),
        *(_node(node) for node in nodes),
        f'<text class="small" x="{WIDTH - 24}" y="{HEIGHT - 18}" text-anchor="end">dashed: the next state '
        "depends on the event that is reported; the labels are these events</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edge(edge: Mapping[str, Any]) -> str:
    points, label_at, anchor = _way(edge["source"], edge["target"])
    label = str(edge.get("data") or "")
    look = "edge conditional" if edge.get("conditional") else "edge"
    text = (
        f'<text x="{label_at.x:g}" y="{label_at.y:g}" text-anchor="{anchor}" fill="#57606a">'
        f"{escape(label)}</text>"
    )
    return (
        f"<g><title>{escape(edge['source'])} to {escape(edge['target'])}</title>"
        f'<path class="{look}" d="{_path(points)}" stroke="#57606a" marker-end="url(#tip)"/>'
        f"{text if label else ''}</g>"
    )


def _way(source: str, target: str) -> tuple[Sequence[At], At, str]:
    """The corners of an edge, where its label stands, and how."""
    first, last = BOXES[FIRST], BOXES[State.FINISH]
    if (source, target) == (START, str(FIRST)):
        return [_scaled(At(START_AT.x + 6, START_AT.y)), _scaled(At(first.left, START_AT.y))], At(0, 0), ""
    if target == END:
        return [_scaled(At(END_AT.x, last.bottom)), _scaled(At(END_AT.x, END_AT.y - 6))], At(0, 0), ""
    number, label = _ONE_OF.get((source, target), (0, None))
    found: list[Route] = [route for key, route in ROUTES.items() if key[:2] == (source, target)]
    if not found:
        raise LookupError(f"The layout has no way from {source} to {target}.")
    route = found[number]
    return [_scaled(At(*point)) for point in route.points], _scaled(label or At(*route.label)), route.anchor


def _scaled(at: At) -> At:
    return At(at.x * SCALE, at.y * SCALE)


def _path(points: Sequence[At]) -> str:
    """The line through `points` with round corners, ending where the arrow's head begins."""
    steps = [f"M{points[0].x:g} {points[0].y:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        begin, end = _towards(corner, before, _CORNER), _towards(corner, after, _CORNER)
        steps.append(f"L{begin.x:g} {begin.y:g} Q{corner.x:g} {corner.y:g} {end.x:g} {end.y:g}")
    end = _towards(points[-1], points[-2], _TIP)
    return " ".join([*steps, f"L{end.x:g} {end.y:g}"])


def _towards(here: At, there: At, distance: float) -> At:
    dx, dy = there.x - here.x, there.y - here.y
    length = abs(dx) + abs(dy)
    return At(here.x + distance * dx / length, here.y + distance * dy / length)


def _node(node: Mapping[str, Any]) -> str:
    name = str(node["id"])
    if name in (START, END):
        at = _scaled(At(*(START_AT if name == START else END_AT)))
        return (
            f'<g><circle cx="{at.x:g}" cy="{at.y:g}" r="9" fill="#57606a"/>'
            f'<text class="small" x="{at.x:g}" y="{at.y + 26:g}" text-anchor="middle">{name}</text></g>'
        )
    if name not in BOXES:
        raise LookupError(f"The layout has no place for {name}.")
    box = BOXES[State(name)]
    look = "main" if name in MAIN_PATH else "pause" if name in PAUSES else "plain"
    stroke, fill = _COLOURS[look]
    return (
        f'<g><rect x="{box.left * SCALE:g}" y="{box.top * SCALE:g}" width="{box.width * SCALE:g}" '
        f'height="{box.height * SCALE:g}" rx="12" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        + "".join(_words(box, name, node.get("metadata", {}).get("description", "")))
        + "</g>"
    )


def _words(box: Box, name: str, description: str) -> Iterator[str]:
    """The node's name, and under it what the server knows of it."""
    lines = textwrap.wrap(description, 27)
    x, y = box.x * SCALE, box.y * SCALE - _LINE * len(lines) / 2 + 6
    yield f'<text class="name" x="{x:g}" y="{y:g}" text-anchor="middle" fill="#1f2328">{escape(name)}</text>'
    for number, line in enumerate(lines, 1):
        yield (
            f'<text class="small" x="{x:g}" y="{y + 2 + _LINE * number:g}" text-anchor="middle">'
            f"{escape(line)}</text>"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, langgraph_dev(Path(folder), quiet_environment()) as server:
        described = describe(server)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(described), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()
