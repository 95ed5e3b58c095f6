"""`python -m benchmarks.conformance_page`: writes the page and picture of Loopcheck's recorded results."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopcheck.case import Case, load_cases
from loopcheck.picture import draw
from loopcheck.real import WAYS, Provider, RealRun, write_pairs
from loopcheck.results import Column, Results
from loopcheck.table import group_by_theme, write_case_table, write_table

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "conformance" / "results"
SAMPLE, REAL = RECORDED / "sample.json", RECORDED / "real.json"
PAGE = ROOT / "docs" / "benchmarks" / "conformance.md"
PICTURE = ROOT / "docs" / "pictures" / "conformance.svg"
OWN = "signoff"
# `loopcheck real` says how many of AgentDojo's tasks have a first request of at most so many tokens.
ROOM, FIT, CHOSEN = 1_300, 37, 12

_HEAD = """\
# Agent loops under faults: Loopcheck

Loopcheck is a conformance suite for agent loops. Any framework, in any language, can take part through a URL.
The suite has a scripted model, tools whose effects it observes itself, public tasks with their own checkers,
and faults that a seed selects. It is a separate package in the folder `conformance/` of this repository, with
a protocol, a guide for maintainers, and a rule for disputes.
"""

_EVERY_TASK = """\
## Signoff, every task

`make conformance FULL=1 SEEDS="1 2 3 4 5 6 7 8 9 10"` runs every task of these sources, with one fault per
seed; over thirteen seeds, each task gets every fault. These are the totals of 2026-11-25, with Signoff
0.2.0.dev2; the repository does not keep the single runs:

| source | tasks | right |
| --- | --: | --: |
| agentdojo | 97 | 970/970 (99.6 to 100 %) |
| tau2 | 278 | 2780/2780 (99.9 to 100 %) |
| bfcl | 597 | 5970/5970 (99.9 to 100 %) |
| all | 972 | 9720/9720 (99.9 to 100 %) |

No effect took place too often, and no required effect was lost.

### AgentDojo, every task under faults

All subjects have the same runs, those with the seeds 1, 2 and 3:

| | Signoff | LangChain create_agent 1.4.7 | create_agent with Guards |
| --- | --: | --: | --: |
| right | 291/291 (99 to 100 %) | 259/291 (85 to 92 %) | 291/291 (99 to 100 %) |
| said that it is done, wrongly | 0 | 32 | 0 |
| an effect took place too often | 0 | 13 | 0 |
"""


def page() -> str:
    """Returns the page, which begins with what Signoff fails."""
    sample = Results.read(SAMPLE)
    return (
        "\n\n".join(
            [
                _HEAD.strip(),
                "## Where Signoff fails\n\n" + _failures(sample),
                _under_faults(sample),
                _EVERY_TASK.strip(),
                _unit_cases(sample),
                _real(json.loads(REAL.read_text(encoding="utf-8"))),
                _again(sample),
            ]
        )
        + "\n"
    )


def _failures(sample: Results) -> str:
    """Lists the unit cases and tasks that Signoff fails."""
    own = _column(sample)
    by_name = {case.name: case for case in load_cases()}
    lines = [
        f"- `{name}`: {by_name[name].question} {_sentence(why)}"
        for name, (mark, why, _) in own.cases.items()
        if mark == "fail"
    ]
    wrong = [run for run in own.runs if run.claimed and not run.right]
    lines += [
        f"- {run.source}, {run.task}, {run.fault} (seed {run.seed}): {_sentence(run.why)}" for run in wrong
    ]
    lacks = [f"`{name}` ({why})" for name, (mark, why, _) in own.cases.items() if mark == "n/a"]
    told = f"\n\nNot claimed: {', '.join(lacks)}." if lacks else ""
    return ("\n".join(lines) or "Signoff passes everything in these results.") + told


def _sentence(words: str) -> str:
    short = words.split(" (")[0].rstrip(".")
    return f"{short[:1].upper()}{short[1:]}."


def _column(results: Results) -> Column:
    return next(column for column in results.columns if column.name == OWN)


def _under_faults(sample: Results) -> str:
    seeds = " and ".join(map(str, sample.seeds))
    return f"""\
## All frameworks, the same sample

Every subject runs the same tasks: for each source and each of the seeds {seeds}, one task per fault. The
table shows right runs out of those that count, with the 95 % confidence interval; a run whose fault needs a
feature that a framework does not claim is left out. All subjects are set up as their documentation
recommends. The authors of Signoff wrote the suite; `conformance/README.md` says how maintainers can contest
it.

![For each fault and framework, the share of tasks solved](../pictures/conformance.svg)

{write_table(sample, load_cases())}"""


def _unit_cases(sample: Results) -> str:
    told = "\n\n".join(_theme(theme, some) for theme, some in group_by_theme(load_cases()).items())
    return f"""\
## The unit cases

✓ right, ✗ wrong, n/a not claimed or not possible. The totals have different denominators and are not a
ranking.

{write_case_table(sample, load_cases())}

{told}"""


def _theme(theme: str, some: Sequence[Case]) -> str:
    lines = [f"- `{case.name}`: {case.question} {case.right}{_link(case)}" for case in some]
    return "\n".join([f"### {theme}", "", *lines])


def _link(case: Case) -> str:
    return f" [Reported here]({case.link})." if case.link else ""


def _real(saved: Mapping[str, Any]) -> str:
    runs = [RealRun(**run) for run in saved["runs"]]
    ways = Counter((run.subject, run.source, run.task, run.seed) for run in runs)
    pairs = sum(number == len(WAYS) for number in ways.values())
    most = saved["most_turns"]
    return f"""\
## A real model, in pairs

Each task runs twice with the same model and subject: once ending with text, once with a call. This is the
embedded model (1.5 billion parameters, 4-bit quantization) on two cores. Of the {FIT} AgentDojo tasks whose
first request has at most {ROOM:,} tokens, {CHOSEN} were chosen, and the run was stopped for time after
{pairs}, with at most {most} turns in a run. The table shows what the report says, and how weak this model is;
it is too small to prove anything ({saved["day"]}). `--model` and `--base-url` select any other
OpenAI-compatible model.

{write_pairs(runs, Provider("", saved["model"], "", *saved["prices"]))}

```sh
.bench/loopcheck/bin/python -m loopcheck real --only langchain --what agentdojo \\
    --room {ROOM} --tasks {pairs} --turns {most} --model MODEL --base-url URL
```"""


def _again(sample: Results) -> str:
    versions = "\n".join(
        f"- {column.title}: {', '.join(f'{name} {version}' for name, version in column.versions.items())}"
        for column in sample.columns
        if column.versions
    )
    return f"""\
## Again

Recorded {sample.day} by Loopcheck {sample.suite}:

{versions}

```sh
make conformance                                            # the sample, all subjects
make conformance FULL=1 SEEDS="1 2 3"                       # every task with these seeds
.bench/loopcheck/bin/python -m loopcheck run --only langchain --what tau2 --seeds 1
.bench/loopcheck/bin/python -m loopcheck explain failed_sibling --only langchain
```"""


if __name__ == "__main__":
    PAGE.write_text(page())
    PICTURE.write_text(draw(Results.read(SAMPLE)))
