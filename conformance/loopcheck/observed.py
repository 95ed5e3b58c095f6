"""A neutral record of one run of one case: facts, and what the run said about itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from loopcheck.outside import line

Status = Literal["success", "limit", "error", "question", "approval", "stopped", "refused", "hung"]
"""How a step ended for the framework's caller.

success: it returned as done. limit: a limit ended it, and it says so. error: an exception, or an outcome that
reports an error. question, approval: it waits for a person. stopped: it was asked to stop and did. refused:
the framework said that it cannot do this. hung: no valid response: none in time, none that this suite
understands, or the process died by itself.
"""
WAITING = ("question", "approval")


@dataclass(frozen=True)
class Message:
    """One message as the provider got it. calls: (id, name, argument text). answers: the ID of the call whose
    result this is. size: in characters; `text` holds at most the first 4,000."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    answers: str | None = None
    size: int = 0


@dataclass(frozen=True)
class StepStart:
    """An action from outside: `say`, `decide`, `answer`, `resume`, `expire`."""

    do: str
    text: str = ""


@dataclass(frozen=True)
class ModelCall:
    """A model call. status: 200, or the HTTP error that it returned. text, calls: its reply, with the calls
    as (id, name, argument text). forbids: replies that the request rules out, `talk` (a call is required) or
    `shape` (arguments or an answer that violate their schema). who: the task of the calling sub-agent; empty
    for the top-level agent. tools: the tools that the request offers, as comparable text; empty if they were
    not recorded."""

    messages: tuple[Message, ...] = ()
    status: int = 200
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    forbids: frozenset[str] = frozenset()
    who: str = ""
    tools: str = ""

    @property
    def told_first(self) -> str:
        """The messages before the model's first reply."""
        at = next((at for at, one in enumerate(self.messages) if one.role == "assistant"), None)
        return "\n".join(message.text for message in self.messages[:at])

    @property
    def told_since(self) -> str:
        """The messages after the model's first reply, except its own."""
        at = next((at for at, one in enumerate(self.messages) if one.role == "assistant"), len(self.messages))
        return "\n".join(message.text for message in self.messages[at:] if message.role != "assistant")

    @property
    def dangling(self) -> list[str]:
        """The IDs of calls in the history that have no result before the next message of another kind."""
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
class ToolRun:
    """A run of a kit tool, by its own record. what: `effect`, `read`, `failed`, or `gate` for a check."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    what: str = "effect"


@dataclass(frozen=True)
class Report:
    """How a step ended. words: the framework's own. final: the final answer. pending: what waits."""

    status: Status
    words: str = ""
    final: Any = None
    pending: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Death:
    """The process was killed."""


Event = StepStart | ModelCall | ToolRun | Report | Death


@dataclass(frozen=True)
class Observed:
    """All events, in order. capped: the model was called more often than the bench allows, so the run did not
    end by itself."""

    events: tuple[Event, ...]
    capped: bool = False

    @property
    def calls(self) -> list[ModelCall]:
        """The model calls that got a reply."""
        return [event for event in self.events if isinstance(event, ModelCall) and event.status == 200]

    def calls_of(self, who: str) -> list[ModelCall]:
        """The model calls by the sub-agent with this task."""
        return [shown for shown in self.calls if shown.who == who]

    @property
    def reports(self) -> list[Report]:
        return [event for event in self.events if isinstance(event, Report)]

    @property
    def last(self) -> Report:
        """The last report; `hung` if there was none."""
        return self.reports[-1] if self.reports else Report("hung", "no report")

    def runs(self, tool: str) -> list[ToolRun]:
        """The runs of this tool."""
        return [event for event in self.events if isinstance(event, ToolRun) and event.tool == tool]

    def effects(self) -> list[ToolRun]:
        """The effects that really took place."""
        return [event for event in self.events if isinstance(event, ToolRun) and event.what == "effect"]

    def window(self, after: int = 0, before: int = 0) -> "Observed":
        """Returns the events after step `after` began and before step `before` began, numbered from 1; 0 is
        no bound. Nothing comes after a step that never began."""
        begun = [place for place, event in enumerate(self.events) if isinstance(event, StepStart)]
        begin = (begun[after - 1] + 1 if after <= len(begun) else len(self.events)) if after else 0
        end = begun[before - 1] if 0 < before <= len(begun) else len(self.events)
        return Observed(self.events[begin:end], self.capped)

    def told(self) -> str:
        """Summarizes what happened in one line."""
        done = [f"{run.tool}({_short(run.args)})" for run in self.effects()]
        ends = [report.status for report in self.reports]
        # A subject may do anything, any number of times.
        effects = ", ".join(_counted(done)[:20]) or "no effect"
        calls = f"{len(self.calls)} model call{'s' if len(self.calls) != 1 else ''}"
        return f"{' → '.join(_counted(ends))}; {calls}; {effects}"


def _short(args: Mapping[str, Any]) -> str:
    return ", ".join(line(value, 20) for value in list(args.values())[:5])


def _counted(words: Sequence[str]) -> list[str]:
    """Returns the words in order, with a run of equal ones as one with its count."""
    runs: list[tuple[str, int]] = []
    for word in words:
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    return [word if number == 1 else f"{word} (x{number})" for word, number in runs]
