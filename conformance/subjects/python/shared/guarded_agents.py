"""What guarded agents of LangChain share: `Guards` in the middleware, and how their outcome reads."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from kit import Kit
from langchain_agents import City, LangChainAgent
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.runtime import RunControl
from pydantic import SecretStr
from wire import Adapter, Refused, Report, Setup

from signoff import ThreadError, outcome_of, sqlite_storage
from signoff.guards import Guards, guarded


class GuardedAgent(LangChainAgent):
    """An agent with guards, a checkpointer and a store. What makes it says what is its own."""

    finish: ClassVar = {
        "any": {"name": "finish_task", "args": {"summary": "$text"}},
        "structured": {"name": "finish_task", "args": {"summary": "$text", "result": "$value"}},
    }
    lacks: ClassVar = {
        "deadline": "an interrupt waits without a deadline",
        "tree_limit": "`Guards` are those of one agent",
    }
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text", "default_answer": "$default"}}

    def __init__(self, setup: Setup, kit: Kit) -> None:
        Adapter.__init__(self, setup, kit)
        self.model = ChatOpenAI(base_url=setup.url, api_key=SecretStr("none"), model="scripted")
        self._control = RunControl()
        self._config: Any = {"configurable": {"thread_id": setup.thread}}
        self._opened = sqlite_storage(setup.folder / "threads.sqlite")
        storage = self._opened.__enter__()
        saved = {"checkpointer": storage.checkpointer, "store": storage.store}
        made = (
            self.lead(**saved) if setup.helpers else self.agent(model=self.model, tools=self.tools(), **saved)
        )
        self._agent = guarded(made)

    @abstractmethod
    def agent(self, **given: Any) -> Any:
        """The framework's agent, made of what is given, with `guards()` in its middleware."""

    def guards(self, turns: int | None = None) -> Guards:
        """turns: a limit in place of that of the setup."""
        setup = self.setup
        limits = {"turns": turns or setup.turns, "tool_calls": setup.tool_calls}
        return Guards(
            {name: value for name, value in limits.items() if value is not None},
            checks=[self.kit.gate] if setup.gate else [],
            response_format=City if setup.finish == "structured" else None,
        )

    def tools(self) -> list[BaseTool]:
        return [
            StructuredTool.from_function(
                one,
                parse_docstring=True,
                metadata={"kind": "read" if one.__name__ in self.kit.reads else "write"},
            )
            for one in self.kit.functions()
        ]

    def run(self, given: Any) -> Report:
        try:
            return super().run(given)
        except ThreadError as error:
            raise Refused(str(error)) from error

    def close(self) -> None:
        self._opened.__exit__(None, None, None)

    def ended(self, found: Mapping[str, Any]) -> Report:
        try:
            # Without the type of its result, which stays JSON.
            outcome = outcome_of(dict(found))
        except ThreadError:
            return Report("error", "it returned, and its task has not ended")
        final = outcome.summary if outcome.result is None else outcome.result
        done = outcome.status == "success" and outcome.claim == "done"
        status = "success" if done else "limit" if outcome.status == "limit" else "error"
        return Report(status, f"{outcome.status}, {outcome.reason}, {outcome.claim}", final)
