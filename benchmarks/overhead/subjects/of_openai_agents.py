"""OpenAI Agents SDK: `Runner.run_sync`, with its SQLite session where there is a database."""

import asyncio
from collections.abc import Callable
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)
ran = [0]


@function_tool
def step(n: int) -> str:
    """One step."""
    ran[0] += 1
    return f"ok {n}"


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        self.turns, self.said = turns, 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        at, self.said = self.said, self.said + 1
        if at < self.turns - 1:
            output: Any = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{at}", name="step", arguments=f'{{"n": {at}}}'
            )
        else:
            text = ResponseOutputText(type="output_text", text="Done.", annotations=[])
            output = ResponseOutputMessage(
                type="message", id=f"m{at}", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def agents(turns: int, database: str | None) -> Callable[[], int]:
    agent = Agent("bench", model=Scripted(turns), tools=[step])
    session = SQLiteSession("t", database) if database else None

    def run() -> int:
        ran[0] = 0
        config = RunConfig(tracing_disabled=True)
        asyncio.run(Runner.run(agent, "go", max_turns=turns + 1, session=session, run_config=config))
        if session is not None:
            session.close()
        return ran[0]

    return run


SUBJECTS = {"OpenAI Agents": agents}
