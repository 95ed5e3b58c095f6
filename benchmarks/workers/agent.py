"""The graph that the workers run: steps with one effect each, and a model that checks before it repeats one.

It is what a careful user would write: every effect has its own idempotency key, and a read-only tool says
whether it took place. After a crash, the journal reports "outcome unknown" to the model; the model then
checks, and repeats the step only if it is missing.
"""

import os
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool

from benchmarks.workers.record import Record
from signoff import Graph, Limits, Storage, build_graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call

RECORD = "SIGNOFF_BENCH_RECORD"
_TASK = re.compile(r"Book (\d+) steps for (\S+)\.")
_THERE = re.compile(r"Step (\d+) is booked")
_LONGEST_SECONDS = 0.08


def task(account: str, steps: int) -> str:
    """Returns the task of a thread."""
    return f"Book {steps} steps for {account}."


def summary(account: str, steps: int) -> str:
    """Returns the model's final message."""
    return f"All {steps} steps of {account} are booked."


def script(messages: Sequence[BaseMessage]) -> Any:
    """Returns the next reply from the history alone, so that it is the same on every worker."""
    asked = _TASK.search(next(message.text for message in messages if isinstance(message, HumanMessage)))
    assert asked is not None, "the task is one of `task`"
    steps, account = int(asked[1]), asked[2]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    booked = {int(found[1]) for result in results if (found := _THERE.match(result.text))}
    step = next((number for number in range(1, steps + 1) if number not in booked), None)
    if step is None:
        return call("finish_task", summary=summary(account, steps))
    if results and marks(results[-1]).get("unknown"):
        return call("look", account=account, step=step)
    return call("book", account=account, step=step)


def graph(storage: Storage) -> Graph:
    """Returns the graph on the storage of the workers."""
    record = Record(Path(os.environ[RECORD]))

    def book(account: str, step: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Book a step for an account."""
        record.note("called", account, step, tool_call_id)
        # A kill may come before or after the effect.
        time.sleep(random.uniform(0, _LONGEST_SECONDS))
        new = record.book(account, step, tool_call_id)
        time.sleep(random.uniform(0, _LONGEST_SECONDS))
        return f"Step {step} is booked{'' if new else ', and was before'}."

    def look(account: str, step: int) -> str:
        """Look whether a step is booked."""
        return f"Step {step} is {'booked' if record.has(account, step) else 'missing'}."

    reads = StructuredTool.from_function(look, metadata={"kind": "read"})
    tools = [StructuredTool.from_function(book), reads]
    return build_graph(ScriptedModel(script), tools, limits=Limits(turns=200), storage=storage)
