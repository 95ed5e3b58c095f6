"""What the incidents run with, by name. What they change outside is a line in a file, to be counted."""

import operator
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import langchain.agents.middleware as langchain
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from signoff import ControlTool, ModelRetries, build_graph, delegate, standard_controls
from signoff.models import ScriptedModel


@dataclass(frozen=True)
class World:
    """The outside of an incident, with the tools that work on it. effects: the file of what took place.
    killed: the point at which this process is killed. delegates: what the model of each delegate says."""

    effects: Path
    killed: str
    delegates: Mapping[str, Callable[[list[BaseMessage]], Any]]

    def reach(self, point: str) -> None:
        if point == self.killed:
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(self, tool: str, line: str) -> None:
        self.reach(f"in {tool}, before its effect")
        with self.effects.open("a") as file:
            file.write(f"{line}\n")
        self.reach(f"in {tool}, after its effect")

    def pay(self, amount: int) -> str:
        """Pay."""
        self.effect("pay", f"pay {amount}")
        return f"paid {amount}"

    def note(self, text: str, pages: int = 0) -> str:
        """Note something."""
        return "noted" + " and so on" * 100 * pages

    def post(self, text: str) -> str:
        """Post a letter, which may be posted twice."""
        self.effect("post", f"post {text}")
        return f"posted {text}"

    def shell(self, command: str) -> str:
        """Run a command, which the driver of the thread does."""
        raise AssertionError("the driver runs it")

    def choose(self) -> str:
        """Pay with a card that the person chooses."""
        card = interrupt({"type": "card", "question": "Which card?"})
        self.effect("choose", f"pay by {card}")
        return f"paid by {card}"

    def charge(self, amount: int) -> str:
        """Charge a card, which can be undone."""
        self.effect("charge", f"charge {amount}")
        return f"charged {amount}"

    def pay_back(self, args: Mapping[str, Any], result: str) -> str:
        if args["amount"] == 13:
            raise ValueError("The till is closed.")
        self.effect("the undo of charge", f"pay back {args['amount']}")
        return f"paid back {args['amount']}"

    def run_python(self, code: str) -> str:
        """Run a program."""
        raise ToolException("The name x is not defined.")

    def remember(self, text: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Remember something in a channel."""
        answer = ToolMessage(f"remembered {text}", tool_call_id=runtime.tool_call_id or "")
        return Command(update={"notes": [text], "messages": [answer]})

    def photograph(self, shelf: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Take a photo, which has no form in JSON."""
        answer = ToolMessage("It is in the channel.", tool_call_id=runtime.tool_call_id or "")
        return Command(update={"photo": shelf.encode(), "messages": [answer]})

    def hand_in(self, report: str) -> dict[str, Any]:
        """Hand the work in."""
        return {"shouldContinue": report == "early", "report": report}

    def says_something(self, claim: dict[str, Any]) -> str | None:
        self.reach("in a check")
        return "It says nothing." if claim["summary"] == "Nothing." else None

    def tools(self, *names: str) -> list[BaseTool]:
        metadata = {
            "note": {"kind": "read"},
            "post": {"idempotent": True},
            "shell": {"kind": "terminal"},
            "charge": {"undo": self.pay_back},
        }
        return [
            described(one).model_copy(update={"func": getattr(self, one), "metadata": metadata.get(one)})
            for one in names
        ]

    def clerk(self) -> BaseTool:
        model, tools = ScriptedModel(self.delegates.get("clerk", ())), self.tools("charge", "note")
        graph = build_graph(model, tools, policy={"model_retries": ModelRetries(first_wait=0.01)})
        return delegate("clerk", graph, description="Does a part of the work.")


@cache
def described(name: str) -> StructuredTool:
    """A tool with its description and its schema, which take long to make."""
    return StructuredTool.from_function(getattr(World(Path(os.devnull), "", {}), name))


class Order(MessagesState):
    notes: Annotated[list[str], operator.add]
    photo: bytes


@langchain.dynamic_prompt
def tells_the_order(request: Any) -> str:
    return f"Notes: {request.state.get('notes')}. Photo: {request.state.get('photo')}."


@dataclass
class Doorman(langchain.AgentMiddleware[Any, Any]):
    """Answers some calls in place of their tool, and adds to the results of the others."""

    world: World

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self.refusal(request.tool_call) or self.seen(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self.refusal(request.tool_call) or self.seen(await handler(request))

    def refusal(self, call: Any) -> ToolMessage | None:
        answer = ToolMessage("The doorman says no.", tool_call_id=call["id"], status="error")
        return answer if call["args"].get("amount", 0) > 20 else None

    def seen(self, result: Any) -> Any:
        self.world.reach("in a middleware, after the call")
        return result.model_copy(update={"content": f"{result.content}, as the doorman saw"})


def fixture(name: str, world: World) -> dict[str, Any]:
    """The arguments of `build_graph` by this name."""
    match name:
        case "by text":
            return {"tools": world.tools("run_python")}
        case "till":
            return {"tools": [*world.tools("charge", "pay"), world.clerk()]}
        case "order":
            tools = world.tools("remember", "photograph")
            return {"tools": tools, "state_schema": Order, "middleware": [tells_the_order]}
    more: dict[str, Callable[[], dict[str, Any]]] = {
        "shop": dict,
        "hand in": lambda: {
            "control_tools": [ControlTool(world.tools("hand_in")[0], "finish"), *standard_controls()[1:]]
        },
        "doorman": lambda: {"middleware": [Doorman(world)]},
    }
    return {"tools": world.tools("pay", "note", "post", "shell", "choose"), **more[name]()}
