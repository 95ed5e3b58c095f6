"""What waits for a person has not started, what has begun stays unknown, and no effect comes before its reply
is saved: with LangChain's approvals beside `Guards`, and on the machine."""

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from signoff import outcome_of
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import ANSWER, ASKS, DONE, ORDERS, agent, machine
from tests.drop_in.playing import ACCEPTED, around_tools, ended, labels, memory, paying, play, results, warned

OTHER: Any = {"messages": [("user", "Something else.")]}
APPROVE = {"type": "approve"}
REJECT = {"type": "reject", "message": "Not this."}
PAYS = [call("pay", name="a"), DONE]
UNKNOWN = "<unknown_outcome>"
HAS_MODES = "interrupt_mode" in signature(HumanInTheLoopMiddleware).parameters
"""LangChain 1.4.0 has none: it waits once for all calls of a reply, and keeps an answer that does not fit."""
HAVE_MODES = pytest.mark.skipif(not HAS_MODES, reason="what LangChain 1.4.2 does not do")


def person(mode: str = "per_call", *names: str) -> Any:
    modes: Any = {"interrupt_mode": mode} if HAS_MODES else {}
    rule: Any = {"allowed_decisions": ["approve", "reject"]}
    return HumanInTheLoopMiddleware(interrupt_on={"pay": True, **dict.fromkeys(names, rule)}, **modes)


def asks_before(request: Any, handler: Any) -> Any:
    if request.tool_call["name"] == "pay":
        interrupt("sure?")
    return handler(request)


def asks_after(request: Any, handler: Any) -> Any:
    result = handler(request)
    interrupt("is it right?")
    return result


def answers(found: Any, **decisions: Any) -> Command[Any]:
    """Decisions on calls, by the name that they were given."""
    asked = found["__interrupt__"]
    if "action_requests" in asked[0].value:
        names = [request["args"]["name"] for request in asked[0].value["action_requests"]]
        return Command(resume={asked[0].id: {"decisions": [decisions[name] for name in names]}})
    waiting = {one.value["args"]["name"]: one.id for one in asked}
    return Command(resume={waiting[name]: decision for name, decision in decisions.items()})


BUILT: Mapping[str, Callable[..., Any]] = {
    "a call": lambda script, pay: agent(script, person(), more=[pay]),
    "deepagents": lambda script, pay: agent(script, person(), more=[pay], create=create_deep_agent),
    "a middleware of one's own": lambda script, pay: agent(script, around_tools(asks_before), more=[pay]),
    "one in the machine": lambda script, pay: machine(script, around_tools(asks_before), more=[pay]),
}


class TestWhatWaits:
    @pytest.mark.parametrize("case", BUILT)
    def test_a_message_in_place_of_the_decision_finds_nothing_started(self, case: str) -> None:
        pay, paid = paying()
        calls = [call("pay", name="a"), call("look", name="b"), call("pay", name="c")]
        asking = BUILT[case]([calls, DONE], pay)
        assert play(asking)["__interrupt__"]
        found = play(asking, OTHER)
        assert labels(found, "pay") == ["<superseded>"] * 2
        assert (paid, ended(found), found["outcome"]["changes"]) == ([], ACCEPTED, [])

    @pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
    def test_without_a_journal_it_is_unknown(self) -> None:
        asking = agent(PAYS, person(), more=paying()[:1], saved={"checkpointer": InMemorySaver()})
        play(asking)
        assert labels(play(asking, OTHER), "pay") == ["<maybe_run>"]

    @HAVE_MODES
    def test_of_two_calls_one_is_approved_and_a_message_comes_for_the_other(self) -> None:
        pay, paid = paying()
        calls = [call("pay", name="a"), call("pay", name="b"), call("save", name="c")]
        asking = agent([calls, DONE], person(), more=[pay])
        (left,) = play(asking, answers(play(asking), a=APPROVE))["__interrupt__"]
        assert left.value["args"]["name"] == "b"
        found = play(asking, OTHER)
        assert (paid, results(found, "pay")[0], results(found, "save")) == (["a"], "paid a", ["saved c"])
        assert labels(found, "pay")[1] == "<superseded>"

    @HAVE_MODES
    def test_another_process_finds_the_decisions_and_what_ran(self) -> None:
        (pay, paid), saved = paying(), memory()
        calls = [call("pay", name="a"), call("pay", name="b")]
        first = agent([calls], person(), more=[pay], saved=saved)
        second = agent([DONE], person(), more=[pay], saved=saved)
        asked = play(first, answers(play(first), a=APPROVE))
        found = play(second, answers(asked, b=APPROVE))
        assert (paid, results(found, "pay"), ended(found)) == (["a", "b"], ["paid a", "paid b"], ACCEPTED)

    EDIT: Mapping[str, Any] = {"type": "edit", "edited_action": {"name": "pay", "args": {"name": "b"}}}
    # A decision: who is paid, what the call comes to, and the turns of a task that finishes beside it.
    DECISIONS: Mapping[str, tuple[Any, list[str], str, int]] = {
        "approve": (APPROVE, ["a"], "paid a", 1),
        "edit": (EDIT, ["b"], "paid b", 1),
        "reject": (REJECT, [], "Not this.", 2),
        "respond": ({"type": "respond", "message": "I have paid it."}, [], "I have paid it.", 1),
    }

    @pytest.mark.parametrize("case", DECISIONS)
    def test_a_decision_is_what_the_call_comes_to_and_a_rejected_one_voids_the_finish_beside_it(
        self, case: str
    ) -> None:
        decision, wanted, said, turns = self.DECISIONS[case]
        pay, paid = paying()
        calls = [call("look", name="x"), call("pay", name="a"), DONE]
        asking = agent([calls, DONE, DONE], person("batched"), more=[pay], first=False)
        found = play(asking, answers(play(asking), a=decision))
        assert (paid, said in results(found, "pay")[0]) == (wanted, True)
        assert (ended(found), found["outcome"]["turns"]) == (ACCEPTED, turns)
        # The message begins a task of its own: what was done stays done.
        assert said in results(play(asking, OTHER), "pay")[0]
        assert paid == wanted

    @ORDERS
    def test_a_question_beside_a_call_is_asked_after_it_and_the_call_approved_once(self, first: bool) -> None:
        pay, paid = paying()
        calls = [call("pay", name="a"), call("look", name="x"), ASKS]
        asking = agent([calls, DONE], person("batched"), more=[pay], first=first)
        question = play(asking, answers(play(asking), a=APPROVE))
        assert (paid, question["__interrupt__"][0].value["type"]) == (["a"], "question")
        found = play(asking, ANSWER)
        assert (paid, results(found, "ask_user"), ended(found)) == (["a"], ["The red one."], ACCEPTED)

    @ORDERS
    def test_a_person_rejects_a_finish(self, first: bool) -> None:
        script = [DONE, call("finish_task", summary="Now all.")]
        asking = agent(script, person("batched", "finish_task"), first=first)
        play(asking)
        assert play(asking, Command(resume={"decisions": [REJECT]}))["__interrupt__"]
        found = play(asking, Command(resume={"decisions": [APPROVE]}))
        assert (found["outcome"]["summary"], found["outcome"]["turns"]) == ("Now all.", 2)

    @ORDERS
    def test_a_person_is_asked_about_a_misspelled_call(self, first: bool) -> None:
        """The guards run the tool that the call means."""
        pay, paid = paying()
        asking = agent([call("functions.pay", name="rent"), DONE], person("batched"), more=[pay], first=first)
        assert (len(play(asking)["__interrupt__"]), paid) == (1, [])
        found = play(asking, Command(resume={"decisions": [APPROVE]}))
        assert (paid, ended(found)) == (["rent"], ACCEPTED)


def paying_and_asking() -> tuple[Any, list[str]]:
    return paying(lambda name: f"paid {name}, {interrupt('seen?')}")


BEGUN: Mapping[str, Callable[[Any, Any], Any]] = {
    "the tool asks": lambda asking, pay: agent(PAYS, more=[asking]),
    "the tool asks once it is approved": lambda asking, pay: agent(PAYS, person(), more=[asking]),
    "a middleware of the machine asks": lambda asking, pay: machine(
        PAYS, around_tools(asks_after), more=[pay]
    ),
}


class TestWhatHasBegun:
    @pytest.mark.parametrize("case", BEGUN)
    def test_it_stays_unknown(self, case: str) -> None:
        (paying_asks, asked_paid), (pay, paid) = paying_and_asking(), paying()
        asking = BEGUN[case](paying_asks, pay)
        asked = play(asking)
        if not asked_paid + paid:
            asked = play(asking, answers(asked, a=APPROVE))
        assert asked["__interrupt__"]
        assert labels(play(asking, OTHER), "pay") == [UNKNOWN]
        assert asked_paid + paid == ["a"]


class SlowSaver(InMemorySaver):
    """Needs a while for each checkpoint, as for a long history."""

    def put(self, *args: Any) -> Any:
        time.sleep(0.03)
        return super().put(*args)

    async def aput(self, *args: Any) -> Any:
        await asyncio.sleep(0.03)
        return super().put(*args)


class World:
    """A tool that looks, at its start, for the checkpoint of its graph."""

    def __init__(self, saver: Any, kind: str = "write") -> None:
        self.saver, self.seen = saver, list[bool]()
        self.tool, _ = paying(self.look, kind=kind)

    def look(self, name: str) -> None:
        configurable = get_config()["configurable"]
        place = {"checkpoint_ns": "", "checkpoint_id": configurable.get("checkpoint_map", {}).get("")}
        self.seen.append(self.saver.get_tuple({"configurable": {**configurable, **place}}) is not None)

    def agent(self, **saved: Any) -> Any:
        steps: list[Any] = [[call("pay", name="a"), call("pay", name="b")], call("pay", name="c"), DONE]
        return create_agent(ScriptedModel(steps), [self.tool], middleware=[Guards()], **saved)


class TestNoEffectBeforeItsReplyIsSaved:
    def test_each_starts_after_it(self) -> None:
        world = World(SlowSaver())
        play(world.agent(checkpointer=world.saver, store=InMemoryStore()))
        assert world.seen == [True] * 3

    def test_a_run_that_saves_at_its_end_is_told_once_and_waits_for_nothing(self) -> None:
        world = World(InMemorySaver())
        with warned("JournalWarning"):
            found = play(world.agent(checkpointer=world.saver, store=InMemoryStore()), durability="exit")
        assert (len(world.seen), outcome_of(found).succeeded) == (3, True)

    def test_guarded_says_when_it_is_built_that_there_is_no_journal(self) -> None:
        world = World(InMemorySaver())
        with warned("JournalWarning") as told:
            held = guarded(world.agent(checkpointer=world.saver))
        assert told[0].filename == __file__
        with warned():
            assert outcome_of(play(held)).succeeded

    SAFE: Mapping[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        "it reads": ("read", lambda: {"checkpointer": InMemorySaver()}),
        "nothing is saved": ("write", dict),
        "there is a journal": ("write", memory),
    }

    @pytest.mark.parametrize("case", SAFE)
    def test_nothing_is_said_where_nothing_can_be_lost(self, case: str) -> None:
        kind, saved = self.SAFE[case]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plain, held = (World(InMemorySaver(), kind).agent(**saved()) for _ in range(2))
            for asked in (plain, guarded(held)):
                assert outcome_of(play(asked)).succeeded
