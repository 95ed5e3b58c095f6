"""A session of LangChain's `create_agent`: as it is, and with its SummarizationMiddleware."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware

sys.path.insert(0, str(Path(__file__).parent))
from sessions import SYSTEM
from sessions_of_langchain import look, model_of, session


def bare(turns: int, database: str | None, *, url: str, budget: int | None) -> Callable[[], int]:
    return session(create_agent(model_of(url), [look], system_prompt=SYSTEM))


def summarised(
    turns: int, database: str | None, *, url: str, budget: int, **options: Any
) -> Callable[[], int]:
    """By default the middleware gives a model the last 4,000 tokens of the old messages from a user's message
    on, which in one long task is nothing: no summary is written, and the old turns are lost."""
    model = model_of(url)
    summarises = SummarizationMiddleware(model=model, trigger=("tokens", budget), **options)
    return session(create_agent(model, [look], system_prompt=SYSTEM, middleware=[summarises]))


SUBJECTS: dict[str, Callable[..., Callable[[], int]]] = {
    "create_agent": bare,
    "create_agent, SummarizationMiddleware": summarised,
    "create_agent, SummarizationMiddleware, a summary of all": partial(
        summarised, trim_tokens_to_summarize=None
    ),
}
