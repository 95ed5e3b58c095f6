"""deepagents' `create_deep_agent` with Signoff's `Guards` in its middleware."""

from typing import Any

from deepagents import create_deep_agent
from guarded_agents import GuardedAgent


class DeepAgentsGuarded(GuardedAgent):
    framework = "deepagents with Guards"
    packages = ("signoff", "deepagents", "langchain", "langgraph", "langchain-openai")

    def agent(self, **given: Any) -> Any:
        return create_deep_agent(
            **given,
            middleware=[self.guards()],
            interrupt_on=dict.fromkeys(self.setup.approve, True) or None,
        )
