"""What the sessions with LangChain's agents share: the client, the tool, and the run."""

from collections.abc import Callable
from typing import Any

import sessions
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from scripted import MOST_STEPS

look = tool(sessions.look)


def model_of(url: str, context: int | None = None) -> Any:
    """context: how many tokens the model takes, where the agent goes by that."""
    given: dict[str, Any] = {} if context is None else {"profile": {"max_input_tokens": context}}
    return ChatOpenAI(model="m", base_url=url, api_key="none", **given)


def session(agent: Any) -> Callable[[], int]:
    """A run of the task."""

    def run() -> int:
        sessions.ran[0] = 0
        agent.invoke({"messages": [("user", sessions.TASK)]}, {"recursion_limit": MOST_STEPS})
        return int(sessions.ran[0])

    return run
