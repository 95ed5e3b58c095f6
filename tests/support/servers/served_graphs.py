"""Graphs for one `langgraph dev`: with limits and an undo, with delegates, with an approval."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import StructuredTool

from signoff import build_graph, delegate
from signoff.models import ScriptedModel, call
from signoff.studio import served
from signoff.tools import workspace_tools

HERE = Path(__file__).parent
FINISH = call("finish_task", summary="Done.", outcome="partial")


def pay(to: str) -> str:
    """Pay."""
    with (HERE / "paid.txt").open("a") as lines:
        lines.write(f"{to}\n")
    return f"paid {to}"


def take_back(args: Any, result: Any) -> str:
    return "taken back"


def replies(messages: Sequence[BaseMessage]) -> int:
    return sum(bool(getattr(message, "tool_calls", ())) for message in messages)


def step(messages: Sequence[BaseMessage]) -> Any:
    """What comes next follows from the messages, so that threads do not disturb each other."""
    task = next(message.text for message in messages if message.type == "human")
    turn = replies(messages)
    if task == "limit" and turn < 8:
        return call("think", thought=str(turn))
    if turn == 0 and task in ("ask", "pay"):
        return call("ask_user", question="Which colour?") if task == "ask" else call("pay", to="ada")
    return FINISH


def played(*script: Any) -> ScriptedModel:
    return ScriptedModel(lambda messages: script[replies(messages)])


undoable = StructuredTool.from_function(pay, metadata={"undo": take_back})
agent = served(build_graph(ScriptedModel(step), [undoable], limits={"turns": 2}))

asks = played(call("ask_user", question="Which year?"), FINISH)
pays = played(call("pay", to="ada"), call("finish_task", summary="Paid."))
lead = played([call("researcher", task="Find the year."), call("payer", task="Pay ada.")], FINISH)
members = [
    delegate("researcher", build_graph(asks), description="Finds years."),
    delegate("payer", build_graph(pays, [pay]), description="Pays."),
]
team = served(build_graph(lead, members, approvals={"write": True}))

writes = played(
    call("ask_user", question="Which port?", options=["80", "8080"]),
    call("write_file", path="a.txt", content="as the model wants"),
    call("finish_task", summary="It is written."),
)
writer = served(build_graph(writes, workspace_tools(HERE), approvals={"write": True}))
