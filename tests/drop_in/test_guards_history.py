"""`Guards` where others write, remove and answer: words of others begin no task, what a task has done counts
whatever is removed, and replies of a cache are settled like the model's."""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest
from langchain.agents import middleware as chain
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command

from signoff import SetupError, go_on, outcome_of, standard_controls
from signoff.guards import guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import ANSWER, ASKS, DONE, LOOK, ORDERS, agent, used
from tests.drop_in.playing import (
    ACCEPTED,
    GO,
    THREAD,
    around,
    around_tools,
    ended,
    hook,
    memory,
    play,
    results,
    texts,
)
from tests.support.guarded import KeepsTheLastReply

HINT = "Remember the style guide."


def says(*_: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(HINT)]}


says_before, says_after = hook("before_model", says, whose="says_before"), hook("after_model", says)
says_around_a_call = around_tools(
    lambda request, handler: Command(update={"messages": [handler(request), HumanMessage(HINT)]})
)


@tool
def shows(name: str, runtime: ToolRuntime[Any, Any]) -> Any:
    """Show a picture in the user's role."""
    return [ToolMessage("It is below.", tool_call_id=runtime.tool_call_id), Command(update=says())]


class TestWhoseWords:
    """What a tool or a middleware writes in the user's role begins no task, and answers nothing."""

    SPEAKERS: Mapping[str, tuple[str, list[Any]]] = {
        "after the model": ("look", [says_after]),
        "around a call": ("look", [says_around_a_call]),
        "a tool": ("shows", []),
    }

    @ORDERS
    @pytest.mark.parametrize("case", SPEAKERS)
    def test_a_limit_holds_whoever_speaks_in_the_users_role(self, case: str, first: bool) -> None:
        name, others = self.SPEAKERS[case]
        model = ScriptedModel(lambda seen: call(name, name=f"n{len(seen)}"))
        found = play(agent(model, *others, first=first, more=[shows], limits={"turns": 3}))
        assert (*used(found), found["outcome"]["tool_calls"]) == ("turns", 3, 3)
        assert texts(found).count(HINT) >= 3
        assert HINT in model.seen[-1].messages[-1].text

    @ORDERS
    def test_what_is_said_beside_an_input_begins_no_second_task(self, first: bool) -> None:
        found = play(agent([LOOK, DONE], hook("before_agent", says), first=first))
        assert used(found) == ("finish_task", 2)
        assert found["outcome"]["task"] == found["messages"][0].id

    @ORDERS
    def test_words_after_a_reply_keep_no_call_from_running_and_no_finish_from_counting(
        self, first: bool
    ) -> None:
        talking = agent([call("save", name="a"), DONE, DONE], says_after, first=first)
        found = play(talking)
        assert (used(found), results(found, "save")) == (("finish_task", 2), ["saved a"])
        assert used(play(talking)) == ("finish_task", 1)

    @pytest.mark.parametrize(("pause", "others"), [("model", []), ("tools", [says_before])])
    def test_what_a_person_writes_to_a_thread_that_stands_still_begins_a_task(
        self, pause: str, others: list[Any]
    ) -> None:
        held = agent(lambda seen: DONE if any(m.type == "tool" for m in seen) else LOOK, *others)
        play(held, interrupt_before=[pause])
        play(held, None, interrupt_before=[pause])
        held.update_state(THREAD, {"messages": [HumanMessage("Rather that.", id="theirs")]})
        found = play(held, None)
        assert (ended(found), found["outcome"]["task"]) == (ACCEPTED, "theirs")


ALL = RemoveMessage(id=REMOVE_ALL_MESSAGES)


def summarises() -> Any:
    said = ScriptedModel(lambda seen: "It looked.")
    return chain.SummarizationMiddleware(said, trigger=("messages", 6), keep=("messages", 2))


REMOVERS = pytest.mark.parametrize("remover", [summarises, KeepsTheLastReply])


class Agents:
    """Agents of one thread, each as a new process makes it; the model counts how often it is asked."""

    def __init__(self, says: Callable[[int], Any], **rules: Any) -> None:
        self.asked, self.saved, self.says, self.rules = 0, memory(), says, rules

    def made(self, *others: Any, first: bool = True) -> Any:
        return guarded(agent(self._reply, *others, first=first, saved=self.saved, **self.rules))

    def _reply(self, seen: Any) -> Any:
        self.asked += 1
        # More than any limit of these tests lets happen.
        return self.says(self.asked) if self.asked < 40 else DONE


def look(turn: int) -> Any:
    return call("look", name=f"n{turn}")


class TestRemovedMessages:
    """What a task has done counts, whatever is taken out of the messages; for a new task it does not."""

    LIMITS: Mapping[str, tuple[Callable[[int], Any], dict[str, Any], str, int]] = {
        "turns": (look, {"turns": 8}, "turns", 8),
        # More than a middleware keeps: the reply goes, and some results before any hook has seen them.
        "many tool calls": (lambda turn: [look(turn)] * 5, {"tool_calls": 14}, "tool_calls", 3),
        "talk": (lambda turn: "only words", {}, "talk_turns", 5),
        "repeats": (lambda turn: LOOK, {}, "repeats", 5),
    }

    @REMOVERS
    @pytest.mark.parametrize("case", LIMITS)
    def test_a_limit_holds(self, case: str, remover: Any) -> None:
        says, limits, *use = self.LIMITS[case]
        agents = Agents(says, limits=limits)
        assert [*used(play(agents.made(remover())))] == use
        assert agents.asked == use[1]

    def test_a_limit_holds_where_each_step_is_of_another_process(self) -> None:
        agents, given = Agents(look, limits={"turns": 5}), GO
        for _ in count():
            found = play(agents.made(KeepsTheLastReply()), given, interrupt_after="*")
            if found.get("outcome"):
                break
            given = None
        assert (*used(found), agents.asked) == ("turns", 5, 5)

    def test_a_fork_in_another_process_counts_what_was_before_it(self) -> None:
        agents = Agents(look, limits={"turns": 12})
        first = agents.made(KeepsTheLastReply())
        play(first)
        turns = [state for state in first.get_state_history(THREAD) if state.next == ("model",)]
        # The newest first: behind the fourth is the ninth call of the model.
        agents.asked = 0
        found = agents.made(KeepsTheLastReply()).invoke(None, turns[4].config)
        assert (outcome_of(found).turns, agents.asked) == (12, 4)

    @REMOVERS
    def test_a_new_task_begins_at_nothing(self, remover: Any) -> None:
        agents = Agents(lambda turn: DONE if turn == 7 else look(turn), limits={"turns": 8})
        asked = agents.made(remover())
        states = [play(asked) for _ in range(2)]
        assert [used(state) for state in states] == [("finish_task", 7), ("turns", 8)]
        assert states[0]["outcome"]["task"] != states[1]["outcome"]["task"]

    def test_turns_are_granted_beyond_those_used(self) -> None:
        agents = Agents(lambda turn: ASKS if turn in (2, 3) else look(turn), limits={"turns": 2})
        given: list[Any] = [GO, ANSWER, ANSWER, go_on(turns=3), go_on(turns=3)]
        states = [play(agents.made(KeepsTheLastReply()), each) for each in given]
        assert [outcome_of(state).turns for state in states[2:]] == [4, 7, 10]

    def test_a_thread_that_is_emptied_between_two_tasks_begins_the_second(self) -> None:
        asked = Agents(lambda turn: DONE).made()
        play(asked)
        asked.update_state(THREAD, {"messages": [ALL]})
        assert used(play(asked, {"messages": [("user", "and now?")]})) == ("finish_task", 1)


def cached(name: str, /, **args: Any) -> AIMessage:
    """A reply of a cache, in which the id of the call is the same in each."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "c0"}])


def answering(kept: AIMessage) -> Any:
    """A middleware that answers with this very reply for ever."""
    kept = kept.model_copy()
    return around(lambda request, handler: kept)


SEES, ENDED = cached("look", name="a"), cached("finish_task", summary="All of it.")
# As on a reply in another thread with guards.
MARKED = {"signoff": {"answer": "task", "cut": -5, "order": ["x"], "at": "x", "seconds": None, "retries": 3}}


class TestBehindACache:
    """A middleware before the guards that answers the model's calls itself."""

    SAME: Mapping[str, tuple[AIMessage, str, int]] = {
        "a call": (SEES.model_copy(), "repeats", 5),
        "with marks of another thread": (
            ENDED.model_copy(update={"response_metadata": MARKED}),
            "finish_task",
            1,
        ),
    }

    @pytest.mark.parametrize("case", SAME)
    def test_the_same_object_again_is_another_reply(self, case: str) -> None:
        """LangGraph writes an id into it."""
        kept, *use = self.SAME[case]
        asked = agent([], answering(kept), first=False)
        for at in range(1, 4):
            found = play(asked)
            assert ([*used(found)], texts(found).count("go")) == (use, at)

    def test_without_a_thinking_tool_it_is_a_mistake_and_no_endless_loop(self) -> None:
        controls = [control for control in standard_controls() if control.tool.name == "finish_task"]
        with pytest.raises(SetupError):
            play(agent([], answering(ENDED), first=False, control_tools=controls))
