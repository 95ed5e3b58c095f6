"""Renders the page from its templates, with as much of the timeline as there is room for, and writes it."""

import importlib.metadata
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from signoff.front.cards import NOTHING_OPEN, WHY, changed, checked, is_open
from signoff.front.text import plain
from signoff.graph.drawing.layout import PAUSES
from signoff.graph.errors import SetupError
from signoff.graph.foreign import counted
from signoff.graph.vocabulary import CLAIMS, VERIFIED, WAITS, heading
from signoff.page import text
from signoff.page.machine import picture
from signoff.page.run import Run
from signoff.page.timeline import Gap, Piece, TurnBox, look, overview, pieces
from signoff.tools.approvals import DECISIONS

STDOUT = "-"
MOST_BYTES = 2_400_000
"""The limit of the whole timeline: a page should be easy to send, and to open on a phone."""
_PIECE_BYTES = 300_000
# The limits of one text, in characters; the next one is tried when a piece is too large.
_ROOMS = (16_000, 3_000, 400, 60)
_FOLDER = Path(__file__).parent


def page(run: Run) -> str:
    """Returns the thread as one deterministic HTML document; valid UTF-8 of a few MB at most."""
    tasks = groupby(_timeline(list(pieces(run))), key=itemgetter(0))
    template = templates().get_template("page.html")
    return template.render(
        run=run,
        links=overview(run),
        tasks=[[piece for _, piece in task] for _, task in tasks],
        machine=picture(run),
        version=importlib.metadata.version("signoff"),
    )


@cache
def templates() -> Environment:
    """Returns the templates. All they print is made visible and escaped; an unknown name is an error."""
    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, finalize=_visible
    )
    texts = (text.line, text.shorten, text.fold, text.moment, text.duration, text.number, counted)
    environment.filters.update(
        {make.__name__: make for make in (*texts, heading, checked, changed, is_open, look, draw)}
    )
    environment.tests["long"] = text.is_long
    environment.globals.update(
        asks={name: wait.title for name, wait in WAITS.items()},
        claims=CLAIMS,
        decisions=sorted(DECISIONS),
        nothing_open=NOTHING_OPEN,
        pauses=PAUSES,
        reminders=WHY,
        verified=VERIFIED,
    )
    return environment


def _source(name: str) -> str:
    """Returns a template without line breaks and indents, which would be visible between elements."""
    if name.endswith(".css"):
        return (_FOLDER / name).read_text("utf-8")
    return re.sub(r"\n\s*", "", (_FOLDER / "templates" / name).read_text("utf-8"))


def _visible(value: object) -> object:
    """Returns template output unchanged, and text with hidden and reordering characters named."""
    if isinstance(value, int) or hasattr(value, "__html__"):
        return value
    words = f"{value:g}" if isinstance(value, float) else str(value)
    return words if words.isascii() and words.isprintable() else plain(words)


def _timeline(parts: Sequence[tuple[int, Piece]]) -> list[tuple[int, str]]:
    """Returns the parts, each after its task; of a run too long for a page, the first and the last."""
    first = list(_draw_first(parts, MOST_BYTES * 2 // 5))
    rest = parts[len(first) :]
    last = list(_draw_first(reversed(rest), MOST_BYTES - sum(len(part.encode()) for _, part in first)))[::-1]
    if gap := rest[: len(rest) - len(last)]:
        turns = sum(isinstance(piece, TurnBox) for _, piece in gap)
        first.append((gap[0][0], draw(Gap(turns), 0)))
    return first + last


def _draw_first(parts: Iterable[tuple[int, Piece]], room: int) -> Iterator[tuple[int, str]]:
    """Renders as many of the first parts as there is room for, but at least one."""
    for at, (task, piece) in enumerate(parts):
        markup = _fitted(piece)
        room -= len(markup.encode())
        if at and room < 0:
            return
        yield task, markup


def _fitted(piece: Piece) -> str:
    """Renders the piece with as much text as its size limit allows."""
    for room in _ROOMS:
        markup = draw(piece, room)
        if len(markup) <= _PIECE_BYTES:
            break
    return markup


def draw(part: object, room: int) -> str:
    """Renders a part with its macro. room: the limit of one text, in characters."""
    macro: Callable[..., str] = getattr(
        templates().get_template("timeline.html").module, type(part).__name__.lower()
    )
    return macro(part, room)


def save(page: str, file: str) -> None:
    """Writes the page to `file`, or to the standard output for `-`.

    An existing file keeps its contents until the new page is complete. Raises SetupError, with what to do,
    when it cannot be written.
    """
    data = page.encode()
    if file == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        _replace(_target(file), data)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SetupError(
            f"The page cannot be written to {_shortened(file)} ({why}); name another file."
        ) from error


def _target(file: str) -> str:
    """Returns the file itself, if `file` is a link to it."""
    if not file:
        raise SetupError("--html is empty; name a file, or - for the standard output.")
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        return os.path.realpath(file)
    if stat.S_ISDIR(mode):
        raise SetupError(f"{_shortened(file)} is a folder; name a file in it.")
    if not stat.S_ISREG(mode):
        raise SetupError(f"{_shortened(file)} is not a regular file; name one, or - for the standard output.")
    if not os.access(file, os.W_OK):
        raise SetupError(f"{_shortened(file)} is write-protected; name another file.")
    return os.path.realpath(file)


def _replace(target: str, data: bytes) -> None:
    temporary = os.path.join(os.path.dirname(target), f".signoff-{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _shortened(file: str) -> str:
    return file if len(file) <= 200 else f"{file[:200]}…"
