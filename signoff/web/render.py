"""Renders the parts of the application's page on the server, with templates that escape everything."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from signoff import Action, Approval, PendingCall, SignoffError, Waiting
from signoff.front.choices import SHELL, Choice, arguments_text, as_typed, choices, hint, moves
from signoff.front.record.draw import FOLDER, draw, environment, fitted
from signoff.front.record.machine import picture, pictures_below
from signoff.front.record.run import Run
from signoff.front.record.timeline import (
    End,
    Gap,
    Pause,
    Piece,
    TurnBox,
    Unfinished,
    arguments_of,
    pieces,
)
from signoff.front.threads import Row
from signoff.session import Condition
from signoff.text import stands

STATIC = Path(__file__).parent / "static"
_TEMPLATES = Path(__file__).parent / "templates"
_MOST_PIECES = 150


@dataclass(frozen=True)
class Stand:
    """What only this server knows about a thread. here: it runs the thread now. problem: why a run failed."""

    here: bool = False
    problem: str = ""


@dataclass(frozen=True)
class AskedCall:
    """A call to decide on. text: its arguments, for editing."""

    call: PendingCall
    text: str
    choices: Sequence[Choice]


@cache
def templates() -> Environment:
    """Returns the templates of the application."""
    made = environment((_TEMPLATES, FOLDER / "templates", FOLDER))
    made.globals.update(stands=stands)
    made.filters["thread_address"] = thread_address
    return made


def _macro(name: str, *values: Any) -> str:
    return str(getattr(templates().get_template("parts.html").module, name)(*values))


class RenderedThread:
    """The parts of one thread. An unchanged piece is not rendered again."""

    def __init__(self) -> None:
        self._pieces: dict[str, tuple[Piece | Gap, str]] = {}

    def parts(self, run: Run, stand: Stand) -> dict[str, str]:
        """Returns all parts by name: the timeline's, which begin with `p-`, in order, and the others."""
        shown = run if run.running or not stand.here else replace(run, running=True)
        before, self._pieces = self._pieces, {}
        for name, piece, at in _named_pieces(shown):
            known = before.get(name)
            markup = known[1] if known and known[0] == piece else _macro("piece", fitted(piece), at)
            self._pieces[name] = piece, markup
        timeline = {name: markup for name, (_, markup) in self._pieces.items()}
        return {**timeline, **_others(shown, stand)}


def _named_pieces(run: Run) -> Iterator[tuple[str, Piece | Gap, str]]:
    """Yields the pieces with their names, and for a turn the checkpoint to fork at."""
    if run.status.condition is Condition.UNKNOWN:
        return
    every = [(task, piece) for task, piece in pieces(run) if not isinstance(piece, Pause | Unfinished)]
    left = every[1:-_MOST_PIECES] if len(every) > _MOST_PIECES else []
    rest = every[len(left) + 1 :] if left else every
    if left:
        yield "p-first", every[0][1], ""
        yield "p-gap", Gap(sum(isinstance(piece, TurnBox) for _, piece in left)), ""
    for task, piece in rest:
        if isinstance(piece, TurnBox):
            way = run.way(piece.turn)
            yield f"p-{piece.anchor}", piece, way[-1].checkpoint_id if way else ""
        else:
            # Here the ways to continue are buttons, not commands.
            kept = replace(piece, command=None) if isinstance(piece, End) else piece
            yield f"p-{type(piece).__name__.lower()}-{task}", kept, ""


def _others(run: Run, stand: Stand) -> dict[str, str]:
    waiting = None if run.running else run.status.wait()
    if isinstance(waiting, Action) and waiting.tool == SHELL and not waiting.unknown:
        # The server runs it itself as soon as a person continues.
        waiting = None
    found = list(moves(run.status, running=run.running, here=stand.here))
    new = run.status.condition is Condition.UNKNOWN
    return {
        "head": _macro("head", run, stand, new),
        # One card each if several delegates wait: they can be answered in any order.
        "ask": "".join(map(_ask, (waiting, *run.status.waits[1:]))) if waiting else "",
        "moves": _macro("bar", found, run, stand, new),
        "hint": hint(waiting),
        "machine": _macro("machine_part", picture(run), pictures_below(run)),
        "settings": _macro("settings_part", run.settings, new),
        "problem": _macro("problem", stand.problem) if stand.problem else "",
    }


def _ask(waiting: Waiting) -> str:
    calls = [
        AskedCall(call, arguments_text(call), list(choices(waiting, call)))
        for call in (waiting.calls if isinstance(waiting, Approval) else ())
    ]
    drawn = Pause(waiting, _calls_with_arguments(waiting), 0, ())
    offered = [(choice, as_typed(choice.answer)) for choice in choices(waiting, None)]
    # In full, whatever its size: nobody should approve what is not shown.
    return _macro("ask", {"shown": "", **waiting.document()}, draw(drawn, None), calls, offered)


def _calls_with_arguments(waiting: Waiting) -> Any:
    found = waiting.calls if isinstance(waiting, Approval) else ()
    if isinstance(waiting, Action):
        found = (PendingCall(waiting.tool, waiting.args),)
    return [(call, arguments_of(call.name, call.args, whole=True)) for call in found]


def thread_list(rows: Sequence[Row], here: frozenset[str]) -> str:
    """Renders the list of threads. here: those that this server runs."""
    return _macro("thread_list", rows, here)


def damaged(error: SignoffError) -> Mapping[str, str]:
    """Returns the parts of a thread that cannot be read."""
    return {"problem": _macro("problem", str(error)), "hint": hint(None), "ask": "", "moves": ""}


def thread_address(thread_id: str) -> str:
    """Returns the address of a thread on this server."""
    return f"/?thread={quote(thread_id, safe='', errors='replace')}"


def shell(nonce: str, *, password: bool, proxy: bool) -> str:
    """Renders the page itself, the same for everyone: its contents come by its stream."""
    return templates().get_template("shell.html").render(nonce=nonce, password=password, proxy=proxy)
