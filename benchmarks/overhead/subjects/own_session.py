"""A session of Signoff: old turns summarised by the model, or by lines."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

sys.path.insert(0, str(Path(__file__).parent))
import sessions  # type: ignore[import-not-found]  # it lies beside this file

from signoff import Limits, build_graph

look = tool(sessions.look)
look.metadata = {"kind": "read"}


def _signoff(
    turns: int, database: str | None, *, url: str, budget: int | None, compaction: Any
) -> Callable[[], int]:
    """With a checkpointer, as a session has one: so the model is told that questions may have deadlines."""
    given: dict[str, Any] = {} if budget is None else {"prompt_tokens": budget}
    graph = build_graph(
        ChatOpenAI(model="m", base_url=url, api_key="none", stream_usage=True), [look],  # type: ignore[arg-type]  # text is taken
        system_prompt=sessions.SYSTEM, limits=Limits(turns=2 * turns),
        policy={"compaction": compaction, **given}, checkpointer=InMemorySaver(),
    )  # fmt: skip

    def run() -> int:
        sessions.ran[0] = 0
        config: Any = {"configurable": {"thread_id": "t"}}
        outcome = graph.invoke({"messages": [("user", sessions.TASK)]}, config)["outcome"]
        assert (outcome["status"], outcome["turns"]) == ("success", turns), outcome
        return int(sessions.ran[0])

    return run


SUBJECTS: dict[str, Callable[..., Callable[[], int]]] = {
    "signoff": partial(_signoff, compaction="model"),
    "signoff, summary by lines": partial(_signoff, compaction="lines"),
}
