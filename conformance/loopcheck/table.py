"""The results as a Markdown table: a row per promise, a column per subject."""

from collections.abc import Mapping, Sequence

from loopcheck.case import Case
from loopcheck.faults import FAULTS
from loopcheck.outside import line
from loopcheck.results import Results

MARKS = {"ok": "✓", "fail": "✗", "n/a": "n/a"}
PROMISES = dict(
    zip(
        FAULTS,
        (
            "Nothing goes wrong: the task is solved",
            "Killed before a call: it goes on, and the call takes place once",
            "Killed in a call: it goes on, and the call takes place once",
            "Killed after a call: it goes on, and nothing is done again",
            "A reply is cut off in a call: nothing of it runs, and the work goes on",
            "Words without a call: an announcement is no end",
            "The same ids in every reply: each result belongs to its call",
            "A failed call beside the finish: the finish is not believed",
            "Two finishes in one reply: one end",
            "A connection breaks off in a reply: the work goes on",
            "Status 429: the work goes on",
            "Status 500: the work goes on",
            "An answer or a message comes from another process: it goes on with the thread",
        ),
        strict=True,
    )
)


def write_table(results: Results, cases: Sequence[Case]) -> str:
    """Writes the tasks under faults, then the unit cases by theme."""
    there = [column for column in results.columns if column.cases or column.runs]
    absent = [f"{cell(one.title)}: {cell(one.absent).rstrip('.')}." for one in results.columns if one.absent]
    if not there:
        return "\n".join(absent)
    lines = ["| promise | " + " | ".join(cell(f"{one.title} {one.version}") for one in there) + " |"]
    lines.append("| --- |" + " --: |" * len(there))
    if results.sources:
        lines.append(f"| **Tasks under faults** |{' |' * len(there)}")
        for fault in FAULTS:
            lines.append(_row(PROMISES[fault], [one.share_of_runs(fault=fault).text for one in there]))
        for source in results.sources:
            lines.append(
                _row(f"*{source}: all of these*", [one.share_of_runs(source=source).text for one in there])
            )
        lines.append(_row("**All tasks**", [f"**{one.share_of_runs().text}**" for one in there]))
        lines.append(
            _row("Said that it is done, wrongly", [str(sum(r.wrongly for r in c.runs)) for c in there])
        )
        lines.append(
            _row(
                "An effect took place too often",
                [str(sum(bool(r.twice) for r in c.runs if r.claimed)) for c in there],
            )
        )
    for theme, some in group_by_theme(cases).items():
        names = [case.name for case in some]
        if any(name in column.cases for name in names for column in there):
            lines.append(_row(f"Unit cases: {theme}", [one.share_of_cases(names).text for one in there]))
    if any(column.cases for column in there):
        every = [case.name for case in cases]
        lines.append(_row("**All unit cases**", [f"**{one.share_of_cases(every).text}**" for one in there]))
    gaps = results.list_gaps({case.name: case.version for case in cases})
    left_out = [f"{cell(title)} leaves out {cell(gap)}." for title, gap in gaps.items()]
    return "\n".join([*lines, *(["", *absent, *left_out] if absent or left_out else [])])


def write_case_table(results: Results, cases: Sequence[Case]) -> str:
    """Writes a row per unit case."""
    there = [column for column in results.columns if column.cases]
    lines = ["| case | " + " | ".join(cell(one.title) for one in there) + " |"]
    lines.append("| --- |" + " :-: |" * len(there))
    for theme, some in group_by_theme(cases).items():
        lines.append(f"| **{theme}** |{' |' * len(there)}")
        for case in some:
            marks = [MARKS[one.cases[case.name][0]] if case.name in one.cases else "" for one in there]
            lines.append(_row(case.promise, marks))
    return "\n".join(lines)


def group_by_theme(cases: Sequence[Case]) -> Mapping[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.theme, []).append(case)
    return found


def cell(words: str) -> str:
    """Escapes a subject's words, which must not contain table syntax or HTML."""
    return line(words).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
