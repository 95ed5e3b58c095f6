"""deepagents with a real client of OpenAI's API: called, and listened to."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent

sys.path.insert(0, str(Path(__file__).parent))
from clients import called, listened, model_of
from scripted import step


def is_called(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], Any]:
    return called(create_deep_agent(model_of(url, chunks, turns), [step]))


def is_listened_to(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], Any]:
    return listened(create_deep_agent(model_of(url, chunks, turns), [step]), turns * chunks)


SUBJECTS = {"deepagents": is_called, "deepagents, listened to": is_listened_to}
