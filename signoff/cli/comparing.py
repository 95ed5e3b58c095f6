"""`signoff diff`: compares two threads in a table."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from signoff.cli.console import stdout_console
from signoff.front.database import Database, unknown
from signoff.front.options import Json, takes
from signoff.front.text import cut, one_line
from signoff.front.thread_ids import checked_thread_id
from signoff.graph.foreign import count_noun
from signoff.session.comparing import Comparison, TaskFigures, compare

_PIPE = 160
_SIDES = 18
_LEAST = 30


@takes()
def diff(
    left: Annotated[str, typer.Argument(metavar="THREAD", help="A thread's ID.", show_default=False)],
    right: Annotated[
        str, typer.Argument(metavar="OTHER", help="Another's, such as its fork.", show_default=False)
    ],
    file: Database,
    as_json: Json = False,
) -> None:
    """Show two threads beside each other: turns, calls, tokens, cost, outcome.

    Of each thread its current task. The first turn in which they differ is marked.
    """
    names = [checked_thread_id(one) for one in (left, right)]
    if not file.exists():
        raise unknown(names[0], file)
    with file.open() as storage:
        found = compare(storage, *names)
    print_found(found, as_json)


def print_found(found: Comparison, as_json: bool) -> None:
    """Prints two threads beside each other, as a table or as one document."""
    if as_json:
        document = {"left": asdict(found.left), "right": asdict(found.right), "differ_at": found.parts}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        _print(stdout_console(), found)


def _print(console: Console, found: Comparison) -> None:
    width = console.width if console.is_terminal else _PIPE
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("")
    for side in (found.left, found.right):
        table.add_column(one_line(side.thread_id), overflow="fold", ratio=1)
    most = max(_LEAST, (width - _SIDES) // 2)
    for name, left, right in _rows(found):
        style = "bold yellow" if name.endswith("≠") else ""
        table.add_row(
            Text(name, style="dim"), *(Text(cut(one_line(side), most), style) for side in (left, right))
        )
    console.print(table, soft_wrap=not console.is_terminal, width=width)


def _rows(found: Comparison) -> Iterator[tuple[str, str, str]]:
    left, right = found.left, found.right
    for name, text in _FIGURES:
        yield name, text(left), text(right)
    if left.tree or right.tree:
        yield "tree", _tree(left), _tree(right)
    parts = found.parts
    for turn, (one, other) in enumerate(zip_longest(left.turns, right.turns, fillvalue="-"), 1):
        yield f"turn {turn}{' ≠' if turn == parts else ''}", one, other
        beside = [side.below[turn - 1] if turn <= len(side.below) else () for side in (left, right)]
        for own, others in zip_longest(*beside, fillvalue="-"):
            yield "  ≠" if turn == parts and own != others else "", own, others


def _tree(one: TaskFigures) -> str:
    found = one.tree
    if found is None:
        return "-"
    counts = (found.turns, "turn"), (found.calls, "call"), (found.tokens, "token")
    parts = [count_noun(found.delegates, "delegate"), *(count_noun(*each) for each in counts)]
    cost = [] if found.cost is None else [f"${found.cost:.6g}"]
    return ", ".join([*parts, *cost, f"{found.seconds:.1f} s"])


def _outcome(one: TaskFigures) -> str:
    parts = [one.status, one.reason or "", one.claim or "", one.verified or ""]
    return ", ".join(filter(None, parts))


_FIGURES: Sequence[tuple[str, Callable[[TaskFigures], str]]] = (
    ("outcome", _outcome),
    ("summary", lambda one: one.summary or "-"),
    ("model", lambda one: ", ".join(one.models) or "-"),
    ("turns", lambda one: str(len(one.turns))),
    ("calls", lambda one: str(one.calls)),
    ("tokens", lambda one: f"{one.tokens:,}"),
    ("cost", lambda one: "-" if one.cost is None else f"${one.cost:.6g}"),
    ("seconds", lambda one: f"{one.seconds:.1f}"),
)
