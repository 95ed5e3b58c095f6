"""A session of deepagents, which summarises when 85 % of the model's context are full."""

import sys
from collections.abc import Callable
from pathlib import Path

from deepagents import create_deep_agent

sys.path.insert(0, str(Path(__file__).parent))
from sessions import SYSTEM
from sessions_of_langchain import look, model_of, session

FULL = 0.85


def deep_agent(turns: int, database: str | None, *, url: str, budget: int | None) -> Callable[[], int]:
    model = model_of(url, None if budget is None else round(budget / FULL))
    return session(create_deep_agent(model, [look], system_prompt=SYSTEM))


SUBJECTS = {"deepagents": deep_agent}
