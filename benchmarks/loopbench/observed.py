"""What happened in one run of one scenario, in one neutral record: facts, and what the run said of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["success", "limit", "error", "question", "approval", "stopped", "refused", "hung"]
"""How a step ended, as the framework's caller sees it.

success: it returned as done. limit: a limit ended it, and it says so. error: an exception, or an outcome that
says error. question, approval: it waits for a person. stopped: it was asked to stop and did. refused: the
framework said that there is nothing to do so. hung: no answer within the bench's time.
"""
WAITING = ("question", "approval")


@dataclass(frozen=True)
class Sent:
    """One message as the provider got it. calls: (id, name, argument text). answers: the id of the call whose
    result this is. size: characters, of which `text` holds at most the first 4,000."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    answers: str | None = None
    size: int = 0


@dataclass(frozen=True)
class Stepped:
    """Somebody outside did something: `say`, `decide`, `answer`, `resume`, `expire`."""

    do: str
    text: str = ""


@dataclass(frozen=True)
class Shown:
    """The model was called. status: 200, or the HTTP error it answered with. text, calls: its reply, the
    calls as (id, name, argument text). forbids: what the request asked the provider not to reply, `talk`
    (a call was required) or `shape` (arguments or an answer that do not fit their schema). who: the task of
    the sub-agent that called it; empty for the agent above all."""

    messages: tuple[Sent, ...] = ()
    status: int = 200
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    forbids: frozenset[str] = frozenset()
    who: str = ""

    @property
    def size(self) -> int:
        return sum(message.size for message in self.messages)

    def says(self, words: str) -> bool:
        """Whether the model was shown these words, other than in what it said itself."""
        return any(words in message.text for message in self.messages if message.role != "assistant")

    @property
    def told_first(self) -> str:
        """What whoever called the model was told before the model had said anything."""
        at = next((at for at, one in enumerate(self.messages) if one.role == "assistant"), None)
        return "\n".join(message.text for message in self.messages[:at])

    @property
    def told_since(self) -> str:
        """What came after the first words of the model, other than its own."""
        at = next((at for at, one in enumerate(self.messages) if one.role == "assistant"), len(self.messages))
        return "\n".join(message.text for message in self.messages[at:] if message.role != "assistant")

    @property
    def dangling(self) -> list[str]:
        """Ids of calls in the history that have no result before the next message of another kind."""
        missing: list[str] = []
        open_calls: list[str] = []
        for message in self.messages:
            if message.answers is not None:
                if message.answers in open_calls:
                    open_calls.remove(message.answers)
                continue
            missing += open_calls
            open_calls = [id for id, _, _ in message.calls]
        return missing + open_calls


@dataclass(frozen=True)
class Ran:
    """A tool of the kit ran, by its own record. what: `effect`, `read`, `failed`, or `gate` for a check."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    what: str = "effect"


@dataclass(frozen=True)
class Told:
    """How a step ended. words: as the framework put it. final: the final answer. pending: what waits."""

    status: Status
    words: str = ""
    final: Any = None
    pending: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Died:
    """The process was killed."""


Event = Stepped | Shown | Ran | Told | Died


@dataclass(frozen=True)
class Observed:
    """Everything, in the order in which it happened. capped: the model was called more often than the bench
    allows, so the run did not end by itself."""

    events: tuple[Event, ...]
    capped: bool = False

    @property
    def calls(self) -> list[Shown]:
        """The calls of the model that were answered with a reply."""
        return [event for event in self.events if isinstance(event, Shown) and event.status == 200]

    def calls_of(self, who: str) -> list[Shown]:
        """Those of the calls that the sub-agent with this task made."""
        return [shown for shown in self.calls if shown.who == who]

    @property
    def reports(self) -> list[Told]:
        return [event for event in self.events if isinstance(event, Told)]

    @property
    def last(self) -> Told:
        """The last report; `hung` when there was none."""
        return self.reports[-1] if self.reports else Told("hung", "no report")

    @property
    def succeeded(self) -> bool:
        return self.last.status == "success"

    def effects(self, tool: str | None = None, **args: Any) -> list[Ran]:
        """What was really done, by this tool, with these arguments."""
        return [
            event
            for event in self.events
            if isinstance(event, Ran)
            and event.what == "effect"
            and tool in (None, event.tool)
            and all(event.args.get(key) == value for key, value in args.items())
        ]

    def after(self, event: Event) -> "Observed":
        """What came after this very event."""
        at = next(place for place, found in enumerate(self.events) if found is event)
        return Observed(self.events[at + 1 :], self.capped)

    def before(self, event: Event) -> "Observed":
        at = next(place for place, found in enumerate(self.events) if found is event)
        return Observed(self.events[:at], self.capped)

    def steps(self) -> list[Stepped]:
        return [event for event in self.events if isinstance(event, Stepped)]

    def since(self, number: int) -> "Observed":
        """What came after the step with this number, the first being 0."""
        return self.after(self.steps()[number])

    def told(self) -> str:
        """What happened, in a line."""
        done = [f"{run.tool}({_short(run.args)})" for run in self.effects()]
        ends = [report.status for report in self.reports]
        calls = f"{len(self.calls)} model call{'s' if len(self.calls) != 1 else ''}"
        effects = ", ".join(_counted(done)) or "no effect"
        return f"{' → '.join(_counted(ends))}; {calls}; {effects}"


def _short(args: Mapping[str, Any]) -> str:
    return ", ".join(str(value)[:20] for value in args.values())


def _counted(words: Sequence[str]) -> list[str]:
    """Words in order, a run of equal ones as one with its number."""
    runs: list[tuple[str, int]] = []
    for word in words:
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    return [word if number == 1 else f"{word} (x{number})" for word, number in runs]
