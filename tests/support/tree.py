"""A tree of five machines, for processes that are killed: two delegates of one reply, each with one below it.

Each delegate acts, calls one of its own, which acts and asks, then acts again and asks. An effect is a line
in a file, and so is a reply of a model.
"""

import re
import threading
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from signoff import Limits, build_graph, delegate
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from tests.kills.harness import Moments

TOKENS = 100
"""Of each reply."""
EFFECTS = ["left 1", "left deep", "left 2", "right 1", "right deep", "right 2"]
QUESTIONS = {("left",), ("left", "deep"), ("right",), ("right", "deep")}


def by_turn(said: Path, *steps: Any) -> Any:
    """A script by the number of replies before; a step may be made of the task. said: where each is noted."""

    def script(messages: list[BaseMessage]) -> Any:
        Moments.passed()
        with said.open("a") as file:
            file.write("one\n")
        Moments.passed()
        found = step(messages)
        return reply(*(found if isinstance(found, list) else [found]), usage=(TOKENS - 10, 10))

    def step(messages: list[BaseMessage]) -> Any:
        at = sum(map(is_reply, messages))
        task = next(message.text for message in messages if isinstance(message, HumanMessage))
        if at >= len(steps):
            return call("finish_task", summary=f"Done. Outcome unknown: {unknown(messages)}")
        return steps[at](task) if callable(steps[at]) else steps[at]

    return ScriptedModel(script)


def unknown(messages: list[BaseMessage]) -> int:
    """How many calls were told as unknown, here and, as its delegates say, below."""
    texts = [message.text for message in messages if isinstance(message, ToolMessage)]
    below = sum(int(number) for text in texts for number in re.findall(r"Outcome unknown: (\d+)", text))
    return below + sum(text.startswith("Outcome unknown: act") for text in texts)


def graph_of(storage: Any, ledger: Path) -> Any:
    lock = threading.Lock()

    @tool
    def act(what: str) -> str:
        """Act."""
        Moments.passed()
        with lock, ledger.open("a") as file:
            file.write(f"{what}\n")
            file.flush()
        Moments.passed()
        return f"did {what}"

    def acting(what: str) -> Any:
        # A provider that repeats its ids: the journal must tell the machines apart.
        return lambda task: call("act", what=f"{task} {what}", id="call_0")

    ask = call("ask_user", question="Go on?", id="call_1")
    said, own = ledger.with_name("replies"), Limits(tokens=100_000)
    below = build_graph(by_turn(said, acting("deep"), ask), [act])
    deep = delegate("deep", below, description="Goes deeper.")
    steps = (acting("1"), lambda task: call("deep", task=task, id="call_2"), acting("2"), ask)
    child = build_graph(by_turn(said, *steps), [act, deep], limits=own)
    both = [delegate(side, child, description="Works.") for side in ("left", "right")]
    calls = [call(side, task=side, id="call_0") for side in ("left", "right")]
    limits = Limits(tree_turns=60, tool_calls=60, tokens=100_000)
    return build_graph(by_turn(said, calls), both, storage=storage, limits=limits)
