"""A payment that a person must approve. It happens once, whatever happens to the process."""

from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

config = {"configurable": {"thread_id": "payday"}}
PAID = []


def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    PAID.append((to, amount))
    return f"paid {amount} to {to}"


model = ScriptedModel([call("pay", to="ada", amount=500), call("finish_task", summary="Ada has her money.")])
with sqlite_storage("threads.sqlite") as storage:
    graph = build_graph(model, tools=[pay], approvals={"pay": True}, storage=storage)
    asked = graph.invoke({"messages": [("user", "Pay Ada 500.")]}, config)["__interrupt__"][0]
    print(asked.value["action_requests"][0]["args"])
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "ada", "amount": 50}}}
    graph.invoke(Command(resume={asked.id: {"decisions": [edit]}}), config)
print(PAID)
