"""LangChain's `create_agent` with a real client of OpenAI's API: called, and listened to."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent

sys.path.insert(0, str(Path(__file__).parent))
from clients import called, listened, model_of
from scripted import step


def is_called(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], Any]:
    return called(create_agent(model_of(url, chunks, turns), [step]))


def is_listened_to(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], Any]:
    return listened(create_agent(model_of(url, chunks, turns), [step]), turns * chunks)


SUBJECTS = {"create_agent": is_called, "create_agent, listened to": is_listened_to}
