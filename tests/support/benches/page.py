"""Pages for tests: a page read back as a tree, and a thread in which one text stands in every field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from signoff.events import Answered, CallFinished, Nudged, Thought, Wrote
from signoff.front.settings import Settings
from signoff.graph.machine import State
from signoff.graph.messages import result
from signoff.graph.outcome import Outcome
from signoff.page import Run
from signoff.session.decisions import Action, AnyWaiting, Approval, PendingCall, Question
from signoff.session.history import Chapter, Turn
from signoff.session.path import Step
from signoff.session.status import Condition, ThreadStatus

NO_END = {"meta", "link", "br"}
TASK = "task"


@dataclass
class Node:
    """An element of a page."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    parts: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    def walk(self) -> Iterator["Node"]:
        yield self
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.walk()

    def all(self, name: str = "", class_: str = "") -> list["Node"]:
        return [
            node
            for node in self.walk()
            if (not name or node.name == name) and (not class_ or class_ in node.classes)
        ]

    def one(self, name: str = "", class_: str = "") -> "Node":
        (found,) = self.all(name, class_)
        return found

    def without(self, *classes: str) -> "Node":
        """A copy without the elements of these classes."""
        kept = [
            part if isinstance(part, str) else part.without(*classes)
            for part in self.parts
            if isinstance(part, str) or not part.classes & set(classes)
        ]
        return Node(self.name, self.attributes, kept)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("")]
        self.other: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        node = Node(tag, dict(attrs))
        self.open[-1].parts.append(node)
        if tag not in NO_END:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"{tag} ends where it is not open"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    unknown_decl = handle_pi = handle_comment


def read(page: str) -> Node:
    """The page as a tree. Fails for one whose elements are not all closed, or that has comments."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, [node.name for node in reader.open]
    assert reader.other == []
    return reader.open[0]


def steps_of(*moves: tuple[State, str], rule: str = "", why: str = "", task: str = TASK) -> list[Step]:
    """A path of these states and events; each `decide` with the rule."""
    return [
        Step("2026-11-22T04:52:43+00:00", f"c{at}", state, event, rule if state is State.DECIDE else "",
             why if state is State.DECIDE else "", (), task, str(state))
        for at, (state, event) in enumerate(moves)
    ]  # fmt: skip


def outcome(**fields: Any) -> dict[str, Any]:
    """An outcome as it is kept: done, unless `fields` say otherwise."""
    known: dict[str, Any] = {"status": "success", "reason": "finish_task", "claim": "done", "task": TASK}
    return Outcome(**{**known, "verified": "asserted", **fields}).model_dump()


def run_of(
    *turns: Turn,
    words: tuple[str, ...] = ("Do it",),
    ended: dict[str, Any] | None = None,
    waiting: AnyWaiting | None = None,
    steps: list[Step] | None = None,
    **fields: Any,
) -> Run:
    """A thread of one task with these turns."""
    condition = Condition.ENDED if ended else Condition.WAITING if waiting else Condition.STOPPED
    thread = fields.pop("thread_id", "t1")
    values: dict[str, Any] = {"messages": fields.pop("messages", []), **({"outcome": ended} if ended else {})}
    thread_status = ThreadStatus(
        thread,
        condition,
        outcome=Outcome.model_validate(ended) if ended else None,
        values=values,
        changed="2026-11-22T04:52:45Z",
        waits=() if waiting is None else (waiting,),
    )
    outcomes = {TASK: ended} if ended else {}
    return Run(thread_status, [Chapter(TASK, words, turns)], outcomes, steps or [], **fields)


def ends(word: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """The ways a thread can stand, with `word` in every text."""
    phase = {"percentage": 50, "summary": word, "next_phase": word, "turn": 1}
    failed = {"claim": None, "verified": None, "error": word, "last_text": word, "open_work": [word]}
    calls = (PendingCall(word, {word: word}, ("approve",), word), PendingCall("run_shell", {"command": word}))
    waits: dict[str, AnyWaiting] = {
        "question": Question("i", word, (word, word), "c", word),
        "approval": Approval("i", calls, problem=word),
        "action": Action("i", word, {word: word}, unknown=True),
        "confirmation": Approval(
            "i",
            (
                PendingCall(
                    "finish_task",
                    {"summary": word, "pending_issues": [word]},
                    ("approve", "reject"),
                    id="c",
                ),
            ),
            {"finish": True},
            problem=word,
        ),
    }
    return {
        "success": lambda: {
            "ended": outcome(summary=word, pending_issues=[word, word], phases=[phase], result=word)
        },
        "partial": lambda: {"ended": outcome(summary=word, claim="partial", verified="unverified")},
        "limit": lambda: {"ended": outcome(status="limit", reason=word, summary=word, next=word, **failed)},
        "error": lambda: {"ended": outcome(status="error", reason=word, **failed)},
        "stopped": dict,
        **{name: partial(dict, waiting=found) for name, found in waits.items()},
    }


def everywhere(word: str, end: str) -> Run:
    """A thread that stands as `end` says, with `word` in every field that others write."""
    path = steps_of(
        (State.COMPRESS, "ready"), (State.DECIDE, "claimed"), (State.CALL_LLM, word), rule=word, why=word
    )
    path.append(Step(word, word, None, word, "", "", (word,), TASK, word))
    refused: list[BaseMessage] = [
        HumanMessage(word, id=TASK),
        result("rejected", word, word, ok=False, not_run="rejected"),
        result("sent", "finish_task", word, ok=False, sent_back=True, waited=2.0),
    ]
    events = (
        Thought(1, word, word, word),
        CallFinished(1, word, {word: word, "file": word}, True, word),
        CallFinished(1, "read_file", {"file": word}, False, word),
        CallFinished(1, "run_shell", {"command": word}, True, f"{word}\n[exit code 0; 0.1 s]"),
        CallFinished(1, "run_shell", {"command": word}, True, f"{word}\n[exit code 1; 0.1 s]"),
        CallFinished(1, "run_python", {"code": word}, True, word),
        CallFinished(1, "write_file", {"file": word, "content": word}, True, word),
        CallFinished(1, "edit_file", {"file": word, "old": word, "new": f"{word} "}, True, word),
        CallFinished(1, "diff", {}, True, f"@@ -1 +1 @@\n-{word}\n+{word}"),
        CallFinished(1, word, {}, False, word, "rejected", not_run="rejected"),
        CallFinished(1, "finish_task", {"summary": word}, False, word),
        CallFinished(1, "finish_task", {"summary": word}, False, word, "sent"),
        Answered(1, word, word, 2.0),
        Nudged("talked", word),
        Nudged(word, word),
        Nudged("resumed", word),
        Wrote(word, answers=True),
    )
    settings = Settings(workspace=f"/{word}", model=word, turns=30, talk_turns=5)
    turn = Turn(TASK, 1, word, events, 12, 0.4, tuple(path), status=word)
    return run_of(
        turn, words=(word, word), steps=path, settings=settings, thread_id=word, messages=refused,
        **ends(word)[end](),
    )  # fmt: skip
