"""Which part of the prompt the figures say to strengthen: a table from signs to parts of `graph/texts.py`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from signoff.graph.history.usage import SENT_BACK
from signoff.stats.records import Ended

HOW = "How this ends"
BEFORE = "Before you call finish_task, ask yourself"
LOOK = "Look at the results of your work before you finish"
FINISH = "the description of finish_task"
NEAR = "the reminder near the limit"

# Where each part stands: a field of `Texts` (or an entry of one), and how the part reads there.
PARTS = MappingProxyType(
    {
        HOW: ("system", "How this ends:"),
        BEFORE: ("system", "Before you call `finish_task`, ask yourself:"),
        LOOK: ("system", "Look at the results of your work before you finish."),
        FINISH: ("finish_task", "End the task."),
        NEAR: ("nudges.near_limit", "If the work is done, call finish_task now."),
    }
)

_ABOUT_RESULTS = frozenset({"siblings", "mixed"})
_ABOUT_ARGUMENTS = frozenset({"arguments", "empty_summary"})


@dataclass(frozen=True)
class Sign:
    """What is seen in a task, and the part of the prompt that it speaks of."""

    name: str
    part: str
    seen: Callable[[Ended, bool], bool]


SIGNS: tuple[Sign, ...] = (
    Sign("replies of words only", HOW, lambda task, _: bool(task.figures and task.figures["talk"])),
    Sign("a limit, then done as it was", HOW, lambda task, _: _cut_short(task)),
    Sign("a finish beside calls that failed", LOOK, lambda task, _: bool(_refused(task) & _ABOUT_RESULTS)),
    Sign(
        "a finish whose arguments did not fit",
        FINISH,
        lambda task, _: bool(_refused(task) & _ABOUT_ARGUMENTS),
    ),
    Sign(
        "a finish that was refused for the work",
        BEFORE,
        lambda task, _: bool(_refused(task) - _ABOUT_RESULTS - _ABOUT_ARGUMENTS - {SENT_BACK}),
    ),
    Sign("a finish that a person sent back", BEFORE, lambda task, _: SENT_BACK in _refused(task)),
    Sign("reopened", BEFORE, lambda _, reopened: reopened),
    Sign("out of turns", NEAR, lambda task, _: (task.status, task.reason) == ("limit", "turns")),
)


def sections(tasks: Iterable[tuple[Ended, bool]]) -> list[dict[str, Any]]:
    """The parts of the prompt of which a sign is seen, that of the most tasks first.

    tasks: with each, whether it was reopened. `tasks` in the result counts tasks, not signs: one talkative
    task weighs as much as one with a single slip.
    """
    every = list(tasks)
    found = []
    for part in PARTS:
        signs = [sign for sign in SIGNS if sign.part == part]
        seen = {sign.name: sum(sign.seen(task, again) for task, again in every) for sign in signs}
        concerned = sum(any(sign.seen(task, again) for sign in signs) for task, again in every)
        if concerned:
            found.append(
                {"section": part, "tasks": concerned, "signs": {name: n for name, n in seen.items() if n}}
            )
    return sorted(found, key=lambda row: -row["tasks"])


def _refused(task: Ended) -> set[str]:
    return set(task.figures["refused"]) if task.figures else set()


def _cut_short(task: Ended) -> bool:
    return bool(task.figures and task.figures["cut_short"])
