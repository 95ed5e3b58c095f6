"""deepagents: `create_deep_agent` with its standard middleware."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langgraph.checkpoint.sqlite import SqliteSaver

sys.path.insert(0, str(Path(__file__).parent))
from scripted import MOST_STEPS, TASK, Scripted, counted, step

CONFIG: dict[str, Any] = {"recursion_limit": MOST_STEPS, "configurable": {"thread_id": "t"}}


def deep_agent(turns: int, database: str | None) -> Callable[[], int]:
    stack = ExitStack()
    saver = stack.enter_context(SqliteSaver.from_conn_string(database)) if database else None
    agent = create_deep_agent(Scripted(turns=turns), [step], checkpointer=saver)

    def run() -> None:
        with stack:
            agent.invoke(TASK, CONFIG, **({"durability": "sync"} if saver else {}))

    return lambda: counted(run)


SUBJECTS = {"deepagents": deep_agent}
