"""A session of OpenAI Agents SDK, which summarises nothing by itself."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

sys.path.insert(0, str(Path(__file__).parent))
import sessions

set_tracing_disabled(True)


def agents(turns: int, database: str | None, *, url: str, budget: int | None) -> Callable[[], int]:
    model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=url, api_key="none"))
    agent = Agent("bench", instructions=sessions.SYSTEM, model=model, tools=[function_tool(sessions.look)])

    def run() -> int:
        sessions.ran[0] = 0
        config = RunConfig(tracing_disabled=True)
        asyncio.run(Runner.run(agent, sessions.TASK, max_turns=turns + 1, run_config=config))
        return sessions.ran[0]

    return run


SUBJECTS = {"OpenAI Agents": agents}
