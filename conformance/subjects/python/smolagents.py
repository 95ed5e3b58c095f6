"""smolagents: a `ToolCallingAgent`, which ends by its `final_answer` tool."""

from typing import Any, ClassVar

from kit import Kit
from parked import Parked
from pydantic import BaseModel
from smolagents import AgentError, LogLevel, OpenAIModel, Tool, ToolCallingAgent, tool
from wire import Adapter, Report, Setup


class City(BaseModel):
    """A city."""

    city: str
    population: int


class AskUser(Tool):
    """The `UserInputTool` of smolagents, with the user elsewhere than at its terminal."""

    name = "user_input"
    description = "Asks for user's input on a specific question"
    inputs: ClassVar = {"question": {"type": "string", "description": "The question to ask the user"}}
    output_type = "string"

    def __init__(self, parked: Parked) -> None:
        super().__init__()
        self._parked = parked

    def forward(self, question: str) -> str:
        return str(self._parked.ask(Report("question", question)))


class Smolagents(Adapter):
    framework = "smolagents"
    packages = ("smolagents", "openai")
    finish: ClassVar = {
        "any": {"name": "final_answer", "args": {"answer": "$text"}},
        "call": {"name": "final_answer", "args": {"answer": "$text"}},
        "structured": {"name": "final_answer", "args": {"answer": "$value"}},
    }
    ask: ClassVar = {"name": "user_input", "args": {"question": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"task": "$text"}}
    lacks: ClassVar = {
        "tree_limit": "`max_steps` is of one agent",
        "recursion": "managed agents are given when an agent is made, so none is its own",
        "call_limit": "only steps are limited",
        "approval": "a person can change a plan between steps; calls are not approved",
        "approval_ids": "calls are not approved",
        "edit": "a person can change a plan between steps; calls are not approved",
        "compaction": "a step callback can shorten the memory; none does so by itself",
        "durable_wait": "a run and its memory live in one process",
        "crash": "a run and its memory live in one process",
        "memory": "a run and its memory live in one process",
        "one_runner": "a run and its memory live in one process",
        "deadline": "the user's input is waited for without a deadline",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._parked = Parked()
        self._fresh = True
        checks = ([self._fits] if setup.finish == "structured" else []) + ([self._gate] if setup.gate else [])
        self._model = OpenAIModel("scripted", api_base=setup.url, api_key="none")
        self._agent = ToolCallingAgent(
            [] if setup.helpers else self._tools(),
            self._model,
            managed_agents=[self._helper(name) for name in setup.helpers],
            final_answer_checks=checks,
            return_full_result=True,
            verbosity_level=LogLevel.ERROR,
            instructions=setup.system or None,
            **_most(setup.turns),
        )

    def _tools(self) -> list[Any]:
        tools = [tool(function) for function in self.kit.functions()]
        return [*tools, AskUser(self._parked)] if self.setup.asks else tools

    def _helper(self, name: str) -> ToolCallingAgent:
        return ToolCallingAgent(
            self._tools(),
            self._model,
            name=name,
            description="Does a task.",
            provide_run_summary=True,
            verbosity_level=LogLevel.ERROR,
            **_most(self.setup.helper_turns),
        )

    def _fits(self, answer: Any, memory: Any, agent: Any) -> bool:
        City.model_validate(answer)
        return True

    def _gate(self, answer: Any, memory: Any, agent: Any) -> bool:
        problem = self.kit.gate()
        if problem:
            raise ValueError(problem)
        return True

    def say(self, text: str) -> Report:
        return self._parked.run(lambda: self._run(text))

    def answer(self, text: str) -> Report:
        return self._parked.answer(text)

    def stop(self) -> None:
        self._agent.interrupt()

    def close(self) -> None:
        self._parked.close()

    def _run(self, text: str) -> Report:
        reset, self._fresh = self._fresh, False
        try:
            result = self._agent.run(text, reset=reset)
        except AgentError as error:
            if self._agent.interrupt_switch:
                return Report("stopped", str(error))
            raise
        if result.state != "success":
            return Report("limit", result.state, result.output)
        return Report("success", result.state, result.output)


def _most(steps: int | None) -> dict[str, Any]:
    return {} if steps is None else {"max_steps": steps}
