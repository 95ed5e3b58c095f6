"""The same script on the machine and on `create_agent` with guards, and what each makes of it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import build_graph
from signoff.guards import Guards
from signoff.models import ScriptedModel
from tests.support.plays import THREAD, input_of
from tests.support.ways import GRAPH_WAYS, Way

# What differs between two runs of the very same: times, and ids made of random ones.
VARIES = ("seconds_active", "seconds_waiting", "seconds_retrying", "task", "usage")
_FRESH = re.compile(r"call_[0-9a-f]{24}")


def tools() -> list[BaseTool]:
    """One that reads and one that writes; both fail for the name "bad"."""

    @tool
    def look(name: str) -> str:
        """Look at something."""
        if name == "bad":
            raise ValueError("no such thing")
        return f"seen {name}"

    @tool
    def save(name: str) -> str:
        """Save something."""
        if name == "bad":
            raise ValueError("it cannot be saved")
        return f"saved {name}"

    look.metadata = {"kind": "read"}
    return [look, save]


@dataclass
class Case:
    """A script, what a thread is given one after the other, whether it is saved, and the rules."""

    script: Sequence[Any]
    given: Sequence[Any] = ("do it",)
    saved: bool = False
    rules: dict[str, Any] = field(default_factory=dict)


def by_the_machine(case: Case) -> list[Any]:
    # Not streamed: `create_agent` asks for whole replies.
    rules = {**case.rules, "policy": {**case.rules.get("policy", {}), "streaming": "never"}}
    return played(build_graph(ScriptedModel(case.script), tools(), **rules, **_storage(case)), case)


def by_the_guards(
    case: Case, *around: AgentMiddleware[Any, Any, Any], way: Way = GRAPH_WAYS["invoke"]
) -> list[Any]:
    """around: other middleware, after the guards."""
    model = ScriptedModel(case.script)
    agent = create_agent(model, tools(), middleware=[Guards(**case.rules), *around], **_storage(case))
    return played(agent, case, way)


class KeepsTheLastReply(AgentMiddleware[Any, Any, Any]):
    """Removes what stands before the last reply, also what began the task; nothing while a call in it has no
    result."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        messages = state["messages"]
        last = max((at for at, message in enumerate(messages) if message.type == "ai"), default=0)
        calls = Counter(call["id"] for one in messages[:last] for call in getattr(one, "tool_calls", ()))
        results = Counter(one.tool_call_id for one in messages if one.type == "tool")
        if not last or calls - results:
            return None
        return {"messages": [RemoveMessage(id=message.id) for message in messages[:last]]}


def _storage(case: Case) -> dict[str, Any]:
    return {"checkpointer": InMemorySaver() if case.saved else None, "store": InMemoryStore()}


def played(graph: Any, case: Case, way: Way = GRAPH_WAYS["invoke"]) -> list[Any]:
    """After each input: the messages, the outcome, and what is asked."""
    config: Any = THREAD if case.saved else None
    return [_seen(way(graph, input_of(given), config)) for given in case.given]


def _seen(found: Any) -> tuple[list[str], dict[str, Any] | None, list[Any]]:
    outcome = found.get("outcome")
    kept = {key: value for key, value in outcome.items() if key not in VARIES} if outcome else None
    return (
        [said(one) for one in found["messages"]],
        kept,
        [one.value for one in found.get("__interrupt__", ())],
    )


def said(message: BaseMessage) -> str:
    """What the message says, without what varies."""
    calls = [(call["name"], call["args"], call["id"]) for call in getattr(message, "tool_calls", ())]
    answers = getattr(message, "tool_call_id", ""), getattr(message, "status", "")
    return _FRESH.sub("call_fresh", f"{message.type}: {message.text!r} {calls} {answers}")
