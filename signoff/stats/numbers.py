"""The numbers of `signoff stats`: pure functions of the tasks that have ended."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from signoff.graph.finish.figures import Figures
from signoff.stats.judged import false_negatives, false_positives
from signoff.stats.records import STARS, Ended
from signoff.stats.reopened import reopened
from signoff.stats.sections import sections

CAPS = (3, 5, 8, 10, 12, 15, 20, 25, 30)


def stats(ended: Sequence[Ended], *, since: float = 0.0, caps: Iterable[int] = CAPS) -> dict[str, Any]:
    """Everything that `signoff stats` says, JSON-like.

    since: only tasks that ended at this time or later, in seconds since 1970. caps: the caps of the what-if.

    A rate is None where there is nothing to count. Numbers from figures (talk, nudges, refused, limits,
    rules, models) are of the `measured` tasks, which have some. What counts as back to work, as a needless
    refusal and as a task that was cut short is defined in `signoff.graph.finish.figures`, what as a false
    positive and a false negative in `signoff.stats.judged`, what as reopened in `signoff.stats.reopened`.
    """
    again = reopened(ended)
    tasks = [task for task in ended if task.at >= since]
    known = [(task, task.figures) for task in tasks if task.figures]
    figures = [found for _, found in known]
    whys = [again.get((task.thread_id, task.task)) for task in tasks]
    return {
        "tasks": len(tasks),
        "threads": len({task.thread_id for task in tasks if task.thread_id is not None}),
        "measured": len(known),
        "exits": _exits(tasks),
        "turns": _turns(tasks),
        "talk_only": _talk(known),
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
        "models": _counted(found["model"] for found in figures if found["model"]),
        "rules": _summed(found["rules"] for found in figures),
        "sections": sections((task, why is not None) for task, why in zip(tasks, whys, strict=True)),
        "what_if": what_if(tasks, caps),
    }


def what_if(tasks: Iterable[Ended], caps: Iterable[int]) -> list[dict[str, int]]:
    """How many of the successes took more turns than each cap allows."""
    turns = [task.turns for task in tasks if task.status == "success"]
    return [
        {"cap": cap, "cut": sum(needed > cap for needed in turns), "successes": len(turns)}
        for cap in sorted(set(caps))
    ]


def _exits(tasks: Sequence[Ended]) -> dict[str, dict[str, int]]:
    return {
        "status": _counted(task.status for task in tasks),
        "reason": _counted(task.reason for task in tasks),
        "claim": _counted(task.claim for task in tasks if task.claim),
        "verified": _counted(task.verified for task in tasks if task.verified),
    }


def _turns(tasks: Iterable[Ended]) -> dict[str, Any]:
    """The turns to an accepted finish. p90: nine of ten needed no more (the nearest rank)."""
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


def _talk(known: Sequence[tuple[Ended, Figures]]) -> dict[str, Any]:
    talk, turns = sum(found["talk"] for _, found in known), sum(task.turns for task, _ in known)
    tasks = sum(found["talk"] > 0 for _, found in known)
    return {"replies": talk, "turns": turns, "rate": _rate(talk, turns), "tasks": tasks}


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
    """Limits that ended a task, those after which it was extended among them."""
    extended = sum(end["status"] == "limit" for found in figures for end in found["ends"])
    final = sum(found["end"]["status"] == "limit" for found in figures)
    short = sum(found["cut_short"] for found in figures)
    return {"reached": final + extended, "extended": extended, "cut_short": short}


def _accuracy(tasks: Iterable[Ended], whys: Iterable[str | None]) -> dict[str, Any]:
    accepted = [why for task, why in zip(tasks, whys, strict=True) if task.accepted]
    kept = accepted.count(None)
    return {"accepted": len(accepted), "not_reopened": kept, "rate": _rate(kept, len(accepted))}


def _ratings(tasks: Iterable[Ended]) -> dict[str, Any]:
    given = [task.rating for task in tasks if task.rating is not None]
    mean = round(statistics.fmean(given), 2) if given else None
    return {"count": len(given), "mean": mean, "stars": {str(star): given.count(star) for star in STARS}}


def _waiting(tasks: Iterable[Ended]) -> dict[str, Any]:
    waits = [task.seconds_waiting for task in tasks if task.seconds_waiting > 0]
    mean = round(statistics.fmean(waits), 3) if waits else None
    return {"tasks": len(waits), "seconds": round(sum(waits), 3), "mean_seconds": mean}


def _tokens(tasks: Sequence[Ended]) -> dict[str, Any]:
    total = sum(task.total_tokens for task in tasks)
    return {
        "input": sum(task.input_tokens for task in tasks),
        "output": sum(task.output_tokens for task in tasks),
        "total": total,
        "mean": round(total / len(tasks), 1) if tasks else None,
    }


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for found in counts:
        total.update(found)
    return dict(total.most_common())


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
