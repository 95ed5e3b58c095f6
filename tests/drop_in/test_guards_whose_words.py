"""What a tool or another middleware writes in the user's role begins no task, and answers nothing; what a
person writes to a thread that stands still does."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, after_model, before_model
from langchain.tools import ToolRuntime
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import build_graph, outcome_of, sqlite_storage
from signoff.graph.messages import nudge_kind
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from tests.support.guarded import tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [("user", "do it")]}
DONE = call("finish_task", summary="All of it.")
HINT = "Remember the style guide."
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])


def invoked(agent: Any, given: Any, config: Any = CONFIG, **options: Any) -> Any:
    return agent.invoke(given, config, **options)


def awaited(agent: Any, given: Any, config: Any = CONFIG, **options: Any) -> Any:
    return asyncio.run(agent.ainvoke(given, config, **options))


WAYS = pytest.mark.parametrize("way", [invoked, awaited], ids=["sync", "async"])


@before_model
def before(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(HINT)]}


@after_model
def after(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(HINT)]}


class BesideACall(AgentMiddleware[Any, Any, Any]):
    def wrap_tool_call(self, request: Any, handler: Any) -> Command[Any]:
        return Command(update={"messages": [handler(request), HumanMessage(HINT)]})

    async def awrap_tool_call(self, request: Any, handler: Any) -> Command[Any]:
        return Command(update={"messages": [await handler(request), HumanMessage(HINT)]})


@tool
def shows(name: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
    """Show a picture."""
    told = ToolMessage("It is below.", tool_call_id=runtime.tool_call_id)
    return Command(update={"messages": [told, HumanMessage(HINT)]})


@tool
def lists(name: str, runtime: ToolRuntime[Any, Any]) -> list[Any]:
    """Show a picture, in a list."""
    told = ToolMessage("It is below.", tool_call_id=runtime.tool_call_id)
    return [told, Command(update={"messages": [HumanMessage(HINT)]})]


def around(first: bool, *more: Any, **rules: Any) -> list[Any]:
    return [Guards(**rules), *more] if first else [*more, Guards(**rules)]


# Each speaks three times, once in a turn.
SPEAKERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a middleware before the model": ("look", (before,)),
    "a middleware after the model": ("look", (after,)),
    "a middleware around a call": ("look", (BesideACall(),)),
    "a tool": ("shows", ()),
    "a tool that returns a list": ("lists", ()),
}


@ORDERS
@WAYS
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
@pytest.mark.parametrize(("name", "more"), SPEAKERS.values(), ids=list(SPEAKERS))
def test_a_limit_holds_whoever_speaks_in_the_users_role(
    name: str, more: Any, saved: bool, way: Callable[..., Any], first: bool
) -> None:
    model = ScriptedModel(lambda seen: call(name, name=f"n{len(seen)}"))
    storage: dict[str, Any] = {"checkpointer": InMemorySaver() if saved else None, "store": InMemoryStore()}
    talking = create_agent(
        model, [*tools(), shows, lists], middleware=around(first, *more, limits={"turns": 3}), **storage
    )
    found = way(talking, GO, CONFIG if saved else None)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns, outcome.tool_calls) == ("turns", 3, 3)
    said = [message for message in found["messages"] if message.text == HINT]
    assert len(said) >= 3
    assert all(map(nudge_kind, said))
    assert any(message.text == HINT for message in model.seen[-1].messages)


class AfterAnInput(AgentMiddleware[Any, Any, Any]):
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage(HINT)]}


@ORDERS
def test_what_is_said_beside_an_input_begins_no_second_task(first: bool) -> None:
    model = ScriptedModel([call("look", name="a"), DONE])
    found = create_agent(model, tools(), middleware=around(first, AfterAnInput())).invoke(GO)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns) == ("finish_task", 2)
    assert outcome.task == found["messages"][0].id


@ORDERS
@WAYS
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
def test_words_after_an_accepted_finish_leave_it_a_success(
    saved: bool, way: Callable[..., Any], first: bool
) -> None:
    storage: dict[str, Any] = {"checkpointer": InMemorySaver() if saved else None}
    talking = create_agent(ScriptedModel([DONE] * 3), middleware=around(first, after), **storage)
    outcomes = [outcome_of(way(talking, GO, CONFIG if saved else None)) for _ in range(3 if saved else 1)]
    assert [(one.status, one.turns) for one in outcomes] == [("success", 1)] * len(outcomes)
    machine = outcome_of(build_graph(ScriptedModel([DONE]), middleware=[after]).invoke(GO))
    assert (machine.status, machine.turns) == ("success", 1)


@WAYS
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize(
    ("pause", "more"),
    [
        ("model", ()),
        ("tools", ()),
        ("model", (before,)),
        ("tools", (before,)),
        ("before.before_model", (before,)),
    ],
)
def test_what_a_person_writes_to_a_thread_that_stands_still_begins_a_task(
    pause: str, more: Any, durability: str, way: Callable[..., Any]
) -> None:
    model = ScriptedModel(
        lambda seen: DONE if any(m.type == "tool" for m in seen) else call("look", name="a")
    )
    held = create_agent(model, tools(), middleware=[Guards(), *more], checkpointer=InMemorySaver())
    for given in (GO, None):
        way(held, given, interrupt_before=[pause])
    assert held.get_state(CONFIG).values["task"] != "theirs"
    held.update_state(CONFIG, {"messages": [HumanMessage("Rather that.", id="theirs")]})
    found = way(held, None, durability=durability)
    assert outcome_of(found).succeeded
    assert held.get_state(CONFIG).values["task"] == "theirs"
    assert all(nudge_kind(message) for message in found["messages"] if message.text == HINT)


BOTH = pytest.mark.parametrize("create", [create_agent, create_deep_agent])
ASKED = call("ask_user", question="Which one?")
# With an end where there would be none.
BOUND: Any = {**CONFIG, "recursion_limit": 60}


@BOTH
@ORDERS
@WAYS
@pytest.mark.parametrize("speaker", [before, after], ids=["before the model", "after the model"])
def test_a_question_is_asked_and_a_limit_holds_where_somebody_speaks_in_each_turn(
    create: Any, speaker: Any, way: Callable[..., Any], first: bool
) -> None:
    model = ScriptedModel(lambda seen: call("look", name=f"n{len(seen)}") if len(model.seen) > 1 else ASKED)
    rules = around(first, speaker, limits={"turns": 3})
    talking = create(model, tools(), middleware=rules, checkpointer=InMemorySaver(), store=InMemoryStore())
    asking = way(talking, GO, BOUND)
    assert [one.value["question"] for one in asking["__interrupt__"]] == ["Which one?"]
    found = way(talking, Command(resume="The red one."), BOUND)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns, outcome.tool_calls) == ("turns", 3, 2)
    assert next(m.text for m in found["messages"] if m.type == "tool") == "The red one."


@BOTH
@WAYS
def test_what_a_person_writes_beside_a_question_answers_it(create: Any, way: Callable[..., Any]) -> None:
    model = ScriptedModel([ASKED, call("look", name="a"), DONE])
    asking = create(model, tools(), middleware=[Guards()], checkpointer=InMemorySaver())
    way(asking, GO)
    asking.update_state(CONFIG, {"messages": [HumanMessage("The red one.")]})
    found = way(asking, None)
    assert (outcome_of(found).reason, outcome_of(found).turns) == ("finish_task", 3)
    assert next(m.text for m in found["messages"] if m.type == "tool") == "The red one."


@ORDERS
def test_a_limit_holds_where_each_step_is_of_another_process(first: bool, tmp_path: Path) -> None:
    for step in range(40):
        # A storage and an agent of its own each time, as in another process.
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            talking = create_agent(
                ScriptedModel(lambda seen: call("look", name=f"n{len(seen)}")),
                tools(),
                middleware=around(first, before, limits={"turns": 3}),
                checkpointer=storage.checkpointer,
                store=storage.store,
            )
            talking.invoke(None if step else GO, CONFIG, interrupt_before="*")
            state = talking.get_state(CONFIG)
        if not state.next:
            break
    assert (outcome_of(state).reason, outcome_of(state).turns) == ("turns", 3)


@ORDERS
def test_words_after_a_reply_keep_no_call_of_it_from_running(first: bool) -> None:
    model = ScriptedModel([call("save", name="a"), DONE])
    found = create_agent(model, tools(), middleware=around(first, after)).invoke(GO)
    assert next(m.text for m in found["messages"] if m.type == "tool") == "saved a"


class Trims(AgentMiddleware[Any, Any, Any]):
    """Shows the model the last messages alone; the history keeps them all."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=list(request.messages)[-3:]))


def test_a_message_that_is_marked_is_shown_once() -> None:
    model = ScriptedModel([call("save", name="a"), DONE])
    trimmed = guarded(create_agent(model, tools(), middleware=[Trims(), Guards(), before]))
    trimmed.invoke(GO)
    times = [sum(HINT in message.text for message in asked.messages) for asked in model.seen]
    assert times == [1, 1]
