"""pydantic-ai: an output type, deferred tools, usage limits, and a conversation kept as JSON.

A sub-agent runs in a tool of the agent above, with its usage and its limits. What it wants approved is asked
for by a handler inside its run, since a deferred call of its own does not reach the caller.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from kit import Kit
from parked import Parked
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    CallDeferred,
    CancellationToken,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunCancelled,
    RunContext,
    Tool,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    UsageLimitExceeded,
    UsageLimits,
    UserError,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks, RaiseContentFilterError
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from wire import Adapter, Refused, Report, Setup, named, run_async


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
    delegation: ClassVar = {"name": "$name", "args": {"task": "$text"}}
    lacks: ClassVar = {
        "child_durable": "a deferred call of a sub-agent is not handed up; a handler in its run answers it",
        "compaction": "a history is sent as it is, unless a capability or a processor is added to shorten it",
        "deadline": "a wait that times out fails its call; there is no default answer",
        "crash": "durable runs are left to integrations (Temporal, DBOS, Prefect) and to the harness",
        "one_runner": "durable runs are left to integrations (Temporal, DBOS, Prefect)",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._file = setup.folder / "conversation.json"
        self._token = CancellationToken()
        self._parked = Parked()
        limits = {"request_limit": setup.tree_turns or setup.turns, "tool_calls_limit": setup.tool_calls}
        self._limits = UsageLimits(**{name: value for name, value in limits.items() if value is not None})
        provider = OpenAIProvider(base_url=setup.url, api_key="none")
        self._model = OpenAIChatModel("scripted", provider=provider)
        self._agent = self._build()
        if setup.gate:
            self._agent.output_validator(self._check)

    def _build(self) -> Agent[None, Any]:
        setup = self.setup
        tools = [self._helper(name) for name in setup.helpers] or self._tools()
        outputs: list[Any] = [{"any": str, "call": Done, "structured": City}[setup.finish]]
        if setup.approve or setup.asks:
            outputs.append(DeferredToolRequests)
        return Agent(
            self._model,
            output_type=outputs,
            instructions=setup.system or None,
            tools=[*tools, Tool(ask_user)] if setup.asks else tools,
            capabilities=[Hooks(tool_execute_error=tell_model), RaiseContentFilterError()],
        )

    def _tools(self) -> list[Tool[None]]:
        return [
            Tool(function, requires_approval=function.__name__ in self.setup.approve)
            for function in self.kit.functions()
        ]

    def _helper(self, name: str) -> Tool[None]:
        turns = self.setup.helper_turns

        async def work(ctx: RunContext[None], task: str) -> str:
            """Does a task.

            Args:
                task: The task, with all that is needed for it.
            """
            if turns is not None:
                return (await agent.run(task, usage_limits=UsageLimits(request_limit=turns))).output
            return (await agent.run(task, usage=ctx.usage, usage_limits=ctx.usage_limits)).output

        itself = Tool(work, name=name)
        around = [Hooks(tool_execute_error=tell_model), RaiseContentFilterError()]
        agent = Agent(
            self._model,
            tools=[*self._tools(), itself] if self.setup.recursive else self._tools(),
            capabilities=[*around, HandleDeferredToolCalls(handler=self._person)],
        )
        return itself

    async def _person(self, _: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        """Asks for the calls of a sub-agent, one by one."""
        found = {}
        for call in requests.approvals:
            waiting = Report("approval", pending=[_waits(call)])
            found[call.tool_call_id] = _decision(await asyncio.to_thread(self._parked.ask, waiting))
        return requests.build_results(approvals=found)

    def _check(self, output: Any) -> Any:
        problem = None if isinstance(output, DeferredToolRequests) else self.kit.gate()
        if problem:
            raise ModelRetry(problem)
        return output

    def say(self, text: str) -> Report:
        """A task of its own: the history goes on, the usage that the limits count begins anew."""
        work = partial(self._run, text, message_history=self._stored().messages)
        waits_inside = self.setup.helpers and self.setup.approve
        return self._parked.run(lambda: run_async(work())) if waits_inside else run_async(work())

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        if self.setup.helpers:
            return self._parked.answer(decisions[0])
        waiting = self._waiting()
        given = named([call.tool_call_id for call in waiting.approvals], decisions)
        results = waiting.build_results(approvals={id: _decision(one) for id, one in given})
        return run_async(self._run(conversation=self._stored(), deferred_tool_results=results))

    def answer(self, text: str) -> Report:
        waiting = self._waiting()
        results = waiting.build_results(calls={call.tool_call_id: text for call in waiting.calls})
        return run_async(self._run(conversation=self._stored(), deferred_tool_results=results))

    def stop(self) -> None:
        self._token.cancel()

    def close(self) -> None:
        self._parked.close()

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


def _waits(call: ToolCallPart) -> dict[str, Any]:
    return {"name": call.tool_name, "args": call.args_as_dict(), "id": call.tool_call_id}


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
            return Report("approval", pending=[_waits(call) for call in output.approvals])
        case DeferredToolRequests(calls=[call, *_]):
            return Report("question", call.args_as_dict()["question"])
        case Done(summary=summary):
            return Report("success", final=summary)
        case City():
            return Report("success", final=output.model_dump())
    return Report("success", str(output), output)
