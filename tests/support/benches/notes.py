"""What the rows of the notes share: tools, steps of a script, and tasks that are run by one."""

from functools import cache
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Graph, Session, Turn, build_graph
from signoff.events import Nudged
from signoff.models import TAGGED_LIMITS, ScriptedModel, TaggedText, call
from signoff.tools import choose_sandbox, python_tool
from tests.support.adapted import adapted

GO: Any = {"messages": [("user", "Do it.")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH, ASK = call("finish_task", summary="All of it."), call("ask_user", question="Which port?")
THINK, WRITE, READ = call("think", thought="hm"), call("write", text="x"), call("read")


@tool
def write(text: str) -> str:
    """Write."""
    return f"wrote {text}"


@tool
def read() -> str:
    """Read."""
    return "what is there"


@tool
def run_command(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


read.metadata, run_command.metadata = {"kind": "read"}, {"kind": "terminal"}
WORKING: list[BaseTool] = [write, read, run_command, fail]


class Ran:
    """A task that was run by a script to its end, or to where it waits."""

    def __init__(self, *steps: Any, given: Any = GO, **options: Any) -> None:
        self.model = ScriptedModel(list(steps))
        made = {"checkpointer": InMemorySaver(), "store": InMemoryStore(), **options}
        self.graph: Graph = build_graph(self.model, made.pop("tools", WORKING), **adapted(**made))
        self.state = self.graph.invoke(given, THREAD)

    @property
    def messages(self) -> list[BaseMessage]:
        found: list[BaseMessage] = self.state["messages"]
        return found

    @property
    def outcome(self) -> dict[str, Any]:
        return self.state["outcome"] or {}

    @property
    def ended(self) -> tuple[str, str, int]:
        return self.outcome["status"], self.outcome["reason"], self.outcome["turns"]

    @property
    def nudges(self) -> list[str]:
        return [event.why for turn in self.history for event in turn.events if isinstance(event, Nudged)]

    @property
    def history(self) -> list[Turn]:
        return Session(self.graph, "t").history()

    @property
    def results(self) -> list[str]:
        return [message.text for message in self.messages if message.type == "tool"]

    def resume(self, answer: Any) -> "Ran":
        self.state = self.graph.invoke(Command(resume=answer), THREAD)
        return self


def one_call(name: str, call_id: str, **args: Any) -> Any:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def session(*steps: Any, **options: Any) -> Session:
    made = {"checkpointer": InMemorySaver(), "store": InMemoryStore(), **options}
    return Session(build_graph(ScriptedModel(list(steps)), WORKING, **adapted(**made)), "t")


# The text protocol.

PLAN, CODE = "<PLAN>Compute.</PLAN>", "```python\nprint(6 * 7)\n```"
END = "<PLAN>[FINALIZE] It is 42.</PLAN>"


def update(status: str, approach: str = "by code") -> str:
    return f"<STATE_UPDATE>\nCurrent Approach: {approach}\nStatus: {status}\n</STATE_UPDATE>"


@cache
def python() -> BaseTool:
    """The real sandbox, one for all rows; it ends with the process."""
    return python_tool(choose_sandbox())


class Coded(Ran):
    """A run in the text protocol, with Python in the sandbox."""

    def __init__(self, *steps: Any, **options: Any) -> None:
        principles = {"constitution": options.pop("constitution")} if "constitution" in options else {}
        self.model = ScriptedModel(list(steps))
        made = {"checkpointer": InMemorySaver(), "store": InMemoryStore(), "limits": TAGGED_LIMITS, **options}
        self.graph = build_graph(
            TaggedText(self.model, **principles), made.pop("tools", [python()]), **adapted(**made)
        )
        self.state = self.graph.invoke(GO, THREAD)

    @property
    def prompts(self) -> list[str]:
        return [seen.messages[-1].text for seen in self.model.seen]

    @property
    def acting(self) -> dict[str, Any]:
        found: dict[str, Any] = self.graph.get_state(THREAD).values["acting"]
        return found
