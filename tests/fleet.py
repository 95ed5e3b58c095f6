"""A fleet of scripted runs whose scripts dictate how each ends, and what `signoff stats` must then say.

What is expected is added up from the plans alone, by rules of this file; nothing of it is read from a run.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command

from signoff import Limits, build_graph, extend, retry
from signoff.graph.build import Graph, Storage
from signoff.graph.marks import is_genuine
from signoff.models import ScriptedModel, call, reply
from signoff.stats import rate

TURNS = 8
REMINDED_AT = 7
USAGE = (100, 10)


@dataclass
class Told:
    """What a plan dictates of one task."""

    status: str = "success"
    reason: str = "finish_task"
    claim: str | None = "done"
    turns: int = 0
    talk: int = 0
    asks: int = 0
    claims: int = 0
    nudges: Counter[str] = field(default_factory=Counter)
    back: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    needless: Counter[str] = field(default_factory=Counter)
    extended: int = 0
    cut_short: int = 0
    rating: int | None = None
    followed: bool = False

    @property
    def accepted(self) -> bool:
        return (self.status, self.claim) == ("success", "done")

    @property
    def reopened(self) -> str | None:
        if not self.accepted or (self.rating or 0) > 2:
            return None
        return "rated_low" if self.rating else ("next_task" if self.followed else None)


@dataclass
class Plan:
    """One run. acts: what is done after the first invocation ends or pauses."""

    thread: str
    marker: str
    steps: list[Any]
    acts: list[str]
    told: Told


# What a model does in a turn, by a letter: w work, k think, t talk, s a finish beside a call that fails,
# e a finish with an empty summary, q a question, F a finish, x an error of the provider, c a filtered reply.
_CALLS: dict[str, Callable[[str, int], list[Any]]] = {
    "w": lambda marker, n: [call("work", marker=marker, step=n)],
    "k": lambda _, n: [call("think", thought=f"thought {n}")],
    "t": lambda _, n: [f"I am nearly there ({n})."],
    "s": lambda marker, _: [call("fail"), call("finish_task", summary=marker)],
    "e": lambda *_: [call("finish_task", summary=" ")],
    "q": lambda *_: [call("ask_user", question="Which one?")],
}
_BACK = frozenset("wseqF")


def plans(count: int, seed: int) -> list[Plan]:
    """So many plans, the same for the same seed."""
    rng = random.Random(seed)
    found: list[Plan] = []
    for number in range(count):
        follows = bool(found) and rng.random() < 0.1
        thread = found[-1].thread if follows else f"thread-{number}"
        if follows:
            found[-1].told.followed = True
        found.append(_plan(rng, thread, f"task-{number:05}"))
    return found


def _plan(rng: random.Random, thread: str, marker: str) -> Plan:
    kind = rng.choices(
        [
            "done",
            "partial",
            "blocked",
            "impossible",
            "turns",
            "extended",
            "talk_turns",
            "error",
            "retried",
            "filter",
        ],
        [50, 6, 4, 3, 8, 9, 6, 5, 5, 4],
    )[0]
    steps, acts = "".join(rng.sample("wwwwkttseq", rng.randint(0, 5))), list[str]()
    told = Told()
    if kind == "turns":
        told = Told("limit", "turns", None)
        steps = "w" * TURNS
    elif kind == "extended":
        steps = "w" * TURNS + rng.choice(["F", "kF", "wF", "F"])
        acts, told.extended = ["extend"], 1
        told.cut_short = int("w" not in steps[TURNS:])
    elif kind == "talk_turns":
        told = Told("limit", "talk_turns", None)
        steps = "w" * rng.randint(0, 2) + "t" * 5
    elif kind == "error":
        told = Told("error", "model_error", None)
        steps += "x"
    elif kind == "retried":
        steps, acts = steps + "xF", ["retry"]
    elif kind == "filter":
        told = Told("error", "content_filter", None)
        steps += "cc"
    else:
        told.claim = kind
        steps += "F"
    acts = ["answer"] * steps.count("q") + acts
    _dictate(told, steps)
    if rng.random() < 0.15:
        told.rating = rng.randint(1, 5)
    return Plan(
        thread, marker, [_step(letter, marker, n, told) for n, letter in enumerate(steps)], acts, told
    )


def _dictate(told: Told, steps: str) -> None:
    """Adds up what these letters mean."""
    replies = steps.replace("x", "")
    told.turns, told.talk, told.asks = len(replies), replies.count("t"), replies.count("q")
    told.claims = sum(replies.count(letter) for letter in "seF")
    for place, letter in enumerate(replies):
        following = replies[place + 1 : place + 2]
        if letter == "t" or (letter == "c" and following == "c"):
            _remind(told, "talked" if letter == "t" else "filtered", following)
        if letter in "se":
            name = "siblings" if letter == "s" else "empty_summary"
            told.refused[name] += 1
            worked = set("ws") & set(replies[place + 1 :])
            told.needless[name] += told.accepted and not worked
    if len(replies) >= TURNS:
        _remind(told, "near_limit", replies[REMINDED_AT])


def _remind(told: Told, kind: str, following: str) -> None:
    told.nudges[kind] += 1
    told.back[kind] += bool(following) and following in _BACK


def _step(letter: str, marker: str, number: int, told: Told) -> Any:
    if letter == "x":
        return ConnectionError("the provider is down")
    if letter == "c":
        return reply("I cannot.", finish_reason="content_filter", usage=USAGE)
    if letter == "F":
        return reply(call("finish_task", summary=f"All of {marker}.", outcome=told.claim), usage=USAGE)
    return reply(*_CALLS[letter](marker, number), usage=USAGE)


_ACTS: dict[str, Callable[[Any], Command[Any]]] = {
    "answer": lambda _: Command(resume="blue"),
    "extend": lambda values: extend(values, turns=5),
    "retry": retry,
}


class Fleet:
    """Runs plans on one graph; the model finds its script by the marker in the user's message."""

    def __init__(self, storage: Storage, every: Sequence[Plan]) -> None:
        self.storage = storage
        self.plans = every
        self.scripts: dict[str, Iterator[Any]] = {plan.marker: iter(plan.steps) for plan in every}
        model = ScriptedModel(self._step, model_name="fleet", chunk_size=1000)
        limits = Limits(turns=TURNS)
        self.graph: Graph = build_graph(model, [work, fail], limits=limits, storage=storage)
        # Runs that neither pause nor go on need no checkpoints; without them it takes a third of the time.
        self.straight: Graph = build_graph(model, [work, fail], limits=limits, store=storage.store)

    def _step(self, messages: list[BaseMessage]) -> Any:
        marker = next(m.text for m in reversed(messages) if isinstance(m, HumanMessage) and is_genuine(m))
        return next(self.scripts[marker])

    def run(self) -> None:
        for plan in self.plans:
            config: Any = {"configurable": {"thread_id": plan.thread}}
            graph = self.graph if plan.acts else self.straight
            graph.invoke({"messages": [("user", plan.marker)]}, config)
            for act in plan.acts:
                self.graph.invoke(_ACTS[act](self.graph.get_state(config).values), config)
            if plan.told.rating is not None:
                rate(self.storage.store, plan.thread, plan.told.rating)

    def left(self) -> int:
        """How many steps were never played."""
        return sum(len(list(script)) for script in self.scripts.values())


def work(marker: str, step: int) -> str:
    """Work."""
    return f"{marker} did step {step}"


def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


def expected(every: Sequence[Plan], caps: Sequence[int]) -> dict[str, Any]:
    """What `signoff stats --json` must say of these plans; waiting is known only as a number of tasks."""
    told = [plan.told for plan in every]
    turns = sorted(one.turns for one in told if one.status == "success")
    middle = len(turns) // 2
    return {
        "tasks": len(told),
        "threads": len({plan.thread for plan in every}),
        "measured": len(told),
        "exits": {
            "status": _count(one.status for one in told),
            "reason": _count(one.reason for one in told),
            "claim": _count(one.claim for one in told if one.claim),
            "verified": {"asserted": len(turns)},
        },
        "turns": {
            "successes": len(turns),
            "mean": round(sum(turns) / len(turns), 2),
            "median": turns[middle] if len(turns) % 2 else (turns[middle - 1] + turns[middle]) / 2,
            "p90": turns[-(-9 * len(turns) // 10) - 1],
            "most": turns[-1],
        },
        "talk_only": _talk(told),
        "nudges": _nudges(told),
        "refused": _refused(told),
        "limits": {
            "reached": sum((one.status == "limit") + one.extended for one in told),
            "extended": sum(one.extended for one in told),
            "false_negatives": sum(one.cut_short for one in told),
        },
        "reopened": {
            "tasks": sum(one.reopened is not None for one in told),
            "rated_low": sum(one.reopened == "rated_low" for one in told),
            "next_task": sum(one.reopened == "next_task" for one in told),
        },
        "accuracy": _accuracy(told),
        "ratings": _ratings(told),
        "waiting": {"tasks": sum(one.asks > 0 for one in told)},
        "tokens": _tokens(told),
        "models": {"fleet": sum(one.turns > 0 for one in told)},
        "rules": _rules(told),
        "sections": _sections(told),
        "what_if": [
            {"cap": cap, "cut": sum(one > cap for one in turns), "successes": len(turns)} for cap in caps
        ],
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
    kinds = {kind: {"times": n, "false_positives": needless[kind]} for kind, n in times.items()}
    total, false = sum(times.values()), sum(needless.values())
    return {"finishes": total, "false_positives": false, "rate": round(false / total, 4), "kinds": kinds}


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
            {"replies of words only": sum(talk), "a limit although the work was done": sum(short)},
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
