"""pydantic-ai with a real client of OpenAI's API: called, and listened to."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

sys.path.insert(0, str(Path(__file__).parent))
from listening import Ear
from of_pydantic_ai import ran, step

NO_LIMITS = UsageLimits(request_limit=None)


def _agent(turns: int, url: str, chunks: int) -> Any:
    provider = OpenAIProvider(base_url=f"{url}/{chunks}/{turns}/v1", api_key="none")
    return Agent(OpenAIChatModel("m", provider=provider), tools=[step])


def is_called(turns: int, database: str | None, *, url: str, chunks: int) -> Callable[[], int]:
    agent = _agent(turns, url, chunks)

    def run() -> int:
        ran[0] = 0
        agent.run_sync("go", usage_limits=NO_LIMITS)
        return ran[0]

    return run


def _words(event: Any) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def is_listened_to(
    turns: int, database: str | None, *, url: str, chunks: int
) -> Callable[[], dict[str, float]]:
    agent = _agent(turns, url, chunks)

    async def listen(ear: Ear) -> None:
        async with agent.run_stream_events("go", usage_limits=NO_LIMITS) as events:
            async for event in events:
                ear.hear(_words(event))

    def run() -> dict[str, float]:
        ran[0], ear = 0, Ear()
        asyncio.run(listen(ear))
        return ear.told(ran[0], turns * chunks)

    return run


SUBJECTS = {"pydantic-ai": is_called, "pydantic-ai, listened to": is_listened_to}
