"""Compares the current tasks of two threads: turns, usage and outcome."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from signoff.graph.build import Storage
from signoff.graph.errors import ThreadError, quote_id
from signoff.graph.foreign import checked_thread_id
from signoff.graph.history.replies import Reply
from signoff.nodes.model.prices import prices_by_name
from signoff.session.history import Turn, chapters
from signoff.session.status import Condition, ThreadStatus, deps_of, look, readable, reading_graph

_TEXT = 200


@dataclass(frozen=True)
class TaskFigures:
    """The current task of a thread.

    status: the status of its outcome (`success`, `limit`, `error`), else `waiting`, `stopped` or `running`.
    reason, claim, verified, summary: from its outcome. turns: the text and calls of each turn. calls: work
    calls that ran. tokens: input and output. cost: in dollars; None if no price of its model is known.
    seconds: in model calls and tools. models: the number of replies of each model.
    """

    thread_id: str
    status: str
    reason: str | None
    claim: str | None
    verified: str | None
    summary: str | None
    turns: tuple[str, ...]
    calls: int
    tokens: int
    cost: float | None
    seconds: float
    models: Mapping[str, int]


@dataclass(frozen=True)
class Comparison:
    """Two tasks. parts: the number of the first turn in which they differ; None if none does."""

    left: TaskFigures
    right: TaskFigures

    @property
    def parts(self) -> int | None:
        pairs = zip_longest(self.left.turns, self.right.turns)
        return next((turn for turn, (one, other) in enumerate(pairs, 1) if one != other), None)


def compare(storage: Storage, left: str, right: str) -> Comparison:
    """The current tasks of two threads of one storage.

    Raises ThreadError for an unknown thread, StorageError for one that cannot be read.
    """
    return Comparison(figures_of(storage, left), figures_of(storage, right))


def figures_of(storage: Storage, thread_id: str) -> TaskFigures:
    """The figures of the thread's current task. Raises as `compare`."""
    graph = reading_graph(storage)
    # Checked first: else a run that ends in between would look as if it had been stopped.
    asked = getattr(storage.checkpointer, "is_running", None)
    running = asked is not None and asked(checked_thread_id(thread_id))
    found = look(graph, thread_id)
    if found.condition is Condition.UNKNOWN:
        raise ThreadError(f"There is no thread {quote_id(thread_id)}; `signoff threads` lists them.")
    with readable(thread_id):
        history = chapters(found.values, deps_of(graph).toolbox)
        return _figures(found, history[-1].turns if history else (), running)


def _figures(found: ThreadStatus, turns: tuple[Turn, ...], running: bool) -> TaskFigures:
    task, outcome = found.task, found.outcome or {}
    models: dict[str, int] = {}
    for reply in task.replies:
        if name := _model_of(reply):
            models[name] = models.get(name, 0) + 1
    prices = [prices_by_name(name) for name in models]
    known = prices[0] if len(prices) == 1 else None
    return TaskFigures(
        thread_id=found.thread_id,
        status="running" if running else str(outcome.get("status") or found.condition),
        reason=outcome.get("reason"),
        claim=outcome.get("claim"),
        verified=outcome.get("verified"),
        summary=outcome.get("summary"),
        turns=tuple(map(_in_words, turns)),
        calls=task.used.tool_calls,
        tokens=task.used.total_tokens,
        cost=None if known is None else round(known.cost(task.used), 6),
        seconds=round(task.used.seconds, 3),
        models=models,
    )


def _model_of(reply: Reply) -> str:
    return str(reply.message.response_metadata.get("model_name") or "")


def _in_words(turn: Turn) -> str:
    """The calls of a turn with their arguments; the beginning of its text if there are none."""
    history = [f"{one.name}({', '.join(f'{k}={v!r}' for k, v in one.args.items())})" for one in turn.calls]
    return "; ".join(history) or " ".join(turn.text.split())[:_TEXT]
