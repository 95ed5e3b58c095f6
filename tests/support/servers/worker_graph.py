"""A graph for workers that are processes: its tool writes a line and waits for a file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from signoff import Graph, build_graph
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage


def wait(file: str) -> str:
    """Write a line, and wait for a file."""
    with Path(file).open("a") as lines:
        lines.write("begun\n")
    while not Path(f"{file}.go").exists():
        time.sleep(0.02)
    return "worked"


def step(messages: Sequence[BaseMessage]) -> Any:
    if any(message.type == "tool" for message in messages):
        return call("finish_task", summary="Done.", outcome="partial")
    return call("wait", file=next(message.text for message in messages if message.type == "human"))


def graph(storage: PostgresStorage) -> Graph:
    return build_graph(ScriptedModel(step), [wait], storage=storage)
