"""The results as small multiples: one panel per promise, with a line per subject: share and confidence."""

from collections.abc import Sequence
from html import escape

from loopcheck.faults import FAULTS, NOTHING
from loopcheck.results import Column, Results, Share

_WIDE, _TOP, _LINE, _NAME, _GAP, _COLUMNS = 344, 46, 17, 164, 18, 3
_PLOT = _WIDE - _NAME - 46
_STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #24292f }
  .head { font-weight: 600; font-size: 12px }
  .faint { fill: #57606a; font-size: 10px }
  .axis { stroke: #d0d7de }
  .span { stroke: #8c959f; stroke-width: 2 }
  .whole { fill: #1a7f37 } .part { fill: #bf8700 } .none { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .faint { fill: #9198a1 } .axis { stroke: #3d444d }
    .whole { fill: #3fb950 } .part { fill: #d29922 } .none { fill: #f85149 }
  }
"""


def draw(results: Results) -> str:
    """Draws an SVG. A faint name without a dot is a promise that the subject does not make."""
    there = [column for column in results.columns if column.runs]
    faults = [fault for fault in FAULTS if any(run.fault == fault for column in there for run in column.runs)]
    high = _TOP + _LINE * len(there) + _GAP
    rows = -(-len(faults) // _COLUMNS)
    parts = [
        _panel(fault, there, _GAP + (at % _COLUMNS) * (_WIDE + _GAP), _GAP + (at // _COLUMNS) * high)
        for at, fault in enumerate(faults)
    ]
    wide, tall = _COLUMNS * (_WIDE + _GAP) + _GAP, rows * high + _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" role="img"'
    told = "Tasks solved under each fault, by subject, with the 95 % confidence interval"
    return f'{head} aria-label="{told}"><style>{_STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"


def _panel(fault: str, columns: Sequence[Column], x: int, y: int) -> str:
    left = x + _NAME
    head = "Nothing goes wrong" if fault == NOTHING else fault[0].upper() + fault[1:]
    lines = [f'<text class="head" x="{x}" y="{y + 14}">{escape(head)}</text>']
    for share in (0, 50, 100):
        at = left + _PLOT * share / 100
        low = y + _TOP + _LINE * len(columns) - 6
        lines.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{y + 34}" y2="{low}"/>')
        lines.append(f'<text class="faint" x="{at}" y="{y + 30}" text-anchor="middle">{share} %</text>')
    for place, column in enumerate(columns):
        lines += _row(column.title, column.share_of_runs(fault=fault), x, left, y + _TOP + _LINE * place)
    return "\n".join(lines)


def _row(title: str, share: Share, x: int, left: float, y: float) -> list[str]:
    short = title if len(title) < 26 else f"{title[:24]}…"
    kind = "" if share.of else ' class="faint"'
    lines = [f'<text{kind} x="{x}" y="{y + 4}">{escape(short)}</text>']
    end = left + _PLOT + 8
    if not share.of:
        return [*lines, f'<text class="faint" x="{end}" y="{y + 4}">n/a</text>']
    low, high = (left + _PLOT * bound for bound in share.bounds)
    at = left + _PLOT * share.right / share.of
    colour = "whole" if share.right == share.of else "part" if share.right else "none"
    lines.append(f'<line class="span" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
    lines.append(f'<circle class="{colour}" cx="{at:.1f}" cy="{y}" r="4"/>')
    return [*lines, f'<text class="faint" x="{end}" y="{y + 4}">{share.right}/{share.of}</text>']
