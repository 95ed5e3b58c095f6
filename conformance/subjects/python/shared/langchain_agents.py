"""What adapters of LangChain's agents share: messages, interrupts, limits, answers, and agents as tools."""

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from kit import Kit
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelCallLimitMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
)
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt
from pydantic import BaseModel, SecretStr
from wire import Adapter, Refused, Report, Setup, named


class Done(BaseModel):
    """Call this when the whole task is done."""

    summary: str


class City(BaseModel):
    """A city."""

    city: str
    population: int


@tool
def ask_user(question: str) -> str:
    """Ask the user something."""
    return str(interrupt({"question": question}))


class LangChainAgent(Adapter):
    """An agent with a checkpointer. What makes it says what is its own."""

    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "Done", "args": {"summary": "$text"}},
        "structured": {"name": "City", "args": "$value"},
    }
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"request": "$text"}}
    lacks: ClassVar = {
        "deadline": "an interrupt waits without a deadline",
        "one_runner": "checkpointers do not lock a thread; LangGraph's server does, by its own queue",
        "tree_limit": "limits are middleware of one agent",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self.model = ChatOpenAI(base_url=setup.url, api_key=SecretStr("none"), model="scripted")
        self._control = RunControl()
        self._config: Any = {"configurable": {"thread_id": setup.thread}}
        self._connection = sqlite3.connect(setup.folder / "threads.sqlite", check_same_thread=False)
        shapes: dict[str, Any] = {"call": ToolStrategy(Done), "structured": ToolStrategy(City)}
        saved = {"response_format": shapes.get(setup.finish), "checkpointer": SqliteSaver(self._connection)}
        self._agent = (
            self.lead(**saved) if setup.helpers else self.agent(tools=self.tools(), model=self.model, **saved)
        )

    @abstractmethod
    def agent(self, **given: Any) -> Any:
        """The framework's agent, made of what is given, with its middleware."""

    @abstractmethod
    def lead(self, **given: Any) -> Any:
        """The framework's agent that has the sub-agents of the setup and nothing else."""

    def tools(self) -> list[BaseTool]:
        tools = [tool(function, parse_docstring=True) for function in self.kit.functions()]
        return [*tools, ask_user] if self.setup.asks else tools

    def limits(self) -> list[AgentMiddleware[Any, Any, Any]]:
        """The middleware that turns a tool's error into its result, and the limits that are set."""
        setup = self.setup
        found: list[AgentMiddleware[Any, Any, Any]] = [ToolErrorMiddleware(lambda error, _: repr(error))]
        found += call_limit(setup.turns)
        if setup.tool_calls is not None:
            found.append(ToolCallLimitMiddleware(run_limit=setup.tool_calls))
        return found

    def say(self, text: str) -> Report:
        return self.run({"messages": [{"role": "user", "content": text}]})

    def resume(self) -> Report:
        return self.run(None)

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        """Each interrupt is answered by its id: one call that waits, or all those of a reply, in order."""
        given, answers = list(decisions), dict[str, Any]()
        waiting = {one.id: one.value for one in self._pending()}
        if any(map(_one_call, waiting.values())):
            for id, one in named(list(waiting), given):
                answers[id] = _decision(one, waiting.get(id, {}).get("name", ""))
            return self.run(Command(resume=answers))
        for id, value in waiting.items():
            answers[id] = {
                "decisions": [_decision(given.pop(0), call["name"]) for call in value["action_requests"]]
            }
        return self.run(Command(resume=answers))

    def answer(self, text: str) -> Report:
        return self.run(Command(resume=text))

    def stop(self) -> None:
        self._control.request_drain("stop")

    def close(self) -> None:
        self._connection.close()

    def state(self) -> Any:
        """The thread, as the checkpointer has it."""
        return self._agent.get_state(self._config)

    def _pending(self) -> Sequence[Any]:
        interrupts: Sequence[Any] = self.state().interrupts
        if not interrupts:
            raise Refused("no interrupt is pending")
        return interrupts

    def run(self, given: Any) -> Report:
        """Invokes the agent once; how that ended."""
        self._control = RunControl()
        try:
            found = self._agent.invoke(given, self._config, durability="sync", control=self._control)
        except GraphDrained as stopped:
            return Report("stopped", str(stopped))
        except (ModelCallLimitExceededError, ToolCallLimitExceededError, GraphRecursionError) as limit:
            return Report("limit", str(limit))
        waiting = found.get("__interrupt__")
        if waiting and "question" in waiting[0].value:
            return Report("question", waiting[0].value["question"])
        if waiting and waiting[0].value.get("finish"):
            problem = waiting[0].value.get("problem", "")
            return Report("question", f"a person is to confirm the finish: {problem}")
        if waiting:
            # In the order in which `decide` answers them: that of the run is the order of arrival.
            return Report("approval", pending=[call for one in self._pending() for call in _calls(one)])
        return self.ended(found)

    def ended(self, found: Mapping[str, Any]) -> Report:
        """How a run ended that returned `found` and waits for nobody."""
        last = found["messages"][-1]
        if self.setup.finish == "any":
            return Report("success", f"{last.type}: {last.text}", last.text)
        answer = found.get("structured_response")
        if answer is None:
            return Report("error", f"returned without a structured response; {last.type}: {last.text}")
        return Report("success", final=answer.summary if isinstance(answer, Done) else answer.model_dump())


def call_limit(turns: int | None) -> list[AgentMiddleware[Any, Any, Any]]:
    """The middleware that limits the calls of the model, where they are to be limited."""
    return [] if turns is None else [ModelCallLimitMiddleware(run_limit=turns, exit_behavior="error")]


def subagents(setup: Setup, tools: Sequence[BaseTool], middleware: Sequence[Any]) -> list[Any]:
    """The sub-agents of the setup, as deepagents is given them."""
    spec = {
        "description": "Does a task.",
        "system_prompt": "",
        "tools": tools,
        "middleware": list(middleware),
    }
    if setup.approve:
        spec["interrupt_on"] = dict.fromkeys(setup.approve, True)
    return [{"name": name, **spec} for name in setup.helpers]


def as_tool(name: str, made: Callable[[], Any]) -> BaseTool:
    """A sub-agent as a tool, as LangChain's documentation has it. made: gives the agent."""

    def run(request: str) -> str:
        """Does a task.

        Args:
            request: The task, with all that is needed for it.
        """
        found = made().invoke({"messages": [{"role": "user", "content": request}]})
        return str(found["messages"][-1].text)

    return tool(name, parse_docstring=True)(run)


def _one_call(value: Mapping[str, Any]) -> bool:
    """Whether an interrupt is for one call, as in the mode `per_call` of the middleware."""
    return value.get("type") == "tool_approval"


def _calls(waiting: Any) -> list[dict[str, Any]]:
    """The calls that wait at an interrupt."""
    value = waiting.value
    if _one_call(value):
        return [{"name": value["name"], "args": value["args"], "id": waiting.id}]
    return [{"name": call["name"], "args": call["args"]} for call in value["action_requests"]]


def _decision(one: Mapping[str, Any], name: str) -> dict[str, Any]:
    if one["type"] == "edit":
        return {"type": "edit", "edited_action": {"name": name, "args": one["args"]}}
    return {key: value for key, value in one.items() if key != "id"}
