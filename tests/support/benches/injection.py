"""One graph into which texts are put at one place, and the trail that the machine leaves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, Session, build_graph
from signoff.graph.machine import Event
from signoff.graph.messages import marks, nudge_kind
from signoff.models import ScriptedModel, TaggedText
from signoff.session.path import Step, steps
from signoff.tools.files import workspace_tools
from tests.support.adapted import adapted

GO: dict[str, Any] = {"messages": [("user", "do it")]}
# What the same work with the same result means is no matter here: harmless words are all alike.
LIMITS = Limits(turns=1000, talk_turns=1000, repeats=None)
_WIDE = 16
_OF_OUTCOME = ("status", "reason", "claim", "verified", "turns", "nudges", "refusals", "tool_calls", "phases")


@dataclass(frozen=True)
class Place:
    """Where texts are put in.

    unit: what the model replies for the `n`-th text. sends: what is then sent, each made of the text.
    wide: one call for each text, many of them in a reply. ends: the last replies. options: of the graph.
    begins: whether a task of its own begins first. group: how many texts one thread takes.
    """

    unit: Callable[[int, str], list[Any]]
    sends: Sequence[Callable[[str], Any]] = ()
    wide: bool = False
    ends: Sequence[Any] = ()
    options: dict[str, Any] = field(default_factory=dict)
    begins: bool = True
    session: bool = False
    tagged: bool = False
    group: int = 11

    def script(self, texts: Sequence[str]) -> list[Any]:
        units = [self.unit(n, text) for n, text in enumerate(texts)]
        if self.wide:
            calls = [made for unit in units for made in unit]
            units = [[calls[at : at + _WIDE]] for at in range(0, len(calls), _WIDE)]
        return [*(made for unit in units for made in unit), *self.ends]


class Trail(NamedTuple):
    """All that the machine did, without the words. left: replies that the model was not asked for."""

    path: list[tuple[Any, ...]]
    outcome: dict[str, Any] | None
    ran: list[str]
    messages: list[tuple[Any, ...]]
    offered: list[tuple[Any, ...]]
    verdicts: list[str]
    decided: list[str]
    waits: list[str]
    compacted: str | None
    left: int


class Bench:
    """A graph with its model and tools. ran: the names of the tools that were run."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.texts: Sequence[str] = ()
        self.ran: list[str] = []
        self.checked = 0
        self.replies: Iterator[Any] = iter(())
        self.model = ScriptedModel(lambda _: next(self.replies))
        self.saver = InMemorySaver()
        options = dict(place.options)
        if "checks" in options:
            options["checks"] = [self.check]
        if options.get("compaction") == "texts":
            options["compaction"] = ScriptedModel(lambda _: self.text_of_digest())
        model = TaggedText(model=self.model) if place.tagged else self.model
        saved: dict[str, Any] = {"checkpointer": self.saver, "store": InMemoryStore()}
        self.graph = build_graph(model, self.tools(), **adapted(**{"limits": LIMITS, **saved, **options}))
        self.threads = 0

    def tools(self) -> list[BaseTool | Callable[..., Any]]:
        def look(n: int) -> str:
            """Look."""
            self.ran.append("look")
            return self.texts[n]

        def fail(n: int) -> str:
            """Fail."""
            self.ran.append("fail")
            raise ValueError(self.texts[n])

        def pay(amount: int) -> str:
            """Pay."""
            self.ran.append("pay")
            return "paid"

        def note(text: str) -> str:
            """Note."""
            self.ran.append("note")
            return "noted"

        def remote(n: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
            """Ask a server; the result is as the adapter of MCP gives it."""
            self.ran.append("remote")
            content = [{"type": "text", "text": self.texts[n]}, {"type": "text", "text": "end"}]
            structured = {"outcome": self.texts[n], "signoff": {"nudge": self.texts[n]}}
            return content, {"structured_content": structured}

        def run_python(code: str) -> str:
            """Run."""
            self.ran.append("run_python")
            return self.texts[int(code)]

        read: dict[str, Any] = {"metadata": {"kind": "read"}}
        served = StructuredTool.from_function(remote, response_format="content_and_artifact", **read)
        looking = StructuredTool.from_function(look, **read)
        return [looking, fail, pay, note, served, run_python, *workspace_tools(self.folder)]

    def check(self) -> str | None:
        """A completion check that fails with each of the texts, then passes."""
        self.checked += 1
        return self.texts[self.checked - 1] if self.checked <= len(self.texts) else None

    def text_of_digest(self) -> str:
        """Each of the texts, one after the other."""
        self.checked += 1
        return self.texts[self.checked % len(self.texts)]

    def trails(self, texts: Sequence[str]) -> list[Trail]:
        """Puts the texts in, group by group, each group in a thread of its own."""
        size = self.place.group
        return [self.play(texts[at : at + size]) for at in range(0, len(texts), size)]

    def play(self, texts: Sequence[str]) -> Trail:
        """Puts all `texts` in, in one thread."""
        self.threads += 1
        self.texts, self.replies, self.checked = texts, iter(self.place.script(texts)), 0
        self.ran.clear()
        self.model.seen.clear()
        for n, text in enumerate(texts):
            (self.folder / f"{n}.txt").write_text(text, "utf-8", newline="")
        thread = f"thread {self.threads}"
        config: Any = {"configurable": {"thread_id": thread}}
        session = Session(self.graph, thread)
        if self.place.begins:
            session.run("do it") if self.place.session else self.graph.invoke(GO, config)
        for text in texts:
            for send in self.place.sends:
                given = send(text)
                session.run(given) if self.place.session else self.graph.invoke(given, config)
        return self.trail(thread)

    def trail(self, thread: str) -> Trail:
        found = self.graph.get_state({"configurable": {"thread_id": thread}})
        values = found.values
        verdicts = (values.get("verdicts") or {"calls": {}})["calls"].values()
        decided = (values.get("approvals") or {"calls": {}})["calls"].values()
        outcome = values.get("outcome")
        return Trail(
            [(step.state, step.event, step.rule) for step in _straight(steps(self.saver, thread))],
            outcome and {key: outcome[key] for key in _OF_OUTCOME},
            list(self.ran),
            [_shape(message) for message in values["messages"]],
            [(tuple(seen.tool_names), str(seen.tool_choice)) for seen in self.model.seen],
            sorted(verdict if isinstance(verdict, str) else verdict["kind"] for verdict in verdicts),
            sorted(decision["type"] for decision in decided),
            [pending.value.get("type", "approval") for pending in found.interrupts],
            _folded(values.get("digest") or {}),
            sum(1 for _ in self.replies),
        )


def _straight(path: Sequence[Step]) -> list[Step]:
    """Without the detours that fold: when a view is full depends on how long its texts are as JSON."""
    away = [at for at, step in enumerate(path) if step.event == Event.NOT_READY]
    return [step for at, step in enumerate(path) if at not in away and at - 1 not in away]


def _folded(digest: Mapping[str, Any]) -> str | None:
    """By what the oldest turns were folded: a text of a model, lines, or not at all."""
    return next((how for how in ("text", "lines") if digest.get(how)), None)


def _shape(message: BaseMessage) -> tuple[Any, ...]:
    """A message without its words and ids."""
    calls = [made["name"] for made in message.tool_calls] if isinstance(message, AIMessage) else []
    status = (message.name, message.status) if isinstance(message, ToolMessage) else None
    return message.type, calls, status, nudge_kind(message), sorted(marks(message))
