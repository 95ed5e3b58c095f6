"""LangChain's `create_agent` with a real client of OpenAI's API: called, and listened to."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from langchain.agents import create_agent

sys.path.insert(0, str(Path(__file__).parent))
from clients import model_of
from scripted import MOST_STEPS, TASK, counted, step


def _agent(turns: int, database: str | None, *, url: str, chunks: int, listens: bool) -> Callable[[], int]:
    agent = create_agent(model_of(url, chunks, turns), [step])

    def run() -> None:
        if listens:
            heard = sum(
                1 for _ in agent.stream(TASK, {"recursion_limit": MOST_STEPS}, stream_mode="messages")
            )
            assert heard > turns * chunks, heard
        else:
            agent.invoke(TASK, {"recursion_limit": MOST_STEPS})

    return lambda: counted(run)


SUBJECTS = {
    "create_agent": partial(_agent, listens=False),
    "create_agent, listened to": partial(_agent, listens=True),
}
