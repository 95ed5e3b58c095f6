"""The model and the tool of all subjects that use LangChain: a trivial call a turn, then the end."""

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
TASK = {"messages": [("user", "go")]}
MOST_STEPS = 1_000_000
ran = [0]


@tool
def step(n: int) -> str:
    """One step."""
    ran[0] += 1
    return f"ok {n}"


step.metadata = {"kind": "read"}


class Scripted(BaseChatModel):
    """`turns` replies: calls of the tool, then the call `last`, or words; made when they are asked for."""

    turns: int
    last: dict[str, Any] | None = None
    said: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> "Scripted":
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        at, self.said = self.said, self.said + 1
        return self.result(at)

    def result(self, at: int) -> ChatResult:
        """The reply at this place of the script."""
        call = {"name": "step", "args": {"n": at}} if at < self.turns - 1 else self.last
        calls = [{**call, "id": f"call_{at}"}] if call else []
        reply = AIMessage("" if calls else "Done.", tool_calls=calls, usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def counted(run: Any) -> int:
    """Runs it, and gives how often the tool has run."""
    ran[0] = 0
    run()
    return ran[0]
