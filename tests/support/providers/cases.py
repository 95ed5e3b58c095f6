"""What each client is put through: a thread, and what must come of it on the strict server."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.types import Command

from signoff import Limits, go_on
from tests.support.providers.clients import Client
from tests.support.providers.server import Answer
from tests.support.replies.wire import WireReply

SUMMARY = "All of it is written down."


def work(*texts: str, ids: tuple[str, ...] = ()) -> WireReply:
    calls = tuple(("write", json.dumps({"text": text})) for text in texts)
    return WireReply(calls=calls, ids=ids, size=40)


def finish(*summaries: str, text: str = "", ids: tuple[str, ...] = ()) -> WireReply:
    """A reply with one finish or more."""
    calls = tuple(("finish_task", json.dumps({"summary": summary})) for summary in summaries or (SUMMARY,))
    return WireReply(text, calls, ids=ids, size=40)


ASK = WireReply(calls=(("ask_user", '{"question": "Which colour?"}'),), size=40)
SHOTS = WireReply(calls=(("shoot", '{"name": "one"}'), ("shoot", '{"name": "two"}')), size=40)
TALK = WireReply("I have written all of it down.")
UNTIL_REQUIRED = [TALK, WireReply("Yes, all of it."), WireReply("There is no more.")]
BOTH = WireReply("I write, and am done.", (*work("a").calls, *finish().calls), size=40)
LONG = [work(f"{number} " + "word " * 300) for number in range(6)]


@dataclass(frozen=True)
class Case:
    """A case of the table.

    answers: the model's script. sends: what a person says, one after the other. first: how the first of it
    ends; all else succeeds. nudges: the reminders of the first. told: a result. rules: of the loop.
    guards: whether `Guards` have it, too. full: before how many of the answers the provider says that its
    context is full. folds: whether the oldest turns are.
    """

    answers: Sequence[WireReply]
    sends: Sequence[Any] = ("Write a.", "Write b.")
    first: str = "success"
    nudges: int = 0
    told: str = ""
    rules: dict[str, Any] = field(default_factory=dict)
    guards: bool = True
    full: int | None = None
    folds: bool = False

    def script(self, client: Client) -> list[Answer]:
        answers = list[Answer](self.answers)
        if self.full is not None:
            assert client.full is not None, "this provider cuts a prompt silently"
            answers.insert(self.full, client.full)
        return answers


def again(*first: WireReply, **more: Any) -> Case:
    """A task that is played so, then one that just writes."""
    return Case([*first, work("b"), finish()], **more)


def same(id_: str) -> Case:
    """Two tasks whose calls all have this id."""
    replies = [work("a", "b", ids=(id_, id_)), work("c", ids=(id_,)), finish(ids=(id_,))]
    return Case([*replies, work("d", ids=(id_,)), finish(ids=(id_,))])


_ONE_TURN: dict[str, Any] = {"limits": Limits(turns=1)}
CASES = {
    "two tasks": again(work("a"), finish()),
    "a finish beside work": again(BOTH),
    "a reminder": again(work("a"), TALK, finish(text="Done."), nudges=1),
    "a required call": again(work("a"), *UNTIL_REQUIRED, finish(), nudges=len(UNTIL_REQUIRED)),
    "ask and resume": Case(
        [work("a"), ASK, finish(), finish()],
        ("Paint it.", Command(resume="Red."), "Once more."),
        first="waits",
        told="Red.",
    ),
    "a limit, then more turns": Case(
        [work("a"), work("b"), finish()],
        ("Write a and b.", go_on(turns=5)),
        first="limit",
        rules=_ONE_TURN,
        guards=False,
    ),
    "a limit, then a new task": Case([work("a"), finish()], first="limit", rules=_ONE_TURN),
    "compaction": Case([*LONG, finish(), finish()], rules={"prompt_tokens": 1_500}, guards=False, folds=True),
    "a full context": Case([*LONG, finish()], ("Write six texts.",), guards=False, full=5, folds=True),
    "equal ids": same("sameid001"),
    "empty ids": same(""),
    "pictures in a result": Case([SHOTS, finish(), finish()]),
}
COLUMNS = {
    "two tasks": ["two tasks"],
    "finish": ["a finish beside work"],
    "reminder": ["a reminder", "a required call"],
    "ask and resume": ["ask and resume"],
    "limit and going on": ["a limit, then more turns", "a limit, then a new task"],
    "compaction": ["compaction"],
    "full context": ["a full context"],
    "equal and empty ids": ["equal ids", "empty ids"],
    "pictures in a result": ["pictures in a result"],
}
"""The columns of the docs' table, and the cases that each of them claims."""


def has(client: Client, case: str) -> bool:
    """Whether the client can be put into the case at all: Ollama sends no ids, and cuts a prompt silently."""
    return client.row != "Ollama" or case not in {"equal ids", "empty ids", "a full context"}
