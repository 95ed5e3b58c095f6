"""The result of a command: the exit code, what to run next, and the JSON document."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from signoff import Action, Approval, Waiting
from signoff.front.database import Database
from signoff.front.text import shell_command


class Exit(IntEnum):
    """The exit codes of the commands that run a thread."""

    SUCCESS = 0
    ERROR = 1
    USAGE = 2
    LIMIT = 3
    PAUSED = 4
    HONEST = 5  # a success that claims less than "done": partial, blocked or impossible


# Words of `graph.vocabulary.STATUSES`, as everywhere.
Status = Literal["success", "limit", "error", "waiting", "stopped", "queued"]
ANSWER = "your answer"
OBSERVATION = "its result"
ID_SHOWN = 8
"""How much of the id of what waits is shown, where several do."""


@dataclass(frozen=True)
class CommandReport:
    """The result of one run.

    resume: the exact command that continues, if there is one. ways: the commands that continue, with their
    labels; the first is `resume`.
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
        """Returns the report as one JSON document, in ASCII, so that nothing in it can control a terminal."""
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
    """Returns what a thread waits for, under the key `question`, `approval` or `action`."""
    document = waiting.document() if waiting else {"type": ""}
    return {
        kind: document if document["type"] == kind else None for kind in ("question", "approval", "action")
    }


def of_outcome(outcome: Mapping[str, Any], thread_id: str, database: Database) -> CommandReport:
    """Returns the report of a task that has ended."""
    if outcome["status"] == "success":
        code = Exit.SUCCESS if outcome["claim"] == "done" else Exit.HONEST
        return CommandReport(thread_id, "success", code, outcome)
    how = command("resume", thread_id, database)
    if outcome["status"] == "limit":
        return CommandReport(thread_id, "limit", Exit.LIMIT, outcome, resume=how)
    return CommandReport(thread_id, "error", Exit.ERROR, outcome, resume=how)


def of_waits(waits: Sequence[Waiting], thread_id: str, database: Database) -> list[CommandReport]:
    """Returns the report of each of all that a thread waits for."""
    return [of_waiting(one, thread_id, database, beside=len(waits) > 1) for one in waits]


def of_waiting(
    waiting: Waiting, thread_id: str, database: Database, *, beside: bool = False
) -> CommandReport:
    """Returns the report of a thread that waits for a person. beside: others wait, too, so that the commands
    say which one they answer."""
    to = ("--to", waiting.interrupt_id[:ID_SHOWN]) if beside else ()
    ways = tuple(
        (label, command("resume", thread_id, database, answer, options=to))
        for label, answer in _answers(waiting)
    )
    return CommandReport(thread_id, "waiting", Exit.PAUSED, waiting=waiting, resume=ways[0][1], ways=ways)


def _answers(waiting: Waiting) -> list[tuple[str, str]]:
    if not isinstance(waiting, Approval):
        return [("Answer", OBSERVATION if isinstance(waiting, Action) else ANSWER)]
    # With the id of the approval shown with it: if entered again, it does not apply to a later one.
    document, every = waiting.document(), [set(call.allowed) for call in waiting.calls]
    shown = document["shown"]
    if document["waits_for"] == "confirmation":
        return [("Confirm", f"yes@{shown}"), ("Send back", "what is wrong")]
    offered = [
        ("Approve", "approve", f"approve@{shown}"),
        ("Reject", "reject", f"reject@{shown}: your reason"),
    ]
    found = [(label, words) for label, kind, words in offered if all(kind in may for may in every)]
    if len(every) > 1 or not found:
        each = [{"call_id": call.id, "type": call.allowed[0]} for call in waiting.calls]
        found.append(("Decide each", json.dumps({"shown": shown, "decisions": each})))
    return found


def of_stop(thread_id: str | None, database: Database) -> CommandReport:
    """Returns the report of a run that was asked to stop. Without a thread, nothing was saved yet."""
    how = None if thread_id is None else command("resume", thread_id, database)
    return CommandReport(thread_id, "stopped", Exit.PAUSED, resume=how)


def of_queued(thread_id: str, database: Database) -> CommandReport:
    """Returns the report of a thread that was submitted to the workers."""
    look = shell_command(["signoff", "threads", *database.options])
    return CommandReport(thread_id, "queued", Exit.SUCCESS, ways=(("Look", look),))


def command(verb: str, thread_id: str, database: Database, *words: str, options: Sequence[str] = ()) -> str:
    """Returns the exact `signoff VERB THREAD …` for this thread, for a shell."""
    dashes = ["--"] if any(word.startswith("-") for word in (thread_id, *words)) else []
    return shell_command(["signoff", verb, *database.options, *options, *dashes, thread_id, *words])


def next_command(thread_id: str, database: Database) -> str:
    """Returns the exact `signoff run` that gives this thread its next task."""
    return shell_command(["signoff", "run", "--thread", thread_id, *database.options, "the next task"])


def print_document(report: CommandReport) -> None:
    sys.stdout.write(report.document() + "\n")
