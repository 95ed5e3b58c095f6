"""A session of pydantic-ai, which summarises nothing by itself."""

import sys
from collections.abc import Callable
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

sys.path.insert(0, str(Path(__file__).parent))
import sessions


def agent(turns: int, database: str | None, *, url: str, budget: int | None) -> Callable[[], int]:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none"))
    made = Agent(model, system_prompt=sessions.SYSTEM, tools=[sessions.look])

    def run() -> int:
        sessions.ran[0] = 0
        made.run_sync(sessions.TASK, usage_limits=UsageLimits(request_limit=None))
        return sessions.ran[0]

    return run


SUBJECTS = {"pydantic-ai": agent}
