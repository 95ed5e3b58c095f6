"""What an adapter is: it sets up one framework and says how its runs end. Standard library only."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from kit import Kit


_LOOP = asyncio.Runner()


def run_async(work: Coroutine[Any, Any, "Report"]) -> "Report":
    """Waits for `work` in the one event loop of this process: a client of a closed loop is of no use."""
    return _LOOP.run(work)


class Refused(Exception):
    """The framework says that there is nothing to do so: nothing waits, or nothing is left to go on with."""


@dataclass(frozen=True)
class Setup:
    """What the user knows when the agent is built, as the suite sends it (see ../../../PROTOCOL.md).

    url: of the model. tools: their definitions, which `Kit` makes functions of. folder: for everything the
    framework stores; it outlives the process. thread: the id of the run. system: what the agent is told
    beside the user's words; empty for nothing.
    """

    url: str
    folder: Path
    tools_url: str
    tools: Sequence[Mapping[str, Any]]
    system: str = ""
    finish: str = "any"
    approve: Sequence[str] = ()
    turns: int | None = None
    tool_calls: int | None = None
    gate: bool = False
    asks: bool = False
    helpers: Sequence[str] = ()
    helper_turns: int | None = None
    tree_turns: int | None = None
    recursive: bool = False
    thread: str = "bench"


@dataclass(frozen=True)
class Report:
    """How a step ended, as the caller of the framework sees it; the words of `Status` in `observed.py`.

    success: it returned as done. limit: a limit ended it, and it says so. error. question, approval: it waits
    for a person. stopped: it was asked to stop and did. words: the framework's own, short. final: the final
    answer. pending: the calls that wait, as {"name", "args"}, and with an "id" where decisions may name them.
    """

    status: str
    words: str = ""
    final: Any = None
    pending: Sequence[Mapping[str, Any]] = ()


def named(ids: Sequence[str], decisions: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each decision with the id of the call that it is for: its own, or, where none has one, by position.

    ids: of the calls that wait. An id that is not among them is the framework's to refuse.
    """
    if any("id" in one for one in decisions):
        return [(str(one["id"]), one) for one in decisions]
    return list(zip(ids, decisions, strict=True))


class Adapter(ABC):
    """One framework, as an experienced user of it sets it up. Made anew in every process."""

    framework: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    """Distributions whose versions the table names, the framework's own first."""
    finish: ClassVar[Mapping[str, Mapping[str, Any]]]
    """How the model ends: for `any`, `call`, `structured`, a template (see `replies.py`)."""
    ask: ClassVar[Mapping[str, Any] | None] = None
    delegation: ClassVar[Mapping[str, Any] | None] = None
    """How the model calls a sub-agent: a template in which `$name` is its name and `$text` its task."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Features that the framework does not claim, each with why."""

    def __init__(self, setup: Setup, kit: "Kit") -> None:
        self.setup = setup
        self.kit = kit

    @abstractmethod
    def say(self, text: str) -> Report:
        """A message of the user: begins a task, or says something while one waits."""

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        """A person's decisions on the calls that wait, in order: {"type": "approve"}, {"type": "reject",
        "message": …} or {"type": "edit", "args": …}. With an "id" in each they come in any order, for some of
        the calls, or for one that no longer waits: for who does not name `approval_ids` in `lacks`."""
        raise NotImplementedError

    def answer(self, text: str) -> Report:
        """The user's answer to the question that waits."""
        raise NotImplementedError

    def resume(self) -> Report:
        """Goes on with the run from what is stored."""
        raise NotImplementedError

    def expire(self) -> Report:
        """The deadline of the question has passed."""
        raise NotImplementedError

    def stop(self) -> None:
        """Asks the run to stop; called in another thread while a tool runs. Returns at once."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Called when the process is done with this adapter."""
