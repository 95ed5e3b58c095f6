"""What guarded agents share keeps them apart: a store, a history, a state, and the guards themselves."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, wrap_model_call
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore

from signoff import SetupError, build_graph, outcome_of
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from tests.support.guarded import tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
OTHER: Any = {"configurable": {"thread_id": "two"}}
GO: Any = {"messages": [("user", "do it")]}
DONE = call("finish_task", summary="All of it.")


def named(name: str, told: list[str], says: str, **metadata: Any) -> BaseTool:
    """A tool of this name that notes in `told` that it ran."""

    def run(name: str) -> str:
        told.append(says)
        return says

    return StructuredTool.from_function(run, name=name, description="Do it.", metadata=metadata)


@wrap_model_call
def answers_by_itself(request: Any, handler: Any) -> AIMessage:
    """In place of the model, without ids of messages, and with the same id for each call."""
    if request.messages[-1].type != "human":
        return AIMessage("", tool_calls=[{"name": "finish_task", "args": {"summary": "Paid."}, "id": "f1"}])
    return AIMessage("", tool_calls=[{"name": "pay", "args": {"name": "x"}, "id": "p1"}])


def by_guards(tool: BaseTool, **storage: Any) -> Any:
    return create_agent(ScriptedModel([]), [tool], middleware=[Guards(), answers_by_itself], **storage)


def by_machine(tool: BaseTool, **storage: Any) -> Any:
    return build_graph(ScriptedModel([]), [tool], middleware=[answers_by_itself], **storage)


@pytest.mark.parametrize("built", [by_guards, by_machine])
def test_runs_without_a_thread_share_no_journal(built: Callable[..., Any]) -> None:
    told = list[str]()
    paying = built(named("pay", told, "paid"), store=InMemoryStore())
    for _ in range(2):
        assert outcome_of(paying.invoke(GO)).succeeded
    assert told == ["paid", "paid"]


def test_a_reply_without_an_id_gets_one_that_no_reply_had_before() -> None:
    told = list[str]()
    paying = by_guards(named("pay", told, "paid"), checkpointer=InMemorySaver(), store=InMemoryStore())
    for _ in range(4):
        assert outcome_of(paying.invoke(GO, CONFIG)).succeeded
        # So that the replies of the next task stand where those of this one did.
        paying.update_state(CONFIG, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert told == ["paid"] * 4


def test_agents_beside_each_other_answer_each_call_of_their_own() -> None:
    node = guarded(create_agent(ScriptedModel([DONE, DONE]), middleware=[Guards()]))
    around = StateGraph(MessagesState)
    for name in ("left", "right"):
        around.add_node(name, node)
        around.add_edge(START, name)
    found = around.compile(checkpointer=InMemorySaver()).invoke(GO, CONFIG)
    calls = [one["id"] for m in found["messages"] if m.type == "ai" for one in m.tool_calls]
    results = [m.tool_call_id for m in found["messages"] if m.type == "tool"]
    assert len(calls) == 2
    assert sorted(calls) == sorted(results)


@pytest.mark.parametrize("name", ["act", "Act"], ids=["its name", "a name that is written wrong"])
def test_agents_with_the_same_guards_keep_their_own_tools(name: str) -> None:
    told, store, both = list[str](), InMemoryStore(), Guards()

    def agent(tool: BaseTool) -> Any:
        model = ScriptedModel([call(name, name="a"), DONE])
        return create_agent(model, [tool], middleware=[both], checkpointer=InMemorySaver(), store=store)

    reads, writes = agent(named("act", told, "read", kind="read")), agent(named("act", told, "written"))
    writes.invoke(GO, CONFIG, interrupt_before=["tools"])
    reads.invoke(GO, OTHER)
    writes.invoke(None, CONFIG)
    assert told == ["read", "written"]
    # The one that may change something is in the journal, and the other is not.
    assert [item.namespace[2] for item in store.search(("signoff", "journal"))] == ["one"]


class WithTask(AgentState[Any]):
    task: str


class WithList(AgentState[Any]):
    task: Annotated[list[str], list.__add__]


class BringsStop(AgentMiddleware[Any, Any, Any]):
    class Stops(AgentState[Any]):
        stop: str

    state_schema = Stops


def agent_with(*more: Any, **options: Any) -> Any:
    return create_agent(ScriptedModel([DONE]), tools(), middleware=[Guards(), *more], **options)


@pytest.mark.parametrize(
    ("build", "channel"),
    [
        (lambda: guarded(agent_with(state_schema=WithTask)), "task"),
        (lambda: guarded(agent_with(state_schema=WithList)), "task"),
        (lambda: guarded(agent_with(BringsStop())), "stop"),
        (lambda: agent_with(state_schema=WithTask).invoke({**GO, "task": "mine"}), "task"),
        (lambda: agent_with(state_schema=WithList).invoke(GO), "task"),
    ],
)
def test_a_channel_with_a_name_of_the_guards_is_told(build: Callable[[], Any], channel: str) -> None:
    with pytest.raises(SetupError, match=f"channels named '{channel}', and the state of this agent"):
        build()


def test_a_thread_of_the_machine_is_not_taken_up() -> None:
    saver = InMemorySaver()
    build_graph(ScriptedModel([DONE]), checkpointer=saver).invoke(GO, CONFIG)
    with pytest.raises(SetupError, match="A thread that build_graph has run cannot be continued"):
        create_agent(ScriptedModel([DONE]), middleware=[Guards()], checkpointer=saver).invoke(GO, CONFIG)


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    "built",
    [
        lambda model: create_agent(model, [*tools(), SEARCH], middleware=[Guards()]),
        lambda model: build_graph(model, [*tools(), SEARCH]),
    ],
    ids=["guards", "machine"],
)
def test_a_tool_that_the_provider_runs_is_told_as_such(built: Callable[[Any], Any]) -> None:
    found = built(ScriptedModel([call("web_search", query="a"), DONE])).invoke(GO)
    (told, _) = [m.text for m in found["messages"] if m.type == "tool"]
    assert told == "Not run: web_search is run by your provider, and cannot be called here."
