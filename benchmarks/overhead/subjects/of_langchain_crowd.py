"""Many runs at once: LangChain's `create_agent`, bare and with the middleware of `langchain.py`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from langchain.agents import create_agent

sys.path.insert(0, str(Path(__file__).parent))
from crowds import MOST_TURNS, Waiting, at_once, step_tool
from features import equal_features
from scripted import MOST_STEPS, TASK


def _agent(
    turns: int, database: str | None, *, runs: int, seconds: float, is_async: bool = True, equal: bool
) -> Callable[[], dict[str, Any]]:
    model = Waiting(turns=turns, seconds=seconds)
    middleware = equal_features(model, MOST_TURNS) if equal else ()
    agent = create_agent(model, [step_tool(0.0, is_async=is_async)], middleware=middleware)

    async def one(number: int) -> bool:
        result = await agent.ainvoke(TASK, {"recursion_limit": MOST_STEPS})
        return len(result["messages"]) == 2 * turns

    return at_once((one, runs))


SUBJECTS = {
    "create_agent": partial(_agent, equal=False),
    "create_agent, equal features": partial(_agent, equal=True),
}
