"""A message that was saved when its process was killed, before the history held it: every way in takes it up,
once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Command, Overwrite

import signoff.storage.sqlite
from signoff import Session, SetupError, ThreadError, build_graph, go_on, sqlite_storage, undo
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.expiring import expire
from signoff.session.status import Condition
from signoff.workers import Order, drive, post
from tests.support.ends import is_finished, saved_outcome

THREAD: Any = {"configurable": {"thread_id": "t"}}
ONE, TWO = "message-one", "message-two"


def script(messages: list[BaseMessage]) -> Any:
    """What the model says: it finishes with the names of the messages that it has not answered yet."""
    ends = [at for at, one in enumerate(messages) if isinstance(one, AIMessage) and one.tool_calls]
    heard = [one.text for one in messages[ends[-1] + 1 if ends else 0 :] if not isinstance(one, AIMessage)]
    told = [name for name in (ONE, TWO) if any(name in text for text in heard)]
    return call("finish_task", summary=f"answered: {', '.join(told)}" if told else "The first task.")


class Died(BaseException):
    """The process is gone: no code of ours may catch this."""


class Mortal(signoff.storage.sqlite.ThreadSaver):
    """Dies right after it has saved an input, as it came, and stays dead."""

    armed = dead = False

    def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if Mortal.dead:
            raise Died
        done = super().put(config, checkpoint, metadata, versions)
        if Mortal.armed:
            Mortal.dead = True
            raise Died
        return done

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        # The first step may be quicker than the thread that saves the input.
        if Mortal.armed:
            raise Died
        super().put_writes(config, writes, task_id, task_path)

    def save(self, *args: Any) -> None:
        if Mortal.dead:
            raise Died
        super().save(*args)

    @classmethod
    @contextmanager
    def dies(cls) -> Iterator[None]:
        cls.armed = True
        try:
            # What nobody can read may be found out first.
            with pytest.raises((Died, ValueError)):
                yield
        finally:
            cls.armed = cls.dead = False


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """On a thread that has ended, and was given ONE by a process that has died."""
    monkeypatch.setattr(signoff.storage.sqlite, "ThreadSaver", Mortal)
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        made = build_graph(ScriptedModel(script), storage=storage)
        made.invoke({"messages": [("user", "first")]}, THREAD)
        lose(made, {"messages": [("user", ONE)]})
        yield made


def lose(graph: Graph, given: Any) -> None:
    with Mortal.dies():
        graph.invoke(given, THREAD)
    assert graph.get_state(THREAD).next == ("__start__",)


def said(graph: Graph) -> list[str]:
    messages: list[BaseMessage] = graph.get_state(THREAD).values["messages"]
    return [m.text for m in messages if isinstance(m, HumanMessage) and "message" in m.text]


def answered(graph: Graph) -> list[str]:
    """What each finish that names a message says."""
    messages: list[BaseMessage] = graph.get_state(THREAD).values["messages"]
    made = [made for m in messages if isinstance(m, AIMessage) for made in m.tool_calls]
    return [one["args"]["summary"] for one in made if "message" in str(one["args"].get("summary"))]


def test_it_stands_in_the_thread_which_has_not_ended(graph: Graph) -> None:
    state = graph.get_state(THREAD)
    assert (said(graph), saved_outcome(state.values), state.interrupts) == ([ONE], None, ())
    status = Session(graph, "t").status()
    assert (status.condition, status.outcome, status.wait()) == (Condition.STOPPED, None, None)


def by_readme(graph: Graph) -> None:
    state = graph.get_state(THREAD)
    if state.interrupts:
        graph.invoke(Command(resume={state.interrupts[0].id: "blue"}), THREAD)
    elif saved_outcome(state.values) is None:
        graph.invoke(go_on(), THREAD)


def by_workers(graph: Graph, *texts: str) -> None:
    assert graph.store is not None
    for text in texts:
        post(graph.store, "t", Order(f"id of {text}", text))
    drive(graph, "t")


GOING_ON: dict[str, Callable[[Graph], Any]] = {
    "the recipe of the docs": by_readme,
    "go_on": lambda graph: graph.invoke(go_on(), THREAD),
    "Session.run": lambda graph: Session(graph, "t").run(),
    "the same by invoke": lambda graph: graph.invoke({"messages": [("user", ONE)]}, THREAD),
    "the same by batch": lambda graph: graph.batch([{"messages": ("user", ONE)}], THREAD),
    "the same by stream": lambda graph: list(graph.stream({"messages": ONE}, THREAD)),
    "the same by Session": lambda graph: Session(graph, "t").run(ONE),
    "the same, superseding": lambda graph: Session(graph, "t", on_pending="supersede").run(ONE),
    "the same, if nothing waits": lambda graph: Session(graph, "t", on_pending="refuse").run(ONE),
    "workers": by_workers,
}


EVERY = pytest.mark.parametrize("graph", ["success", "limit", "error", "question", "approval"], indirect=True)


@EVERY
def test_it_is_answered_once_however_the_thread_stood(graph: Graph) -> None:
    by_readme(graph)
    assert (said(graph), answered(graph)) == ([ONE], [f"answered: {ONE}"])


@pytest.mark.parametrize("way", GOING_ON)
def test_it_is_answered_once(graph: Graph, way: str) -> None:
    GOING_ON[way](graph)
    assert (said(graph), answered(graph)) == ([ONE], [f"answered: {ONE}"])
    assert (saved_outcome(graph.get_state(THREAD).values) or {})["summary"] == f"answered: {ONE}"


NEXT: dict[str, Callable[[Graph], Any]] = {
    "invoke": lambda graph: graph.invoke({"messages": [("user", TWO)]}, THREAD),
    "Session": lambda graph: Session(graph, "t").run(TWO),
    "workers": lambda graph: by_workers(graph, TWO),
}


@pytest.mark.parametrize("way", NEXT)
def test_the_next_message_does_not_take_its_place(graph: Graph, way: str) -> None:
    NEXT[way](graph)
    assert said(graph) == [ONE, TWO]
    expected = {"workers": [f"answered: {ONE}", f"answered: {TWO}"]}.get(way, [f"answered: {ONE}, {TWO}"])
    assert answered(graph) == expected


async def test_in_an_event_loop(graph: Graph) -> None:
    assert (await graph.aget_state(THREAD)).values["messages"][-1].text == ONE
    lost = {"messages": [("user", TWO)]}
    with Mortal.dies():
        await graph.ainvoke(lost, THREAD)
    await graph.ainvoke(lost, THREAD)
    assert (said(graph), answered(graph)) == ([ONE, TWO], [f"answered: {ONE}, {TWO}"])


async def test_in_an_event_loop_by_a_session(graph: Graph) -> None:
    decision = await Session(graph, "t").arun(TWO)
    assert is_finished(decision)
    assert (said(graph), answered(graph)) == ([ONE, TWO], [f"answered: {ONE}, {TWO}"])


WRITING: dict[str, Callable[[Graph], Any]] = {
    "sync": lambda graph: graph.update_state(THREAD, {"messages": [HumanMessage(TWO)]}),
    "async": lambda graph: asyncio.run(graph.aupdate_state(THREAD, {"messages": [HumanMessage(TWO)]})),
    "a command": lambda graph: graph.invoke(
        Command(goto="compress", update={"messages": [HumanMessage(TWO)]}), THREAD
    ),
}


@pytest.mark.parametrize("way", WRITING)
def test_what_is_written_to_the_state_does_not_take_its_place(graph: Graph, way: str) -> None:
    WRITING[way](graph)
    if way != "a command":
        graph.invoke(go_on(), THREAD)
    assert (said(graph), answered(graph)) == ([ONE, TWO], [f"answered: {ONE}, {TWO}"])


def test_it_can_be_stopped(graph: Graph) -> None:
    Session(graph, "t").stop()
    outcome = saved_outcome(graph.get_state(THREAD).values) or {}
    assert (outcome["reason"], said(graph), answered(graph)) == ("cancelled", [ONE], [])


def test_what_needs_an_end_or_a_question_does_nothing(graph: Graph) -> None:
    for needs in (
        lambda: graph.invoke(undo(), THREAD),
        lambda: Session(graph, "t").resume("x"),
    ):
        with pytest.raises(ThreadError):
            needs()
    assert expire(graph, "t") is None
    assert (said(graph), answered(graph)) == ([ONE], [])


def test_a_fork_takes_it_along(graph: Graph) -> None:
    Session(graph, "t").fork(thread_id="fork").run()
    forked: Any = {"configurable": {"thread_id": "fork"}}
    messages = graph.get_state(forked).values["messages"]
    assert sum(message.text == ONE for message in messages if message.type == "human") == 1
    assert graph.get_state(forked).values["outcome"]["summary"] == f"answered: {ONE}"
    assert answered(graph) == []


def test_older_points_of_the_thread_stay_as_they_were(graph: Graph) -> None:
    here = graph.get_state(THREAD).config
    assert ONE not in [message.text for message in graph.get_state(here).values["messages"]]


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph whose model finishes each task at once, on a thread with one that has ended."""
    monkeypatch.setattr(signoff.storage.sqlite, "ThreadSaver", Mortal)
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        made = build_graph(ScriptedModel(lambda _: call("finish_task", summary="Done.")), storage=storage)
        made.invoke({"messages": [("user", "message 0")]}, THREAD)
        yield made


# What was lost, what is sent, and how many messages stand then: by words and kind, or by id.
SAME = (
    (("user", "message"), ("user", "message"), 1),
    (("user", "message"), HumanMessage("message"), 1),
    (("user", "message"), ("user", "message!"), 2),
    (HumanMessage("message", id="a"), HumanMessage("message", id="a"), 1),
    (HumanMessage("message", id="a"), ("user", "message"), 1),
    (HumanMessage("message", id="a"), HumanMessage("message", id="b"), 2),
    (("user", "message"), HumanMessage("message", id="b"), 2),
    (HumanMessage("message", name="ann"), HumanMessage("message", name="ben"), 2),
)


@pytest.mark.parametrize(("lost", "sent", "stand"), SAME)
def test_what_the_same_message_is(plain: Graph, lost: Any, sent: Any, stand: int) -> None:
    lose(plain, {"messages": [lost]})
    plain.invoke({"messages": [sent]}, THREAD)
    assert len(said(plain)) == 1 + stand


FORMS: list[Any] = [
    "message",
    ["message"],
    ("user", "message"),
    [("user", "message")],
    HumanMessage("message"),
    [HumanMessage("message", id="")],
    {"role": "user", "content": "message"},
    [{"type": "human", "content": "message"}],
]


@pytest.mark.parametrize("given", FORMS, ids=repr)
def test_whatever_its_form_it_has_its_id_from_the_beginning(plain: Graph, given: Any) -> None:
    lose(plain, {"messages": given})
    shown = plain.get_state(THREAD).values["messages"]
    plain.invoke(go_on(), THREAD)
    messages = plain.get_state(THREAD).values["messages"]
    assert [m.id for m in messages[: len(shown)]] == [m.id for m in shown]
    assert said(plain) == ["message 0", "message"]


def test_a_history_that_is_replaced_is_left_alone(plain: Graph) -> None:
    plain.invoke({"messages": Overwrite([HumanMessage("message 1", id="a")])}, THREAD)
    assert said(plain) == ["message 1"]


def test_several_messages_are_the_same_only_together(plain: Graph) -> None:
    both = {"messages": [("user", "message 1"), ("user", "message 2")]}
    lose(plain, both)
    plain.invoke(both, THREAD)
    assert said(plain) == ["message 0", "message 1", "message 2"]


def test_the_same_message_after_an_answer_is_a_new_one(plain: Graph) -> None:
    plain.invoke({"messages": [("user", "message 0")]}, THREAD)
    assert said(plain) == ["message 0"] * 2


def test_what_is_no_message_is_refused_before_it_is_saved(plain: Graph) -> None:
    before = plain.get_state(THREAD)
    with pytest.raises(SetupError, match="nonsense"):
        plain.invoke({"messages": [{"nonsense": 1}]}, THREAD)
    assert plain.get_state(THREAD) == before
    plain.invoke({"messages": [("user", "message 1")]}, THREAD)
    assert said(plain) == ["message 0", "message 1"]
