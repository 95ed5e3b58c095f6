"""Renders the parts of a record with templates that pages and the web application share."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from signoff.front.cards import (
    NOTHING_OPEN,
    WHY,
    changed,
    checked,
    is_open,
    standing_calls,
    undone_calls,
)
from signoff.front.record import text
from signoff.front.record.timeline import look
from signoff.front.text import plain
from signoff.graph.drawing.layout import PAUSES
from signoff.text import CLAIMS, VERIFIED, WAITS, count_noun, heading
from signoff.tools.approvals import DECISIONS

FOLDER = Path(__file__).parent
"""The style of a record, `record.css`, and the templates of its parts."""
_PIECE_BYTES = 300_000
# The characters of one text; the next one is tried when a piece comes out too large.
_ROOMS = (16_000, 3_000, 400, 60)


def environment(folders: Sequence[Path]) -> Environment:
    """Returns the templates of these folders. They escape everything and show invisible characters; an
    unknown name is an error."""

    def source(name: str) -> str | None:
        """Returns a template without its line breaks and indents, which would be visible on a page."""
        found = next((file for folder in folders if (file := folder / name).is_file()), None)
        if found is None:
            return None
        words = found.read_text("utf-8")
        return words if name.endswith(".css") else re.sub(r"\n\s*", "", words)

    made = Environment(
        loader=FunctionLoader(source), autoescape=True, undefined=StrictUndefined, finalize=_visible
    )
    texts = (text.line, text.shorten, text.fold, text.moment, text.duration, text.number, count_noun)
    told = (heading, checked, changed, undone_calls, standing_calls, is_open, look, draw)
    made.filters.update({make.__name__: make for make in (*texts, *told)})
    made.globals.update(limit=text.limit, share=text.share)
    made.tests["long"] = text.is_long
    made.globals.update(
        asks={name: wait.title for name, wait in WAITS.items()},
        claims=CLAIMS,
        decisions=sorted(DECISIONS),
        nothing_open=NOTHING_OPEN,
        pauses=PAUSES,
        reminders=WHY,
        verified=VERIFIED,
    )
    return made


@cache
def templates() -> Environment:
    """Returns the templates of the parts of a record."""
    return environment((FOLDER / "templates", FOLDER))


def _visible(value: object) -> object:
    """Returns what to print for a value: markup from templates unchanged, and text with all characters that
    hide or reorder replaced by their names."""
    if isinstance(value, int) or hasattr(value, "__html__"):
        return value
    words = f"{value:g}" if isinstance(value, float) else str(value)
    return words if words.isascii() and words.isprintable() else plain(words)


def fitted(piece: object) -> str:
    """Returns the piece with as much text as its size limit allows."""
    for room in _ROOMS:
        markup = draw(piece, room)
        if len(markup) <= _PIECE_BYTES:
            break
    return markup


def draw(part: object, room: int | None) -> str:
    """Renders a part with its macro. room: the characters of one text; None for all of it."""
    macro: Callable[..., str] = getattr(
        templates().get_template("timeline.html").module, type(part).__name__.lower()
    )
    return macro(part, room)
