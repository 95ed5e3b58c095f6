"""smolagents: `ToolCallingAgent`. It keeps no history on disk by itself."""

from collections.abc import Callable
from typing import Any

from smolagents import ChatMessage, ChatMessageToolCall, MessageRole, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCallFunction
from smolagents.monitoring import LogLevel, TokenUsage

ran = [0]


@tool
def step(n: int) -> str:
    """One step.

    Args:
        n: Its number.
    """
    ran[0] += 1
    return f"ok {n}"


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        super().__init__(model_id="scripted")
        self.turns, self.said = turns, 0

    def generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatMessage:
        at, self.said = self.said, self.said + 1
        last = at >= self.turns - 1
        name, args = ("final_answer", {"answer": "Done."}) if last else ("step", {"n": at})
        call = ChatMessageToolCall(
            ChatMessageToolCallFunction(name=name, arguments=args), f"call_{at}", "function"
        )
        return ChatMessage(
            MessageRole.ASSISTANT,
            "",
            tool_calls=[call],
            token_usage=TokenUsage(input_tokens=10, output_tokens=5),
        )


def agent(turns: int, database: str | None) -> Callable[[], int]:
    made = ToolCallingAgent(
        tools=[step], model=Scripted(turns), max_steps=turns + 1, verbosity_level=LogLevel.OFF
    )

    def run() -> int:
        ran[0] = 0
        made.run("go")
        return ran[0]

    return run


SUBJECTS = {"smolagents": agent}
