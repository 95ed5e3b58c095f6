"""What waits for a person has not started, what has begun stays unknown, and no effect comes before its reply
is saved: with LangChain's approvals beside `Guards`, and on the machine."""

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, wrap_tool_call
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from signoff import BadAnswer, build_graph, outcome_of, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import killed
from tests.drop_in.playing import ACCEPTED, GO, ended, memory, play, results, warned

DONE = call("finish_task", summary="All of it.")
ASKS = call("ask_user", question="Which?")
OTHER: Any = {"messages": [("user", "Something else.")]}
PAID: list[str] = []
APPROVE = {"type": "approve"}
REJECT = {"type": "reject", "message": "Not this."}
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
HAS_MODES = "interrupt_mode" in signature(HumanInTheLoopMiddleware).parameters
"""LangChain 1.4.0 has none: it waits once for all calls of a reply, and keeps an answer that does not fit."""
HAVE_MODES = pytest.mark.skipif(not HAS_MODES, reason="what LangChain 1.4.2 does not do")


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@tool
def look(name: str) -> str:
    """Look."""
    return f"seen {name}"


@tool
def pay(name: str) -> str:
    """Pay."""
    PAID.append(name)
    return f"paid {name}"


@tool
def post(name: str) -> str:
    """Post, which nobody has to approve."""
    PAID.append(name)
    return f"posted {name}"


look.metadata = {"kind": "read"}


def person(mode: str = "per_call", *names: str) -> Any:
    modes: Any = {"interrupt_mode": mode} if HAS_MODES else {}
    rule: Any = {"allowed_decisions": ["approve", "reject"]}
    return HumanInTheLoopMiddleware(interrupt_on={"pay": True, **dict.fromkeys(names, rule)}, **modes)


@wrap_tool_call
def asks_before(request: Any, handler: Any) -> Any:
    if request.tool_call["name"] == "pay":
        interrupt("sure?")
    return handler(request)


@wrap_tool_call
def asks_after(request: Any, handler: Any) -> Any:
    result = handler(request)
    interrupt("is it right?")
    return result


def agent(
    script: Any, *within: Any, tools: Any = (look, pay, post), create: Any = create_agent, **saved: Any
) -> Any:
    middleware = list(within) or [Guards(), person()]
    return create(ScriptedModel(script), list(tools), middleware=middleware, **saved or memory())


def machine(script: Any, *within: Any, tools: Any = (look, pay, post), **options: Any) -> Any:
    return build_graph(ScriptedModel(script), list(tools), middleware=list(within), **{**memory(), **options})


def answers(found: Any, **decisions: Any) -> Command[Any]:
    """Decisions on calls, by the name that they were given."""
    asked = found["__interrupt__"]
    if "action_requests" in asked[0].value:
        names = [request["args"]["name"] for request in asked[0].value["action_requests"]]
        return Command(resume={asked[0].id: {"decisions": [decisions[name] for name in names]}})
    waiting = {one.value["args"]["name"]: one.id for one in asked}
    return Command(resume={waiting[name]: decision for name, decision in decisions.items()})


BUILT: Mapping[str, tuple[Callable[..., Any], str]] = {
    "a call": (lambda script: agent(script, Guards(), person()), "Superseded"),
    "a call, guards last": (lambda script: agent(script, person(), Guards()), "Superseded"),
    "a reply": (lambda script: agent(script, Guards(), person("batched")), "Superseded"),
    "deepagents": (lambda script: agent(script, create=create_deep_agent), "Superseded"),
    "a middleware of one's own": (lambda script: agent(script, Guards(), asks_before), "Superseded"),
    "one in the machine": (lambda script: machine(script, asks_before), "Superseded"),
    "the machine": (lambda script: machine(script, approvals={"pay": True}), "Not run"),
}


class TestWhatWaits:
    @pytest.mark.parametrize("case", BUILT)
    @pytest.mark.parametrize("names", [["pay"], ["pay", "look", "pay"]], ids="+".join)
    def test_a_message_in_place_of_the_decision_finds_nothing_started(
        self, names: list[str], case: str
    ) -> None:
        build, said = BUILT[case]
        asking = build([[call(name, name=f"n{at}") for at, name in enumerate(names)], DONE])
        assert play(asking)["__interrupt__"]
        found = play(asking, OTHER)
        assert [text.partition(":")[0].partition(",")[0] for text in results(found, "pay")] == [
            said
        ] * names.count("pay")
        assert (PAID, ended(found), found["outcome"]["changes"]) == ([], ACCEPTED, [])

    @pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
    def test_without_a_journal_it_is_unknown(self) -> None:
        asking = agent([call("pay", name="a"), DONE], checkpointer=InMemorySaver())
        play(asking)
        assert results(play(asking, OTHER), "pay")[0].startswith("Outcome unknown")

    @pytest.mark.parametrize("create", [create_agent, create_deep_agent])
    @pytest.mark.parametrize(
        ("begun", "answered"),
        [
            (ASKS, ["Something else."]),
            (call("finish_task", summary="Some.", requires_user_confirmation=True), []),
            (call("look", name="asks"), ["Outcome unknown"]),
        ],
        ids=["a question", "a confirmation", "a tool that asks"],
    )
    def test_what_ran_beside_it_is_kept(self, begun: Any, answered: list[str], create: Any) -> None:
        @tool("look")
        def asks(name: str) -> str:
            """Ask in the midst of it."""
            return str(interrupt(f"what of {name}?"))

        asking = agent([[call("post", name="a"), begun], DONE], Guards(), tools=[post, asks], create=create)
        assert play(asking)["__interrupt__"]
        found = play(asking, OTHER)
        assert (PAID, results(found, "post")) == (["a"], ["posted a"])
        assert [text.partition(":")[0] for text in results(found, "ask_user", "look")] == answered

    @pytest.mark.parametrize("then", ["a message", "decisions"])
    def test_another_process_finds_it_as_it_was(self, then: str, tmp_path: Path) -> None:
        def run(given: Any, *script: Any) -> Any:
            with sqlite_storage(tmp_path / "threads.sqlite") as storage:
                saved = {"checkpointer": storage.checkpointer, "store": storage.store}
                return play(guarded(agent(script, **saved)), given)

        def two_wait() -> None:
            run(GO, [call("pay", name="a"), call("pay", name="b")])
            os._exit(9)

        killed(two_wait)
        if then == "a message":
            found = run(OTHER, DONE)
            assert (PAID, found["outcome"]["changes"]) == ([], [])
        else:
            found = run(answers(run(None, DONE), a=APPROVE, b=REJECT), DONE)
            refused = ["Not this." in text for text in results(found, "pay")]
            # In which order the results stand is LangChain's.
            assert (PAID, sorted(refused)) == (["a"], [False, True])

    @HAVE_MODES
    def test_of_two_calls_one_is_approved_and_a_message_comes_for_the_other(self) -> None:
        asking = agent([[call("pay", name="a"), call("pay", name="b"), call("post", name="c")], DONE])
        asked = play(asking)
        assert PAID == ["c"]
        (left,) = play(asking, answers(asked, a=APPROVE))["__interrupt__"]
        assert left.value["args"]["name"] == "b"
        found = play(asking, OTHER)
        assert (PAID, results(found, "pay")[0], results(found, "post")) == (
            ["c", "a"],
            "paid a",
            ["posted c"],
        )
        assert results(found, "pay")[1].startswith("Superseded")

    DECISIONS: Mapping[str, tuple[Any, list[str], str]] = {
        "approve": (APPROVE, ["a"], "paid a"),
        "edit": ({"type": "edit", "edited_action": {"name": "pay", "args": {"name": "b"}}}, ["b"], "paid b"),
        "reject": (REJECT, [], "Not this."),
        "respond": ({"type": "respond", "message": "I have paid it."}, [], "I have paid it."),
    }

    @pytest.mark.parametrize("case", DECISIONS)
    def test_a_decision_is_what_the_call_comes_to(self, case: str) -> None:
        decision, paid, said = self.DECISIONS[case]
        asking = agent([call("pay", name="a"), DONE, DONE])
        found = play(asking, answers(play(asking), a=decision))
        assert (PAID, said in results(found, "pay")[0]) == (paid, True)
        # The message begins a task of its own: what was done stays done.
        assert said in results(play(asking, OTHER), "pay")[0]
        assert paid == PAID

    @ORDERS
    @pytest.mark.parametrize("case", ["approve", "edit", "reject"])
    def test_a_rejected_call_voids_the_finish_beside_it_and_an_approved_one_does_not(
        self, case: str, first: bool
    ) -> None:
        within = [Guards(), person("batched")] if first else [person("batched"), Guards()]
        asking = agent([[call("look", name="x"), call("pay", name="a"), DONE], DONE], *within)
        found = play(asking, answers(play(asking), a=self.DECISIONS[case][0]))
        assert (ended(found), found["outcome"]["turns"]) == (ACCEPTED, 2 if case == "reject" else 1)

    @ORDERS
    def test_a_question_beside_a_call_is_asked_after_it_and_the_call_approved_once(self, first: bool) -> None:
        within = [Guards(), person("batched")] if first else [person("batched"), Guards()]
        asking = agent([[call("pay", name="a"), call("look", name="x"), ASKS], DONE], *within)
        question = play(asking, answers(play(asking), a=APPROVE))
        assert (PAID, question["__interrupt__"][0].value["type"]) == (["a"], "question")
        found = play(asking, Command(resume="The red one."))
        assert (PAID, results(found, "ask_user"), ended(found)) == (["a"], ["The red one."], ACCEPTED)

    def test_a_message_in_place_of_the_decision_leaves_the_question_unasked(self) -> None:
        asking = agent([[call("pay", name="a"), ASKS], DONE])
        play(asking)
        found = play(asking, OTHER)
        assert [text[:10] for text in results(found, "pay", "ask_user")] == ["Superseded"] * 2

    @ORDERS
    def test_a_person_rejects_a_finish(self, first: bool) -> None:
        decides = person("batched", "finish_task")
        within = [Guards(), decides] if first else [decides, Guards()]
        asking = agent([DONE, call("finish_task", summary="Now all.")], *within)
        play(asking)
        assert play(asking, Command(resume={"decisions": [REJECT]}))["__interrupt__"]
        found = play(asking, Command(resume={"decisions": [APPROVE]}))
        assert (found["outcome"]["summary"], found["outcome"]["turns"]) == ("Now all.", 2)

    @ORDERS
    @pytest.mark.parametrize("name", ["Pay", "functions.pay"])
    def test_a_person_is_asked_about_a_misspelled_call(self, name: str, first: bool) -> None:
        """The guards run the tool that the call means."""
        within = [Guards(), person("batched")] if first else [person("batched"), Guards()]
        asking = agent([call(name, name="rent"), DONE], *within)
        assert (len(play(asking)["__interrupt__"]), PAID) == (1, [])
        found = play(asking, Command(resume={"decisions": [APPROVE]}))
        assert (PAID, ended(found)) == (["rent"], ACCEPTED)

    @HAVE_MODES
    def test_an_answer_that_does_not_fit_is_given_again(self) -> None:
        asking = agent([call("pay", name="a"), DONE])
        asked = play(asking)
        with pytest.raises(ValueError, match="nonsense"):
            play(asking, answers(asked, a={"type": "nonsense"}))
        assert PAID == []
        assert results(play(asking, answers(asked, a=APPROVE)), "pay") == ["paid a"]


class Yes(BaseModel):
    yes: bool


@tool("pay")
def pays_and_asks(name: str) -> str:
    """Pay."""
    PAID.append(name)
    return f"paid {name}, {interrupt('seen?', response_schema=Yes)}"


class TellsNothing(StructuredTool):
    """A tool that runs in a way of its own, of which LangChain tells nobody."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return pays_and_asks.func(**input["args"])  # type: ignore[attr-defined]  # it has one


@wrap_tool_call
def puts_it_in_place(request: Any, handler: Any) -> Any:
    return handler(request.override(tool=pays_and_asks))


QUIET = TellsNothing.from_function(lambda name: name, name="pay", description="Pay.")
PAYS = [call("pay", name="a"), DONE]
BEGUN: Mapping[str, Callable[[], Any]] = {
    "the tool asks": lambda: agent(PAYS, Guards(), tools=[pays_and_asks]),
    "the tool asks once it is approved": lambda: agent(PAYS, Guards(), person(), tools=[pays_and_asks]),
    "a tool in its place asks": lambda: agent(PAYS, Guards(), puts_it_in_place),
    "a middleware asks when it has run": lambda: agent(PAYS, Guards(), asks_after),
    "a tool that tells nothing asks": lambda: agent(PAYS, Guards(), tools=[QUIET]),
    "the machine's tool asks": lambda: machine(PAYS, tools=[pays_and_asks]),
    "a middleware of the machine asks when it has run": lambda: machine(PAYS, asks_after),
}


class TestWhatHasBegun:
    @pytest.mark.parametrize("case", BEGUN)
    def test_it_stays_unknown(self, case: str) -> None:
        asking = BEGUN[case]()
        asked = play(asking)
        if not PAID:
            asked = play(asking, answers(asked, a=APPROVE))
        assert asked["__interrupt__"]
        found = play(asking, OTHER)
        assert (PAID, [text[:15] for text in results(found, "pay")]) == (["a"], ["Outcome unknown"])

    @pytest.mark.parametrize("case", ["the tool asks", "the machine's tool asks"])
    def test_an_answer_that_does_not_fit_its_question_is_given_again(self, case: str) -> None:
        asking = BEGUN[case]()
        (asked,) = play(asking)["__interrupt__"]
        with pytest.raises((ValueError, BadAnswer)):
            play(asking, Command(resume={asked.id: {"no": 1}}))
        found = play(asking, Command(resume={asked.id: {"yes": True}}))
        assert results(found, "pay") == ["paid a, yes=True"]

    def test_a_process_that_is_killed_in_an_approved_call_leaves_it_unknown(self, tmp_path: Path) -> None:
        @tool("pay")
        def deadly(name: str) -> str:
            """Pay."""
            os._exit(9)

        def run(given: Any) -> Any:
            with sqlite_storage(tmp_path / "threads.sqlite") as storage:
                saved = {"checkpointer": storage.checkpointer, "store": storage.store}
                script = [call("pay", name="a"), DONE] if given is GO else [DONE]
                asking = guarded(agent(script, tools=[deadly], **saved))
                found = play(asking, given)
                return play(asking, answers(found, a=APPROVE)) if given is GO else found

        killed(lambda: run(GO))
        assert results(run(OTHER), "pay")[0].startswith("Outcome unknown")


class SlowSaver(InMemorySaver):
    """Needs a while for each checkpoint, as for a long history."""

    def put(self, *args: Any) -> Any:
        time.sleep(0.1)
        return super().put(*args)

    async def aput(self, *args: Any) -> Any:
        await asyncio.sleep(0.1)
        return super().put(*args)


class World:
    """A tool that looks, at its start, for the checkpoints of its own graph and of all around it."""

    def __init__(self, saver: Any, kind: str = "write") -> None:
        self.saver, self.seen = saver, list[list[bool]]()

        def pay(to: str) -> str:
            """Pay somebody."""
            configurable = get_config()["configurable"]
            places = configurable.get("checkpoint_map", {}).items()
            thread = {"thread_id": configurable.get("thread_id")}
            found = [
                saver.get_tuple(
                    {"configurable": {**thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}}
                )
                for ns, checkpoint in places
            ]
            self.seen.append([each is not None for each in found])
            return "paid"

        self.tool = StructuredTool.from_function(pay, metadata={"kind": kind})

    def agent(self, **saved: Any) -> Any:
        steps: list[Any] = [[call("pay", to="ada"), call("pay", to="bob")], call("pay", to="cy"), DONE]
        return create_agent(ScriptedModel(steps), [self.tool], middleware=[Guards()], **saved)

    def as_a_node(self, **saved: Any) -> Any:
        """Of another graph, whose own first checkpoint may be late, too."""
        outer: Any = StateGraph(MessagesState)
        return outer.add_node("agent", self.agent()).add_edge(START, "agent").compile(**saved)

    def below_an_agent(self, **saved: Any) -> Any:
        child = self.agent()

        def ask(to: str) -> str:
            """Ask another agent."""
            return str(child.invoke(GO)["messages"][-1].text)

        return create_agent(ScriptedModel([call("ask", to="it"), "Done."]), [ask], **saved)


class TestNoEffectBeforeItsReplyIsSaved:
    @pytest.mark.parametrize(
        ("build", "depth"), [(World.agent, 1), (World.as_a_node, 2), (World.below_an_agent, 2)]
    )
    def test_each_starts_after_it(self, build: Any, depth: int) -> None:
        world = World(SlowSaver())
        play(build(world, checkpointer=world.saver, store=InMemoryStore()))
        assert world.seen == [[True] * depth] * 3

    def test_also_without_a_journal_of_which_a_person_is_told_once(self) -> None:
        world = World(SlowSaver())
        with warned("JournalWarning"):
            play(world.agent(checkpointer=world.saver))
        assert world.seen == [[True]] * 3

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
            for held in (
                World(InMemorySaver(), kind).agent(**saved()),
                guarded(World(InMemorySaver(), kind).agent(**saved())),
            ):
                assert outcome_of(play(held)).succeeded
