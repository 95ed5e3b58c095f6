"""Questions: how an answer is read, what comes after a deadline, and what a tool asks by itself."""

import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from signoff import (
    Action,
    Approval,
    Question,
    Session,
    ThreadBusy,
    ThreadError,
    build_graph,
    outcome_of,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from signoff.session import expire
from tests.support.plays import ASK, FINISH, GO, TEXTS, THREAD, WRITE, check, play, results, saved

BLUE: Any = Command(resume="blue")
PLAYS = {
    "a question waits": play([ASK], reason=None, waits="question"),
    "an answer goes on": play([ASK, FINISH], then=BLUE, told="blue", waits="question"),
    "a message is the answer": play([ASK, FINISH], then="green", turns=2),
    "no finish after it": play([[ASK, FINISH], FINISH], then=BLUE, told="<after_control>", whole=True),
    "work before a question runs first": play([[WRITE, ASK], FINISH], then=BLUE, ran="write"),
    "without words": play([call("ask_user", question=""), FINISH], told="<invalid> ask_user", waits=""),
    "where nobody can be asked": play([ASK], saved=False, reason="needs_person", turns=1),
}


@pytest.mark.parametrize("name", PLAYS)
def test_a_question(name: str) -> None:
    check(PLAYS[name])


def test_a_question_is_shown_as_langchain_shows_a_call() -> None:
    (wait,) = build_graph(ScriptedModel([ASK]), **saved()).invoke(GO, THREAD)["__interrupt__"]
    asked = {"question": "Which one?", "options": ["red", "blue"]}
    assert wait.value == {
        "type": "question",
        **asked,
        "call_id": "call_1",
        "action_requests": [{"name": "ask_user", "args": asked, "description": "Which one?"}],
        "review_configs": [{"action_name": "ask_user", "allowed_decisions": ["respond"]}],
    }


READ_AS: dict[str, tuple[Any, str]] = {
    "an inbox's list": ([{"type": "response", "args": "green"}], "green"),
    "an inbox's answer in a form": ({"type": "response", "args": {"answer": "green"}}, "green"),
    "a form": ({"answer": "green"}, "green"),
    "a number of an option": (1, "red"),
    "a decision": ({"decisions": [{"type": "respond", "message": "green"}]}, "green"),
    "an empty list": ([], "<no_answer>"),
    "a document": ({"shade": 3}, '{"shade": 3}'),
}


@pytest.mark.parametrize(("answer", "told"), READ_AS.values(), ids=READ_AS)
def test_an_answer_is_read(answer: Any, told: str) -> None:
    played = check(play([ASK, FINISH], then=Command(resume=answer)))
    assert results(played.result, "ask_user") == [told]
    # It is the result of the call, and no message beside it.
    assert [message.type for message in played.model.seen[-1].messages].count("human") == 1


def test_another_answer_at_a_point_that_was_answered_needs_a_fork() -> None:
    def script(messages: list[Any]) -> Any:
        told = [message.text for message in messages if message.type == "tool"]
        return call("finish_task", summary=told[-1]) if told else ASK

    graph = build_graph(ScriptedModel(script), **saved())
    graph.invoke(GO, THREAD)
    asked = graph.get_state(THREAD).config
    point = asked["configurable"]["checkpoint_id"]
    assert outcome_of(graph.invoke(BLUE, asked)).summary == "blue"
    (wait,) = graph.get_state(asked).interrupts
    others: list[Any] = [Command(resume="red"), Command(resume={wait.id: "red"})]
    for other in others:
        with pytest.raises(ThreadError, match=point):
            graph.invoke(other, asked)
    # The same answer again is none other.
    assert outcome_of(graph.invoke(BLUE, asked)).summary == "blue"
    fork = Session(graph, "t").fork(point)
    fork.resume("red")
    assert outcome_of(fork.status().values).summary == "red"


# Deadlines.


def asking(**args: Any) -> tuple[Session, Question]:
    graph = build_graph(
        ScriptedModel([call("ask_user", question="Which?", **args), FINISH]),
        policy={"texts": TEXTS},
        **saved(),
    )
    session = Session(graph, "t")
    asked = session.run("do it")
    assert isinstance(asked, Question)
    return session, asked


WAITING: dict[str, tuple[dict[str, Any], str | None, float | None]] = {
    # What the model says, and what is read of it.
    "neither": ({}, None, None),
    "both": ({"default_answer": "8080", "deadline_seconds": 60}, "8080", 60),
    "each for the other": ({"default_answer": 8080, "deadline_seconds": "60"}, "8080", 60),
    "blank and 0": ({"default_answer": " ", "deadline_seconds": 0}, None, None),
    "a list and an object": ({"default_answer": ["a"], "deadline_seconds": {"s": 1}}, None, None),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_deadline_and_a_default_are_read(name: str) -> None:
    args, default, seconds = WAITING[name]
    before = time.time()
    session, asked = asking(**args)
    assert asked.default == default
    if seconds is None:
        assert asked.deadline is None
    else:
        assert asked.deadline is not None
        assert before <= asked.deadline - seconds <= time.time()
    session.resume("9090")
    assert results(session.status().values, "ask_user") == ["9090"]


DEFAULT: dict[str, Any] = {"default_answer": "8080", "deadline_seconds": 60}
LATE: dict[str, tuple[dict[str, Any], float, str | None]] = {
    # What the model says, and how many seconds after the deadline it is.
    "after it the default is taken": (DEFAULT, 1, "8080"),
    "at it, too": (DEFAULT, 0, "8080"),
    "before it nothing is": (DEFAULT, -1, None),
    "without one nothing is": ({"default_answer": "8080"}, 1e9, None),
    "without a default": ({"deadline_seconds": 60}, 1, "<nobody_answered>"),
}


@pytest.mark.parametrize(("args", "later", "answer"), LATE.values(), ids=LATE)
def test_when_nobody_answers(args: dict[str, Any], later: float, answer: str | None) -> None:
    session, asked = asking(**args)
    found = expire(session.graph, "t", (asked.deadline or time.time()) + later)
    assert (found and found.answer) == answer
    if answer is None:
        assert session.run() == asked
        return
    assert session.status().waits == ()
    session.run()
    assert results(session.status().values, "ask_user") == [answer]
    assert expire(session.graph, "t", 1e12) is None


def test_a_thread_that_runs_does_not_expire_and_an_unknown_one_is_not_made(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script = [call("ask_user", question="Which?", deadline_seconds=1)]
        graph = build_graph(ScriptedModel(script), storage=storage)
        graph.invoke(GO, THREAD)
        with storage.runner("t"), pytest.raises(ThreadBusy):
            expire(graph, "t", 1e12)
        assert expire(graph, "nobody", 1e12) is None
        assert [row.thread_id for row in storage.threads()] == ["t"]


# What a tool asks by LangGraph's own interrupt.

PAY: dict[str, Any] = {"action_requests": [{"name": "pay", "args": {"to": "x"}}]}
FOREIGN: dict[str, tuple[Any, type, Any, Any]] = {
    "text": ("Which?", Question, "blue", "blue"),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, Question, "no", "no"),
    "an approval of LangChain's": (PAY, Approval, "approve", {"decisions": [{"type": "approve"}]}),
    "an approval of words": ({"type": "approval", "action_requests": ["pay"]}, Question, "yes", "yes"),
    "an action": ({"type": "action", "tool": "press", "args": {}}, Action, "pressed", "pressed"),
}


def asking_tool(value: Any) -> Session:
    def ask() -> str:
        """Ask."""
        return f"got {interrupt(value)!r}"

    return Session(build_graph(ScriptedModel([call("ask"), FINISH]), [ask], **saved()), "t")


@pytest.mark.parametrize(("value", "kind", "answer", "got"), FOREIGN.values(), ids=FOREIGN)
def test_whatever_a_tool_asks_by_is_answered_barely(value: Any, kind: type, answer: Any, got: Any) -> None:
    """Only Signoff's own questions keep who has answered them."""
    session = asking_tool(value)
    wait = session.run("go")
    assert isinstance(wait, Question | Approval | Action)
    assert (type(wait), wait.path, session.status().waits) == (kind, (), (wait,))
    session.resume(answer, wait.interrupt_id, by="grace")
    assert results(session.status().values, "ask") == [f"got {got!r}"]
