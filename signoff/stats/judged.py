"""False positives and false negatives: finishes that came too early, and runs that did not end in time.

Nothing is guessed. A claim of "done" is judged by a person's rating (1 or 2: it was not done; 3 to 5: it
was), else by a person who confirmed it, else by completion checks that all passed. A refusal by a check, and
a finish that a person sent back, are judged by that. Whatever is judged by none of these is not counted, and
a rate without anything judged is None. So a next task soon after (see `signoff.stats.reopened`) judges
nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from signoff.graph.history.usage import SENT_BACK
from signoff.stats.records import Ended

LOW = 2
"""The highest rating that says that a task was not done."""

Judge = Literal["check", "person", "rating"]
JUDGES: tuple[Judge, ...] = ("check", "person", "rating")
_CHECKS = "checks"


def false_positives(tasks: Sequence[Ended]) -> dict[str, Any]:
    """Finishes that came too early: refused by a check, sent back by a person, or accepted and reopened by a
    low rating.

    count: of them, out of `judged` finishes; too_early: how many by each judge; not_judged: accepted claims
    of "done" that nobody and nothing has judged. A refusal after which the same claim was accepted without
    any work in between was none.
    """
    early, right, unknown = Counter[Judge](), Counter[Judge](), 0
    for task in tasks:
        early["check"] += _refused(task, _CHECKS)
        early["person"] += _refused(task, SENT_BACK)
        if task.accepted:
            judge = judged_by(task)
            if judge is None:
                unknown += 1
            else:
                (right if was_done(task) else early)[judge] += 1
    return {
        **_counted(early.total(), early + right, unknown),
        "too_early": {judge: early[judge] for judge in JUDGES},
    }


def false_negatives(tasks: Sequence[Ended]) -> dict[str, Any]:
    """Runs that went on, or hit a limit, though the work was done.

    count: of them, out of `judged` tasks, which are those known to have been done. hit_limit: a limit ended
    the task, and it was rated as done, or ended as done after it was extended, without a change in between.
    went_on: after its last change it made replies that brought nothing (see `Figures.went_on`). One task may
    be both. not_judged: tasks that ended as done, or at a limit, of which that is not known.
    """
    ended = [task for task in tasks if task.accepted or task.status == "limit"]
    judges = [(task, judged_by(task)) for task in ended]
    done = [(task, judge) for task, judge in judges if judge is not None and was_done(task)]
    hit = [task.status == "limit" or _figure(task, "cut_short") > 0 for task, _ in done]
    on = [_figure(task, "went_on") > 0 for task, _ in done]
    return {
        **_counted(
            sum(a or b for a, b in zip(hit, on, strict=True)),
            Counter(judge for _, judge in done),
            sum(judge is None for _, judge in judges),
        ),
        "hit_limit": sum(hit),
        "went_on": sum(on),
    }


def judged_by(task: Ended) -> Judge | None:
    """By what it is known whether the work of an ended task was done; None when it is not known."""
    if task.rating is not None:
        return "rating"
    if not task.accepted:
        return None
    if task.verified == "unverified" or (task.figures and task.figures.get("confirmed")):
        return "person"
    return "check" if task.verified == "verified" else None


def was_done(task: Ended) -> bool:
    """Whether the work of a judged task was done."""
    return task.rating is None or task.rating > LOW


def _refused(task: Ended, kind: str) -> int:
    found = task.figures["refused"].get(kind) if task.figures else None
    return found["times"] - found["needless"] if found else 0


def _figure(task: Ended, name: Literal["cut_short", "went_on"]) -> int:
    return task.figures.get(name, 0) if task.figures else 0


def _counted(count: int, judges: Counter[Judge], unknown: int) -> dict[str, Any]:
    judged = judges.total()
    return {
        "count": count,
        "judged": judged,
        "rate": round(count / judged, 4) if judged else None,
        "judged_by": {judge: judges[judge] for judge in JUDGES},
        "not_judged": unknown,
    }
