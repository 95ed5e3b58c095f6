"""The OpenAI Agents SDK, with a SQLite session and serialised run states."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    StopAtTools,
    function_tool,
    set_tracing_disabled,
)
from kit import Kit
from openai import AsyncOpenAI
from pydantic import BaseModel
from wire import Adapter, Refused, Report, Setup, named, run_async

set_tracing_disabled(True)


class City(BaseModel):
    """A city."""

    city: str
    population: int


@function_tool
def finish(summary: str) -> str:
    """Call this when the whole task is done."""
    return summary


class OpenAIAgents(Adapter):
    framework = "OpenAI Agents SDK"
    packages = ("openai-agents", "openai")
    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "finish", "args": {"summary": "$text"}},
        "structured": {"text": "$json"},
    }
    delegation: ClassVar = {"name": "$name", "args": {"input": "$text"}}
    lacks: ClassVar = {
        "tree_limit": "`max_turns` is of one run, and an agent as a tool is a run of its own",
        "call_limit": "only turns are limited",
        "compaction": "a session compacts by OpenAI's Responses API, and only where it is made to",
        "gate": "an output guardrail ends the run; none sends the model back to work",
        "edit": "a call is approved or rejected as it is",
        "ask": "the model asks in words, which end the run",
        "deadline": "the model asks in words, which end the run",
        "crash": "durable runs are left to integrations (Temporal, Restate, DBOS)",
        "one_runner": "durable runs are left to integrations (Temporal, Restate, DBOS)",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._paused = setup.folder / "paused.json"
        self._session = SQLiteSession(setup.thread, setup.folder / "session.sqlite")
        self._stop: Any = None
        self._config = RunConfig(tool_not_found_behavior="return_error_to_model")
        client = AsyncOpenAI(base_url=setup.url, api_key="none")
        self._model = OpenAIChatCompletionsModel("scripted", client)
        self._agent = self._build()

    def _build(self) -> Agent[None]:
        setup = self.setup
        tools = [self._helper(name) for name in setup.helpers] or self._tools()
        by_call = setup.finish == "call"
        return Agent(
            name="bench",
            instructions=setup.system or None,
            model=self._model,
            tools=[*tools, finish] if by_call else tools,
            tool_use_behavior=StopAtTools(stop_at_tool_names=["finish"]) if by_call else "run_llm_again",
            model_settings=ModelSettings(tool_choice="required" if by_call else None),
            reset_tool_choice=not by_call,
            output_type=City if setup.finish == "structured" else None,
        )

    def _tools(self) -> list[Any]:
        return [
            function_tool(
                function,
                needs_approval=function.__name__ in self.setup.approve,
                strict_mode=not self.kit.loose(function.__name__),
            )
            for function in self.kit.functions()
        ]

    def _helper(self, name: str) -> Any:
        agent = Agent(name=name, model=self._model, tools=self._tools())
        itself = agent.as_tool(name, "Does a task.", max_turns=self.setup.helper_turns)
        if self.setup.recursive:
            agent.tools.append(itself)
        return itself

    def say(self, text: str) -> Report:
        return run_async(self._run(text))

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        return run_async(self._decide(decisions))

    async def _decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        if not self._paused.exists():
            raise Refused("no run state is waiting")
        state = await RunState.from_json(self._agent, json.loads(self._paused.read_text()))
        waiting = {str(item.call_id): item for item in state.get_interruptions()}
        for id, decision in named(list(waiting), decisions):
            if id not in waiting:
                raise Refused(f"no call {id!r} is among the interruptions of the run state")
            item = waiting[id]
            if decision["type"] == "approve":
                state.approve(item)
            else:
                state.reject(item, rejection_message=decision["message"])
        return await self._run(state)

    def stop(self) -> None:
        self._stop()

    def close(self) -> None:
        self._session.close()

    async def _run(self, given: Any) -> Report:
        loop = asyncio.get_running_loop()
        limit = {} if self.setup.turns is None else {"max_turns": self.setup.turns}
        result = Runner.run_streamed(
            self._agent, given, session=self._session, run_config=self._config, **limit
        )
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            loop.call_soon_threadsafe(lambda: result.cancel(mode="after_turn"))

        self._stop = stop
        self._paused.unlink(missing_ok=True)
        try:
            async for _ in result.stream_events():
                pass
        except MaxTurnsExceeded as error:
            return Report("limit", str(error))
        if result.interruptions:
            self._paused.write_text(json.dumps(result.to_state().to_json()))
            calls = [
                {"name": item.tool_name, "args": json.loads(item.arguments or "{}"), "id": item.call_id}
                for item in result.interruptions
            ]
            return Report("approval", pending=calls)
        if stopped:
            return Report("stopped", "cancelled after the turn")
        final = result.final_output
        return Report("success", str(final), final.model_dump() if isinstance(final, City) else final)
