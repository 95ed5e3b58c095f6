"""One task after another on a thread, and histories that were made elsewhere."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from signoff import build_graph, outcome_of, stop
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from tests.support.interrupting import interrupt_process
from tests.support.plays import ASK, FINISH, GO, THREAD, WRITE, ai, check, done, play, results, saved, user

NOTHING: list[Any] = []
EMPTY = call("finish_task", summary="")
HALF = call("finish_task", summary="Half.", completion_percentage=50)
OPEN_ASK = "ask_user({'question': 'Which one?', 'options': ['red', 'blue']})"
TASKS = {
    "a finish of an earlier task does not end the next": play(
        [FINISH, WRITE, FINISH], sent=["a", "b"], ran="write", turns=2
    ),
    "its turns do not count": play(
        [WRITE, FINISH, WRITE, FINISH], sent=["a", "b"], limits={"turns": 2}, ran="write write"
    ),
    "nor do its refusals and phases": play(
        [EMPTY, HALF, FINISH, FINISH], sent=["a", "b"], refusals=0, phases=[]
    ),
    "nothing new on a thread that has ended": play([FINISH], sent=["a", NOTHING, NOTHING], turns=1),
    "nothing at all": play([], sent=[NOTHING], reason="no_task", turns=0),
    "a system message alone is nothing": play([], sent=[[("system", "be kind")]], reason="no_task"),
    "a first task after nothing": play([FINISH], sent=[NOTHING, "a"]),
    "a message after an error begins a task": play([RuntimeError("down"), FINISH], sent=["a", "b"], turns=1),
    "a stop ends a task": play([ASK], sent=["a", stop()], reason="cancelled", open_work=[OPEN_ASK]),
    "and only this one": play([ASK, FINISH], sent=["a", stop(), "b"]),
    "a message twice under one id begins one task": play(
        [FINISH], sent=[[HumanMessage("do it", id="one")]] * 2, turns=1
    ),
    "while the second waits there is no outcome of the first": play(
        [FINISH, ASK], sent=["a", "b"], reason=None
    ),
}

CLAIM, CLAIMED, READ_0 = ai(("finish_task", "f")), done("f"), ai(("read", "0"))
OTHER = ai(("finish_task", "e", {"summary": "No."}))
BAD = [ai(("finish_task", "f", {"summary": ""})), done("f")]
IMPORTS = {
    "a finish with its result": play([], sent=[[user(), CLAIM, CLAIMED]], turns=1),
    "a finish without one": play([], sent=[[user(), CLAIM]]),
    "words after it": play([], sent=[[user(), CLAIM, CLAIMED, ai("Bye!")]], turns=2),
    "of two finishes the last": play(
        [], sent=[[user(), OTHER, done("e"), CLAIM, CLAIMED]], summary="All of it."
    ),
    "a bad finish cannot cycle": play([FINISH], sent=[[user(), *BAD]], turns=2, refusals=1, told="<refused>"),
    "the same bad finish twice under one id": play(
        [FINISH], sent=[[user(), *BAD, *(message.model_copy() for message in BAD)]], turns=3, refusals=2
    ),
    "a finish with an error is none": play(
        [FINISH], sent=[[user(), CLAIM, ToolMessage("broke", tool_call_id="f", status="error")]]
    ),
    "a finish of an earlier task": play([FINISH], sent=[[user("a"), CLAIM, CLAIMED, user("b")]]),
    "open calls in the middle may have run": play(
        [FINISH], sent=[[user(), ai(("write", "w")), user("b")]], told="<maybe_run> write"
    ),
    "open calls at the end run": play(
        [FINISH], sent=[[user(), ai(("write", "w", {"text": "x"}))]], ran="write"
    ),
    "an id again in the next task": play(
        [FINISH], sent=[[user(), READ_0, user("b"), READ_0]], ran="read", told="<maybe_run> read"
    ),
    "words at the end": play([FINISH], sent=[[user(), ai("All done!")]], told="<talked>"),
    "no message of a person": play([], sent=[[ai("x"), CLAIM]], turns=2),
    "a finish appended to a thread that has ended": play(
        [FINISH], sent=["a", [OTHER]], summary="All of it.", turns=1
    ),
    "words at the end, at a limit": play(
        ["b"], sent=[[user(), ai("a")]], limits={"talk_turns": 2}, reason="talk_turns"
    ),
}

PLAYS = {**TASKS, **{f"an import: {name}": case for name, case in IMPORTS.items()}}


@pytest.mark.parametrize("name", PLAYS)
def test_tasks_and_imports(name: str) -> None:
    check(PLAYS[name])


def test_a_task_that_a_message_cuts_short_is_recorded_as_superseded() -> None:
    def crash() -> str:
        """Be killed."""
        interrupt_process()
        return "never heard"

    storage = saved()
    graph = build_graph(ScriptedModel([HALF, call("crash"), FINISH]), [crash], **storage)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    assert outcome_of(graph.invoke(GO, THREAD)).phases == []
    ended = read_ended(storage["store"], "t")
    assert [(task.status, task.reason) for task in ended] == [
        ("error", "superseded"),
        ("success", "finish_task"),
    ]


def test_an_import_that_another_agent_ended_keeps_its_words() -> None:
    """Only the last message of another agent was handed on."""
    theirs = build_graph(ScriptedModel([FINISH])).invoke(GO)["messages"][-1]
    model = ScriptedModel([FINISH])
    given: Any = {"messages": [user(), AIMessage("I hand over."), theirs, user("Go on.")]}
    assert outcome_of(build_graph(model).invoke(given)).turns == 1
    assert ("ai", "All of it.") in [(message.type, message.text) for message in model.seen[0].messages]


def test_an_import_that_has_its_answer_is_not_answered_again() -> None:
    graph = build_graph(ScriptedModel([]))
    first = graph.invoke({"messages": [user(), CLAIM, CLAIMED]})
    again = graph.invoke({"messages": first["messages"]})
    assert (first["messages"][-1].text, results(first)) == ("All of it.", ["ok"])
    assert [message.id for message in again["messages"]] == [message.id for message in first["messages"]]
