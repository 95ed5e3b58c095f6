"""A task ends by the rules in `create_agent` with `Guards` as by `build_graph`; and what else LangChain's
loop leaves to them: jumps of others, agents that share something, mistakes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from signoff import SetupError, ThreadBusy, TooLate, build_graph, delegate, outcome_of
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import ASKS, DONE, EVERY_FACE, LOOK, ORDERS, agent, looks, used
from tests.drop_in.playing import (
    ACCEPTED,
    GO,
    THREAD,
    around,
    ended,
    hook,
    jumps,
    memory,
    paying,
    play,
    results,
    warned,
)
from tests.support.guarded import tools


class City(BaseModel):
    name: str


# What is drawn in test_guards_like_the_machine.py is not here. The script, the rules, and how the task ends.
ENDS: Mapping[str, tuple[list[Any], dict[str, Any], str, str, int]] = {
    "a finish": ([DONE], {}, "success", "finish_task", 1),
    "words for ever": (["only words"] * 5, {}, "limit", "talk_turns", 5),
    "beside a failure": ([[call("look", name="bad"), DONE], DONE], {}, "success", "finish_task", 2),
    "refused for ever": ([DONE] * 2, {"checks": [lambda: False]}, "limit", "review_deadlock", 2),
    "a question": ([[LOOK, ASKS], DONE], {"saved": None}, "success", "finish_task", 2),
}


@EVERY_FACE
@pytest.mark.parametrize("case", ENDS)
def test_a_task_ends_as_the_rules_say(case: str, face: Callable[..., Any]) -> None:
    script, rules, status, *use = ENDS[case]
    asked = face(script, **{"saved": {}, **rules})
    found = play(asked)
    if "saved" in rules:
        assert (len(found["__interrupt__"]), found.get("outcome")) == (1, None)
        found = play(asked, Command(resume="yes"))
    assert (found["outcome"]["status"], *used(found)) == (status, *use)
    assert answered(found) == asked_for(found)
    assert found["messages"][-1].text


def asked_for(state: Any) -> list[Any]:
    replies = [message for message in state["messages"] if message.type == "ai"]
    return sorted(one["id"] for said in replies for one in [*said.tool_calls, *said.invalid_tool_calls])


def answered(state: Any) -> list[Any]:
    return sorted(message.tool_call_id for message in state["messages"] if message.type == "tool")


class TestGuards:
    def test_the_model_is_told_how_to_finish_and_of_no_answer_before(self) -> None:
        model = ScriptedModel([DONE, DONE])
        asked = create_agent(model, tools(), middleware=[Guards()], system_prompt="Be kind.", **memory())
        play(asked)
        play(asked)
        system, *seen = model.seen[-1].messages
        assert (system.text.startswith("Be kind."), "finish_task" in system.text) == (True, True)
        assert [message.type for message in seen] == ["human", "ai", "tool", "ai", "human"]

    def test_a_streamed_reply_is_closed_after_its_finish(self) -> None:
        model = ScriptedModel([[LOOK, DONE, call("finish_task", summary="Once more. " * 200)]])
        *_, (_, found) = agent(model).stream(GO, THREAD, stream_mode=["messages", "values"])
        said = next(message for message in found["messages"] if message.type == "ai")
        assert [one["name"] for one in said.tool_calls] == ["look", "finish_task"]
        assert outcome_of(found).succeeded


class TestGuarded:
    def test_it_has_one_runner_and_no_limit_of_steps(self) -> None:
        model = ScriptedModel(lambda seen: looks(seen) if len(seen) < 40 else DONE)
        held = guarded(agent(model, limits={"turns": 500}).with_config(recursion_limit=20))
        stream = held.stream(GO, THREAD)
        next(stream)
        with pytest.raises(ThreadBusy):
            play(held)
        assert len(list(stream)) > 20
        assert outcome_of(held.get_state(THREAD)).succeeded

    def test_an_answer_to_nobody_is_too_late(self) -> None:
        asking = guarded(agent([ASKS, DONE]))
        play(asking)
        with pytest.raises(TooLate):
            play(asking, Command(resume={"0" * 32: "yes"}))
        assert ended(play(asking, Command(resume="yes"))) == ACCEPTED

    def test_it_warns_once_that_there_is_no_journal_without_a_store(self) -> None:
        script = ScriptedModel([call("save", name="a"), call("save", name="b"), DONE])
        bare = create_agent(script, tools(), middleware=[Guards()], checkpointer=InMemorySaver())
        with warned("JournalWarning"):
            play(bare)

    def test_it_warns_of_a_sub_agent_without_guards(self) -> None:
        def deep(*within: Any) -> Any:
            helper = {"name": "general-purpose", "description": "Helps.", "system_prompt": "Help."}
            subagents: Any = [{**helper, "middleware": list(within)}]
            return create_deep_agent(ScriptedModel([DONE]), middleware=[Guards()], subagents=subagents)

        with warned():
            guarded(deep(Guards()))
        with warned("MiddlewareWarning") as told:
            guarded(deep())
        assert "general-purpose" in str(told[0].message)


class TestJumpsOfOthers:
    PAST: Mapping[str, tuple[str, Callable[[Any], Any], str]] = {
        "to the end after the model": ("after_model", jumps("end", once=False), "end"),
        "to the end before the model": (
            "before_model",
            jumps("end", once=False, messages=[AIMessage("That is enough.")]),
            "end",
        ),
    }

    @ORDERS
    @pytest.mark.parametrize("case", PAST)
    def test_what_goes_past_the_guards_is_an_error_and_no_success(self, case: str, first: bool) -> None:
        found = play(guarded(agent([[LOOK, DONE]] * 2, hook(*self.PAST[case]), first=first)))
        assert ended(found) == ("error", "middleware")

    def test_a_tool_that_returns_directly_ends_no_task(self) -> None:
        returns = tool("returns", return_direct=True, description="Return.")(lambda name: name)
        assert ended(play(agent([call("returns", name="a")], more=[returns]))) == ("error", "middleware")

    def test_a_tool_that_goes_to_another_node_goes_there(self) -> None:
        @tool
        def leaves(runtime: ToolRuntime[Any, Any]) -> Any:
            """Leave."""
            said = ToolMessage("It has left.", tool_call_id=runtime.tool_call_id)
            return Command(update={"messages": [said]}, goto="model")

        found = play(agent([call("leaves"), DONE], more=[leaves]))
        assert (used(found), results(found)[0]) == (("finish_task", 2), "It has left.")

    def test_what_goes_back_to_the_model_for_ever_is_a_mistake(self) -> None:
        back = hook("after_model", jumps("model", once=False), "model")
        with pytest.raises(SetupError):
            play(guarded(agent([LOOK], back)))


class WithTask(AgentState[Any]):
    task: str


class TestShared:
    @staticmethod
    def answers(request: Any, handler: Any) -> AIMessage:
        """In place of the model, without ids of messages, and with the same id for each call."""
        one: Any = {"name": "pay", "args": {"name": "x"}, "id": "p"}
        if request.messages[-1].type != "human":
            one = {"name": "finish_task", "args": {"summary": "Paid."}, "id": "f"}
        return AIMessage("", tool_calls=[one])

    def test_runs_without_a_thread_share_no_journal(self) -> None:
        pay, paid = paying()
        asked = agent([], around(self.answers), more=[pay], saved={"store": InMemoryStore()})
        for _ in range(2):
            assert ended(play(asked)) == ACCEPTED
        assert paid == ["x", "x"]

    def test_a_reply_without_an_id_gets_one_that_no_reply_had_before(self) -> None:
        pay, paid = paying()
        asked = agent([], around(self.answers), more=[pay])
        for _ in range(4):
            assert ended(play(asked)) == ACCEPTED
            # So that the replies of the next task stand where those of this one did.
            asked.update_state(THREAD, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
        assert paid == ["x"] * 4

    def test_agents_with_the_same_guards_keep_their_own_tools(self) -> None:
        both, saved = Guards(), memory()

        def built(given: Any) -> Any:
            model = ScriptedModel([call("Pay", name="a"), DONE])
            return create_agent(model, [given], middleware=[both], **saved)

        (reading, read), (writing, written) = paying(kind="read"), paying()
        reads, writes = built(reading), built(writing)
        play(writes, interrupt_before=["tools"])
        states = [reads.invoke(GO, {"configurable": {"thread_id": "other"}}), play(writes, None)]
        assert (read, written) == (["a"], ["a"])
        assert [len(state["outcome"]["changes"]) for state in states] == [0, 1]

    @pytest.mark.parametrize("where", ["the agent", "a middleware"])
    def test_a_channel_with_a_name_of_the_guards_is_told(self, where: str) -> None:
        brings = type("Brings", (AgentMiddleware,), {"state_schema": WithTask})()
        of_the_agent: Any = {"state_schema": WithTask} if where == "the agent" else {}
        within = [Guards(), *([] if of_the_agent else [brings])]
        asked = create_agent(ScriptedModel([DONE]), tools(), middleware=within, **of_the_agent)
        with pytest.raises(SetupError, match="'task'"):
            guarded(asked)
        with pytest.raises(SetupError, match="'task'"):
            asked.invoke({**GO, "task": "mine"})

    def test_a_thread_of_the_machine_is_not_taken_up(self) -> None:
        saved = memory()
        play(build_graph(ScriptedModel([DONE]), **saved))
        with pytest.raises(SetupError):
            play(agent([DONE], saved=saved))


def finish_task(summary: str) -> str:
    """Finish."""
    return summary


DELEGATE = delegate("helper", build_graph(ScriptedModel([])), description="Helps.")
MISTAKES: Mapping[str, tuple[Callable[..., Any], str]] = {
    "a tool with the name of a control tool": (lambda build: build([finish_task]), "finish_task"),
    "a provider's tool with such a name": (
        lambda build: build([{"type": "any", "name": "finish_task"}]),
        "finish_task",
    ),
    "a second Guards": (lambda build: build([], type("Mine", (Guards,), {})()), "second"),
    "a delegate": (lambda build: build([DELEGATE]), "'helper'"),
    "a format of the agent": (
        lambda build: build([], response_format=ToolStrategy(City)),
        "Guards(response_format=",
    ),
    "guarded without guards": (lambda _: guarded(create_agent(ScriptedModel([DONE]))), "guards"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told(case: str) -> None:
    def build(given: Any, *others: Any, **options: Any) -> Any:
        return create_agent(ScriptedModel([DONE]), given, middleware=[Guards(), *others], **options)

    make, name = MISTAKES[case]
    with pytest.raises(SetupError) as raised:
        make(build).invoke(GO)
    assert name in str(raised.value)
