"""What `signoff stats` must say of a fleet: added up from its plans alone, by rules of this file.

Nothing of it is read from a run.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.fleet import USAGE, Plan, Told


def expected(every: Sequence[Plan]) -> dict[str, Any]:
    """What `signoff stats --json` must say of these plans; waiting is known only as a number of tasks."""
    told = [plan.told for plan in every]
    turns = sorted(one.turns for one in told if one.status == "success")
    return {
        "tasks": len(told),
        "threads": len({plan.thread for plan in every}),
        "exits": {
            "status": _count(one.status for one in told),
            "reason": _count(one.reason for one in told),
            "claim": _count(one.claim for one in told if one.claim),
            "verified": {"asserted": len(turns)},
        },
        "turns": _turns(turns),
        "talk_only": _talk(told),
        "nudges": _nudges(told),
        "refused": _refused(told),
        "limits": _limits(told),
        "false_positives": _false_positives(told),
        "false_negatives": _false_negatives(told),
        "reopened": _reopened(told),
        "accuracy": _accuracy(told),
        "ratings": _ratings(told),
        "waiting": {"tasks": sum(one.asks > 0 for one in told)},
        "tokens": _tokens(told),
        "models": {"fleet": sum(one.turns > 0 for one in told)},
        "rules": _rules(told),
        "sections": _sections(told),
        "delegates": {},
    }


def _turns(turns: Sequence[int]) -> dict[str, Any]:
    """turns: of the successes, ascending."""
    middle = len(turns) // 2
    return {
        "successes": len(turns),
        "mean": round(sum(turns) / len(turns), 2),
        "median": turns[middle] if len(turns) % 2 else (turns[middle - 1] + turns[middle]) / 2,
        "p90": turns[-(-9 * len(turns) // 10) - 1],
        "most": turns[-1],
    }


def _talk(told: Sequence[Told]) -> dict[str, Any]:
    talk, turns = sum(one.talk for one in told), sum(one.turns for one in told)
    tasks = sum(one.talk > 0 for one in told)
    return {"replies": talk, "turns": turns, "rate": round(talk / turns, 4), "tasks": tasks}


def _nudges(told: Sequence[Told]) -> dict[str, Any]:
    given, back = _add(one.nudges for one in told), _add(one.back for one in told)
    kinds = {
        kind: {"given": n, "back_to_work": back[kind], "rate": round(back[kind] / n, 4)}
        for kind, n in given.items()
    }
    total, returned = sum(given.values()), sum(back.values())
    return {"given": total, "back_to_work": returned, "rate": round(returned / total, 4), "kinds": kinds}


def _refused(told: Sequence[Told]) -> dict[str, Any]:
    times, needless = _add(one.refused for one in told), _add(one.needless for one in told)
    kinds = {kind: {"times": n, "needless": needless[kind]} for kind, n in times.items()}
    total, false = sum(times.values()), sum(needless.values())
    return {"finishes": total, "needless": false, "rate": round(false / total, 4), "kinds": kinds}


def _limits(told: Sequence[Told]) -> dict[str, int]:
    return {
        "reached": sum((one.status == "limit") + one.extended for one in told),
        "extended": sum(one.extended for one in told),
        "cut_short": sum(one.cut_short for one in told),
    }


def _false_positives(told: Sequence[Told]) -> dict[str, Any]:
    """No check runs and nobody confirms: only ratings judge."""
    rated = [one.rating for one in told if one.accepted and one.rating]
    low = sum(rating <= 2 for rating in rated)
    left = sum(one.accepted for one in told) - len(rated)
    return {**_judged(low, len(rated), left), "too_early": {"check": 0, "person": 0, "rating": low}}


def _false_negatives(told: Sequence[Told]) -> dict[str, Any]:
    ended = [one for one in told if one.accepted or one.status == "limit"]
    done = [one for one in ended if (one.rating or 0) > 2]
    hit = [one for one in done if one.status == "limit" or one.cut_short]
    on = [one for one in done if one.went_on]
    late = sum(one in hit or one in on for one in done)
    left = sum(one.rating is None for one in ended)
    return {**_judged(late, len(done), left), "hit_limit": len(hit), "went_on": len(on)}


def _judged(count: int, judged: int, left: int) -> dict[str, Any]:
    return {
        "count": count,
        "judged": judged,
        "rate": round(count / judged, 4) if judged else None,
        "judged_by": {"check": 0, "person": 0, "rating": judged},
        "not_judged": left,
    }


def _reopened(told: Sequence[Told]) -> dict[str, int]:
    return {
        "tasks": sum(one.reopened is not None for one in told),
        "rated_low": sum(one.reopened == "rated_low" for one in told),
        "next_task": sum(one.reopened == "next_task" for one in told),
    }


def _accuracy(told: Sequence[Told]) -> dict[str, Any]:
    accepted = [one for one in told if one.accepted]
    kept = sum(one.reopened is None for one in accepted)
    return {"accepted": len(accepted), "not_reopened": kept, "rate": round(kept / len(accepted), 4)}


def _ratings(told: Sequence[Told]) -> dict[str, Any]:
    given = [one.rating for one in told if one.rating]
    stars = {str(star): given.count(star) for star in range(1, 6)}
    return {"count": len(given), "mean": round(sum(given) / len(given), 2), "stars": stars}


def _tokens(told: Sequence[Told]) -> dict[str, Any]:
    turns, (read, written) = sum(one.turns for one in told), USAGE
    total = turns * (read + written)
    mean = round(total / len(told), 1)
    return {"input": turns * read, "output": turns * written, "total": total, "mean": mean}


def _rules(told: Sequence[Told]) -> dict[str, int]:
    fired = _add(one.nudges for one in told)
    fired["think"] = sum(one.turns for one in told)
    fired["claimed"], fired["asked"] = sum(one.claims for one in told), sum(one.asks for one in told)
    fired += Counter(one.reason for one in told if one.status == "limit" or one.reason == "content_filter")
    return dict(fired)


def _sections(told: Sequence[Told]) -> list[dict[str, Any]]:
    talk = [one.talk > 0 for one in told]
    short = [one.cut_short > 0 for one in told]
    rows = [
        (
            "How this ends",
            {"replies of words only": sum(talk), "a limit, then done as it was": sum(short)},
            sum(a or b for a, b in zip(talk, short, strict=True)),
        ),
        (
            "Look at the results of your work before you finish",
            {"a finish beside calls that failed": sum(one.refused["siblings"] > 0 for one in told)},
            None,
        ),
        (
            "the description of finish_task",
            {"a finish whose arguments did not fit": sum(one.refused["empty_summary"] > 0 for one in told)},
            None,
        ),
        (
            "Before you call finish_task, ask yourself",
            {"reopened": sum(one.reopened is not None for one in told)},
            None,
        ),
        ("the reminder near the limit", {"out of turns": sum(one.reason == "turns" for one in told)}, None),
    ]
    return [
        {"section": part, "tasks": sum(signs.values()) if tasks is None else tasks, "signs": signs}
        for part, signs, tasks in rows
    ]


def _count(values: Any) -> dict[str, int]:
    return dict(Counter(values))


def _add(counts: Iterator[Counter[str]] | Any) -> Counter[str]:
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return total
