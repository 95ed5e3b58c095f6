"""LangChain's `create_agent` with Signoff's guards."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver

sys.path.insert(0, str(Path(__file__).parent))
from scripted import (  # type: ignore[import-not-found]  # it lies beside this file, wherever it runs
    MOST_STEPS,
    TASK,
    Scripted,
    counted,
    step,
)

from signoff.guards import Guards

CONFIG: RunnableConfig = {"recursion_limit": MOST_STEPS, "configurable": {"thread_id": "t"}}


def guards(turns: int, database: str | None) -> Callable[[], int]:
    model = Scripted(turns=turns, last={"name": "finish_task", "args": {"summary": "Done."}})
    stack = ExitStack()
    # As for `create_agent` alone, so no journal: what the rules cost is measured.
    saver = stack.enter_context(SqliteSaver.from_conn_string(database)) if database else None
    agent = create_agent(model, [step], checkpointer=saver, middleware=[Guards({"turns": turns})])

    options: Any = {"durability": "sync"} if saver else {}

    def run() -> None:
        with stack:
            found = agent.invoke(TASK, CONFIG, **options)
            assert found["outcome"]["status"] == "success", found["outcome"]

    return lambda: counted(run)


SUBJECTS = {"create_agent with Guards": guards}
