"""One task after another on a thread, and histories that were made elsewhere."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from signoff import build_graph, outcome_of, stop
from signoff.models import ScriptedModel, call
from tests.support.plays import ASK, FINISH, GO, WRITE, ai, check, done, play, results, user

NOTHING: list[Any] = []
EMPTY = call("finish_task", summary="")
HALF = call("finish_task", summary="Half.", completion_percentage=50)
OPEN_ASK = "ask_user({'question': 'Which one?', 'options': ['red', 'blue']})"
AB = ["a", "b"]
TASKS = {
    "an earlier finish does not end the next": play([FINISH, WRITE, FINISH], sent=AB, ran="write", turns=2),
    "its turns do not count": play([WRITE, FINISH] * 2, sent=AB, limits={"turns": 2}, ran="write write"),
    "nor do its refusals and phases": play([EMPTY, HALF, FINISH, FINISH], sent=AB, refusals=0, phases=[]),
    "nothing new on a thread that has ended": play([FINISH], sent=["a", NOTHING, NOTHING], turns=1),
    "a system message alone is nothing": play([], sent=[[("system", "be kind")]], reason="no_task"),
    "a message after an error begins a task": play([RuntimeError("down"), FINISH], sent=["a", "b"], turns=1),
    "a stop ends a task": play([ASK], sent=["a", stop()], reason="cancelled", open_work=[OPEN_ASK]),
    "and only this one": play([ASK, FINISH], sent=["a", stop(), "b"]),
    "a message twice under one id": play([FINISH], sent=[[HumanMessage("do it", id="one")]] * 2, turns=1),
    "while the second waits the first has no outcome": play([FINISH, ASK], sent=AB, reason=None),
}

CLAIM, CLAIMED, READ_0 = ai(("finish_task", "f")), done("f"), ai(("read", "0"))
WROTE, BROKE = ai(("write", "w", {"text": "x"})), ToolMessage("broke", tool_call_id="f", status="error")
OTHER = ai(("finish_task", "e", {"summary": "No."}))
BAD = [ai(("finish_task", "f", {"summary": ""})), done("f")]
IMPORTS = {
    "a finish with its result": play([], sent=[[user(), CLAIM, CLAIMED]], turns=1),
    "words after it": play([], sent=[[user(), CLAIM, CLAIMED, ai("Bye!")]], turns=2),
    "a bad finish cannot cycle": play([FINISH], sent=[[user(), *BAD]], turns=2, refusals=1, told="<refused>"),
    "a finish with an error is none": play([FINISH], sent=[[user(), CLAIM, BROKE]]),
    "open calls in the middle": play([FINISH], sent=[[user(), WROTE, user("b")]], told="<maybe_run> write"),
    "open calls at the end run": play([FINISH], sent=[[user(), WROTE]], ran="write"),
    "an id again": play([FINISH], sent=[[user(), READ_0, user("b"), READ_0]], ran="read", told="<maybe_run>"),
    "words at the end": play([FINISH], sent=[[user(), ai("All done!")]], told="<talked>"),
    "a finish appended after an end": play([FINISH], sent=["a", [OTHER]], summary="All of it.", turns=1),
}

PLAYS = {**TASKS, **{f"an import: {name}": case for name, case in IMPORTS.items()}}


@pytest.mark.parametrize("name", PLAYS)
def test_tasks_and_imports(name: str) -> None:
    check(PLAYS[name])


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
