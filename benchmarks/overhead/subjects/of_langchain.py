"""LangChain's `create_agent`, bare and with the middleware that comes nearest to Signoff's features."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.sqlite import SqliteSaver

sys.path.insert(0, str(Path(__file__).parent))
from features import equal_features
from scripted import MOST_STEPS, TASK, Scripted, counted, step

CONFIG: dict[str, Any] = {"recursion_limit": MOST_STEPS, "configurable": {"thread_id": "t"}}


def _agent(turns: int, database: str | None, *, equal: bool) -> Callable[[], int]:
    model, stack = Scripted(turns=turns), ExitStack()
    saver = stack.enter_context(SqliteSaver.from_conn_string(database)) if database else None
    middleware = equal_features(model, turns + 1) if equal else ()
    agent = create_agent(model, [step], checkpointer=saver, middleware=middleware)

    def run() -> None:
        with stack:
            agent.invoke(TASK, CONFIG, **({"durability": "sync"} if saver else {}))

    return lambda: counted(run)


SUBJECTS = {
    "create_agent": lambda turns, database: _agent(turns, database, equal=False),
    "create_agent, equal features": lambda turns, database: _agent(turns, database, equal=True),
}
