"""The figures of `signoff stats`: pure functions of the tasks that have ended.

False positives are finishes that came too early, false negatives runs that did not end in time. Nothing is
guessed. A claim of "done" is judged by a person's rating (1 or 2: it was not done; 3 to 5: it was), else by a
person who confirmed it, else by completion checks that all passed. A refusal by a check, and a finish that a
person sent back, are judgements themselves. Whatever is judged by none of these is not counted, and a rate
without any judgement is None. So a next task soon after is not a judgement.

A table maps signs in the figures to the parts of `graph/texts.py` that should be strengthened.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, cast

from signoff.graph.finish.recorded import Figures
from signoff.graph.kinds import SENT_BACK
from signoff.stats.records import STARS, TaskRecord

LOW = 2
"""The highest rating of a task that was not done."""

Judge = Literal["check", "person", "rating"]
JUDGES: tuple[Judge, ...] = ("check", "person", "rating")
_CHECKS = "checks"


def false_positives(tasks: Sequence[TaskRecord]) -> dict[str, Any]:
    """Returns the finishes that came too early: refused by a check, sent back by a person, or rated low.

    count: how many of the `judged` finishes; too_early: how many by each judge; not_judged: accepted claims
    of "done" without a judgement. A refusal does not count if the same claim was accepted later without any
    work in between.
    """
    early, right, unknown = Counter[Judge](), Counter[Judge](), 0
    for task in tasks:
        early["check"] += _refusals(task, _CHECKS)
        early["person"] += _refusals(task, SENT_BACK)
        if task.accepted:
            judge = judged_by(task)
            if judge is None:
                unknown += 1
            else:
                (right if was_done(task) else early)[judge] += 1
    return {
        **_counts(early.total(), early + right, unknown),
        "too_early": {judge: early[judge] for judge in JUDGES},
    }


def false_negatives(tasks: Sequence[TaskRecord]) -> dict[str, Any]:
    """Returns the runs that went on, or hit a limit, although the work was done.

    count: how many of the `judged` tasks, which are those known to have been done. hit_limit: a limit ended
    the task, and it was rated as done, or ended as done after it was extended, without a change in between.
    went_on: it made useless replies after its last change (see `Figures.went_on`). One task may be both.
    not_judged: tasks that ended as done, or at a limit, for which this is not known.
    """
    ended = [task for task in tasks if task.accepted or task.status == "limit"]
    judges = [(task, judged_by(task)) for task in ended]
    done = [(task, judge) for task, judge in judges if judge is not None and was_done(task)]
    hit = [task.status == "limit" or task.figures["cut_short"] > 0 for task, _ in done]
    on = [task.figures["went_on"] > 0 for task, _ in done]
    return {
        **_counts(
            sum(a or b for a, b in zip(hit, on, strict=True)),
            Counter(judge for _, judge in done),
            sum(judge is None for _, judge in judges),
        ),
        "hit_limit": sum(hit),
        "went_on": sum(on),
    }


def judged_by(task: TaskRecord) -> Judge | None:
    """Returns the source of knowledge whether the work of an ended task was done; None without one."""
    if task.rating is not None:
        return "rating"
    if not task.accepted:
        return None
    if task.verified == "unverified" or task.figures["confirmed"]:
        return "person"
    return "check" if task.verified == "verified" else None


def was_done(task: TaskRecord) -> bool:
    """Whether the work of a judged task was done."""
    return task.rating is None or task.rating > LOW


def _refusals(task: TaskRecord, kind: str) -> int:
    found = task.figures["refused"].get(kind)
    return found["times"] - found["needless"] if found else 0


def _counts(count: int, judges: Counter[Judge], unknown: int) -> dict[str, Any]:
    judged = judges.total()
    return {
        "count": count,
        "judged": judged,
        "rate": round(count / judged, 4) if judged else None,
        "judged_by": {judge: judges[judge] for judge in JUDGES},
        "not_judged": unknown,
    }


REOPEN_SECONDS = 600.0
Why = Literal["rated low", "next task"]


def reopened(
    ended: Sequence[TaskRecord], within: float = REOPEN_SECONDS
) -> dict[tuple[str | None, str], Why]:
    """Returns the tasks accepted as done and then reopened, by thread and task, with the reason.

    A person's rating decides: 1 or 2 reopens a task, 3 to 5 says that it was done. Without a rating a task
    counts as reopened when the next task of its thread began within `within` seconds of its end: usually that
    is a correction. This estimate is too high for threads with one task after another; rate these.
    """
    followed = {
        _key(task)
        for tasks in _by_thread(ended)
        for task, later in pairwise(tasks)
        if 0 <= later.began - task.at <= within
    }
    found: dict[tuple[str | None, str], Why] = {}
    for task in ended:
        if task.accepted and task.rating is not None and task.rating <= LOW:
            found[_key(task)] = "rated low"
        elif task.accepted and task.rating is None and _key(task) in followed:
            found[_key(task)] = "next task"
    return found


def _by_thread(ended: Iterable[TaskRecord]) -> Iterable[list[TaskRecord]]:
    """Returns the tasks of each thread in the order they began; tasks without a thread have no next one."""
    threads: dict[str, list[TaskRecord]] = {}
    for task in ended:
        if task.thread_id is not None:
            threads.setdefault(task.thread_id, []).append(task)
    return (sorted(tasks, key=attrgetter("began")) for tasks in threads.values())


def _key(task: TaskRecord) -> tuple[str | None, str]:
    return task.thread_id, task.task


HOW = "How this ends"
BEFORE = "Before you call finish_task, ask yourself"
LOOK = "Look at the results of your work before you finish"
FINISH = "the description of finish_task"
NEAR = "the reminder near the limit"

# The location of each part: a field of `Texts` (or an entry of one), and the words of the part there.
PARTS = MappingProxyType(
    {
        HOW: ("system", "How this ends:"),
        BEFORE: ("system", "Before you call `finish_task`, ask yourself:"),
        LOOK: ("system", "Look at the results of your work before you finish."),
        FINISH: ("finish_task", "End the task, once"),
        NEAR: ("nudges.near_limit", "If the work is done, call finish_task now."),
    }
)

_ABOUT_RESULTS = frozenset({"siblings"})
_ABOUT_ARGUMENTS = frozenset({"arguments", "empty_summary"})


@dataclass(frozen=True)
class SectionSign:
    """A sign in a task, and the part of the prompt that it concerns."""

    name: str
    part: str
    seen: Callable[[TaskRecord, bool], bool]


SIGNS: tuple[SectionSign, ...] = (
    SectionSign("replies of words only", HOW, lambda task, _: task.figures["talk"] > 0),
    SectionSign("a limit, then done as it was", HOW, lambda task, _: task.figures["cut_short"] > 0),
    SectionSign(
        "a finish beside calls that failed", LOOK, lambda task, _: bool(_kinds_refused(task) & _ABOUT_RESULTS)
    ),
    SectionSign(
        "a finish whose arguments did not fit",
        FINISH,
        lambda task, _: bool(_kinds_refused(task) & _ABOUT_ARGUMENTS),
    ),
    SectionSign(
        "a finish that was refused for the work",
        BEFORE,
        lambda task, _: bool(_kinds_refused(task) - _ABOUT_RESULTS - _ABOUT_ARGUMENTS - {SENT_BACK}),
    ),
    SectionSign(
        "a finish that a person sent back", BEFORE, lambda task, _: SENT_BACK in _kinds_refused(task)
    ),
    SectionSign("reopened", BEFORE, lambda _, reopened: reopened),
    SectionSign("out of turns", NEAR, lambda task, _: (task.status, task.reason) == ("limit", "turns")),
)


def sections(tasks: Iterable[tuple[TaskRecord, bool]]) -> list[dict[str, Any]]:
    """Returns the parts of the prompt with signs, those with the most tasks first.

    tasks: with each, whether it was reopened. `tasks` in the result counts tasks, not signs: one talkative
    task counts as much as one with a single slip.
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


def _kinds_refused(task: TaskRecord) -> set[str]:
    return set(task.figures["refused"])


def stats(ended: Sequence[TaskRecord], *, since: float = 0.0) -> dict[str, Any]:
    """Returns the data of `signoff stats`, as JSON-like values.

    since: only tasks that ended at this time or later, in seconds since 1970. A rate is None where there is
    nothing to count. What counts as back to work, as a needless refusal and as a task that was cut short is
    defined in `signoff.graph.finish.figures`; what as a false positive, a false negative and reopened, in
    `signoff.stats.numbers`.
    """
    again = reopened(ended)
    tasks = [task for task in ended if task.at >= since]
    figures = [task.figures for task in tasks]
    whys = [again.get((task.thread_id, task.task)) for task in tasks]
    return {
        "tasks": len(tasks),
        "threads": len({task.thread_id for task in tasks if task.thread_id is not None}),
        "exits": _exits(tasks),
        "turns": _turns(tasks),
        "talk_only": _talk(tasks),
        "nudges": _nudges(figures),
        "refused": _refused(figures),
        "limits": _limits(figures),
        "false_positives": false_positives(tasks),
        "false_negatives": false_negatives(tasks),
        "reopened": {
            "tasks": sum(why is not None for why in whys),
            "rated_low": whys.count("rated low"),
            "next_task": whys.count("next task"),
        },
        "accuracy": _accuracy(tasks, whys),
        "ratings": _ratings(tasks),
        "waiting": _waiting(tasks),
        "tokens": _tokens(tasks),
        "models": _count_values(found["model"] for found in figures if found["model"]),
        "delegates": _delegates(figures),
        "rules": _summed(found["rules"] for found in figures),
        "sections": sections((task, why is not None) for task, why in zip(tasks, whys, strict=True)),
    }


def _delegates(figures: Sequence[Figures]) -> dict[str, dict[str, int]]:
    """Returns what each delegate was called for, and used with all below it; the most called ones first."""
    found: dict[str, Counter[str]] = {}
    for task in figures:
        for name, one in task.get("delegates", {}).items():
            found.setdefault(name, Counter()).update(cast(Mapping[str, int], one))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["calls"], item[0]))
    keys = ("calls", "done", "turns", "tokens", "tool_calls")
    return {name: {key: one[key] for key in keys} for name, one in ranked}


def _exits(tasks: Sequence[TaskRecord]) -> dict[str, dict[str, int]]:
    return {
        "status": _count_values(task.status for task in tasks),
        "reason": _count_values(task.reason for task in tasks),
        "claim": _count_values(task.claim for task in tasks if task.claim),
        "verified": _count_values(task.verified for task in tasks if task.verified),
    }


def _turns(tasks: Iterable[TaskRecord]) -> dict[str, Any]:
    """Returns the turns to an accepted finish. p90: nine of ten needed no more (nearest rank)."""
    found = sorted(task.turns for task in tasks if task.status == "success")
    if not found:
        return {"successes": 0, "mean": None, "median": None, "p90": None, "most": None}
    return {
        "successes": len(found),
        "mean": round(statistics.fmean(found), 2),
        "median": statistics.median(found),
        "p90": found[math.ceil(0.9 * len(found)) - 1],
        "most": found[-1],
    }


def _talk(tasks: Sequence[TaskRecord]) -> dict[str, Any]:
    talk, turns = sum(task.figures["talk"] for task in tasks), sum(task.turns for task in tasks)
    talkative = sum(task.figures["talk"] > 0 for task in tasks)
    return {"replies": talk, "turns": turns, "rate": _rate(talk, turns), "tasks": talkative}


def _nudges(figures: Iterable[Figures]) -> dict[str, Any]:
    given, back = Counter[str](), Counter[str]()
    for found in figures:
        for kind, nudged in found["nudges"].items():
            given[kind] += nudged["given"]
            back[kind] += nudged["back"]
    total, returned = given.total(), back.total()
    kinds = {
        kind: {"given": n, "back_to_work": back[kind], "rate": _rate(back[kind], n)}
        for kind, n in given.most_common()
    }
    return {"given": total, "back_to_work": returned, "rate": _rate(returned, total), "kinds": kinds}


def _refused(figures: Iterable[Figures]) -> dict[str, Any]:
    times, needless = Counter[str](), Counter[str]()
    for found in figures:
        for kind, refused in found["refused"].items():
            times[kind] += refused["times"]
            needless[kind] += refused["needless"]
    kinds = {kind: {"times": n, "needless": needless[kind]} for kind, n in times.most_common()}
    total, vain = times.total(), needless.total()
    return {"finishes": total, "needless": vain, "rate": _rate(vain, total), "kinds": kinds}


def _limits(figures: Sequence[Figures]) -> dict[str, Any]:
    """Returns the limits that ended a task, including those after which it was extended."""
    extended = sum(end["status"] == "limit" for found in figures for end in found["ends"])
    final = sum(found["end"]["status"] == "limit" for found in figures)
    short = sum(found["cut_short"] for found in figures)
    return {"reached": final + extended, "extended": extended, "cut_short": short}


def _accuracy(tasks: Iterable[TaskRecord], whys: Iterable[str | None]) -> dict[str, Any]:
    accepted = [why for task, why in zip(tasks, whys, strict=True) if task.accepted]
    kept = accepted.count(None)
    return {"accepted": len(accepted), "not_reopened": kept, "rate": _rate(kept, len(accepted))}


def _ratings(tasks: Iterable[TaskRecord]) -> dict[str, Any]:
    given = [task.rating for task in tasks if task.rating is not None]
    mean = round(statistics.fmean(given), 2) if given else None
    return {"count": len(given), "mean": mean, "stars": {str(star): given.count(star) for star in STARS}}


def _waiting(tasks: Iterable[TaskRecord]) -> dict[str, Any]:
    waits = [task.seconds_waiting for task in tasks if task.seconds_waiting > 0]
    mean = round(statistics.fmean(waits), 3) if waits else None
    return {"tasks": len(waits), "seconds": round(sum(waits), 3), "mean_seconds": mean}


def _tokens(tasks: Sequence[TaskRecord]) -> dict[str, Any]:
    total = sum(task.total_tokens for task in tasks)
    return {
        "input": sum(task.input_tokens for task in tasks),
        "output": sum(task.output_tokens for task in tasks),
        "total": total,
        "mean": round(total / len(tasks), 1) if tasks else None,
    }


def _count_values(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for found in counts:
        total.update(found)
    return dict(total.most_common())


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
