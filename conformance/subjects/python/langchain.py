"""LangChain's `create_agent`, with the middleware and the checkpointer that its documentation recommends."""

from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, after_agent
from langchain_agents import LangChainAgent, as_tool, call_limit
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool


class LangChain(LangChainAgent):
    framework = "LangChain create_agent"
    packages = ("langchain", "langgraph", "langchain-openai")
    lacks: ClassVar = {
        **LangChainAgent.lacks,
        "compaction": "a history is summarised where `SummarizationMiddleware` is among the middleware",
    }

    def agent(self, **given: Any) -> Any:
        return create_agent(**given, system_prompt=self.setup.system or None, middleware=self._middleware())

    def lead(self, **given: Any) -> Any:
        tools = [self._helper(name) for name in self.setup.helpers]
        return create_agent(self.model, tools, middleware=self.limits(), **given)

    def _helper(self, name: str) -> BaseTool:
        setup, around = self.setup, [*self._middleware(), *call_limit(self.setup.helper_turns)]
        itself = as_tool(name, lambda: agent)
        tools = [*self.tools(), itself] if setup.recursive else self.tools()
        agent = create_agent(self.model, tools, middleware=around, name=name)
        return itself

    def _middleware(self) -> list[AgentMiddleware[Any, Any, Any]]:
        setup, found = self.setup, list[AgentMiddleware[Any, Any, Any]]()
        if setup.approve:
            # Each call has an interrupt of its own. It comes before what handles the errors of tools.
            approve = dict.fromkeys(setup.approve, True)
            found.append(HumanInTheLoopMiddleware(interrupt_on=approve, interrupt_mode="per_call"))
        found += self.limits()
        if setup.gate:
            found.append(self._gate())
        return found

    def _gate(self) -> Any:
        @after_agent(can_jump_to=["model"])
        def gate(state: Any, runtime: Any) -> dict[str, Any] | None:
            problem = self.kit.gate()
            return {"messages": [HumanMessage(problem)], "jump_to": "model"} if problem else None

        return gate
