"""A model for `langgraph dev` and whoever shares its threads: the first word of a task says what it does.

It knows no position but the history, so that it serves a thread in any process.
"""

import os
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from signoff.models import ScriptedModel, call

TURNS = 12
QUESTION = "Which port?"


def finish(summary: str) -> Any:
    return call("finish_task", summary=summary)


def step(messages: Sequence[BaseMessage]) -> Any:
    task = next(message.text for message in messages if message.type == "human").split()
    turn = sum(bool(getattr(message, "tool_calls", ())) for message in messages) + 1
    results = [message.text for message in messages if message.type == "tool"]
    match task[0]:
        case "ask":
            return finish(f"The port is {results[-1]}.") if results else call("ask_user", question=QUESTION)
        case "prompt":
            return finish(messages[0].text[:40])
        case "read":
            return finish("Read it.") if results else call("read_file", path=task[1])
        case "work":
            return work(task[1], turn)
    return finish("Done.")


def work(file: str, turn: int) -> Any:
    """A line for each turn. Run twice, an edit would leave a line twice."""
    if turn == 1:
        return call("write_file", path=file, content="end")
    if turn == TURNS:
        return finish("Wrote all lines.")
    return call("edit_file", path=file, old="end", new=f"line {turn}\nend")


model = ScriptedModel(step, delay=float(os.environ.get("DELAY", "0")))
