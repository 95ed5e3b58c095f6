"""Delegates whose graph is not Signoff's: what they ask, how they end, and what bounds them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from signoff import (
    Approval,
    Outcome,
    Question,
    Session,
    SetupError,
    ThreadError,
    build_graph,
    delegate,
    outcome_of,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.errors import ApprovalWarning
from signoff.models import ScriptedModel, call
from signoff.session.expiring import expire_all
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
BLOCKED = call("finish_task", summary="x", outcome="blocked")
LATER = 9e12


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def last_text(values: Any) -> Any:
    return values["messages"][-1].text


def other(
    work: Callable[[Any], Any], *, again: bool = False, read: Any = last_text, name: str = "other"
) -> Any:
    """A delegate of one node. again: which goes round for ever."""
    node: Any = work
    made = StateGraph(MessagesState)
    made.add_node("work", node)
    made.add_edge(START, "work")
    made.add_edge("work", "work" if again else END)
    return delegate(name, made.compile(), description="Works.", read=read)


def asks(value: Any) -> Callable[[Any], Any]:
    return lambda _: {"messages": [("ai", f"it is {interrupt(value)}")]}


def lead(*delegates: Any, **options: Any) -> Graph:
    calls = [call(made.name, task="Go.") for made in delegates]
    return build_graph(ScriptedModel([calls, BLOCKED]), list(delegates), **options)


def told(values: Any) -> list[str]:
    return [str(found.text) for found in values["messages"] if isinstance(found, ToolMessage)][:-1]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_one_that_asks_where_nobody_can_answer_is_a_failed_call(way: str) -> None:
    graph = lead(other(asks("Which?")))
    with pytest.warns(ApprovalWarning, match="The delegate other: interrupt"):
        values = graph.invoke(GO) if way == "sync" else asyncio.run(graph.ainvoke(GO))
    assert told(values)[0].startswith("other did not succeed (error: It needs a person). other was begun and")
    assert outcome_of(values).claim == "blocked"


ASKED: dict[str, tuple[Any, str | None]] = {
    "text": ("Which?", "Which?"),
    "a list": (["a", 1], '["a", 1]'),
    "nothing": (None, "null"),
    "a question": ({"question": "Which?"}, "Which?"),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, "Overwrite?"),
    "a path that is none": ({"question": "Which?", "path": None}, "Which?"),
    "a path in a list": ({"question": "Which?", "path": ["etc", 1]}, "Which?"),
    "nothing that can be read": ({"path": 5}, '{"path": 5}'),
    "an approval of nothing": ({"type": "approval", "action_requests": []}, None),
    "an approval of words": ({"type": "approval", "action_requests": ["pay"]}, None),
    "options that are none": ({"type": "question", "question": "Which?", "options": 3}, "Which?"),
    "a confirmation of nothing": ({"type": "confirmation", "pending_issues": 3}, None),
    "a deadline that is none": ({"question": "Which?", "deadline": "soon", "default": 3}, "Which?"),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_it_asks_by_is_shown_with_its_path(name: str, storage: SqliteStorage) -> None:
    value, text = ASKED[name]
    graph = lead(*[other(asks(value), name=one) for one in ("one", "two")], storage=storage)
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Question)
    waits = [one for one in session.status().waits if isinstance(one, Question)]
    assert [one.path for one in waits] == [("one",), ("two",)]
    assert text is None or [one.text for one in waits] == [text, text]
    # Each answer arrives at the one that it was given to, as it is: another graph cannot say who gave it.
    for one in waits:
        session.resume(f"for {one.path[0]}", one.interrupt_id, by="grace")
    assert told(session.status().values) == [
        f"{one} is done (asserted). it is for {one}" for one in ("one", "two")
    ]


def test_a_value_that_cannot_be_saved_is_not_asked_by(storage: SqliteStorage) -> None:
    values = lead(other(asks(object())), storage=storage).invoke(GO, THREAD)
    assert "TypeError: interrupt() asks by a value that cannot be saved (object)" in told(values)[0]


ANSWERS: dict[str, tuple[Any, list[str]]] = {
    "a word": ("approve", ["x"]),
    "a decision": ([{"type": "approve"}], ["x"]),
    "a refusal": ("reject: Too much.", []),
    "an edit": ([{"type": "edit", "edited_action": {"name": "pay", "args": {"to": "y"}}}], ["y"]),
}


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_agent_of_langchain_asks_for_approval(name: str, mode: Any, storage: SqliteStorage) -> None:
    answer, expected = ANSWERS[name]
    paid: list[str] = []

    @tool
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    person = HumanInTheLoopMiddleware[Any, Any, Any](interrupt_on={"pay": True}, interrupt_mode=mode)
    agent = create_agent(ScriptedModel([call("pay", to="x"), "All done."]), [pay], middleware=[person])
    made = delegate("agent", agent, description="Pays.", read=last_text)
    session = Session(lead(made, storage=storage), "t")
    waits = session.run("go")
    assert isinstance(waits, Approval)
    assert (waits.path, [(one.name, one.args) for one in waits.calls]) == (("agent",), [("pay", {"to": "x"})])
    with pytest.raises(ThreadError, match=r"does not fit|not a decision"):
        session.resume("whatever", waits.interrupt_id)
    session.resume(answer, waits.interrupt_id, by="grace")
    assert (paid, told(session.status().values)) == (expected, ["agent is done (asserted). All done."])


def test_its_question_waits_on_after_its_deadline(storage: SqliteStorage) -> None:
    """Only a run of its graph could take the answer; so none is reported that was never given."""
    asked = {"type": "question", "question": "Which?", "default": "blue", "deadline": 1.0}
    session = Session(lead(other(asks(asked)), storage=storage), "t")
    session.run("go")
    for _ in range(2):
        assert expire_all(session.graph, "t", now=LATER) == []
    assert isinstance(session.run(), Question)


READ: dict[str, tuple[Any, str]] = {
    "text": ("found", "other is done (asserted). found"),
    "an outcome": (Outcome(status="success", reason="done", claim="done", summary="ok"), "other is done"),
    "nothing": (None, "other did not succeed (error: raised). TypeError: read= returned NoneType"),
    "an object": (object(), "other did not succeed (error: raised). TypeError: read= returned object"),
    "a number": (3, "other did not succeed (error: raised). TypeError: read= returned int"),
}


@pytest.mark.parametrize("name", READ)
def test_what_read_returns_is_text_or_an_outcome(name: str) -> None:
    value, text = READ[name]
    values = lead(other(lambda _: {}, read=lambda _: value)).invoke(GO)
    assert told(values)[0].startswith(text)


class Panic(BaseException):
    """What an extension raises, which is no Exception."""


def raises(error: BaseException) -> Callable[[Any], Any]:
    def work(_: Any) -> Any:
        raise error

    return work


def hands_over(_: Any) -> Any:
    return Command(graph=Command.PARENT, goto="finish", update={"messages": [("ai", "hi")]})


FAILS: dict[str, tuple[Any, Any, str]] = {
    "an error": (raises(KeyError("x")), last_text, "KeyError: 'x'"),
    "no Exception": (raises(Panic("x")), last_text, "Panic: x"),
    "a group": (raises(BaseExceptionGroup("x", [Panic()])), last_text, "BaseExceptionGroup: x (1"),
    "a hand over": (
        hands_over,
        last_text,
        "it hands over to a graph above it (Command(graph=Command.PARENT))",
    ),
    "reading": (lambda _: {}, raises(KeyError("x")), "KeyError: 'x'"),
    "reading, by no Exception": (lambda _: {}, raises(Panic("x")), "Panic: x"),
    "reading, by the end of the process": (lambda _: {}, raises(SystemExit(3)), "SystemExit: 3"),
}


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", FAILS)
def test_whatever_it_raises_is_a_failed_call(
    name: str, way: str, saved: bool, storage: SqliteStorage
) -> None:
    work, read, said = FAILS[name]
    graph = lead(other(work, read=read), storage=storage if saved else None)
    values = graph.invoke(GO, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(GO, THREAD))
    assert told(values)[0].startswith(f"other did not succeed (error: raised). {said}")


def steps_of(done: list[str]) -> dict[str, Any]:
    """Graphs that do something, and fail."""

    def work(then: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def working(state: Any) -> Any:
            done.append("paid")
            return then(state)

        return working

    return {
        "raises": other(work(raises(RuntimeError("down")))),
        "raises no Exception": other(work(raises(Panic("down")))),
        "hands over": other(work(hands_over)),
        "goes round for ever": other(work(lambda _: {}), again=True),
    }


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", steps_of([]))
def test_one_that_has_failed_does_not_run_again_while_another_waits(
    name: str, way: str, storage: SqliteStorage
) -> None:
    done: list[str] = []
    ask = call("ask_user", question="Which?")
    waiting = build_graph(ScriptedModel([ask, ask, call("finish_task", summary="Done.")]))
    graph = lead(steps_of(done)[name], delegate("asks", waiting, description="Asks."), storage=storage)
    times: list[int] = []
    given = GO
    for _ in range(3):
        values = graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))
        given, times = Command(resume="this"), [*times, len(done)]
    assert len(set(times)) == 1
    assert told(values)[0].startswith("other did not succeed (error: raised).")
    assert told(values)[1].startswith("asks is done")


def test_one_that_has_failed_is_told_so_when_the_task_is_stopped(storage: SqliteStorage) -> None:
    waiting = build_graph(ScriptedModel([call("ask_user", question="Which?")]))
    failing = other(raises(RuntimeError("down")))
    session = Session(lead(failing, delegate("asks", waiting, description="Asks."), storage=storage), "t")
    session.run("go")
    session.stop()
    found = [one.text for one in session.status().values["messages"] if isinstance(one, ToolMessage)]
    assert found[0] == "other did not succeed (error: raised). RuntimeError: down"


def test_a_retry_goes_on_in_it_once(storage: SqliteStorage) -> None:
    """Also where it fails again, beside one that waits."""
    done: list[str] = []
    ask = call("ask_user", question="Which?")
    finish = call("finish_task", summary="Done.")
    waiting = build_graph(ScriptedModel([ask, RuntimeError("down"), ask, ask, finish]), model_retries=None)
    both = [steps_of(done)["raises"], delegate("asks", waiting, description="Asks.")]
    calls = [call(made.name, task="Go.") for made in both]
    model = ScriptedModel([calls, RuntimeError("down"), BLOCKED])
    session = Session(build_graph(model, both, storage=storage, model_retries=None), "t")
    times, decision = [], session.run("go")
    for _ in range(4):
        times.append(len(done))
        decision = session.resume("this") if isinstance(decision, Question) else session.retry()
    assert times == [1, 1, 2, 2]
    assert not isinstance(decision, Question)


@pytest.mark.parametrize(("own", "steps"), [(None, 100), (7, 7)])
def test_its_steps_are_bounded(own: int | None, steps: int) -> None:
    """The limit of the graph above it is far too high for one that goes round for ever."""
    done = []

    def work(_: Any) -> Any:
        done.append(1)
        return {}

    made = other(work, again=True)
    if own is not None:
        made = made.model_copy(update={"graph": made.graph.with_config({"recursion_limit": own})})
    values = lead(made).invoke(GO)
    assert len(done) == steps
    assert told(values)[0].startswith("other did not succeed (error: raised). GraphRecursionError")


@tool
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def test_a_policy_may_name_the_tools_of_delegates(storage: SqliteStorage) -> None:
    below = build_graph(ScriptedModel([call("pay", to="x")]), [pay])
    middle = build_graph(
        ScriptedModel([call("below", task="Go.")]), [delegate("below", below, description="Works.")]
    )
    made = delegate("middle", middle, description="Works.")
    graph = lead(made, storage=storage, approvals={"pay": True})
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert (waits.value["type"], waits.value["path"]) == ("approval", ["middle", "below"])
    with pytest.raises(
        SetupError, match=r"names .'spend'., which is neither a tool of this graph or of a delegate nor"
    ):
        lead(made, approvals={"spend": True})
    # What another graph calls, nobody knows here.
    with pytest.raises(SetupError, match=r"names .'pay'."):
        lead(other(lambda _: {}), approvals={"pay": True})


def test_an_answer_goes_on_in_it(storage: SqliteStorage) -> None:
    graph = lead(other(asks("Which?")), storage=storage)
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert waits.value == {
        "type": "question",
        "question": "Which?",
        "options": [],
        "value": "Which?",
        "path": ["other"],
    }
    values = graph.invoke(Command(resume={waits.id: "blue"}), THREAD)
    assert told(values) == ["other is done (asserted). it is blue"]
