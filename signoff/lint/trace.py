"""The normal form of a message history, in which faults are searched for, whatever its format was."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from signoff.graph.errors import SetupError


class Unreadable(SetupError):
    """The file, or something in it, is not a message history; the message says where and what."""


@dataclass(frozen=True)
class TraceCall:
    """One call of a reply.

    at: index of its message in the history. arguments: as JSON text with sorted keys,
    or as they were written if they are not JSON. whole: whether that text is complete.
    """

    at: int
    id: str
    name: str
    arguments: str = "{}"
    whole: bool = True


@dataclass(frozen=True)
class Result:
    """The answer to the call with this id; `name` replaces it where the format has no ids."""

    at: int
    id: str
    text: str = ""
    failed: bool = False
    name: str = ""


@dataclass(frozen=True)
class TraceReply:
    """One reply of the model. cut: the provider says that it reached the length limit."""

    at: int
    text: str = ""
    calls: tuple[TraceCall, ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class TraceMessage:
    """A message to the model. genuine: a person wrote it, so that it begins or continues a task."""

    at: int
    genuine: bool = True


Entry = TraceReply | Result | TraceMessage


@dataclass(frozen=True)
class Trace:
    """A parsed history.

    format: its name for people. messages: how many the file contains. offered: the names of the tools that
    the model was offered, as far as the file says. waits: the file says that a person is to answer.
    """

    format: str
    messages: int
    entries: tuple[Entry, ...]
    offered: frozenset[str] = frozenset()
    waits: bool = False


FINISH = frozenset(
    {
        *("finish_task", "task_done", "task_complete", "complete_task", "mark_task_complete"),
        *("attempt_completion", "final_answer", "submit_final_answer", "final_result", "submit"),
        *("finish", "finished", "done", "exit_loop", "exit_forfeit"),
    }
)
"""The default names of tools by which agents end their work."""

ASK = frozenset({"ask_user", "ask_human", "ask_followup_question", "ask_user_question", "request_user_input"})
"""The default names of tools by which agents ask a person."""

NOTE = frozenset({"think", "thought", "sequentialthinking"})
"""The tools that only record a thought: they are not work."""


@dataclass(frozen=True)
class ControlNames:
    """The control tools of the history, ignoring case. Every other tool is work.

    delegates: tools whose calls other agents answer, which may ask a person before. They are work.
    told: the user named the finishing tools, so the agent is known to have one.
    """

    finish: AbstractSet[str] = FINISH
    ask: AbstractSet[str] = ASK
    note: AbstractSet[str] = NOTE
    delegates: AbstractSet[str] = frozenset()
    told: bool = False

    def finishes(self, call: TraceCall) -> bool:
        return call.name.casefold() in self.finish

    def can_finish(self, trace: Trace) -> bool:
        """Whether the model had a finishing tool: one was named by the user, offered, or called."""
        called = (call for entry in trace.entries if isinstance(entry, TraceReply) for call in entry.calls)
        return (
            self.told
            or any(name.casefold() in self.finish for name in trace.offered)
            or any(map(self.finishes, called))
        )

    def asks(self, call: TraceCall) -> bool:
        return call.name.casefold() in self.ask

    def may_wait(self, call: TraceCall) -> bool:
        """Whether its answer may be with a person."""
        return self.asks(call) or call.name.casefold() in self.delegates

    def works(self, call: TraceCall) -> bool:
        return call.name.casefold() not in self.finish | self.ask | self.note


def names(
    finish: AbstractSet[str] = frozenset(),
    ask: AbstractSet[str] = frozenset(),
    delegates: AbstractSet[str] = frozenset(),
) -> ControlNames:
    """Returns the control tools, with these names instead of the default ones, if any are passed, and the
    names of tools that are delegates."""
    return ControlNames(
        frozenset(name.casefold() for name in finish) or FINISH,
        frozenset(name.casefold() for name in ask) or ASK,
        delegates=frozenset(name.casefold() for name in delegates),
        told=bool(finish),
    )
