"""What each client is put through: a thread, and what must come of it on the strict server."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from signoff import Limits
from tests.support.providers.clients import Client
from tests.support.providers.playing import PIXEL, Playing
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


def shots(*names: str) -> WireReply:
    """A reply that takes pictures."""
    return WireReply(calls=tuple(("shoot", json.dumps({"name": name})) for name in names), size=40)


ASK = WireReply(calls=(("ask_user", '{"question": "Which colour?"}'),), size=40)
TALK = WireReply("I have written all of it down.")
EMPTY = WireReply()
UNTIL_REQUIRED = [TALK, WireReply("Yes, all of it."), WireReply("There is no more.")]
BOTH = WireReply("I write, and am done.", (*work("a").calls, *finish().calls), size=40)
LONG = [work(f"{number} " + "word " * 300) for number in range(6)]


Steps = Callable[[Playing], None]


@dataclass(frozen=True)
class Case:
    """A case of the table.

    answers: the model's script. steps: what a person does, and what comes of it. rules: of the loop.
    guards: whether `Guards` have it, too. folds: whether a prompt may begin in another way than the one
    before it. full: before how many of the answers the provider says that its context is full.
    """

    answers: Sequence[WireReply]
    steps: Steps
    rules: dict[str, Any] = field(default_factory=dict)
    guards: bool = True
    folds: bool = False
    full: int | None = None

    def script(self, client: Client) -> list[Answer]:
        answers = list[Answer](self.answers)
        if self.full is not None:
            assert client.full is not None, "this provider cuts a prompt silently"
            answers.insert(self.full, client.full)
        return answers


def succeeds(playing: Playing, text: str, *, nudges: int = 0) -> None:
    """A task that ends with the summary of its finish."""
    playing.say(text)
    outcome = playing.outcome
    assert outcome["status"] == "success", (outcome["error"], playing.server.refused)
    assert (outcome["summary"], outcome["nudges"]) == (SUMMARY, nudges)


def two_tasks(playing: Playing) -> None:
    succeeds(playing, "Write a.")
    succeeds(playing, "Write b.")
    assert playing.ran == ["a", "b"]


def one_task(playing: Playing) -> None:
    succeeds(playing, "Write it.")


def reminded(playing: Playing) -> None:
    succeeds(playing, "Write a.", nudges=1)
    succeeds(playing, "Write b.")
    assert playing.ran == ["a", "b"]


def required(playing: Playing) -> None:
    """After so many words a call is required, in the way that the provider takes."""
    succeeds(playing, "Write a.", nudges=len(UNTIL_REQUIRED))
    succeeds(playing, "Write b.")
    assert playing.ran == ["a", "b"]


def answered(playing: Playing) -> None:
    playing.say("Paint it.")
    assert playing.waits, playing.server.refused
    playing.answer("Red.")
    assert (playing.outcome["status"], playing.ran) == ("success", ["a"]), playing.server.refused
    assert "Red." in playing.results
    succeeds(playing, "Once more.")


def limited(playing: Playing) -> None:
    playing.say("Write a and b.")
    assert playing.outcome["status"] == "limit", playing.outcome["error"]


def extended(playing: Playing) -> None:
    limited(playing)
    playing.extend(turns=5)
    assert (playing.outcome["status"], playing.ran) == ("success", ["a", "b"]), playing.server.refused


def begun_anew(playing: Playing) -> None:
    limited(playing)
    succeeds(playing, "Only say that you are done.")


def near_a_limit(playing: Playing) -> None:
    succeeds(playing, "Write all.", nudges=1)
    succeeds(playing, "Only say that you are done.")


def folded(playing: Playing) -> None:
    succeeds(playing, "Write six texts.")
    assert len(playing.ran) == len(LONG)
    assert not all(after.begins_with(before) for before, after in pairwise(playing.sent())), "nothing folded"
    succeeds(playing, "Only say that you are done.")


def got_through(playing: Playing) -> None:
    succeeds(playing, "Write six texts.")
    assert len(playing.ran) == len(LONG)


def told_apart(playing: Playing) -> None:
    """Each call runs once, and each result is that of its call, in the next task, too."""
    succeeds(playing, "Write a, b and c.")
    succeeds(playing, "Write d.")
    # LangChain's own loop runs the calls of a reply side by side.
    assert (sorted(playing.ran) if playing.guarded else playing.ran) == ["a", "b", "c", "d"]
    written = [result for result in playing.results if result.startswith("written")]
    assert written == ["written: a", "written: b", "written: c", "written: d"]


def seen(playing: Playing) -> None:
    """The pictures of a reply's results arrive where the provider takes them, and begin no task."""
    succeeds(playing, "Take two pictures.")
    assert playing.outcome["turns"] == 2
    texts = [_letters(sent.messages) for sent in playing.sent()]
    if playing.client.pictures == "text":
        assert PIXEL not in texts[-1]
        assert "[image: image/png, 70 bytes]" in json.dumps(playing.sent()[-1].messages)
    else:
        assert (playing.server.refused, texts[-1].count(PIXEL)) == ([], 2)
    succeeds(playing, "Only say that you are done.")


def _letters(messages: Any) -> str:
    """As text; Google writes base64 with the alphabet of addresses."""
    return json.dumps(messages).replace("-", "+").replace("_", "/")


_SAME = "sameid001"
_ONE_TURN, _NEAR = Limits(turns=1), Limits(turns=6)
_BUDGET = {"prompt_tokens": 1_500}
CASES = {
    "two tasks": Case([work("a"), finish(), work("b"), finish()], two_tasks),
    "a finish beside work": Case([BOTH, work("b"), finish()], two_tasks),
    "a reminder": Case([work("a"), TALK, finish(text="Done."), work("b"), finish()], reminded),
    "an empty reply": Case([work("a"), EMPTY, finish(), work("b"), finish()], reminded),
    "a required call": Case([work("a"), *UNTIL_REQUIRED, finish(), work("b"), finish()], required),
    "a double finish": Case([work("a"), finish(SUMMARY, "Once more."), work("b"), finish()], two_tasks),
    "ask and resume": Case([work("a"), ASK, finish(), finish()], answered),
    "a reminder near a limit": Case([*map(work, "abcde"), finish(), finish()], near_a_limit,
                                    {"limits": _NEAR}),
    "a limit, then more turns": Case([work("a"), work("b"), finish()], extended, {"limits": _ONE_TURN},
                                     guards=False),
    "a limit, then a new task": Case([work("a"), finish()], begun_anew, {"limits": _ONE_TURN}),
    "compaction": Case([*LONG, finish(), finish()], folded, _BUDGET, guards=False, folds=True),
    "a full context": Case([*LONG, finish()], got_through, guards=False, folds=True, full=5),
    "equal ids": Case([work("a", "b", ids=(_SAME, _SAME)), work("c", ids=(_SAME,)), finish(ids=(_SAME,)),
                       work("d", ids=(_SAME,)), finish(ids=(_SAME,))], told_apart),
    "empty ids": Case([work("a", "b", ids=("", "")), work("c", ids=("",)), finish(ids=("",)),
                       work("d", ids=("",)), finish(ids=("",))], told_apart),
    "pictures in a result": Case([shots("one", "two"), finish(), finish()], seen),
}  # fmt: skip
COLUMNS = {
    "two tasks": ["two tasks"],
    "finish": ["a finish beside work", "a double finish"],
    "reminder": ["a reminder", "an empty reply", "a reminder near a limit", "a required call"],
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
