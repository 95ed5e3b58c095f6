"""pydantic-ai: `Agent.run_sync` over a `FunctionModel`. It keeps no history on disk by itself."""

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

ran = [0]


def step(n: int) -> str:
    """One step."""
    ran[0] += 1
    return f"ok {n}"


def agent(turns: int, database: str | None) -> Callable[[], int]:
    said = [0]

    def model(messages: list[Any], info: Any) -> ModelResponse:
        at, said[0] = said[0], said[0] + 1
        if at < turns - 1:
            return ModelResponse(parts=[ToolCallPart("step", {"n": at}, tool_call_id=f"call_{at}")])
        return ModelResponse(parts=[TextPart("Done.")])

    made = Agent(FunctionModel(model), tools=[step])

    def run() -> int:
        ran[0] = 0
        made.run_sync("go", usage_limits=UsageLimits(request_limit=None))
        return ran[0]

    return run


SUBJECTS = {"pydantic-ai": agent}
