"""OpenAI Agents SDK with a real client of OpenAI's API: called, and listened to."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from openai import AsyncOpenAI

sys.path.insert(0, str(Path(__file__).parent))
from listening import Ear
from of_openai_agents import ran, step

UNTRACED = RunConfig(tracing_disabled=True)


def _agent(turns: int, url: str, chunks: int) -> Any:
    client = AsyncOpenAI(base_url=f"{url}/{chunks}/{turns}/v1", api_key="none")
    return Agent("bench", model=OpenAIChatCompletionsModel("m", client), tools=[step])


def is_called(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], int]:
    agent = _agent(turns, url, chunks)

    def run() -> int:
        ran[0] = 0
        asyncio.run(Runner.run(agent, "go", max_turns=turns + 1, run_config=UNTRACED))
        return ran[0]

    return run


def is_listened_to(
    turns: int, database: str | None, *, url: str, chunks: int
) -> Callable[[], dict[str, float]]:
    agent = _agent(turns, url, chunks)

    async def listen(ear: Ear) -> None:
        running = Runner.run_streamed(agent, "go", max_turns=turns + 1, run_config=UNTRACED)
        async for event in running.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                ear.hear(event.data.delta)

    def run() -> dict[str, float]:
        ran[0], ear = 0, Ear()
        asyncio.run(listen(ear))
        return ear.told(ran[0], turns * chunks)

    return run


SUBJECTS = {"OpenAI Agents": is_called, "OpenAI Agents, listened to": is_listened_to}
