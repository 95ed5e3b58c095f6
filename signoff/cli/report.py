"""How a command ended: the exit code, what to run next, and the JSON document."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_data_path

from signoff.cli.safe import shell_command
from signoff.cli.waits import Action, Approval, Question, Waiting


class Exit(IntEnum):
    """The exit codes of `signoff run` and `signoff resume`."""

    SUCCESS = 0
    ERROR = 1
    USAGE = 2
    LIMIT = 3
    PAUSED = 4
    HONEST = 5  # a success that claims less than "done": partial, blocked or impossible


Status = Literal["finished", "paused", "stopped", "error"]
ANSWER = "your answer"
OBSERVATION = "what it gave"
MORE_TURNS = 10


@dataclass(frozen=True)
class Report:
    """What one run came to. `resume` is the exact command that goes on, when one can.

    ways: the commands that go on, with the label of each; the first is `resume`.
    """

    thread_id: str | None
    status: Status
    exit_code: Exit
    outcome: Mapping[str, Any] | None = None
    waiting: Waiting | None = None
    resume: str | None = None
    error: str | None = None
    ways: tuple[tuple[str, str], ...] = ()

    def document(self) -> str:
        """The report as one JSON document, in ASCII: nothing in it can steer a terminal."""
        found = {
            "thread_id": self.thread_id,
            "status": self.status,
            "exit_code": int(self.exit_code),
            "outcome": self.outcome,
            **documents(self.waiting),
            "resume": self.resume,
            "error": self.error,
        }
        return json.dumps(found, indent=2, default=str)


def documents(waiting: Waiting | None) -> dict[str, Any]:
    """What a thread waits for, under its own name: `question`, `approval` or `action`."""
    kinds = {"question": Question, "approval": Approval, "action": Action}
    return {
        name: waiting.document() if waiting and isinstance(waiting, kind) else None
        for name, kind in kinds.items()
    }


def of_outcome(outcome: Mapping[str, Any], thread_id: str, database: Path) -> Report:
    """The report of a task that has ended."""
    if outcome["status"] == "success":
        code = Exit.SUCCESS if outcome["claim"] == "done" else Exit.HONEST
        return Report(thread_id, "finished", code, outcome)
    if outcome["status"] == "limit":
        more = resume_command(thread_id, database, "--turns", str(MORE_TURNS))
        return Report(thread_id, "finished", Exit.LIMIT, outcome, resume=more)
    again = resume_command(thread_id, database, "--retry")
    return Report(thread_id, "error", Exit.ERROR, outcome, resume=again)


def of_waiting(waiting: Waiting, thread_id: str, database: Path) -> Report:
    """The report of a thread that waits for a person."""
    ways = tuple(
        (label, resume_command(thread_id, database, answer=answer)) for label, answer in _answers(waiting)
    )
    return Report(thread_id, "paused", Exit.PAUSED, waiting=waiting, resume=ways[0][1], ways=ways)


def _answers(waiting: Waiting) -> list[tuple[str, str]]:
    if isinstance(waiting, Question):
        return [("Answer", ANSWER)]
    if isinstance(waiting, Action):
        return [("Answer", OBSERVATION)]
    every = [set(call.allowed) for call in waiting.calls]
    offered = [("Approve", "approve", "approve"), ("Reject", "reject", "reject: your reason")]
    found = [(label, words) for label, kind, words in offered if all(kind in may for may in every)]
    if len(every) > 1 or not found:
        each = [{"type": call.allowed[0]} for call in waiting.calls]
        found.append(("Decide each", json.dumps(each)))
    return found


def of_stop(thread_id: str | None, database: Path) -> Report:
    """The report of a run that was told to stop. No thread: nothing was saved yet."""
    how = None if thread_id is None else resume_command(thread_id, database)
    return Report(thread_id, "stopped", Exit.PAUSED, resume=how)


def resume_command(thread_id: str, database: Path, *options: str, answer: str | None = None) -> str:
    """The exact `signoff resume` for this thread, for a shell."""
    return shell_command(_resume_words(thread_id, database, options, answer))


def next_command(thread_id: str, database: Path) -> str:
    """The exact `signoff run` that gives this thread its next task."""
    return shell_command(["signoff", "run", "--thread", thread_id, *_where(database), "the next task"])


def _resume_words(thread_id: str, database: Path, options: tuple[str, ...], answer: str | None) -> list[str]:
    dashes = ["--"] if thread_id.startswith("-") else []
    words = [] if answer is None else [answer]
    return ["signoff", "resume", *options, *_where(database), *dashes, thread_id, *words]


def _where(database: Path) -> list[str]:
    return [] if database == default_database() else ["--database", str(database)]


def default_database() -> Path:
    """Where threads are kept when neither --database nor SIGNOFF_DATABASE says otherwise."""
    return user_data_path("signoff") / "threads.sqlite"


def print_document(report: Report) -> None:
    sys.stdout.write(report.document() + "\n")
