"""A fleet of scripted runs whose scripts dictate how each ends."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command

from signoff import Graph, Limits, Storage, build_graph, go_on
from signoff.graph.messages import is_genuine
from signoff.models import ScriptedModel, call, reply
from signoff.records import rate

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
    went_on: int = 0
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
# How a run ends, and how many of a hundred do so.
_KINDS = {
    "done": 50, "partial": 6, "blocked": 4, "impossible": 3, "turns": 8, "extended": 9, "talk_turns": 6,
    "error": 5, "retried": 5, "filter": 4,
}  # fmt: skip


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
    kind = rng.choices([*_KINDS], [*_KINDS.values()])[0]
    steps, acts, told = _story(kind, "".join(rng.sample("wwwwkttseq", rng.randint(0, 5))), rng)
    _dictate(told, steps)
    if rng.random() < 0.15:
        told.rating = rng.randint(1, 5)
    played = [_step(letter, marker, n, told) for n, letter in enumerate(steps)]
    return Plan(thread, marker, played, ["answer"] * steps.count("q") + acts, told)


def _story(kind: str, before: str, rng: random.Random) -> tuple[str, list[str], Told]:
    """The letters of a plan that ends so, what is done after its end, and what is told of that end.

    before: what the model does first, where that cannot change how it ends.
    """
    match kind:
        case "turns":
            return "w" * TURNS, [], Told("limit", "turns", None)
        case "extended":
            more = rng.choice(["F", "kF", "wF", "F"])
            return "w" * TURNS + more, ["extend"], Told(extended=1, cut_short=int("w" not in more))
        case "talk_turns":
            return "w" * rng.randint(0, 2) + "t" * 5, [], Told("limit", "talk_turns", None)
        case "error":
            return before + "x", [], Told("error", "model_error", None)
        case "retried":
            return before + "xF", ["retry"], Told()
        case "filter":
            return before + "cc", [], Told("error", "content_filter", None)
    return before + "F", [], Told(claim=kind)


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
    after_changes = replies[max(replies.rfind("w"), replies.rfind("s")) + 1 :]
    told.went_on = sum(after_changes.count(letter) for letter in "te") if told.accepted else 0
    if len(replies) >= TURNS:
        _remind(told, "near_limit", replies[REMINDED_AT])


def _remind(told: Told, kind: str, following: str) -> None:
    told.nudges[kind] += 1
    told.back[kind] += bool(following) and following in _BACK


def _step(letter: str, marker: str, number: int, told: Told) -> Any:
    if letter == "x":
        return RuntimeError("the provider is down")
    if letter == "c":
        return reply("I cannot.", finish_reason="content_filter", usage=USAGE)
    if letter == "F":
        return reply(call("finish_task", summary=f"All of {marker}.", outcome=told.claim), usage=USAGE)
    return reply(*_CALLS[letter](marker, number), usage=USAGE)


_ACTS: dict[str, Command[Any]] = {
    "answer": Command(resume="blue"),
    "extend": go_on(turns=5),
    "retry": go_on(),
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
                self.graph.invoke(_ACTS[act], config)
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
