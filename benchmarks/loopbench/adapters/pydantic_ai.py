"""pydantic-ai: an output type, deferred tools, usage limits, and a conversation kept as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kit import Kit
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    CallDeferred,
    CancellationToken,
    DeferredToolRequests,
    ModelRetry,
    RunCancelled,
    Tool,
    ToolApproved,
    ToolDenied,
    UsageLimitExceeded,
    UsageLimits,
    UserError,
)
from pydantic_ai.capabilities import Hooks, RaiseContentFilterError
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from wire import Adapter, Refused, Report, Setup, run_async


class Done(BaseModel):
    """Call this when the whole task is done."""

    summary: str


class City(BaseModel):
    """A city."""

    city: str
    population: int


def ask_user(question: str) -> str:
    """Ask the user something."""
    raise CallDeferred(kind="question")


async def tell_model(*_: Any, error: Exception, **__: Any) -> Any:
    """A tool that raises is the model's to deal with, not the end of the run."""
    raise ModelRetry(repr(error))


class PydanticAI(Adapter):
    framework = "pydantic-ai"
    packages = ("pydantic-ai-slim", "openai")
    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "final_result", "args": {"summary": "$text"}},
        "structured": {"name": "final_result", "args": "$value"},
    }
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text"}}
    lacks: ClassVar = {
        "deadline": "a wait that times out fails its call; there is no default answer",
        "crash": "durable runs are left to integrations (Temporal, DBOS, Prefect)",
        "one_runner": "durable runs are left to integrations (Temporal, DBOS, Prefect)",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._file = setup.folder / "conversation.json"
        self._token = CancellationToken()
        limits = {"request_limit": setup.turns, "tool_calls_limit": setup.tool_calls}
        self._limits = UsageLimits(**{name: value for name, value in limits.items() if value is not None})
        self._agent = self._build()
        if setup.gate:
            self._agent.output_validator(self._check)

    def _build(self) -> Agent[None, Any]:
        setup = self.setup
        tools = [
            Tool(function, requires_approval=function.__name__ in setup.approve)
            for function in self.kit.functions()
        ]
        outputs: list[Any] = [{"any": str, "call": Done, "structured": City}[setup.finish]]
        if setup.approve or setup.asks:
            outputs.append(DeferredToolRequests)
        return Agent(
            OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=setup.url, api_key="none")),
            output_type=outputs,
            tools=[*tools, Tool(ask_user)] if setup.asks else tools,
            capabilities=[Hooks(tool_execute_error=tell_model), RaiseContentFilterError()],
        )

    def _check(self, output: Any) -> Any:
        problem = None if isinstance(output, DeferredToolRequests) else self.kit.gate()
        if problem:
            raise ModelRetry(problem)
        return output

    def say(self, text: str) -> Report:
        """A task of its own: the history goes on, the usage that the limits count begins anew."""
        return run_async(self._run(text, message_history=self._stored().messages))

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        waiting = self._waiting()
        calls = zip(waiting.approvals, decisions, strict=True)
        results = waiting.build_results(approvals={call.tool_call_id: _decision(one) for call, one in calls})
        return run_async(self._run(conversation=self._stored(), deferred_tool_results=results))

    def answer(self, text: str) -> Report:
        waiting = self._waiting()
        results = waiting.build_results(calls={call.tool_call_id: text for call in waiting.calls})
        return run_async(self._run(conversation=self._stored(), deferred_tool_results=results))

    def stop(self) -> None:
        self._token.cancel()

    def _stored(self) -> Conversation:
        stored = self._file.exists()
        return ConversationTypeAdapter.validate_json(self._file.read_bytes()) if stored else Conversation()

    def _waiting(self) -> DeferredToolRequests:
        found = self._stored().deferred_tool_requests
        if found is None:
            raise Refused("no deferred tool request is pending")
        return found

    async def _run(self, text: str | None = None, **given: Any) -> Report:
        self._token = CancellationToken()
        try:
            result = await self._agent.run(
                text, usage_limits=self._limits, cancellation_token=self._token, **given
            )
        except UsageLimitExceeded as limit:
            return Report("limit", str(limit))
        except RunCancelled as stopped:
            return Report("stopped", str(stopped))
        except UserError as refused:
            raise Refused(str(refused)) from refused
        self._file.write_bytes(ConversationTypeAdapter.dump_json(result.conversation))
        return _told(result.output)


def _decision(one: Mapping[str, Any]) -> ToolApproved | ToolDenied:
    match one["type"]:
        case "edit":
            return ToolApproved(override_args=dict(one["args"]))
        case "reject":
            return ToolDenied(one["message"])
    return ToolApproved()


def _told(output: Any) -> Report:
    match output:
        case DeferredToolRequests(approvals=[_, *_]):
            waiting = [{"name": call.tool_name, "args": call.args_as_dict()} for call in output.approvals]
            return Report("approval", pending=waiting)
        case DeferredToolRequests(calls=[call, *_]):
            return Report("question", call.args_as_dict()["question"])
        case Done(summary=summary):
            return Report("success", final=summary)
        case City():
            return Report("success", final=output.model_dump())
    return Report("success", str(output), output)
