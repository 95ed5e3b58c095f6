"""The recorded results as pictures, drawn by matplotlib."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.overhead.client import LISTENED, LONG
from benchmarks.overhead.crowd import OWN, QUICK, TURNS
from benchmarks.overhead.crowd_targets import ideal
from benchmarks.overhead.measure import DEFAULTS, WRITES, Figure
from benchmarks.overhead.record import RESULTS, Recorded
from benchmarks.overhead.targets import EQUAL
from signoff.graph.errors import SetupError

CPU, DISK, CROWD = "overhead-cpu.png", "overhead-disk.png", "overhead-crowd.png"
CLIENT = "overhead-client.png"
_DPI = 130
_INK, _QUIET, _GRID = "#1f2933", "#66737f", "#e3e8ec"
_OWN = "#0b6e4f"
_OTHER = "#a3adb6"
_SHADE = "#6bb39a"
_COLOURS = {
    OWN.name: _OWN,
    DEFAULTS: _SHADE,
    WRITES: "#a7cdbd",
    "create_agent": "#e08e45",
    EQUAL: "#c8553d",
    "deepagents": "#8d3b2e",
    "OpenAI Agents": "#7b6cb0",
    "pydantic-ai": "#b0569b",
    "smolagents": "#4f86c6",
}
_NAMES = {
    OWN.name: "Signoff",
    DEFAULTS: "Signoff, default settings",
    WRITES: "Signoff, a tool that writes",
    "model alone": "the model's call alone",
}
_NEAR = 0.052
"""The minimum distance between two labels, as a share of the height."""


def draw(recorded: Recorded, folder: Path) -> None:
    """Writes the pictures into `folder`. Raises SetupError if the plotting package is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"Description": mark()}
    for name, drawn in {CPU: _cpu, DISK: _disk, CROWD: _crowd, CLIENT: _client}.items():
        drawn(recorded).savefig(folder / name, dpi=_DPI, metadata=told)


def mark() -> str:
    """Returns the note in a picture that identifies the results it was drawn from."""
    return f"drawn from results {sha256(RESULTS.read_bytes()).hexdigest()[:16]}"


def caption(recorded: Recorded) -> str:
    """Returns when, where and with which versions the results were measured."""
    versions = ", ".join(f"{name} {version}" for name, version in recorded.versions.items())
    machine = f"{recorded.machine['cores']} cores, Python {recorded.machine['python']}"
    return f"Measured {days(recorded)}, medians, {machine}; {versions}."


def days(recorded: Recorded) -> str:
    """Returns the day of the measurements, or the first and the last."""
    found = sorted(set(recorded.dates.values()))
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def canvas() -> Any:
    """Returns the figure to draw on. Raises SetupError if the plotting package is missing."""
    try:
        # Slow to import. Without pyplot there is no window and no global state.
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise SetupError(f"Pictures are drawn by matplotlib ({error}): pip install matplotlib") from error
    return Canvas


def _figure(recorded: Recorded, title: str, below: str, size: tuple[float, float]) -> Any:
    figure = canvas()(figsize=size)
    width, height = size
    figure.text(0.3 / width, 1 - 0.42 / height, title, fontsize=15, fontweight="bold", color=_INK)
    figure.text(0.3 / width, 1 - 0.72 / height, below, fontsize=10, color=_QUIET)
    words = fill(caption(recorded), int(width * 15))
    figure.text(0.3 / width, 0.15 / height, words, fontsize=7.5, color=_QUIET, va="bottom")
    return figure


def _cpu(recorded: Recorded) -> Any:
    size = (14.0, 7.0)
    below = "milliseconds of CPU a turn, with model's call and tool; both axes logarithmic; less is better"
    figure = _figure(recorded, "What a turn costs, by the length of the run", below, size)
    left, right = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.045, right=0.855, top=0.83, bottom=0.17, wspace=0.52)
    for axes, stored, title in (
        (left, False, "without storage"),
        (right, True, "every step saved in SQLite"),
    ):
        chosen = [one for one in recorded.figures if one.stored == stored]
        _lines(axes, chosen, lambda one: one.cpu)
        axes.set_title(title, loc="left", fontsize=11, color=_INK)
    # Only now do both have their shared heights.
    for axes in (left, right):
        axes.tick_params(labelleft=True)
        _labels(axes)
    return figure


def _disk(recorded: Recorded) -> Any:
    below = "KB on disk a turn, all steps saved in SQLite; both axes logarithmic; less is better"
    figure = _figure(recorded, "What a turn leaves on disk, by the length of the run", below, (9.5, 6.2))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.065, right=0.72, top=0.84, bottom=0.19)
    # With default settings as much is written as without a time limit on tools.
    stored = [one for one in recorded.figures if one.stored and one.subject != DEFAULTS]
    _lines(axes, stored, lambda one: one.kilobytes)
    _labels(axes)
    return figure


def _lines(axes: Any, figures: Sequence[Figure], value: Callable[[Figure], float]) -> None:
    """Draws one line per subject."""
    for name in dict.fromkeys(one.subject for one in figures):
        points = sorted((one.turns, value(one)) for one in figures if one.subject == name)
        turns, values = zip(*points, strict=True)
        own = name == OWN.name
        style = {"linewidth": 3.2 if own else 1.5, "zorder": 5 if own else 3, "markersize": 6 if own else 3.5}
        dashed = "--" if name not in _COLOURS else "-"
        axes.plot(turns, values, dashed, marker="o", color=_COLOURS.get(name, _OTHER), label=name, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    lengths = sorted({one.turns for one in figures})
    axes.set_xticks(lengths, [f"{turns:,}" for turns in lengths], minor=False)
    axes.set_xticks([], minor=True)
    _plain_numbers(axes)
    axes.set_xlabel("turns in the run", color=_QUIET)
    axes.grid(True, axis="y", color=_GRID, linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_OTHER)
    axes.tick_params(which="both", colors=_QUIET, length=0)


def _plain_numbers(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _labels(axes: Any) -> None:
    """Draws the names in a column beside the picture, without overlaps, each tied to the end of its line."""
    ends = [(line.get_label(), line.get_xydata()[-1]) for line in axes.get_lines()]
    axes.autoscale_view()
    inverse = axes.transAxes.inverted()
    placed = [(inverse.transform(axes.transData.transform(end)), name) for name, end in ends]
    heights = spread([float(at[1]) for at, _ in placed], _NEAR)
    for (at, name), height in zip(placed, heights, strict=True):
        colour = _COLOURS.get(name, _QUIET)
        axes.plot(
            [at[0], 1.03], [at[1], height], color=colour, alpha=0.45, linewidth=0.8, linestyle=":",
            transform=axes.transAxes, clip_on=False, zorder=2,
        )  # fmt: skip
        axes.text(
            1.035, height, _NAMES.get(name, name), color=colour, va="center", transform=axes.transAxes,
            fontsize=11.5 if name == OWN.name else 9, fontweight="bold" if name == OWN.name else "normal",
        )  # fmt: skip


def spread(heights: Sequence[float], near: float) -> list[float]:
    """Returns the heights in the same order, moved as little as necessary to be at least `near` apart."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    groups: list[list[int]] = []
    middles: list[float] = []
    for place in order:
        groups.append([place])
        middles.append(heights[place])
        while len(groups) > 1 and middles[-1] - middles[-2] < near * (len(groups[-1]) + len(groups[-2])) / 2:
            joined = groups.pop(-2) + groups.pop()
            groups.append(joined)
            middles[-2:] = [sum(heights[one] for one in joined) / len(joined)]
    found = list(heights)
    for group, middle in zip(groups, middles, strict=True):
        for number, place in enumerate(group):
            found[place] = middle + near * (number - (len(group) - 1) / 2)
    return found


def _crowd(recorded: Recorded) -> Any:
    quick = [one for one in recorded.crowds if one.model == QUICK]
    sizes = sorted({one.runs for one in quick})
    below = (
        f"seconds until the last of them had ended: {TURNS} turns each, a model of {QUICK * 1e3:g} ms, one "
        f"process with asyncio; {ideal(QUICK):.2g} s if nothing but the model took time"
    )
    figure = _figure(recorded, "Many runs at once", below, (13.0, 4.6))
    found = figure.subplots(1, len(sizes), squeeze=False)[0]
    figure.subplots_adjust(left=0.17, right=0.97, top=0.75, bottom=0.17, wspace=0.5)
    for axes, runs in zip(found, sizes, strict=True):
        chosen = {one.subject: one.wall for one in quick if one.runs == runs}
        _bars(axes, chosen, "s", f"{runs:,} runs")
    return figure


def _client(recorded: Recorded) -> Any:
    below = (
        f"milliseconds of CPU a turn of the client's process, {LONG} chunks a reply, a provider on loopback "
        "in another process; less is better"
    )
    figure = _figure(recorded, "What a turn costs with a real client", below, (13.0, 4.6))
    found = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.17, right=0.97, top=0.75, bottom=0.17, wspace=0.5)
    titles = ("called: nobody takes the words as they come", "listened to: streamed by all")
    for axes, title, heard in zip(found, titles, (False, True), strict=True):
        chosen = {
            one.subject.removesuffix(LISTENED): one.cpu
            for one in recorded.clients
            if one.chunks == LONG and one.subject.endswith(LISTENED) == heard
        }
        _bars(axes, chosen, "ms", title)
    return figure


def _bars(axes: Any, found: Mapping[str, float], unit: str, title: str) -> None:
    ranked = dict(sorted(found.items(), key=lambda one: one[1]))
    names = [_NAMES.get(name, name.replace(f"{OWN.name},", "Signoff,")) for name in ranked]
    colours = [_COLOURS.get(name, _SHADE if name.startswith(OWN.name) else _OTHER) for name in ranked]
    bars = axes.barh(names, list(ranked.values()), color=colours, height=0.66)
    axes.bar_label(bars, [f"{one:.1f} {unit}" for one in ranked.values()], padding=4, color=_INK, fontsize=10)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color(_OTHER)
    axes.tick_params(colors=_INK, length=0)
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == _NAMES[OWN.name] else "normal")
