"""Questions: how an answer is read, what comes after a deadline, and what a tool asks by itself."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from signoff import (
    Action,
    Approval,
    Question,
    Session,
    StorageError,
    ThreadBusy,
    ThreadError,
    build_graph,
    outcome_of,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from signoff.session import expire
from tests.support.plays import (
    ASK,
    FINISH,
    GO,
    TEXTS,
    THREAD,
    WRITE,
    Bench,
    ai,
    check,
    play,
    results,
    saved,
    user,
)

BLUE: Any = Command(resume="blue")
PLAYS = {
    "a question waits": play([ASK], reason=None, waits="question"),
    "an answer goes on": play([ASK, FINISH], then=BLUE, told="blue", waits="question"),
    "a message is the answer": play([ASK, FINISH], then="green", turns=2),
    "a finish after a question is not run": play(
        [[ASK, FINISH], FINISH], then=BLUE, turns=2, told="<after_control> ask_user", whole=True
    ),
    "work before a question runs first": play([[WRITE, ASK], FINISH], then=BLUE, ran="write"),
    "a question without words is refused": play(
        [call("ask_user", question=""), FINISH], told="<invalid> ask_user question", waits=""
    ),
    "an empty answer is told": play([ASK, FINISH], then=Command(resume=""), told="<no_answer>"),
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
    "words": ("neither", "neither"),
    "the number of an option, as text": ("2", "blue"),
    "the number of an option": (2, "blue"),
    "an inbox's list": ([{"type": "response", "args": "green"}], "green"),
    "an inbox's answer": ({"type": "response", "args": "green"}, "green"),
    "an inbox's answer in a form": ({"type": "response", "args": {"answer": "green"}}, "green"),
    "an inbox that ignores": ([{"type": "ignore", "args": None}], "<no_answer>"),
    "a form": ({"answer": "green"}, "green"),
    "a form with a number": ({"answer": 2}, "blue"),
    "a form of another name": ({"response": "green"}, "green"),
    "an empty form": ({"answer": ""}, "<no_answer>"),
    "a decision": ({"decisions": [{"type": "respond", "message": "green"}]}, "green"),
    "an empty list": ([], "<no_answer>"),
    "a document": ({"shade": 3}, '{"shade": 3}'),
    "a list": (["a", "b"], '["a", "b"]'),
    "a no": (False, "false"),
}


@pytest.mark.parametrize("name", READ_AS)
def test_an_answer_is_read(name: str) -> None:
    answer, told = READ_AS[name]
    played = check(play([ASK, FINISH], then=Command(resume=answer)))
    assert results(played.result, "ask_user") == [told]
    # It is the result of the call, and no message beside it.
    assert [message.type for message in played.model.seen[-1].messages].count("human") == 1


NO_ANSWERS: dict[str, Callable[[str], Any]] = {
    "nothing, for nobody": lambda wait: None,
    "nothing in a form, for nobody": lambda wait: {},
    "what cannot be saved": lambda wait: {wait: {("a", 1): 2}},
    "an approval of something shown": lambda wait: {wait: "yes@0a1b2c"},
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_refused(name: str) -> None:
    graph = build_graph(ScriptedModel([ASK, FINISH]), **saved())
    (wait,) = graph.invoke(GO, THREAD)["__interrupt__"]
    before = graph.get_state(THREAD)
    with pytest.raises(ThreadError):
        graph.invoke(Command(resume=NO_ANSWERS[name](wait.id)), THREAD)
    assert graph.get_state(THREAD) == before
    assert outcome_of(graph.invoke(BLUE, THREAD)).status == "success"


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
    "a part of a second": ({"deadline_seconds": 0.5}, None, 0.5),
    "a number for text and text for a number": (
        {"default_answer": 8080, "deadline_seconds": "60"},
        "8080",
        60,
    ),
    "a default alone": ({"default_answer": "8080"}, "8080", None),
    "null": ({"default_answer": None, "deadline_seconds": None}, None, None),
    "blank and 0": ({"default_answer": " ", "deadline_seconds": 0}, None, None),
    "negative": ({"deadline_seconds": -5}, None, None),
    "words": ({"deadline_seconds": "soon"}, None, None),
    "true": ({"deadline_seconds": True}, None, None),
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


LATE: dict[str, tuple[dict[str, Any], float, str | None]] = {
    "after it the default is taken": ({"default_answer": "8080", "deadline_seconds": 60}, 61, "8080"),
    "before it nothing is": ({"default_answer": "8080", "deadline_seconds": 60}, 30, None),
    "without one nothing is": ({"default_answer": "8080"}, 1e9, None),
    "without a default": ({"deadline_seconds": 60}, 61, "<nobody_answered>"),
}


@pytest.mark.parametrize("name", LATE)
def test_when_nobody_answers(name: str) -> None:
    args, later, answer = LATE[name]
    session, asked = asking(**args)
    found = expire(session.graph, "t", time.time() + later)
    assert (found and found.answer) == answer
    if answer is None:
        assert session.run() == asked
        return
    assert session.status().waits == ()
    session.run()
    assert results(session.status().values, "ask_user") == [answer]
    assert expire(session.graph, "t", 1e12) is None


def test_an_approval_has_no_deadline() -> None:
    graph = build_graph(ScriptedModel([WRITE]), Bench().tools, approvals={"write": True}, **saved())
    graph.invoke(GO, THREAD)
    assert expire(graph, "t", 1e12) is None


def test_a_thread_that_runs_does_not_expire_and_an_unknown_one_is_not_made(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script = [call("ask_user", question="Which?", deadline_seconds=1)]
        graph = build_graph(ScriptedModel(script), storage=storage)
        graph.invoke(GO, THREAD)
        with storage.runner("t"), pytest.raises(ThreadBusy):
            expire(graph, "t", 1e12)
        assert expire(graph, "nobody", 1e12) is None
        assert [row.thread_id for row in storage.threads()] == ["t"]


def test_a_deadline_is_the_same_after_a_restart_and_begins_when_the_question_has_its_turn() -> None:
    def rest() -> str:
        """Rest."""
        time.sleep(0.2)
        return "rested"

    storage, before = saved(), time.time()
    ask = call("ask_user", question="Which?", deadline_seconds=60)
    result = build_graph(ScriptedModel([[call("rest"), ask]]), [rest], **storage).invoke(GO, THREAD)
    asked = result["__interrupt__"][0].value
    assert asked["deadline"] >= before + 60.2
    again = build_graph(ScriptedModel([]), [rest], **storage).invoke({"messages": []}, THREAD)
    assert again["__interrupt__"][0].value == asked


def test_an_imported_question_has_no_deadline() -> None:
    ask = ai(("ask_user", "q", {"question": "Which?", "default_answer": "a", "deadline_seconds": 1}))
    graph = build_graph(ScriptedModel([]), **saved())
    value = graph.invoke({"messages": [user(), ask]}, THREAD)["__interrupt__"][0].value
    assert (value["default"], "deadline" in value) == ("a", False)


def test_the_model_is_told_of_deadlines_in_few_words() -> None:
    """Small models read the schema with every call."""
    played = check(play([FINISH]))
    (ask,) = [
        tool["function"] for tool in played.model.seen[0].tools if tool["function"]["name"] == "ask_user"
    ]
    schema = ask["parameters"]
    assert schema["required"] == ["question"]
    added = [schema["properties"][name] for name in ("default_answer", "deadline_seconds")]
    assert [found["type"] for found in added] == ["string", "number"]
    assert len(str(added)) < 240


# What a tool asks by LangGraph's own interrupt.

PAY: dict[str, Any] = {"action_requests": [{"name": "pay", "args": {"to": "x"}}]}
FOREIGN: dict[str, tuple[Any, type, Any, Any]] = {
    "text": ("Which?", Question, "blue", "blue"),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, Question, "no", "no"),
    "an approval of LangChain's": (PAY, Approval, "approve", {"decisions": [{"type": "approve"}]}),
    "an approval of words": ({"type": "approval", "action_requests": ["pay"]}, Question, "yes", "yes"),
    "an approval with too few rules": ({**PAY, "review_configs": [{}, {}]}, Question, "yes", "yes"),
    "options that are none": ({"question": "Which?", "options": 3}, Question, "blue", "blue"),
    "a confirmation of nothing": ({"type": "confirmation", "pending_issues": 3}, Question, "yes", "yes"),
    "a deadline that is none": ({"question": "Which?", "deadline": float("nan")}, Question, "blue", "blue"),
    "an action": ({"type": "action", "tool": "press", "args": {}}, Action, "pressed", "pressed"),
}


def asking_tool(value: Any) -> Session:
    def ask() -> str:
        """Ask."""
        return f"got {interrupt(value)!r}"

    return Session(build_graph(ScriptedModel([call("ask"), FINISH]), [ask], **saved()), "t")


@pytest.mark.parametrize("name", FOREIGN)
def test_whatever_a_tool_asks_by_is_answered_barely(name: str) -> None:
    """Only Signoff's own questions keep who has answered them."""
    value, kind, answer, got = FOREIGN[name]
    session = asking_tool(value)
    wait = session.run("go")
    assert isinstance(wait, Question | Approval | Action)
    assert (type(wait), wait.path, session.status().waits) == (kind, (), (wait,))
    session.resume(answer, wait.interrupt_id, by="grace")
    assert results(session.status().values, "ask") == [f"got {got!r}"]


def test_a_tool_that_asks_by_what_cannot_be_saved_fails() -> None:
    session = asking_tool(object())
    session.run("go")
    assert results(session.status().values, "ask")[0].startswith("TypeError")
    assert outcome_of(session.status().values).status == "success"


def test_what_fails_after_an_answer_is_told_as_it_is(tmp_path: Path) -> None:
    def ask() -> str:
        """Ask, and lose the storage."""
        interrupt("May I?")
        storage.close()
        return "asked"

    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session = Session(build_graph(ScriptedModel([call("ask"), FINISH]), [ask], storage=storage), "t")
        session.run("go")
        with pytest.raises(StorageError):
            session.resume("yes")


@pytest.mark.parametrize("seconds", [None, 120.0], ids=["without a time limit", "with one"])
def test_reads_that_ask_side_by_side_get_each_its_own_answer(seconds: float | None) -> None:
    def slow() -> str:
        """Ask later."""
        time.sleep(0.2)
        return f"slow: {interrupt('slow?')}"

    def quick() -> str:
        """Ask at once."""
        return f"quick: {interrupt('quick?')}"

    tools = [StructuredTool.from_function(tool, metadata={"kind": "read"}) for tool in (slow, quick)]
    model = ScriptedModel([[call("slow"), call("quick")], FINISH])
    graph = build_graph(model, tools, policy={"tool_seconds": seconds}, **saved())
    given: Any = GO
    for _ in range(2):
        (wait,) = graph.invoke(given, THREAD)["__interrupt__"]
        given = Command(resume={wait.id: f"re {wait.value}"})
    assert results(graph.invoke(given, THREAD))[:2] == ["slow: re slow?", "quick: re quick?"]


def test_a_graph_in_a_tool_does_not_say_what_comes_next_above_it() -> None:
    def over(_: MessagesState) -> Any:
        return Command(graph=Command.PARENT, goto="finish", update={"messages": [("ai", "hi")]})

    node: Any = over
    below: Any = StateGraph(MessagesState).add_node("over", node).add_edge(START, "over").compile()

    def transfer(to: str) -> str:
        """Hand the task over."""
        return str(below.invoke({"messages": [("user", to)]}))

    graph = build_graph(ScriptedModel([call("transfer", to="x"), FINISH]), [transfer])
    result = graph.invoke(GO)
    assert results(result, "transfer")[0].startswith("ParentCommand")
    assert outcome_of(result).status == "success"
