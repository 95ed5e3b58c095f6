"""`python -m benchmarks.loopbench.pages`: the table and the picture of the recorded results, for the docs."""

from pathlib import Path

from benchmarks.loopbench.scenario import Scenario
from benchmarks.loopbench.scenarios import SCENARIOS, THEMES
from benchmarks.loopbench.table import markdown, read, svg

ROOT = Path(__file__).parent.parent.parent
RESULTS = Path(__file__).parent / "results.json"
TABLE, PICTURE = ROOT / "docs" / "benchmarks" / "loopbench.md", ROOT / "docs" / "pictures" / "loopbench.svg"

_HEAD = """\
# LoopBench: results

`python -m benchmarks.loopbench --read benchmarks/loopbench/results.json` prints this table; what each
scenario asks, what is right and why stands below it. The scenarios were chosen and judged by the authors of
Signoff. "n/a" is what a framework does not claim, so the totals have different denominators and are no
ranking. How it is made fair, and what a maintainer may contest, stands in
`benchmarks/loopbench/README.md`.
"""


def page() -> str:
    """The table, and every scenario in words."""
    told = "\n\n".join(f"### {one.name}\n\n{one.question} {one.right}{_thread(one)}" for one in SCENARIOS)
    return f"{_HEAD}\n{markdown(read(RESULTS), THEMES)}\n\n## The scenarios\n\n{told}\n"


def _thread(scenario: Scenario) -> str:
    return f" Somebody's pain: <{scenario.thread}>." if scenario.thread else ""


def picture() -> str:
    return svg(read(RESULTS), THEMES)


if __name__ == "__main__":
    TABLE.write_text(page())
    PICTURE.write_text(picture())
