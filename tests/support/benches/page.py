"""Pages for tests: a page read back as a tree, and a thread as a page takes it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from signoff.graph.outcome import Outcome
from signoff.page import Run
from signoff.session.decisions import AnyWaiting
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
