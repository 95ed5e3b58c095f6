"""What a task has done counts for `Guards`, whatever other middleware takes out of the messages: in one
process and over restarts, and on forks. For a new task nothing of it counts."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    after_model,
    before_model,
)
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import current_outcome, extend, outcome_of
from signoff.graph.history.reader import Reader
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from tests.support.guarded import KeepsTheLastReply, tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [("user", "do it")]}
DONE = call("finish_task", summary="All of it.")
ALL = RemoveMessage(id=REMOVE_ALL_MESSAGES)
# More than any limit of these tests lets happen.
MOST = 40


@before_model
def keeps_the_first_and_the_last(state: Any, runtime: Any) -> Any:
    messages = state["messages"]
    return {"messages": [ALL, messages[0], *messages[-3:]]} if len(messages) > 4 else None


@after_model
def deletes_the_oldest(state: Any, runtime: Any) -> Any:
    messages = state["messages"]
    return {"messages": [RemoveMessage(id=m.id) for m in messages[1:3]]} if len(messages) > 4 else None


@before_model
def tells_it_anew(state: Any, runtime: Any) -> Any:
    """A summary of its own make, which nothing marks as one."""
    messages = state["messages"]
    return {"messages": [ALL, HumanMessage("So far you looked.")]} if len(messages) > 2 else None


def summarises() -> AgentMiddleware[Any, Any, Any]:
    return SummarizationMiddleware(
        ScriptedModel(lambda seen: "It looked."), trigger=("messages", 6), keep=("messages", 2)
    )


REMOVERS: dict[str, Callable[[], Any]] = {
    "summarises": summarises,
    "trims": lambda: keeps_the_first_and_the_last,
    "deletes": lambda: deletes_the_oldest,
    "keeps one reply": KeepsTheLastReply,
    "tells it anew": lambda: tells_it_anew,
}
REMOVES = pytest.mark.parametrize("remover", REMOVERS.values(), ids=list(REMOVERS))
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])


class Agents:
    """Agents of one thread, each as a new process makes it; `model` asks them all the same."""

    def __init__(self, says: Callable[[int], Any], **rules: Any) -> None:
        self.asked = 0
        self.storage: Any = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
        self._says, self._rules = says, rules

    def made(self, *around: Any, first: bool = True) -> Any:
        guards = Guards(**self._rules)
        middleware = [guards, *around] if first else [*around, guards]
        model = ScriptedModel(self._reply)
        return guarded(create_agent(model, tools(), middleware=middleware, **self.storage))

    def _reply(self, seen: Any) -> Any:
        self.asked += 1
        return self._says(self.asked) if self.asked < MOST else DONE


def looks(turn: int) -> Any:
    return call("look", name=f"n{turn}")


@ORDERS
@REMOVES
@pytest.mark.parametrize(
    ("says", "rules", "reason", "turns"),
    [
        (looks, {"limits": {"turns": 8}}, "turns", 8),
        (lambda turn: [looks(turn)] * 2, {"limits": {"tool_calls": 7}}, "tool_calls", 4),
        # More than a middleware keeps: the reply goes, and some of its results before any hook has seen them.
        (lambda turn: [looks(turn)] * 5, {"limits": {"tool_calls": 14}}, "tool_calls", 3),
        (lambda turn: "only words", {}, "talk_turns", 5),
        (lambda turn: call("look", name="a"), {}, "repeats", 5),
    ],
    ids=["turns", "tool calls", "many tool calls", "talk", "repeats"],
)
def test_a_limit_holds(says: Any, rules: Any, reason: str, turns: int, remover: Any, first: bool) -> None:
    agents = Agents(says, **rules)
    outcome = outcome_of(agents.made(remover(), first=first).invoke(GO, CONFIG))
    assert (outcome.reason, outcome.turns, agents.asked) == (reason, turns, turns)


def mixed(turn: int) -> Any:
    """Words, work that fails, a refused finish, a phase, and thoughts; done in the tenth turn."""
    phase = call("finish_task", summary="A part.", completion_percentage=50, next_phase="the rest")
    steps = {2: "I will.", 3: call("look", name="bad"), 4: [call("look", name="bad"), DONE], 6: phase}
    return DONE if turn == 10 else steps.get(turn, [call("think", thought="hm"), looks(turn)])


@ORDERS
@pytest.mark.parametrize("remover", [summarises, KeepsTheLastReply, REMOVERS["trims"], REMOVERS["deletes"]])
def test_the_outcome_is_as_where_nothing_is_removed(remover: Any, first: bool) -> None:
    def ended(*around: Any) -> dict[str, Any]:
        outcome = current_outcome(Agents(mixed).made(*around, first=first).invoke(GO, CONFIG))
        assert outcome is not None
        # The prompts are shorter.
        return {**outcome, "usage": outcome["usage"]["output_tokens"], "seconds_active": 0, "task": ""}

    found = ended(remover())
    assert (found["refusals"], found["nudges"], len(found["phases"])) == (1, 1, 1)
    assert found == ended()


@ORDERS
@REMOVES
def test_a_limit_holds_where_each_step_is_of_another_process(remover: Any, first: bool) -> None:
    agents = Agents(looks, limits={"turns": 8})
    given: Any = GO
    while outcome_of_or_none(agents, remover(), first) is None:
        agents.made(remover(), first=first).invoke(given, CONFIG, interrupt_after="*")
        given = None
    outcome = outcome_of_or_none(agents, remover(), first)
    assert outcome is not None
    assert (outcome.reason, outcome.turns, agents.asked) == ("turns", 8, 8)


def outcome_of_or_none(agents: Agents, remover: Any, first: bool) -> Any:
    state = agents.made(remover, first=first).get_state(CONFIG)
    return outcome_of(state) if state.values.get("outcome") else None


@ORDERS
@REMOVES
def test_a_limit_holds_over_answers_in_other_processes(remover: Any, first: bool) -> None:
    agents = Agents(lambda turn: call("save", name=f"n{turn}"), limits={"turns": 5})
    asks = HumanInTheLoopMiddleware(interrupt_on={"save": True})
    found = agents.made(asks, remover(), first=first).invoke(GO, CONFIG)
    no: Command[Any] = Command(resume={"decisions": [{"type": "reject", "message": "Not this."}]})
    while found.get("__interrupt__"):
        found = agents.made(asks, remover(), first=first).invoke(no, CONFIG)
    assert (outcome_of(found).reason, outcome_of(found).turns, agents.asked) == ("turns", 5, 5)


@REMOVES
@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "the same process"])
def test_a_fork_counts_what_was_before_it(remover: Any, fresh: bool) -> None:
    agents = Agents(looks, limits={"turns": 12})
    agent = agents.made(remover())
    agent.invoke(GO, CONFIG)
    replies = {
        config["configurable"]["checkpoint_id"]: (config, count)
        for config, count in forks(agent)
        if 4 <= count <= 6
    }
    config, before = next(iter(replies.values()))
    agents.asked = 0
    outcome = outcome_of((agents.made(remover()) if fresh else agent).invoke(None, config))
    assert (outcome.turns, agents.asked) == (12, 12 - before)


def forks(agent: Any) -> Iterator[tuple[Any, int]]:
    """The places before a model call, each with the number of replies before it."""
    for state in agent.get_state_history(CONFIG):
        if state.next == ("model",):
            replies = [m.id for m in state.values.get("past", ()) if m.type == "ai"]
            yield state.config, len(set(replies))


@ORDERS
@REMOVES
def test_a_new_task_begins_at_nothing(remover: Any, first: bool) -> None:
    agents = Agents(lambda turn: DONE if turn == 7 else looks(turn), limits={"turns": 8})
    agent = agents.made(remover(), first=first)
    outcomes = [outcome_of(agent.invoke(GO, CONFIG)) for _ in range(2)]
    assert [(one.reason, one.turns) for one in outcomes] == [("finish_task", 7), ("turns", 8)]
    assert outcomes[0].task != outcomes[1].task
    noted = {m.id for m in agent.get_state(CONFIG).values["past"] if m.type == "ai"}
    assert len(noted) == 8 + 1  # with the message that says how it ended


@REMOVES
def test_a_task_goes_on_after_a_limit_with_what_it_has_used(remover: Any) -> None:
    agents = Agents(looks, limits={"turns": 5})
    agents.made(remover()).invoke(GO, CONFIG)
    agent = agents.made(remover())
    found = agent.invoke(extend(agent.get_state(CONFIG).values, turns=3), CONFIG)
    assert (outcome_of(found).turns, agents.asked) == (8, 8)


@pytest.mark.parametrize("name", sorted(set(REMOVERS) - {"tells it anew"}))
def test_an_extension_adds_to_the_turns_used_beyond_the_limit(name: str) -> None:
    # The one left out takes the question away before anybody is asked.
    remover = REMOVERS[name]
    agents = Agents(
        lambda turn: call("ask_user", question="?") if turn in (2, 3) else looks(turn), limits={"turns": 2}
    )
    agents.made(remover()).invoke(GO, CONFIG)
    for _ in range(2):
        agents.made(remover()).invoke(Command(resume="this"), CONFIG)
    for used in (4, 7, 10):
        agent = agents.made(remover())
        assert outcome_of(agent.get_state(CONFIG)).turns == agents.asked == used
        agent.invoke(extend(agent.get_state(CONFIG).values, turns=3), CONFIG)


def test_a_thread_that_is_emptied_between_two_tasks_begins_the_second() -> None:
    agents = Agents(lambda turn: DONE)
    agent = agents.made()
    agent.invoke(GO, CONFIG)
    agent.update_state(CONFIG, {"messages": [ALL]})
    assert outcome_of(agent.invoke({"messages": [("user", "and now?")]}, CONFIG)).turns == 1
    assert agents.asked == 2


@contextmanager
def read_messages_counted() -> Iterator[list[int]]:
    """Counts how many messages are read, each time that one is."""
    counted, code = [0], Reader.add.__code__

    def count(frame: Any, event: str, _: Any) -> None:
        counted[0] += event == "call" and frame.f_code is code

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("around", [(), (keeps_the_first_and_the_last,)], ids=["nothing removed", "trimmed"])
def test_each_message_is_read_once(around: Any) -> None:
    agents = Agents(looks, limits={"turns": 30})
    with read_messages_counted() as counted:
        found = agents.made(*around).invoke(GO, CONFIG)
    assert outcome_of(found).turns == 30
    # A call, its result, and what little is shown to the model where something was removed.
    assert counted[0] < 30 * 2 * (1.2 if not around else 6)
