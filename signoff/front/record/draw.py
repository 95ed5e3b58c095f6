"""Draws the parts of a record by its templates, which pages and the web application share."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from signoff.front.cards import NOTHING_OPEN, WHY, changed, checked, is_open
from signoff.front.record import text
from signoff.front.record.timeline import look
from signoff.front.text import plain
from signoff.graph.drawing.layout import PAUSES
from signoff.graph.foreign import count_noun
from signoff.graph.vocabulary import CLAIMS, VERIFIED, WAITS, heading
from signoff.tools.approvals import DECISIONS

FOLDER = Path(__file__).parent
"""The style of a record, `record.css`, and the templates of its parts."""
_PIECE_BYTES = 300_000
# The characters of one text; the next one is tried when a piece comes out too large.
_ROOMS = (16_000, 3_000, 400, 60)


def environment(folders: Sequence[Path]) -> Environment:
    """Templates of these folders. All that they print is made visible and escaped; an unknown name is an
    error."""

    def source(name: str) -> str | None:
        """A template without its line breaks and indents: on a page, white space between elements is seen."""
        found = next((file for folder in folders if (file := folder / name).is_file()), None)
        if found is None:
            return None
        words = found.read_text("utf-8")
        return words if name.endswith(".css") else re.sub(r"\n\s*", "", words)

    made = Environment(
        loader=FunctionLoader(source), autoescape=True, undefined=StrictUndefined, finalize=_visible
    )
    texts = (text.line, text.shorten, text.fold, text.moment, text.duration, text.number, count_noun)
    made.filters.update(
        {make.__name__: make for make in (*texts, heading, checked, changed, is_open, look, draw)}
    )
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
    """The templates of the parts of a record."""
    return environment((FOLDER / "templates", FOLDER))


def _visible(value: object) -> object:
    """What is printed for a value: what templates made as it is; in a text, all that hides or reorders is
    named."""
    if isinstance(value, int) or hasattr(value, "__html__"):
        return value
    words = f"{value:g}" if isinstance(value, float) else str(value)
    return words if words.isascii() and words.isprintable() else plain(words)


def fitted(piece: object) -> str:
    """The piece with as much text as makes it no larger than a piece may be."""
    for room in _ROOMS:
        markup = draw(piece, room)
        if len(markup) <= _PIECE_BYTES:
            break
    return markup


def draw(part: object, room: int | None) -> str:
    """What the macro for such a part makes of it. room: the characters of one text; None for all there is."""
    macro: Callable[..., str] = getattr(
        templates().get_template("timeline.html").module, type(part).__name__.lower()
    )
    return macro(part, room)
