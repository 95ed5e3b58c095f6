"""deepagents' `create_deep_agent`, with the checkpointer and the middleware of its documentation.

Its way for a completion check is the rubric; the kit's check stands in for the model that grades, through the
extension point of `RubricMiddleware`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from deepagents import create_deep_agent
from deepagents.middleware.rubric import GraderResponse, RubricMiddleware
from langchain_agents import LangChainAgent, call_limit, subagents
from wire import Report

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


class DeepAgents(LangChainAgent):
    framework = "deepagents"
    packages = ("deepagents", "langchain", "langgraph", "langchain-openai")
    delegation: ClassVar = {"name": "task", "args": {"description": "$text", "subagent_type": "$name"}}
    lacks: ClassVar = {
        **LangChainAgent.lacks,
        "approval_ids": "`interrupt_on` asks once for all calls of a reply, and is answered by position",
        "recursion": "sub-agents have no `task` tool, so none calls another",
    }

    def agent(self, **given: Any) -> Any:
        gate = [Checked(self.kit.gate, model=self.model)] if self.setup.gate else []
        return create_deep_agent(
            **given,
            system_prompt=self.setup.system or None,
            middleware=[*self.limits(), *gate],
            interrupt_on=dict.fromkeys(self.setup.approve, True) or None,
        )

    def lead(self, **given: Any) -> Any:
        around = [*self.limits(), *call_limit(self.setup.helper_turns)]
        helpers = subagents(self.setup, self.tools(), around)
        return create_deep_agent(self.model, [], middleware=self.limits(), subagents=helpers, **given)

    def say(self, text: str) -> Report:
        rubric = {"rubric": RUBRIC} if self.setup.gate else {}
        return self.run({"messages": [{"role": "user", "content": text}], **rubric})

    def ended(self, found: Mapping[str, Any]) -> Report:
        graded = self.state().values.get("_rubric_status", "satisfied")
        if graded != "satisfied":
            words = found["messages"][-1].text
            return Report("limit" if graded == "max_iterations_reached" else "error", graded, words)
        return super().ended(found)


def _graded(result: Any, explanation: str, criterion: Any) -> GraderResponse:
    return GraderResponse(result=result, explanation=explanation, criteria=[criterion])
