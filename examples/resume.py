"""A question, and the answer that resumes the thread by its ID: another process could give it."""

from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

config = {"configurable": {"thread_id": "paint"}}

with sqlite_storage("threads.sqlite") as storage:
    graph = build_graph(ScriptedModel([call("ask_user", question="Which colour?")]), storage=storage)
    paused = graph.invoke({"messages": [("user", "Paint the door.")]}, config)
    print(paused["__interrupt__"][0].value["question"])

with sqlite_storage("threads.sqlite") as storage:
    graph = build_graph(ScriptedModel([call("finish_task", summary="The door is blue.")]), storage=storage)
    (pending,) = graph.get_state(config).interrupts
    result = graph.invoke(Command(resume={pending.id: "blue"}), config)
    print(result["outcome"]["summary"])
