"""The middleware of LangChain's `create_agent` that comes nearest to Signoff's features."""

from typing import Any

from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)

# No summary is made in any subject: the same history for all.
PROMPT_TOKENS = 100_000_000


def equal_features(model: Any, most_turns: int) -> tuple[Any, ...]:
    """A limit of model calls and of tool calls, summaries, approvals."""
    return (
        ModelCallLimitMiddleware(run_limit=most_turns),
        ToolCallLimitMiddleware(run_limit=most_turns),
        SummarizationMiddleware(model=model, trigger=("tokens", PROMPT_TOKENS)),
        HumanInTheLoopMiddleware(interrupt_on={"pay": True}),
    )
