"""deepagents' `create_deep_agent` with Signoff's `Guards` in its middleware."""

from typing import Any, ClassVar

from deepagents import create_deep_agent
from guarded_agents import GuardedAgent
from langchain_agents import subagents


class DeepAgentsGuarded(GuardedAgent):
    framework = "deepagents with Guards"
    packages = ("signoff", "deepagents", "langchain", "langgraph", "langchain-openai")

    delegation: ClassVar = {"name": "task", "args": {"description": "$text", "subagent_type": "$name"}}
    lacks: ClassVar = {
        **GuardedAgent.lacks,
        "approval_ids": "`interrupt_on` asks once for all calls of a reply, and is answered by position",
        "recursion": "sub-agents have no `task` tool, so none calls another",
    }

    def lead(self, **given: Any) -> Any:
        around = [self.guards(self.setup.helper_turns)]
        helpers = subagents(self.setup, self.tools(), around)
        return create_deep_agent(self.model, [], middleware=[self.guards()], subagents=helpers, **given)

    def agent(self, **given: Any) -> Any:
        return create_deep_agent(
            **given,
            system_prompt=self.setup.system or None,
            middleware=[self.guards()],
            interrupt_on=dict.fromkeys(self.setup.approve, True) or None,
        )
