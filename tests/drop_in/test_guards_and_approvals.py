"""A call that waits for a person has not started, whatever comes in place of the decision, and one that has
begun stays unknown: with LangChain's approvals in `Guards`, and in the machine."""

import asyncio
import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import RemoveMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Overwrite, interrupt
from pydantic import BaseModel

from signoff import build_graph, outcome_of, sqlite_storage
from signoff.graph.messages import marks
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from signoff.nodes.journal import recorded

THREAD: Any = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [("user", "do it")]}
OTHER: Any = {"messages": [("user", "Something else.")]}
DONE = call("finish_task", summary="All of it.")
PAID: list[str] = []
SUPERSEDED = "Superseded, not run: the user wrote a new message before this call could run."
APPROVE = {"type": "approve"}
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@tool
def look(name: str) -> str:
    """Look."""
    return f"seen {name}"


look.metadata = {"kind": "read"}


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


class Around(AgentMiddleware[Any, Any, Any]):
    """What is done around each call of `pay`, in both ways: before it begins, and with what it gives."""

    def before(self, request: Any) -> Any:
        return request

    def after(self, result: Any) -> Any:
        return result

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] != "pay":
            return handler(request)
        return self.after(handler(self.before(request)))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] != "pay":
            return await handler(request)
        return self.after(await handler(self.before(request)))


class AsksBefore(Around):
    def before(self, request: Any) -> Any:
        interrupt("sure?")
        return request


class AsksAfter(Around):
    def after(self, result: Any) -> Any:
        interrupt("is it right?")
        return result


def memory() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


HAS_MODES = "interrupt_mode" in signature(HumanInTheLoopMiddleware).parameters
"""LangChain 1.4.0 has none: it waits once for all calls of a reply, and keeps an answer that does not fit."""
HAVE_MODES = pytest.mark.skipif(not HAS_MODES, reason="what LangChain 1.4.0 does not do")


def person(mode: Any = "per_call") -> HumanInTheLoopMiddleware[Any, Any, Any]:
    modes: Any = {"interrupt_mode": mode} if HAS_MODES else {}
    return HumanInTheLoopMiddleware(interrupt_on={"pay": True}, **modes)


def agent(script: Any, *around: Any, tools: Any = (look, pay, post), **saved: Any) -> Any:
    return create_agent(
        ScriptedModel(script), list(tools), middleware=list(around) or [Guards(), person()], **saved
    )


def deep(script: Any, *around: Any, tools: Any = (look, pay, post), **saved: Any) -> Any:
    """deepagents answers the open calls of a history before any other middleware sees them."""
    middle = list(around) or [Guards(), person()]
    return create_deep_agent(ScriptedModel(script), list(tools), middleware=middle, **saved)


def machine(script: Any, *around: Any, tools: Any = (look, pay, post), **more: Any) -> Any:
    return build_graph(ScriptedModel(script), list(tools), middleware=list(around), **more)


def run(agent: Any, given: Any, way: str = "sync") -> Any:
    return agent.invoke(given, THREAD) if way == "sync" else asyncio.run(agent.ainvoke(given, THREAD))


def told(found: Any, *names: str) -> list[str]:
    """The results of the calls of these tools."""
    return [m.text for m in found["messages"] if m.type == "tool" and m.name in (names or ("pay",))]


def unknown(found: Any) -> list[bool]:
    return [marks(m).get("unknown", False) for m in found["messages"] if m.type == "tool" and m.name == "pay"]


def journal(store: Any) -> dict[str, str]:
    return {item.key: item.value["status"] for item in store.search(("signoff", "journal"))}


def answers(found: Any, **decisions: Any) -> Command[Any]:
    """Decisions on calls, by the name that they were given."""
    asked = found["__interrupt__"]
    if not HAS_MODES and "action_requests" in asked[0].value:
        names = [request["args"]["name"] for request in asked[0].value["action_requests"]]
        return Command(resume={asked[0].id: {"decisions": [decisions[name] for name in names]}})
    waiting = {one.value["args"]["name"]: one.id for one in asked}
    return Command(resume={waiting[name]: decision for name, decision in decisions.items()})


BUILT: dict[str, tuple[Callable[..., Any], str]] = {
    "a call": (lambda script, **more: agent(script, Guards(), person(), **more), SUPERSEDED),
    "a call, guards last": (lambda script, **more: agent(script, person(), Guards(), **more), SUPERSEDED),
    "a reply": (lambda script, **more: agent(script, Guards(), person("batched"), **more), SUPERSEDED),
    "deepagents": (lambda script, **more: deep(script, **more), SUPERSEDED),
    "own middleware": (lambda script, **more: agent(script, Guards(), AsksBefore(), **more), SUPERSEDED),
    "own middleware of the machine": (
        lambda script, **more: machine(script, AsksBefore(), **more),
        SUPERSEDED,
    ),
    "the machine": (
        lambda script, **more: machine(script, approvals={"pay": True}, **more),
        "Not run: the user rejected this call. Something else.",
    ),
}


MAYBE_RUN = DEFAULT_TEXTS.results["maybe_run"].format(name="pay")


@WAYS
@pytest.mark.parametrize("stored", [True, False], ids=["a store", "no store"])
@pytest.mark.parametrize(("built", "words"), BUILT.values(), ids=BUILT)
@pytest.mark.parametrize("names", [["pay"], ["look", "pay"], ["pay", "look", "pay"]], ids="+".join)
@pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
def test_a_message_in_place_of_the_decision_finds_nothing_started(
    names: list[str], built: Callable[..., Any], words: str, stored: bool, way: str
) -> None:
    saved: dict[str, Any] = memory() if stored else {"checkpointer": InMemorySaver()}
    calls = [call(name, id=f"c{at}", name=f"n{at}") for at, name in enumerate(names)]
    asking = built([calls, DONE], **saved)
    assert run(asking, GO, way)["__interrupt__"]
    found = run(asking, OTHER, way)
    texts = told(found)
    assert len(texts) == names.count("pay")
    # Without a journal nothing tells that the call that asks has not begun.
    unclear = not stored and words.startswith("Superseded")
    assert texts[0] == (MAYBE_RUN if unclear else words)
    assert set(texts) <= ({MAYBE_RUN, words} if unclear else {words})
    assert (PAID, outcome_of(found).succeeded, outcome_of(found).changes) == ([], True, [])
    if stored:
        assert journal(saved["store"]) == {}
        assert not any(outcome.changes for outcome in recorded(saved["store"], "one"))


@WAYS
def test_an_older_deepagents_replaces_the_history(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """deepagents 0.3 answers the open calls in an `Overwrite`."""
    newer = PatchToolCallsMiddleware.before_agent

    def older(self: Any, state: Any, runtime: Any) -> Any:
        written = (newer(self, state, runtime) or {}).get("messages")
        return written and {
            "messages": Overwrite([one for one in written if not isinstance(one, RemoveMessage)])
        }

    monkeypatch.setattr(PatchToolCallsMiddleware, "before_agent", older)
    asking = deep([call("pay", id="c", name="a"), DONE], **memory())
    assert run(asking, GO, way)["__interrupt__"]
    found = run(asking, OTHER, way)
    assert (told(found), PAID, outcome_of(found).succeeded) == ([SUPERSEDED], [], True)


@tool
def asks(name: str) -> str:
    """Ask in the midst of it."""
    return str(interrupt(f"what of {name}?"))


def last_results(found: Any) -> dict[str, str]:
    """The first words of the last result of each tool."""
    return {m.name: " ".join(m.text.split()[:2]) for m in found["messages"] if m.type == "tool"}


ASKED = call("ask_user", question="Which one?")
CONFIRMED = call("finish_task", summary="Some.", requires_user_confirmation=True)


@WAYS
@pytest.mark.parametrize("create", [agent, deep])
@pytest.mark.parametrize(
    ("begun", "told", "turns"),
    [
        (ASKED, {"ask_user": "Something else."}, 2),
        (CONFIRMED, {}, 2),
        (call("asks", name="it"), {"asks": "Outcome unknown:"}, 1),
    ],
    ids=["a question", "a confirmation", "a tool that asks"],
)
def test_a_message_finds_what_became_of_each_call_of_a_reply_that_waits(
    begun: Any, told: dict[str, str], turns: int, create: Any, way: str
) -> None:
    model = [[call("post", name="a"), begun], DONE]
    waiting = create(model, Guards(), tools=[post, asks], **memory())
    assert run(waiting, GO, way)["__interrupt__"]
    found = run(waiting, OTHER, way)
    assert last_results(found) == {"post": "posted a", **told, "finish_task": "Accepted. The"}
    assert (PAID, outcome_of(found).turns) == (["a"], turns)
    assert not any("did not complete" in message.text for message in found["messages"])


def in_another_process(does: Callable[[], object]) -> None:
    """Does it in a process that is killed afterwards, or in it."""
    child = os.fork()
    if child == 0:
        try:
            does()
            os._exit(9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def built_in(storage: Any, *script: Any, **more: Any) -> Any:
    saved = {"checkpointer": storage.checkpointer, "store": storage.store}
    return guarded(agent(script, **saved, **more))


def two_wait(path: Path) -> None:
    with sqlite_storage(path) as storage:
        run(built_in(storage, [call("pay", name="a"), call("pay", name="b")]), GO)
        os._exit(9)


@WAYS
def test_a_process_that_is_killed_while_a_call_waits_has_started_nothing(tmp_path: Path, way: str) -> None:
    path = tmp_path / "threads.sqlite"
    in_another_process(lambda: two_wait(path))
    with sqlite_storage(path) as storage:
        found = run(built_in(storage, DONE), OTHER, way)
        assert journal(storage.store) == {}
    assert told(found) == [SUPERSEDED] * 2
    assert outcome_of(found).changes == []


@WAYS
def test_a_decision_in_another_process_runs_the_call_once(tmp_path: Path, way: str) -> None:
    path = tmp_path / "threads.sqlite"
    in_another_process(lambda: two_wait(path))
    with sqlite_storage(path) as storage:
        asking = built_in(storage, DONE)
        asked = run(asking, None, way)
        assert PAID == []
        found = run(asking, answers(asked, a=APPROVE, b={"type": "reject", "message": "Not b."}), way)
    assert (PAID, "paid a" in told(found)) == (["a"], True)
    assert any("Not b." in said for said in told(found))


@HAVE_MODES
@WAYS
def test_of_two_calls_one_is_approved_and_a_message_comes_for_the_other(way: str) -> None:
    saved = memory()
    asking = agent([[call("pay", name="a"), call("pay", name="b"), call("post", name="c")], DONE], **saved)
    asked = run(asking, GO, way)
    assert PAID == ["c"]
    assert [
        one.value["args"]["name"] for one in run(asking, answers(asked, a=APPROVE), way)["__interrupt__"]
    ] == ["b"]
    found = run(asking, OTHER, way)
    assert (PAID, told(found, "pay", "post")) == (["c", "a"], ["paid a", SUPERSEDED, "posted c"])
    (before, _) = recorded(saved["store"], "one")
    assert [(change.call, change.came) for change in before.changes] == [
        ("pay(name='a')", "ok"),
        ("post(name='c')", "ok"),
    ]


@WAYS
@pytest.mark.parametrize(
    ("decision", "paid", "said"),
    [
        (APPROVE, ["a"], "paid a"),
        ({"type": "edit", "edited_action": {"name": "pay", "args": {"name": "b"}}}, ["b"], "paid b"),
        ({"type": "reject", "message": "Not this."}, [], "Not this."),
        ({"type": "respond", "message": "I have paid it."}, [], "I have paid it."),
    ],
    ids=["approve", "edit", "reject", "respond"],
)
def test_a_decision_is_what_the_call_comes_to(decision: Any, paid: list[str], said: str, way: str) -> None:
    saved = memory()
    asking = agent([call("pay", id="p", name="a"), DONE], **saved)
    found = run(asking, answers(run(asking, GO, way), a=decision), way)
    assert (PAID, said in told(found)[0]) == (paid, True)
    # LangChain 1.4.0 asks before the tools run: what it has not approved comes to none of them.
    assert journal(saved["store"]) == ({"p": "done"} if paid or HAS_MODES else {})
    # The message begins a task of its own: what was done stays done.
    assert said in told(run(asking, OTHER, way))[0]
    assert paid == PAID


@WAYS
def test_a_question_beside_it_is_asked_once_the_call_is_decided(way: str) -> None:
    asking = agent([[call("pay", name="a"), call("ask_user", question="Which?")], DONE, DONE], **memory())
    asked = run(asking, GO, way)
    question = run(asking, answers(asked, a=APPROVE), way)
    assert (PAID, question["__interrupt__"][0].value["type"]) == (["a"], "question")
    found = run(asking, OTHER, way)
    assert (PAID, told(found, "pay", "ask_user")) == (["a"], ["paid a", "Something else."])


@WAYS
def test_a_message_leaves_a_question_beside_the_call_unasked(way: str) -> None:
    asking = agent([[call("pay", name="a"), call("ask_user", question="Which?")], DONE], **memory())
    run(asking, GO, way)
    found = run(asking, OTHER, way)
    assert (PAID, told(found, "pay", "ask_user")) == ([], [SUPERSEDED] * 2)


@HAVE_MODES
@WAYS
def test_an_answer_that_does_not_fit_is_given_again(way: str) -> None:
    saved = memory()
    asking = agent([call("pay", name="a"), DONE], **saved)
    asked = run(asking, GO, way)
    with pytest.raises(ValueError, match="nonsense"):
        run(asking, answers(asked, a={"type": "nonsense"}), way)
    assert (PAID, journal(saved["store"])) == ([], {})
    found = run(asking, answers(asked, a=APPROVE), way)
    assert (PAID, told(found)) == (["a"], ["paid a"])


class Yes(BaseModel):
    yes: bool


@tool("pay")
def pay_and_ask(name: str) -> str:
    """Pay."""
    PAID.append(name)
    return f"paid {name}, {interrupt('seen?', response_schema=Yes)}"


@tool("pay")
async def pay_and_ask_in_a_loop(name: str) -> str:
    """Pay."""
    PAID.append(name)
    return f"paid {name}, {interrupt('seen?')}"


class TellsNothing(StructuredTool):
    """A tool that runs in a way of its own, of which LangChain tells nobody."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return pay_and_ask.func(**input["args"])  # type: ignore[attr-defined]


class PutsInPlace(Around):
    def before(self, request: Any) -> Any:
        return request.override(tool=pay_and_ask)


QUIET = TellsNothing.from_function(lambda name: name, name="pay", description="Pay.")
BOTH = ("sync", "async")
BEGUN: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...], tuple[str, ...]]] = {
    "the tool asks": (agent, pay_and_ask, (Guards(),), BOTH),
    "the tool asks once it is approved": (agent, pay_and_ask, (Guards(), person()), BOTH),
    "an async tool asks": (agent, pay_and_ask_in_a_loop, (Guards(),), ("async",)),
    "a tool in its place asks": (agent, pay, (Guards(), PutsInPlace()), BOTH),
    "a middleware asks when it has run": (agent, pay, (Guards(), AsksAfter()), BOTH),
    "a tool that tells nothing asks": (agent, QUIET, (Guards(),), ("sync",)),
    "the machine's tool asks": (machine, pay_and_ask, (), BOTH),
    "the machine's tool asks within a middleware": (machine, pay_and_ask, (Around(),), BOTH),
    "a middleware of the machine asks when it has run": (machine, pay, (AsksAfter(),), BOTH),
}
CASES = [
    pytest.param(*case, way, id=f"{name}, {way}") for name, (*case, ways) in BEGUN.items() for way in ways
]


@pytest.mark.parametrize(("built", "paying", "around", "way"), CASES)
def test_what_has_begun_stays_unknown(built: Any, paying: Any, around: Any, way: str) -> None:
    asking = built([call("pay", name="a"), DONE], *around, tools=[paying], **memory())
    asked = run(asking, GO, way)
    if not PAID:
        asked = run(asking, answers(asked, a=APPROVE), way)
    assert asked["__interrupt__"]
    found = run(asking, OTHER, way)
    assert (PAID, unknown(found)) == (["a"], [True])


@WAYS
@pytest.mark.parametrize(
    "built", [lambda s, **m: agent(s, Guards(), **m), machine], ids=["guards", "machine"]
)
def test_an_answer_that_does_not_fit_a_tools_question_is_given_again(built: Any, way: str) -> None:
    asking = built([call("pay", name="a"), DONE], tools=[pay_and_ask], **memory())
    (asked,) = run(asking, GO, way)["__interrupt__"]
    with pytest.raises(ValueError, match="yes"):
        run(asking, Command(resume={asked.id: {"no": 1}}), way)
    found = run(asking, Command(resume={asked.id: {"yes": True}}), way)
    assert told(found) == ["paid a, yes=True"]


def test_a_process_that_is_killed_in_an_approved_call_leaves_it_unknown(tmp_path: Path) -> None:
    path, log = tmp_path / "threads.sqlite", tmp_path / "log"

    @tool("pay")
    def deadly(name: str) -> str:
        """Pay."""
        log.write_text(name)
        os._exit(9)

    def approved() -> None:
        with sqlite_storage(path) as storage:
            asking = built_in(storage, call("pay", name="a"), tools=[deadly])
            run(asking, answers(run(asking, GO), a=APPROVE))

    in_another_process(approved)
    with sqlite_storage(path) as storage:
        found = run(built_in(storage, DONE, tools=[deadly]), OTHER)
        (before, _) = recorded(storage.store, "one")
    assert (log.read_text(), unknown(found)) == ("a", [True])
    assert [change.came for change in before.changes] == ["unknown"]


@pytest.mark.parametrize("name", ["Pay", "functions.pay"])
@pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
def test_a_person_is_asked_about_a_misspelled_call(first: bool, name: str) -> None:
    """`Guards` runs the tool that the call means, so a person must be asked about that tool."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    around: list[Any] = [Guards(), asks] if first else [asks, Guards()]
    model = ScriptedModel([call(name, name="rent"), DONE])
    asking: Any = create_agent(model, [look, pay, post], middleware=around, **memory())
    (waiting,) = asking.invoke(GO, THREAD)["__interrupt__"]
    assert waiting.value["action_requests"][0]["name"] == "pay"
    assert PAID == []
    found = asking.invoke(Command(resume={"decisions": [APPROVE]}), THREAD)
    assert (PAID, outcome_of(found).succeeded) == (["rent"], True)
