"""The picture of `signoff stats`: turns to finish and the exit mix. Needs the extra `signoff[plot]`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from signoff.graph.errors import SetupError
from signoff.graph.vocabulary import Tone, heading
from signoff.stats.records import TaskRecord

SUFFIXES = (".png", ".svg")
_COLOURS: Mapping[Tone, str] = {
    "green": "#2e7d32",
    "amber": "#f9a825",
    "red": "#c62828",
    "blue": "#1565c0",
    "violet": "#6a1b9a",
}
_TURNS = "#546e7a"
_SIZE = (11.0, 4.2)
_DPI = 120


def plot(ended: Sequence[TaskRecord], document: Mapping[str, Any], file: Path) -> None:
    """Draws the tasks, of which `document` tells the numbers, into `file`, a PNG or SVG by its suffix.

    Raises SetupError for another suffix, a missing package and a place that cannot be written to.
    """
    check_suffix(file)
    figure_class, tickers = _matplotlib()
    figure = figure_class(figsize=_SIZE, dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    _histogram(left, ended, document)
    left.yaxis.set_major_locator(tickers.MaxNLocator(integer=True))
    left.xaxis.set_major_locator(tickers.MaxNLocator(integer=True))
    _exits(right, ended)
    right.xaxis.set_major_locator(tickers.MaxNLocator(integer=True))
    try:
        figure.savefig(file)
    except OSError as error:
        raise SetupError(f"Cannot write {file} ({error.strerror}); choose another file.") from error


def check_suffix(file: Path) -> None:
    """Raises SetupError for a file that is neither PNG nor SVG."""
    if file.suffix.lower() not in SUFFIXES:
        raise SetupError(
            f"--plot writes a PNG or SVG picture: name a file that ends in .png or .svg, not {file}."
        )


def _matplotlib() -> tuple[Any, Any]:
    try:
        # An extra, and slow to import. Without pyplot there is no window and no global state.
        from matplotlib import ticker
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SetupError(
            f"A plot needs a package that is missing ({error}): pip install 'signoff[plot]'."
        ) from error
    return Figure, ticker


def _histogram(axes: Any, ended: Sequence[TaskRecord], document: Mapping[str, Any]) -> None:
    counts = Counter(task.turns for task in ended if task.status == "success")
    axes.bar(list(counts), list(counts.values()), color=_TURNS, width=0.85)
    turns = document["turns"]
    for name, style in (("median", "--"), ("p90", ":")):
        if turns[name] is not None:
            axes.axvline(turns[name], color="black", linestyle=style, label=f"{name} {turns[name]:g}")
            axes.legend()
    axes.set(title=f"Turns to finish ({turns['successes']} successes)", xlabel="turns", ylabel="tasks")


def _exits(axes: Any, ended: Sequence[TaskRecord]) -> None:
    """A bar for each exit, the most frequent on top, in the words and colours of its card."""
    found = Counter((_exit(task), _COLOURS[heading(vars(task)).tone]) for task in ended)
    ranked = [(name, colour, count) for (name, colour), count in reversed(found.most_common())]
    names, colours = [name for name, _, _ in ranked], [colour for _, colour, _ in ranked]
    bars = axes.barh(names, [count for _, _, count in ranked], color=colours)
    axes.bar_label(bars, padding=2)
    axes.margins(x=0.12)
    axes.set(title=f"Exits ({len(ended)} tasks)", xlabel="tasks")


def _exit(task: TaskRecord) -> str:
    # A dollar sign would begin a formula.
    return heading(vars(task)).title.replace("$", r"\$")
