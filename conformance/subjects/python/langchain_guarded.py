"""LangChain's `create_agent` with Signoff's `Guards` in its middleware."""

from typing import Any, ClassVar

from guarded_agents import GuardedAgent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_agents import as_tool
from langchain_core.tools import BaseTool

from signoff.guards import Guards


class LangChainGuarded(GuardedAgent):
    framework = "create_agent with Guards"
    packages = ("signoff", "langchain", "langgraph", "langchain-openai")
    lacks: ClassVar = {
        **GuardedAgent.lacks,
        "compaction": "a history is summarised where `SummarizationMiddleware` is among the middleware",
    }

    def agent(self, **given: Any) -> Any:
        return create_agent(
            **given, system_prompt=self.setup.system or None, middleware=self._around(self.guards())
        )

    def lead(self, **given: Any) -> Any:
        tools = [self._helper(name) for name in self.setup.helpers]
        return create_agent(self.model, tools, middleware=[self.guards()], **given)

    def _helper(self, name: str) -> BaseTool:
        setup = self.setup
        itself = as_tool(name, lambda: agent)
        tools = [*self.tools(), itself] if setup.recursive else self.tools()
        agent = create_agent(
            self.model, tools, middleware=self._around(self.guards(setup.helper_turns)), name=name
        )
        return itself

    def _around(self, guards: Guards) -> list[AgentMiddleware[Any, Any, Any]]:
        approve = dict.fromkeys(self.setup.approve, True)
        return (
            [guards, HumanInTheLoopMiddleware(interrupt_on=approve, interrupt_mode="per_call")]
            if approve
            else [guards]
        )
