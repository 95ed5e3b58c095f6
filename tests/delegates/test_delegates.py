"""Delegates: a graph as a tool of another one; what comes of it, and what the parent may claim then."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from signoff import (
    Kind,
    Limits,
    Prices,
    SetupError,
    build_graph,
    delegate,
    outcome_of,
    retry,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.errors import ApprovalWarning
from signoff.graph.messages import marks
from signoff.graph.state import Context
from signoff.models import ScriptedModel, call, reply
from signoff.session.status import deps_of
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Found it.")
END_OF_PARENT = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?")


@dataclass
class Till:
    """Counts what was paid, and by whom."""

    paid: list[int] = field(default_factory=list)

    def pay(self) -> Callable[..., str]:
        def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            return f"paid {n}"

        return pay


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def child(*steps: Any, tools: Sequence[Any] = (), **options: Any) -> Graph:
    return build_graph(ScriptedModel(list(steps)), list(tools), **options)


def parent(steps: Sequence[Any], *tools: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel(list(steps)), list(tools), **options)


def helper(graph: Any, name: str = "helper", **options: Any) -> Any:
    return delegate(name, graph, description="Looks things up.", **options)


def results(values: Any) -> list[ToolMessage]:
    return [found for found in values["messages"] if isinstance(found, ToolMessage)]


def run(graph: Graph, given: Any, way: str) -> Any:
    return graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))


WAYS = pytest.mark.parametrize("way", ["sync", "async"])


def test_it_is_a_tool_of_its_own_kind() -> None:
    made = helper(child(DONE))
    assert (made.name, made.metadata["kind"]) == ("helper", Kind.DELEGATE)
    assert deps_of(parent([END_OF_PARENT], made)).toolbox.kinds["helper"] is Kind.DELEGATE
    with pytest.raises(SetupError, match="only a graph of build_graph can run"):
        made.invoke({"task": "x"})


@WAYS
def test_it_gets_the_task_and_nothing_else_and_its_outcome_comes_back(way: str, till: Till) -> None:
    seen = ScriptedModel([call("pay", n=1), DONE])
    graph = parent(
        [call("helper", task="Find it."), END_OF_PARENT],
        helper(build_graph(seen, [till.pay()])),
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    values = run(graph, GO, way)
    told, _ = results(values)
    assert [m.text for m in seen.seen[0].messages if isinstance(m, HumanMessage)] == ["Find it."]
    assert (told.status, told.text) == ("success", "helper is done (asserted). Found it.")
    mark = marks(told)["delegate"]
    assert (mark["status"], mark["claim"], mark["used"]["turns"], mark["used"]["tool_calls"]) == (
        "success",
        "done",
        2,
        1,
    )
    outcome = outcome_of(values)
    assert (outcome.status, outcome.turns, outcome.tool_calls, till.paid) == ("success", 2, 1, [1])
    assert outcome.tree is not None
    assert (outcome.tree.delegates, outcome.tree.turns, outcome.tree.tool_calls) == (1, 4, 2)
    assert outcome.tree.total_tokens > outcome.usage.total_tokens


class Answer(BaseModel):
    number: int


@dataclass
class Ending:
    """How a delegate's task ends, and what the parent is told of it."""

    graph: Callable[[], Any]
    told: str
    ok: bool = False
    status: str = "success"


ENDINGS = {
    "done": Ending(lambda: helper(child(DONE)), "helper is done (asserted). Found it.", ok=True),
    "a check has seen it": Ending(
        lambda: helper(child(DONE, checks=[lambda: True])), "helper is done (verified). Found it.", ok=True
    ),
    "partly done": Ending(
        lambda: helper(
            child(call("finish_task", summary="Half.", outcome="partial", pending_issues=["the rest"]))
        ),
        "helper did not succeed (it claims partial). Half.\nStill open: the rest",
    ),
    "blocked": Ending(
        lambda: helper(child(call("finish_task", summary="No key.", outcome="blocked"))),
        "helper did not succeed (it claims blocked). No key.",
    ),
    "out of turns": Ending(
        lambda: helper(child(reply("Hm.", call("think", thought="?")), limits={"turns": 1})),
        "helper did not succeed (limit: Turn limit reached). Hm.",
        status="limit",
    ),
    "its model fails": Ending(
        lambda: helper(child(RuntimeError("down"), model_retries=None)),
        "helper did not succeed (error: The model failed: RuntimeError: down. Find the cause in the message; "
        "then retry the thread: everything so far is saved).",
        status="error",
    ),
    "a typed result": Ending(
        lambda: helper(
            child(call("finish_task", summary="It is 42.", result={"number": 42}), response_format=Answer)
        ),
        'helper is done (asserted). It is 42.\nIts result: {"number": 42}',
        ok=True,
    ),
}


@WAYS
def test_a_context_of_the_parent_is_not_its_own(way: str) -> None:
    """Limits and a prompt that a run of the parent gets are not those of what it calls."""
    seen = ScriptedModel([*[call("think", thought=f"{n}") for n in range(4)], DONE])
    below = build_graph(seen, system_prompt="Look things up.")
    graph = parent([call("helper", task="Find it."), END_OF_PARENT], helper(below))
    context = Context(turns=2, system_prompt="Lead.")
    values = (
        graph.invoke(GO, context=context)
        if way == "sync"
        else asyncio.run(graph.ainvoke(GO, context=context))
    )
    assert results(values)[0].text == "helper is done (asserted). Found it."
    prompts = {found.text for one in seen.seen for found in one.messages if found.type == "system"}
    assert all(text.startswith("Look things up.") for text in prompts)
    assert prompts


def test_what_a_failed_one_may_have_changed_is_told(till: Till) -> None:
    below = child(call("pay", n=1), call("finish_task", summary="No.", outcome="blocked"), tools=[till.pay()])
    values = parent([call("helper", task="Pay."), END_OF_PARENT, BLOCKED], helper(below)).invoke(GO)
    assert results(values)[0].text == (
        "helper did not succeed (it claims blocked). No.\nWhat it may have changed: pay(n=1) (ok)"
    )


@WAYS
@pytest.mark.parametrize("name", ENDINGS)
def test_the_result_is_the_outcome_told_honestly(name: str, way: str, storage: SqliteStorage) -> None:
    case = ENDINGS[name]
    finish = call("finish_task", summary="x", outcome="done" if case.ok else "partial")
    graph = parent([call("helper", task="Find it."), finish], case.graph(), storage=storage)
    values = run(graph, GO, way)
    told = results(values)[0]
    assert (told.text.strip(), told.status) == (case.told, "success" if case.ok else "error")
    assert marks(told)["delegate"]["status"] == case.status
    if name == "a typed result":
        assert told.artifact == {"number": 42}


@WAYS
def test_a_finish_beside_a_delegate_that_fails_is_void(way: str, storage: SqliteStorage) -> None:
    failing = child(call("finish_task", summary="No.", outcome="blocked"))
    graph = parent(
        [
            [call("helper", task="Find it."), END_OF_PARENT],
            call("finish_task", summary="Not found.", outcome="blocked"),
        ],
        helper(failing),
        storage=storage,
    )
    values = run(graph, GO, way)
    refused = results(values)[1]
    assert "helper in the same reply did not succeed" in refused.text
    assert outcome_of(values).claim == "blocked"


BLOCKED = call("finish_task", summary="No key.", outcome="blocked")
REFUSED = "helper did not succeed (it claims blocked)"


@dataclass
class Claims:
    """What the parent does after a delegate has failed, and what becomes of it."""

    then: Sequence[Any]
    refused: int
    claim: str | None
    points: list[str] = field(default_factory=list)
    second: Any = BLOCKED


LOOK = call("look")
CLAIMS = {
    "it says done again: the outcome lists it": Claims(
        [END_OF_PARENT, call("finish_task", summary="Really.")], 1, "done", [REFUSED]
    ),
    "it has it done": Claims(
        [END_OF_PARENT, call("helper", task="Again."), END_OF_PARENT], 1, "done", [], DONE
    ),
    "it looks first": Claims([LOOK, END_OF_PARENT], 0, "done"),
    "it only thinks first": Claims(
        [call("think", thought="Hm."), END_OF_PARENT, END_OF_PARENT], 1, "done", [REFUSED]
    ),
    "it claims less": Claims([call("finish_task", summary="x", outcome="partial")], 0, "partial", [REFUSED]),
    "it fails again: it is told again": Claims(
        [
            END_OF_PARENT,
            call("helper", task="Again."),
            END_OF_PARENT,
            call("finish_task", summary="x", outcome="blocked"),
        ],
        2,
        "blocked",
        [REFUSED],
    ),
}


def look() -> str:
    """Look."""
    return "nothing"


@pytest.mark.parametrize("name", CLAIMS)
def test_done_is_refused_once_over_a_delegate_that_failed(name: str, storage: SqliteStorage) -> None:
    case = CLAIMS[name]
    made = helper(child(BLOCKED, case.second))
    graph = build_graph(
        ScriptedModel([call("helper", task="Find it."), *case.then]), [made, look], storage=storage
    )
    values = graph.invoke(GO, THREAD)
    told = [found.text for found in results(values) if found.text.startswith("Refused")]
    assert [text for text in told if REFUSED in text] == told
    outcome = outcome_of(values)
    assert (len(told), outcome.claim, outcome.open_points) == (case.refused, case.claim, case.points)
    assert outcome.pending_issues == []


@pytest.mark.parametrize("order", [[BLOCKED, DONE], [DONE, BLOCKED]])
def test_a_success_beside_it_makes_up_for_no_failure(order: list[Any], storage: SqliteStorage) -> None:
    """The calls of a reply are different parts of the work; only a later reply has one done again."""
    both = [call("helper", task="One."), call("helper", task="Another.")]
    by_task = dict(zip(("One.", "Another."), order, strict=True))
    below = ScriptedModel(lambda messages: by_task.get(messages[-1].text, DONE))
    steps = [both, END_OF_PARENT, call("helper", task="Again."), END_OF_PARENT]
    graph = parent(steps, helper(build_graph(below)), storage=storage)
    values = graph.invoke(GO, THREAD)
    assert [found.text.startswith("Refused") for found in results(values)] == [
        False,
        False,
        True,
        False,
        False,
    ]
    outcome = outcome_of(values)
    assert (outcome.claim, outcome.open_points) == ("done", [])


TOO_DEEP = "again did not succeed (limit: Limit of depth reached)"


@dataclass
class Insists:
    """What stands in the middle does after the one below it has failed; what the top does then; and the
    open points of the outcome at the top."""

    middle: Sequence[Any]
    top: Sequence[Any] = (END_OF_PARENT,)
    points: list[str] = field(default_factory=list)


INSISTS = {
    "the middle says done all the same": Insists([DONE, DONE], points=[f"middle / {TOO_DEEP}"]),
    "the top claims less": Insists([DONE, DONE], [call("finish_task", summary="x", outcome="partial")]),
    "the middle has it done": Insists([call("other", task="Do it."), DONE]),
    "the middle is called again": Insists(
        [DONE, DONE, DONE], [call("middle", task="Once more."), END_OF_PARENT]
    ),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", INSISTS)
def test_a_failure_further_below_is_in_every_outcome_above_that_says_done(
    name: str, way: str, storage: SqliteStorage
) -> None:
    """Two levels below the top a delegate may not call itself."""
    case = INSISTS[name]
    again = call("again", task="Go on.")

    def deepest() -> Graph:
        return build_graph(ScriptedModel([again]), [made("again", deepest), made("other", child(DONE))])

    def made(name: str, graph: Any) -> Any:
        return delegate(name, graph, description="Works.")

    middle = build_graph(
        ScriptedModel([again, *case.middle]), [made("again", deepest), made("other", child(DONE))]
    )
    graph = build_graph(
        ScriptedModel([call("middle", task="Go."), *case.top]),
        [made("middle", middle)],
        limits={"depth": 2},
        storage=storage,
    )
    values = run(graph, GO, way)
    assert results(values)[0].status == "success"
    outcome = outcome_of(values)
    assert (outcome.status, outcome.open_points) == ("success", case.points)


@WAYS
def test_several_in_one_reply_run_beside_each_other(way: str, storage: SqliteStorage) -> None:
    beside = Beside()
    for at_once, expected in ((None, 3), (2, 2), (1, 1)):
        beside.now, beside.most, beside.wanted = 0, 0, expected
        calls = [call("helper", task=f"{n}") for n in range(3)]
        made = helper(build_graph(ScriptedModel(_by_task), [beside.tool()]), parallel=at_once)
        graph = parent([calls, END_OF_PARENT], made, storage=storage)
        values = run(graph, {"messages": [("user", f"go {at_once}")]}, way)
        assert [found.status for found in results(values)][-4:] == ["success"] * 4
        assert beside.most == expected


@dataclass
class Beside:
    """Counts how many calls run at once, and waits for as many as are wanted."""

    now: int = 0
    most: int = 0
    wanted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tool(self) -> Any:
        @tool("busy")
        def busy(n: int) -> str:
            """Takes a while."""
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            until = time.monotonic() + 20
            while self.most < self.wanted and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.05)
            with self.lock:
                self.now -= 1
            return "done"

        return busy


def _by_task(messages: list[Any]) -> Any:
    return call("busy", n=1) if isinstance(messages[-1], HumanMessage) else DONE


def other_graph() -> Any:
    made = StateGraph(MessagesState)
    made.add_node("work", lambda _: {})
    made.add_edge(START, "work")
    return made.compile()


SETUPS: dict[str, tuple[Callable[[], Any], str]] = {
    "a graph with a checkpointer": (
        lambda: helper(child(DONE, checkpointer=InMemorySaver())),
        "'helper' has storage of its own; build it without storage=",
    ),
    "a graph with a thread": (
        lambda: helper(child(DONE).with_config(configurable={"thread_id": "mine"})),
        "'helper' has a thread of its own",
    ),
    "no graph": (lambda: helper("researcher"), "was given str, which is no compiled graph"),
    "another graph": (
        lambda: helper(other_graph()),
        "'helper' was not made by build_graph; an ordinary tool can call such a graph",
    ),
    "a name that is none": (lambda: helper(child(DONE), "a|b"), "use a letter, then letters"),
    "no description": (lambda: delegate("helper", child(DONE), description=" "), "has no description"),
    "parallel=0": (lambda: helper(child(DONE), parallel=0), "parallel is 0"),
    "two of one name": (
        lambda: parent([DONE], helper(child(DONE)), helper(child(DONE))),
        "Two tools are named 'helper'",
    ),
    "handed over": (
        lambda: parent([DONE], helper(child(DONE)), hand_over=["helper"]),
        "is a delegate",
    ),
    "a tool that says it is one": (
        lambda: parent([DONE], _pretender()),
        "of kind delegate; make it by delegate",
    ),
    "a limit of cost without prices below": (
        lambda: parent([DONE], helper(child(DONE)), limits=Limits(cost=1, prices=Prices(input=1, output=1))),
        "counts what the delegate 'helper' costs",
    ),
}


def _pretender() -> Any:
    @tool
    def helper(task: str) -> str:
        """Help."""
        return task

    helper.metadata = {"kind": "delegate"}
    return helper


@pytest.mark.parametrize("name", SETUPS)
def test_what_cannot_work_is_refused_when_it_is_built(name: str) -> None:
    build, sentence = SETUPS[name]
    with pytest.raises(SetupError, match=sentence):
        build()


def _failing() -> Any:
    raise ConnectionError("no answer")


def _storing() -> Any:
    return build_graph(ScriptedModel([DONE]), checkpointer=InMemorySaver())


@WAYS
@pytest.mark.parametrize(
    ("makes", "sentence"),
    [
        (_failing, "makes the graph of the delegate 'helper' failed: ConnectionError: no answer"),
        (
            lambda graph: graph,
            "makes the graph of the delegate 'helper' failed: TypeError: .*'graph'",
        ),
        (lambda: None, "'helper' was given NoneType, which is no compiled graph"),
        (other_graph, "'helper' was not made by build_graph"),
        (_storing, "'helper' has storage of its own; build it without storage="),
    ],
)
def test_a_function_that_makes_no_graph_is_a_failed_call(
    makes: Callable[..., Any], sentence: str, way: str, storage: SqliteStorage
) -> None:
    """A fault below goes on with the retry of the thread, as after any other error of a delegate."""
    made: list[Any] = [makes]
    steps = [call("helper", task="Go."), RuntimeError("down"), END_OF_PARENT]
    graph = parent(steps, helper(lambda: made[-1]()), storage=storage, model_retries=None)
    (told,) = results(run(graph, GO, way))
    assert re.search(sentence, told.text)
    assert told.status == "error"
    made.append(lambda: child(DONE))
    values = run(graph, retry(graph.get_state(THREAD)), way)
    assert [found.text for found in results(values)][:1] == ["helper is done (asserted). Found it."]
    assert values["outcome"]["status"] == "success"


@dataclass
class ContextAbove:
    user: str


@dataclass
class ContextBelow:
    user: str
    tenant: str


@pytest.mark.parametrize("stored", [True, False])
def test_a_delegate_whose_context_needs_more_than_that_above_has_none(stored: bool, tmp_path: Path) -> None:
    seen = list[Any]()

    def policy(args: Mapping[str, Any], context: Any) -> bool:
        seen.append(context)
        return False

    steps = ScriptedModel([call("look_up", word="heron"), DONE])
    # It has no checkpointer of its own, and one only if the graph above has.
    with pytest.warns(ApprovalWarning):
        below = build_graph(steps, [look_up], context_schema=ContextBelow, approvals={"look_up": policy})
    team = [delegate("helper", below, description="Helps.")]
    script = ScriptedModel([call("helper", task="Find it."), END_OF_PARENT])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(script, team, context_schema=ContextAbove, storage=storage if stored else None)
        config: Any = {"configurable": {"thread_id": "t"}}
        found = graph.invoke({"messages": [("user", "go")]}, config, context=ContextAbove("Ada"))
    assert found["outcome"]["status"] == "success"
    assert {type(one) for one in seen} <= {type(None), Context}


def look_up(word: str) -> str:
    """Look up."""
    return word
