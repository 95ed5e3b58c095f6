"""The loop in ten lines, with a scripted model in place of a real one."""

from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = ScriptedModel([call("add", a=19, b=23), call("finish_task", summary="19 + 23 is 42.")])
with build_graph(model, tools=[add], storage="threads.sqlite") as graph:
    config = {"configurable": {"thread_id": "sum"}}
    result = graph.invoke({"messages": [("user", "What is 19 + 23?")]}, config)
print(result["messages"][-1].text)
print(outcome_of(result).status)
