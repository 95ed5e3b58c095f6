"""An agent as a node of another graph, and its result as an instance of a type."""

from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call


class Trip(BaseModel):
    """A journey by train."""

    to: str
    hours: float


script = [call("finish_task", summary="Graz it is.", result={"to": "Graz", "hours": 2.5})] * 2
with ScriptedModel(script) as model:
    agent = build_graph(model, response_format=Trip, name="planner")
    asked = {"messages": [("user", "Where can I be by noon?")]}

    # Alone: the outcome has the result as a Trip, which type checkers know.
    trip = outcome_of(agent.invoke(asked)).result
    if trip is not None:
        print(f"{trip.to}, {trip.hours} hours")

    # Within another graph, which knows nothing of Signoff: the last message is the answer.
    around = StateGraph(MessagesState)
    around.add_node("planner", agent)
    around.add_edge(START, "planner")
    around.add_edge("planner", END)
    last = around.compile().invoke(asked)["messages"][-1]
    print(f"{last.name}: {last.text}")
