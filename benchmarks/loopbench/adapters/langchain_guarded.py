"""LangChain's `create_agent` with Signoff's `Guards` in its middleware."""

from typing import Any

from guarded_agents import GuardedAgent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware


class LangChainGuarded(GuardedAgent):
    framework = "create_agent with Guards"
    packages = ("signoff", "langchain", "langgraph", "langchain-openai")

    def agent(self, **given: Any) -> Any:
        around: list[AgentMiddleware[Any, Any, Any]] = [self.guards()]
        if self.setup.approve:
            around.append(HumanInTheLoopMiddleware(interrupt_on=dict.fromkeys(self.setup.approve, True)))
        return create_agent(**given, middleware=around)
