"""A graph for workers that are processes: a tool ends the process, or writes a line and waits for a file."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from signoff import Graph, build_graph
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage


def die(file: str) -> str:
    """End the process."""
    os._exit(9)


def wait(file: str) -> str:
    """Write a line, and wait for a file."""
    with Path(file).open("a") as lines:
        lines.write("begun\n")
    while not Path(f"{file}.go").exists():
        time.sleep(0.02)
    return "worked"


def step(messages: Sequence[BaseMessage]) -> Any:
    kind, file = next(message.text for message in messages if message.type == "human").split()
    if kind == "wait" and any(message.type == "tool" for message in messages):
        return call("finish_task", summary="Done.", outcome="partial")
    return call(kind, file=file)


def graph(storage: PostgresStorage) -> Graph:
    return build_graph(ScriptedModel(step), [die, wait], storage=storage)
