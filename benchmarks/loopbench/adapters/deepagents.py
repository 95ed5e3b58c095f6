"""deepagents' `create_deep_agent`, with the checkpointer and the middleware of its documentation.

Its way for a completion check is the rubric; the kit's check stands in for the model that grades, through the
extension point of `RubricMiddleware`.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from deepagents import create_deep_agent
from deepagents.middleware.rubric import GraderResponse, RubricMiddleware
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
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt
from pydantic import BaseModel, SecretStr
from wire import Adapter, Refused, Report, Setup


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


RUBRIC = "The work is done."


class Checked(RubricMiddleware):
    """The rubric, graded by a check."""

    def __init__(self, check: Callable[[], str | None], **given: Any) -> None:
        super().__init__(**given)
        self._check = check

    def _invoke_grader(self, state: Any, iteration: int, *_: Any, **__: Any) -> GraderResponse:
        gap = self._check()
        if gap is None:
            return _graded("satisfied", RUBRIC, {"name": RUBRIC, "passed": True})
        return _graded("needs_revision", gap, {"name": RUBRIC, "passed": False, "gap": gap})


class DeepAgents(Adapter):
    framework = "deepagents"
    packages = ("deepagents", "langchain", "langgraph", "langchain-openai")
    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "Done", "args": {"summary": "$text"}},
        "structured": {"name": "City", "args": "$value"},
    }
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text"}}
    lacks: ClassVar = {
        "deadline": "an interrupt waits without a deadline",
        "one_runner": "checkpointers do not lock a thread; LangGraph's server does, by its own queue",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._model = ChatOpenAI(base_url=setup.url, api_key=SecretStr("none"), model="scripted")
        self._control = RunControl()
        self._config: Any = {"configurable": {"thread_id": setup.thread}}
        self._connection = sqlite3.connect(setup.folder / "threads.sqlite", check_same_thread=False)
        self._agent = self._build()

    def _build(self) -> Any:
        setup = self.setup
        shapes: dict[str, Any] = {"call": ToolStrategy(Done), "structured": ToolStrategy(City)}
        tools = [tool(function, parse_docstring=True) for function in self.kit.functions()]
        return create_deep_agent(
            self._model,
            [*tools, ask_user] if setup.asks else tools,
            middleware=self._middleware(),
            interrupt_on=dict.fromkeys(setup.approve, True) or None,
            response_format=shapes.get(setup.finish),
            checkpointer=SqliteSaver(self._connection),
        )

    def _middleware(self) -> list[AgentMiddleware[Any, Any, Any]]:
        setup = self.setup
        found: list[AgentMiddleware[Any, Any, Any]] = [ToolErrorMiddleware(lambda error, _: repr(error))]
        if setup.turns is not None:
            found.append(ModelCallLimitMiddleware(run_limit=setup.turns, exit_behavior="error"))
        if setup.tool_calls is not None:
            found.append(ToolCallLimitMiddleware(run_limit=setup.tool_calls))
        if setup.gate:
            found.append(Checked(self.kit.gate, model=self._model))
        return found

    def say(self, text: str) -> Report:
        rubric = {"rubric": RUBRIC} if self.setup.gate else {}
        return self._run({"messages": [{"role": "user", "content": text}], **rubric})

    def resume(self) -> Report:
        return self._run(None)

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        names = [call["name"] for call in self._pending()]
        given = [_decision(one, name) for one, name in zip(decisions, names, strict=True)]
        return self._run(Command(resume={"decisions": given}))

    def answer(self, text: str) -> Report:
        return self._run(Command(resume=text))

    def stop(self) -> None:
        self._control.request_drain("stop")

    def close(self) -> None:
        self._connection.close()

    def _pending(self) -> Sequence[Any]:
        interrupts = self._agent.get_state(self._config).interrupts
        if not interrupts:
            raise Refused("no interrupt is pending")
        calls: Sequence[Any] = interrupts[0].value["action_requests"]
        return calls

    def _run(self, given: Any) -> Report:
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
        if waiting:
            return Report("approval", pending=[dict(call) for call in waiting[0].value["action_requests"]])
        return self._ended(found)

    def _ended(self, found: Mapping[str, Any]) -> Report:
        last = found["messages"][-1]
        graded = self._agent.get_state(self._config).values.get("_rubric_status", "satisfied")
        if graded != "satisfied":
            return Report("limit" if graded == "max_iterations_reached" else "error", graded, last.text)
        if self.setup.finish == "any":
            return Report("success", f"{last.type}: {last.text}", last.text)
        answer = found.get("structured_response")
        if answer is None:
            return Report("error", f"returned without a structured response; {last.type}: {last.text}")
        return Report("success", final=answer.summary if isinstance(answer, Done) else answer.model_dump())


def _decision(one: Mapping[str, Any], name: str) -> dict[str, Any]:
    if one["type"] == "edit":
        return {"type": "edit", "edited_action": {"name": name, "args": one["args"]}}
    return dict(one)


def _graded(result: Any, explanation: str, criterion: Any) -> GraderResponse:
    return GraderResponse(result=result, explanation=explanation, criteria=[criterion])
