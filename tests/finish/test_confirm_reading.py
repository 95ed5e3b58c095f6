"""The reading of a history in which a finish waits for a person, or was sent back by one."""

from typing import Any, cast

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from signoff.graph.history.reader import PENDING, Reader, read_messages
from signoff.graph.history.task import current_task, read
from signoff.graph.messages import KEY, nudge
from signoff.graph.state import AgentState
from tests.support.histories import CONTROLS, ai, done, look, sent_back, state, user

WRITE, FINISH = ("write", "w"), ("finish_task", "f")


def marked(text: str, **notes: Any) -> HumanMessage:
    """A message of the user with the notes that `compress`, or a Session, leaves on it."""
    return HumanMessage(text, additional_kwargs={KEY: notes})


PENDING_FINISH = {"verdicts": {"task": "m0", "calls": {"m1:0": PENDING}}}
CONFIRMING: dict[str, tuple[list[BaseMessage], dict[str, Any], dict[str, Any]]] = {
    "a message while it waits is the feedback": (
        [user(), ai(FINISH), user("no"), user("not so")],
        PENDING_FINISH,
        {"task": "m0", "finish": None, "answers": {"f": "no\nnot so"}, "strays": {}},
    ),
    "so it is for an import": (
        [user(), ai(FINISH), done("f"), user("no")],
        PENDING_FINISH,
        {"task": "m0", "finish": None, "answers": {"f": "no"}},
    ),
    "nobody has been asked yet: a message begins a task": (
        [user(), ai(FINISH), user("more")],
        {},
        {"task": "m2", "answers": {}, "strays": {"f": "superseded"}},
    ),
    "it waits in another task: a message begins a task": (
        [user(), ai(FINISH), user("more")],
        {"verdicts": {"task": "old", "calls": {"m1:0": PENDING}}},
        {"task": "m2", "answers": {}},
    ),
    "work before it is open: a message begins a task": (
        [user(), ai(WRITE, FINISH), user("more")],
        {"verdicts": {"task": "m0", "calls": {"m1:1": PENDING}}},
        {"task": "m2", "answers": {}},
    ),
    "the message is marked as the beginning of a task": (
        [user(), ai(FINISH), marked("more", begins=True)],
        PENDING_FINISH,
        {"task": "m2", "answers": {}, "strays": {"f": "superseded"}},
    ),
    "the message is marked as feedback": (
        [user(), ai(FINISH), marked("no", answers=["f"], wait="confirmation")],
        {},
        {"task": "m0", "finish": None, "answers": {"f": "no"}},
    ),
    "marked as feedback on a call that became another": (
        [user(), ai(("write", "f")), marked("no", answers=["f"], wait="confirmation")],
        {},
        {"task": "m0", "due": ["f"], "answers": {}},
    ),
    "sent back, with its result": (
        [user(), ai(FINISH), marked("no", answers=["f"], wait="confirmation"), sent_back("f")],
        PENDING_FINISH,
        {"task": "m0", "finish": None, "answers": {}},
    ),
    "sent back, with a reminder": (
        [user(), ai(FINISH), done("f"), user("no"), nudge("sent_back", "no", finish="m1:0")],
        PENDING_FINISH,
        {"task": "m0", "finish": None, "answers": {}},
    ),
    "after one that was sent back an earlier one does not stand": (
        [user(), ai(("finish_task", "e")), done("e"), ai(FINISH), sent_back("f")],
        {},
        {"finish": None},
    ),
    "the next one stands": (
        [user(), ai(FINISH), sent_back("f"), ai(("finish_task", "g"))],
        PENDING_FINISH,
        {"finish": "g"},
    ),
    "the same id twice: the feedback is for the last": (
        [user(), ai(FINISH), done("f"), ai(FINISH), done("f"), user("no")],
        {"verdicts": {"task": "m0", "calls": {"m3:0": PENDING}}},
        {"task": "m0", "finish": None, "answers": {"f": "no"}},
    ),
}


@pytest.mark.parametrize("name", CONFIRMING)
@pytest.mark.parametrize("steps", ["at once", "one by one"])
def test_reading_while_a_person_is_asked_to_confirm(name: str, steps: str) -> None:
    messages, values, expected = CONFIRMING[name]
    whole = state(*messages, **values)
    reader: Reader | None = None
    for end in range(len(messages) + 1) if steps == "one by one" else ():
        reader = read_messages(
            cast(AgentState, {**whole, "messages": whole["messages"][:end]}), CONTROLS, reader
        )
    seen = look(current_task(read_messages(whole, CONTROLS, reader), whole))
    assert {key: seen[key] for key in expected} == expected


def test_what_a_person_has_not_judged_is_not_refused() -> None:
    assert read(state(user(), ai(FINISH), **PENDING_FINISH), CONTROLS).refused == {}
