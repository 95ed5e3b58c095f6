"""Records a task that has ended: its outcome, and beside it the figures for the analytics."""

import time
from collections.abc import Sequence
from typing import Any, cast

from langgraph.store.base import GetOp, PutOp

from signoff.graph.figures import Figures, figures
from signoff.graph.outcome import Outcome
from signoff.graph.task import Task
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Store
from signoff.nodes.record import FIGURES, place, record


def measured(task: Task, outcome: Outcome, nudges: Sequence[tuple[str, int]], run: Run) -> Part[None]:
    """A part of a node: records `outcome` with the figures of `task`. The same task is recorded once.

    nudges: the reminders of the task, each with the number of replies before it.
    """
    if run.store is None:
        return
    where = place(FIGURES, outcome.thread_id, outcome.task)
    (known,) = yield Store([GetOp(*where)])
    found = figures(
        task,
        outcome,
        nudges,
        texts=run.kit.texts,
        changes=run.kit.toolbox.is_effect,
        earlier=cast(Figures, known.value) if known else None,
        at=time.time(),
    )
    yield Store([record(outcome), PutOp(*where, cast(dict[str, Any], found))])
