"""The results as Markdown, as JSON and as a picture."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.loopbench.scenario import Scenario

MARKS = {"ok": "✓", "fail": "✗", "n/a": "n/a"}
ABSENT = "not installed"


@dataclass(frozen=True)
class Column:
    """One framework. versions: of its packages, its own first. cells: (mark, why) by scenario; none for one
    that did not run, for the reason `absent`."""

    title: str
    versions: Mapping[str, str]
    cells: Mapping[str, tuple[str, str]]
    absent: str = ""

    @property
    def version(self) -> str:
        return next(iter(self.versions.values()), "")

    @property
    def score(self) -> str:
        """Right out of those that count."""
        count = Counter(mark for mark, _ in self.cells.values())
        return f"{count['ok']} of {count['ok'] + count['fail']}" if self.cells else self.absent

    def mark(self, scenario: str) -> str:
        return self.cells[scenario][0] if scenario in self.cells else ""


@dataclass(frozen=True)
class Results:
    """date: when they were measured, ISO 8601."""

    date: str
    columns: Sequence[Column]

    def document(self) -> dict[str, Any]:
        columns = [
            {
                "title": column.title,
                "versions": dict(column.versions),
                "absent": column.absent,
                "cells": {name: {"mark": mark, "why": why} for name, (mark, why) in column.cells.items()},
            }
            for column in self.columns
        ]
        return {"date": self.date, "columns": columns}


def read(file: Path) -> Results:
    """Results that were saved as JSON."""
    found = json.loads(file.read_text())
    columns = [
        Column(
            one["title"],
            one["versions"],
            {name: (cell["mark"], cell["why"]) for name, cell in one["cells"].items()},
            one["absent"],
        )
        for one in found["columns"]
    ]
    return Results(found["date"], columns)


def markdown(results: Results, themes: Mapping[str, Sequence[Scenario]]) -> str:
    """One row a scenario, one column a framework."""
    names = " | ".join(f"{column.title} {column.version}".strip() for column in results.columns)
    lines = [f"| scenario | {names} |", "| --- |" + " :-: |" * len(results.columns)]
    for theme, scenarios in themes.items():
        known = [s for s in scenarios if any(s.name in column.cells for column in results.columns)]
        if known:
            lines.append(f"| **{theme}** |" + " |" * len(results.columns))
        for scenario in known:
            marks = " | ".join(MARKS.get(c.mark(scenario.name), "") for c in results.columns)
            lines.append(f"| {scenario.question} | {marks} |")
    lines.append("| **right, of those that count** | " + " | ".join(c.score for c in results.columns) + " |")
    return "\n".join([*lines, "", f"Measured {results.date}. n/a: not claimed, or not possible there."])


_SIZE, _LEFT, _TOP, _WIDE = 22, 520, 190, 44
_COLOURS = {"ok": "#2e7d32", "fail": "#c62828", "n/a": "#bdbdbd"}


def svg(results: Results, themes: Mapping[str, Sequence[Scenario]]) -> str:
    """The same as a picture."""
    parts: list[str] = []
    for at, column in enumerate(results.columns):
        x = _LEFT + at * _WIDE + _WIDE // 2
        title = f"{column.title} {column.version or f'({column.absent})'}"
        parts.append(_text(x, _TOP - 10, title, turn=-45))
    y = _TOP
    for theme, scenarios in themes.items():
        parts.append(_text(10, y + 16, theme, bold=True))
        y += _SIZE
        for scenario in scenarios:
            parts.append(_text(10, y + 16, scenario.question))
            for at, column in enumerate(results.columns):
                parts.append(_mark(_LEFT + at * _WIDE + _WIDE // 2, y + 11, column.mark(scenario.name)))
            y += _SIZE
    for at, column in enumerate(results.columns):
        score = column.score.replace(" of ", "/") if column.cells else ""
        parts.append(_text(_LEFT + at * _WIDE + 4, y + 18, score, bold=True))
    parts.append(_text(10, y + 18, f"right, of those that count ({results.date})", bold=True))
    width = _LEFT + len(results.columns) * _WIDE + 130
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 30}" font-family="sans-serif"'
    return "\n".join(
        [f'{head} font-size="12">', '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]
    )


def _text(x: int, y: int, words: str, *, bold: bool = False, turn: int = 0) -> str:
    weight = ' font-weight="bold"' if bold else ""
    turned = f' transform="rotate({turn} {x} {y})"' if turn else ""
    return f'<text x="{x}" y="{y}"{weight}{turned} fill="#212121">{escape(words)}</text>'


def _mark(x: int, y: int, mark: str) -> str:
    """Told apart by shape too, not by colour alone."""
    colour = _COLOURS.get(mark)
    if mark == "ok":
        return f'<circle cx="{x}" cy="{y}" r="7" fill="{colour}"/>'
    if mark == "fail":
        ends = f"M{x - 6} {y - 6}L{x + 6} {y + 6}M{x + 6} {y - 6}L{x - 6} {y + 6}"
        return f'<path d="{ends}" stroke="{colour}" stroke-width="3"/>'
    return f'<path d="M{x - 5} {y}H{x + 5}" stroke="{colour}" stroke-width="2"/>' if colour else ""
