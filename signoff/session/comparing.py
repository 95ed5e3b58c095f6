"""Compares the current tasks of two threads: turns, usage and outcome."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from signoff.graph.build import Storage
from signoff.graph.errors import ThreadError, quote_id
from signoff.graph.foreign import checked_thread_id
from signoff.graph.history.replies import Reply
from signoff.graph.history.task import Task
from signoff.nodes.model.prices import prices_by_name
from signoff.session.below import ChildThread, children
from signoff.session.history import Turn, chapters
from signoff.session.status import Condition, ThreadStatus, deps_of, look, readable, reading_graph

_TEXT = 200


@dataclass(frozen=True)
class TaskFigures:
    """The current task of a thread.

    status: the status of its outcome (`success`, `limit`, `error`), else `waiting`, `stopped` or `running`.
    reason, claim, verified, summary: from its outcome. turns: the text and calls of each turn. calls: work
    calls that ran. tokens: input and output. cost: in dollars; None if no price of its model is known.
    seconds: in model calls and tools. models: the number of replies of each model. below: by turn, the text
    and calls of the delegates that it called, each with the path to the delegate. tree: the figures of the
    task and all its delegates; None if it called none.
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
    below: tuple[tuple[str, ...], ...] = ()
    tree: "TreeFigures | None" = None


@dataclass(frozen=True)
class TreeFigures:
    """What a task and all delegates below it took: see `TaskFigures`. delegates: the calls of delegates."""

    delegates: int
    turns: int
    calls: int
    tokens: int
    cost: float | None
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Two tasks. parts: the number of the first turn in which they differ; None if none does."""

    left: TaskFigures
    right: TaskFigures

    @property
    def parts(self) -> int | None:
        sides = (zip_longest(one.turns, one.below) for one in (self.left, self.right))
        pairs = zip_longest(*sides)
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
        below = children(graph, thread_id, found.values)
        return _figures(found, history[-1].turns if history else (), below, running)


def _figures(
    found: ThreadStatus, turns: tuple[Turn, ...], below: Mapping[str, ChildThread], running: bool
) -> TaskFigures:
    task, outcome = found.task, found.outcome or {}
    models = _models_of(task)
    called = [[below[call.id] for call in reply.calls if call.id in below] for reply in task.replies]
    cost = _cost(task)
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
        cost=None if cost is None else round(cost, 6),
        seconds=round(task.used.seconds, 3),
        models=models,
        below=tuple(tuple(line for one in each for line in _lines(one)) for each in called),
        tree=_tree(task, [one for each in called for child in each for one in _with_all_below(child)]),
    )


def _with_all_below(child: ChildThread) -> list[ChildThread]:
    return [child, *(one for below in child.below.values() for one in _with_all_below(below))]


def _lines(child: ChildThread) -> Iterator[str]:
    """The turns of a delegate, and of those below it, each with the way to it."""
    for turn in child.chapters[-1].turns if child.chapters else ():
        yield f"{' / '.join(child.path)}: {_in_words(turn)}"
        for one in turn.calls:
            if one.call_id in child.below:
                yield from _lines(child.below[one.call_id])


def _tree(task: Task, below: Sequence[ChildThread]) -> TreeFigures | None:
    if not below:
        return None
    tasks = [task, *(one.status.task for one in below)]
    costs = [_cost(one) for one in tasks if one.replies]
    known = [one for one in costs if one is not None]
    return TreeFigures(
        delegates=len(below),
        turns=sum(len(one.replies) for one in tasks),
        calls=sum(one.used.tool_calls for one in tasks),
        tokens=sum(one.used.total_tokens for one in tasks),
        cost=round(sum(known), 6) if len(known) == len(costs) else None,
        seconds=round(sum(one.used.seconds for one in tasks), 3),
    )


def _models_of(task: Task) -> dict[str, int]:
    return dict(Counter(name for reply in task.replies if (name := _model_of(reply))))


def _cost(task: Task) -> float | None:
    """In dollars; None where no price is known, or several models have answered."""
    prices = [prices_by_name(name) for name in _models_of(task)]
    known = prices[0] if len(prices) == 1 else None
    return None if known is None else known.cost(task.used)


def _model_of(reply: Reply) -> str:
    return str(reply.message.response_metadata.get("model_name") or "")


def _in_words(turn: Turn) -> str:
    """The calls of a turn with their arguments; the beginning of its text if there are none."""
    history = [f"{one.name}({', '.join(f'{k}={v!r}' for k, v in one.args.items())})" for one in turn.calls]
    return "; ".join(history) or " ".join(turn.text.split())[:_TEXT]
