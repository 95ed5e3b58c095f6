"""A model for programs of their own: the first word of a task says what it does, the last one where.

It knows no position but the history, so that it serves a thread in any process.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from signoff.models import ScriptedModel, call

ASK = call("ask_user", question="Which port?", options=["8080", "9090"])


def finish(summary: str, **more: Any) -> Any:
    return call("finish_task", summary=summary, **more)


def echo(text: str, file: str) -> Any:
    return call("run_shell", command=f"echo {text} >> {file}; cat {file}")


def when_there_is(file: str, step: Any) -> Any:
    """A reply that takes until the file exists."""

    def wait(_: object) -> Any:
        while not Path(file).exists():
            time.sleep(0.02)
        return step

    return wait


def if_there_is(file: str, step: Any) -> Any:
    """A model that fails as long as the file does not exist."""

    def read(_: object) -> Any:
        Path(file).read_text()
        return step

    return read


def write_answer(file: str) -> Any:
    return lambda messages: call("write_file", path=file, content=messages[-1].text)


def steps_of_tasks(file: str) -> dict[str, list[Any]]:
    lines = [call("write_file", path=f"{file}.{at}", content="x") for at in range(4)]
    return {
        "run": [echo("ran", file), finish("It ran."), finish("Again.")],
        "two": [[echo("one", file), echo("two", file)], finish("Both.")],
        "ask": [ASK, write_answer(file), finish("The port is set."), finish("Again.")],
        "later": [finish("At once."), ASK, write_answer(file), finish("The port is set.")],
        "confirm": [finish(text, requires_user_confirmation=True) for text in ("Half.", "All of it.")],
        "write": [*lines, finish("Written.")],
        "slow": [lines[0], when_there_is(f"{file}.go", lines[1]), finish("Written.")],
        "fail": [if_there_is(file, finish("Better."))],
        "phases": [
            finish("Read it", completion_percentage=40, next_phase="Write it"),
            finish("Done."),
        ],
        "number": [call("read_file", path="x", first_line=float("nan")), finish("Odd.")],
        "book": [call("book", forms=["day"]), finish("Booked.")],
    }


def step(messages: Sequence[BaseMessage]) -> Any:
    task = next(message.text for message in messages if message.type == "human")
    said = sum(bool(getattr(message, "tool_calls", ())) for message in messages)
    kind, *names = task.split()
    if kind == "use":
        return [*(call(name, name="x") for name in names), finish("Used.")][said]
    return steps_of_tasks(names[-1] if names else "")[kind][said]


model = ScriptedModel(step)
