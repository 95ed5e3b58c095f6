"""The reading of a history: which task it is, what is open, what stands."""

from typing import Any

import pytest
from langchain_core.messages import BaseMessage, SystemMessage

from signoff.graph.history.reader import Reader, read_messages
from signoff.graph.history.task import current_task, read
from signoff.graph.state import AgentState
from tests.support.histories import CONTROLS, ai, broken, done, look, malformed, nudged, state, user

WRITE, ASK, FINISH, THINK = ("write", "w"), ("ask_user", "q"), ("finish_task", "f"), ("think", "t")


Table = dict[str, tuple[list[BaseMessage], dict[str, Any]]]

WHERE_A_TASK_BEGINS: Table = {
    "nothing at all": ([], {"task": "", "turns": 0}),
    "one message": ([user()], {"task": "m0"}),
    "adjacent messages form one task, starting at the first": (
        [user("a"), user("b")],
        {"task": "m0", "said": ["a", "b"]},
    ),
    "a system message begins nothing": ([SystemMessage("be kind"), user()], {"task": "m1"}),
    "a system message between does not part": ([user("a"), SystemMessage("x"), user("b")], {"task": "m0"}),
    "no genuine message: the task is the whole history": (
        [ai("hello"), nudged("talked"), ai(FINISH)],
        {"task": "m0", "turns": 2, "finish": "f"},
    ),
    "a synthetic message begins nothing": ([user(), ai("hi"), nudged("talked")], {"task": "m0"}),
    "the second message after a reply begins the second task": (
        [user("a"), ai("hi"), user("b")],
        {"task": "m2", "turns": 0, "said": ["b"]},
    ),
    "an answer to a question begins nothing": (
        [user("a"), ai(ASK), user("blue"), user("or green")],
        {"task": "m0", "answers": {"q": "blue\nor green"}, "ask": None},
    ),
    "after the answer is a result, the next message begins a task": (
        [user("a"), ai(ASK), user("blue"), done("q"), user("b")],
        {"task": "m4", "answers": {}},
    ),
    "a question whose reply still has work before it does not wait": (
        [user("a"), ai(WRITE, ASK), user("b")],
        {"task": "m2", "strays": {"w": "superseded", "q": "superseded"}, "answers": {}},
    ),
    "a question of an earlier reply still waits": (
        [user("a"), ai(ASK), ai(WRITE), done("w"), user("blue")],
        {"task": "m0", "answers": {"q": "blue"}},
    ),
    "open work, nothing waits: a message begins a new task": (
        [user("a"), ai(WRITE), user("b")],
        {"task": "m2", "strays": {"w": "superseded"}},
    ),
}

WHAT_STANDS: Table = {
    "an open question": ([user(), ai(ASK)], {"ask": "q", "finish": None}),
    "an answered question does not": ([user(), ai(ASK), done("q")], {"ask": None}),
    "a question without words does not": (
        [user(), ai(("ask_user", "q", {"question": ""}))],
        {"ask": None, "due": ["q"]},
    ),
    "an open finish": ([user(), ai(FINISH)], {"finish": "f"}),
    "a finish with its own result (an import)": ([user(), ai(FINISH), done("f")], {"finish": "f"}),
    "a finish with a bad imported result does not": ([user(), ai(FINISH), broken("f")], {"finish": None}),
    "a finish before later talk still stands": ([user(), ai(FINISH), done("f"), ai("bye")], {"finish": "f"}),
    "a finish of an earlier task does not": (
        [user(), ai(FINISH), done("f"), user("more")],
        {"task": "m3", "finish": None},
    ),
    "[ask, finish]: only the question": ([user(), ai(ASK, FINISH)], {"ask": "q", "finish": None}),
    "[finish, ask]: only the finish": ([user(), ai(FINISH, ASK)], {"ask": None, "finish": "f"}),
    "a malformed finish does not": ([user(), malformed("finish_task", "f")], {"finish": None, "due": ["f"]}),
    "of two finishes in one reply the first": (
        [user(), ai(FINISH, ("finish_task", "g"))],
        {"finish": "f", "strays": {"g": "after_control"}},
    ),
}

WHAT_IS_OPEN: Table = {
    "work before a finish is due": ([user(), ai(WRITE, FINISH)], {"due": ["w"], "finish": "f"}),
    "work after a finish is never due": (
        [user(), ai(FINISH, WRITE)],
        {"due": [], "strays": {"w": "after_control"}},
    ),
    "half a batch is due": ([user(), ai(WRITE, ("read", "r")), done("w")], {"due": ["r"]}),
    "open calls of an earlier reply are strays": (
        [user(), ai(WRITE), ai(("read", "r"))],
        {"due": ["r"], "strays": {"w": "left_behind"}},
    ),
    "open calls in the middle of an import": (
        [user("a"), ai(WRITE), user("b"), ai(("read", "r")), done("r"), ai("hm")],
        {"task": "m2", "strays": {"w": "superseded"}, "due": []},
    ),
    "a repeated id is open again": ([user(), ai(WRITE), done("w"), ai(WRITE)], {"due": ["w"]}),
    "the same id twice in one reply": ([user(), ai(WRITE, WRITE), done("w")], {"due": ["w"]}),
    "a result that belongs to nothing is ignored": ([user(), done("ghost"), ai(WRITE)], {"due": ["w"]}),
}

NOT_WHOLE: Table = {
    f"{name}, {reason}": (messages, expected)
    for reason in ("length", "max_tokens", "content_filter", "SAFETY", "refusal")
    for name, messages, expected in list[tuple[str, list[BaseMessage], dict[str, Any]]](
        [
            ("work", [user(), ai(WRITE, stop=reason)], {"due": ["w"]}),
            ("a finish", [user(), ai(FINISH, stop=reason)], {"finish": None, "due": ["f"]}),
            ("a question", [user(), ai(ASK, stop=reason)], {"ask": None, "due": ["q"]}),
            (
                "a finish after a thought",
                [user(), ai(THINK, FINISH, stop=reason)],
                {"finish": None, "due": ["t", "f"]},
            ),
            (
                "a finish before work",
                [user(), ai(FINISH, WRITE, stop=reason)],
                {"finish": None, "due": ["f", "w"], "strays": {}},
            ),
        ]
    )
}

TABLES: dict[str, tuple[list[BaseMessage], dict[str, Any]]] = {
    **WHERE_A_TASK_BEGINS,
    **WHAT_STANDS,
    **WHAT_IS_OPEN,
}
TABLES |= {f"not whole: {name}": case for name, case in NOT_WHOLE.items()}


@pytest.mark.parametrize("name", TABLES)
def test_reading(name: str) -> None:
    messages, expected = TABLES[name]
    seen = look(read(state(*messages), CONTROLS))
    assert {key: seen[key] for key in expected} == expected


@pytest.mark.parametrize("name", TABLES)
def test_going_on_from_an_earlier_reading_gives_the_same(name: str) -> None:
    whole = state(*TABLES[name][0])
    reader: Reader | None = None
    for end in range(len(whole["messages"]) + 1):
        part = AgentState(messages=whole["messages"][:end])  # type: ignore[typeddict-item]  # a part
        reader = read_messages(part, CONTROLS, reader)
    assert reader is not None
    assert look(current_task(reader, whole)) == look(read(whole, CONTROLS))


@pytest.mark.parametrize("name", [name for name, (messages, _) in TABLES.items() if messages])
def test_going_on_after_the_end_of_a_task_gives_the_same(name: str) -> None:
    """The last node of a task notes its end, after all before it was read."""
    messages = state(*TABLES[name][0])["messages"]
    for end in range(1, len(messages) + 1):
        part, ended = messages[:end], {"task": "m0", "message": messages[end - 1].id}
        before = read_messages(AgentState(messages=part), CONTROLS)  # type: ignore[typeddict-item]  # a part
        noted = AgentState(messages=part, ended=ended)  # type: ignore[typeddict-item]
        assert read_messages(noted, CONTROLS, before) is before
        whole = AgentState(messages=messages, ended=ended)  # type: ignore[typeddict-item]
        after = read_messages(whole, CONTROLS, before)
        assert look(current_task(after, whole)) == look(read(whole, CONTROLS))


def test_a_reading_past_the_end_of_a_task_is_not_used() -> None:
    messages = state(user("a"), user("b"))["messages"]
    before = read_messages(AgentState(messages=messages), CONTROLS)  # type: ignore[typeddict-item]  # a part
    ended = AgentState(messages=messages, ended={"task": "m0", "message": "m0"})  # type: ignore[typeddict-item]
    assert read_messages(ended, CONTROLS, before) is not before


def test_a_reading_is_not_used_for_other_messages() -> None:
    before = read_messages(state(user("a"), ai(WRITE)), CONTROLS)
    assert read_messages(state(user("a"), ai(WRITE)), CONTROLS, before) is not before


def test_a_message_after_an_ended_task_begins_a_new_one_even_beside_the_old() -> None:
    """The model failed before it could reply: the next message stands right beside the first."""
    values = {"ended": {"task": "m0", "message": "m0"}, "outcome": {"task": "m0"}}
    task = read(state(user("a"), user("b"), **values), CONTROLS)
    assert (task.id, task.ended) == ("m1", False)


def test_values_of_another_task_read_as_empty() -> None:
    values: dict[str, Any] = {
        "outcome": {"task": "old"},
        "verdicts": {"task": "old", "calls": {"m1:0": "no"}},
        "extra": {"task": "old", "turns": 9},
        "stop": "old",
    }
    task = read(state(user(), ai(FINISH), **values), CONTROLS)
    assert (task.ended, task.extra_turns, task.stopped, dict(task.refused)) == (False, 0, False, {})
    assert task.finish is not None


def test_a_refused_finish_stands_no_more() -> None:
    verdicts = {"task": "m0", "calls": {"m1:0": "the summary is empty"}}
    assert read(state(user(), ai(FINISH), verdicts=verdicts), CONTROLS).finish is None


def test_the_reply_of_a_call_is_its_own_even_beside_one_that_is_equal() -> None:
    task = read(state(user(), ai(FINISH), done("f"), ai(FINISH), done("f")), CONTROLS)
    assert [task.reply_of(reply.calls[0]) for reply in task.replies] == list(task.replies)


TALK: dict[str, tuple[list[BaseMessage], int]] = {
    "three in a row": ([ai("a"), nudged("talked"), ai("b"), ai("c")], 3),
    "thoughts neither count nor reset": ([ai("a"), ai(THINK), done("t"), ai("b")], 2),
    "a question does not reset": ([ai("a"), ai(ASK), done("q"), ai("b")], 2),
    "work resets": ([ai("a"), ai(WRITE), done("w"), ai("b")], 1),
    "an empty reply counts": ([ai("a"), ai("")], 2),
    "going on after an end starts anew": ([ai("a"), ai("b"), nudged("resumed"), ai("c")], 1),
}


@pytest.mark.parametrize("name", TALK)
def test_talk_in_a_row(name: str) -> None:
    replies, count = TALK[name]
    assert read(state(user(), *replies), CONTROLS).talk_turns == count
