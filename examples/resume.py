"""A thread goes on, whatever stopped it, by its ID: in this process or in another one."""

from langgraph.types import Command

from signoff import build_graph, go_on
from signoff.models import ScriptedModel, call

config = {"configurable": {"thread_id": "paint"}}

asks = ScriptedModel([call("ask_user", question="Which colour?")])
with build_graph(asks, storage="threads.sqlite") as graph:
    graph.invoke({"messages": [("user", "Paint the door.")]}, config)

finishes = ScriptedModel([call("finish_task", summary="The door is blue.")])
with build_graph(finishes, storage="threads.sqlite") as graph:
    result = graph.invoke(go_on(), config)
    for wait in result.get("__interrupt__", ()):
        print(wait.value["question"])
        result = graph.invoke(Command(resume={wait.id: "blue"}), config)
print(result["messages"][-1].text)
