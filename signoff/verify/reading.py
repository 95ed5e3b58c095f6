"""Reads the history independently of the machine's own code, for the properties."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.messages import is_genuine, is_reply, marks, nudge_kind
from signoff.verify.machine import Machine, MachinePoint


@dataclass(frozen=True)
class ReplyRecord:
    """One reply of the current task, and the results of its calls in the history."""

    message: AIMessage
    calls: Sequence[Mapping[str, Any]]
    results: Sequence[Sequence[ToolMessage]]

    @property
    def stop(self) -> str:
        return str(self.message.response_metadata.get("finish_reason"))

    def failed(self, at: int) -> bool:
        return any(found.status == "error" for found in self.results[at])


def calls_of(message: AIMessage) -> list[Mapping[str, Any]]:
    """Returns all calls of a reply, those that are not JSON last."""
    return [*message.tool_calls, *message.invalid_tool_calls]


def replies(messages: Sequence[BaseMessage]) -> Iterator[ReplyRecord]:
    """Returns every reply with the results that come after it and before the same ids are used again."""
    for at, message in enumerate(messages):
        if not is_reply(message):
            continue
        calls = calls_of(message)
        found = [
            [m for m in messages[at + 1 :] if isinstance(m, ToolMessage) and m.tool_call_id == call["id"]]
            for call in calls
        ]
        yield ReplyRecord(message, calls, found)


def task_start(point: MachinePoint) -> int:
    """Returns the position of the message that began the current task."""
    ids = [message.id for message in point.messages]
    task = point.state.get("task")
    return ids.index(task) if task in ids else 0


def of_task(point: MachinePoint) -> list[ReplyRecord]:
    """Returns the replies of the current task."""
    begun = {id(message) for message in point.messages[task_start(point) :]}
    return [record for record in replies(point.messages) if id(record.message) in begun]


def control_at(record: ReplyRecord, machine: Machine) -> int | None:
    """Returns the position of the first finish or question that counts."""
    finish, ask = machine.name_of("finish"), machine.name_of("ask")
    for at, call in enumerate(record.message.tool_calls):
        if record.stop == "length" and at:
            return None
        if call["name"] == finish or (call["name"] == ask and call["args"].get("question") != ""):
            return at
    return None


def right_finish(record: ReplyRecord, machine: Machine) -> bool:
    """Whether a reply ends the task by itself.

    That is a valid, complete finish after only successful calls, which asks no person.
    """
    at = control_at(record, machine)
    if at is None or record.message.tool_calls[at]["name"] != machine.name_of("finish"):
        return False
    args = record.message.tool_calls[at]["args"]
    if "at" not in marks(record.message) and record.failed(at):
        # An imported history in which it was not accepted.
        return False
    if any(marks(found).get("unknown") for found in record.results[at]):
        # A finishing tool that was running when the process was killed.
        return False
    whole = record.stop not in ("length", "content_filter")
    plain = args.get("completion_percentage", 100) == 100 and not args.get("requires_user_confirmation")
    said = str(args.get("summary", "x")).strip()
    proven = (
        not said.startswith("Unproven") or args.get("outcome", "done") != "done" or not machine.deps.checks
    )
    check, owed = machine.deps.result_check, args.get("outcome") not in ("blocked", "impossible")
    fits = check is None or not owed or (args.get("result") is not None and not check(args["result"]))
    succeeded = not any(record.failed(before) for before in range(at))
    return whole and plain and bool(said) and proven and fits and succeeded


def words_since(point: MachinePoint, record: ReplyRecord) -> list[HumanMessage]:
    """Returns the messages after a reply with a person's role."""
    at = next(i for i, message in enumerate(point.messages) if message is record.message)
    return [message for message in point.messages[at:] if isinstance(message, HumanMessage)]


def nudges(point: MachinePoint) -> list[str]:
    """Returns the reminders of the current task."""
    return [kind for message in point.messages[task_start(point) :] if (kind := nudge_kind(message))]


def person_spoke(point: MachinePoint, record: ReplyRecord) -> bool:
    """Whether a person has written something since this reply."""
    at = next(i for i, message in enumerate(point.messages) if message is record.message)
    return any(
        is_genuine(message)
        or any(name in marks(message) for name in ("answered", "waited", "sent_back"))
        or nudge_kind(message) == "sent_back"
        for message in point.messages[at:]
    )


def silent_in_a_row(records: Sequence[ReplyRecord]) -> int:
    """Returns the replies without a call at the end; a reply that only thinks counts neither way."""
    count = 0
    for reply in reversed(records):
        if any(call["name"] != "think" for call in reply.calls):
            break
        count += not reply.calls
    return count


def refused_in_a_row(point: MachinePoint, records: Sequence[ReplyRecord], machine: Machine) -> list[Any]:
    """Returns the refused finishes at the end, with the reasons.

    After the first there is no work and no message of a person.
    """
    names, refused = [machine.name_of(role) for role in ("finish", "think")], list[Any]()
    for reply in reversed(records):
        ran = [
            (call, found)
            for call, results in zip(reply.calls, reply.results, strict=True)
            for found in results
            if "not_run" not in marks(found)
        ]
        if any(call["name"] not in names for call, _ in ran) or person_spoke(point, reply):
            break
        refused += [
            (call["args"], found.text)
            for call, found in ran
            if call["name"] == names[0] and found.status == "error"
        ]
    return refused


def same_in_a_row(point: MachinePoint, records: Sequence[ReplyRecord]) -> int:
    """Returns how many replies at the end have the same calls with the same results."""
    done = [(_shape(reply), reply) for reply in records if reply.calls]
    count = 0
    for shape, reply in reversed(done):
        if shape != done[-1][0] or (count and person_spoke(point, reply)):
            break
        count += 1
    return count


def _shape(record: ReplyRecord) -> Sequence[Any]:
    texts = [[str(found.content) for found in results] for results in record.results]
    return [[(call["name"], call["args"]) for call in record.calls], texts]


def left_open(told: Sequence[ReplyRecord], machine: Machine) -> list[tuple[int, str]]:
    """Returns the tools of failed delegates and of unknown effects after which no reply could have looked,
    each with the position of its reply."""
    found: list[tuple[int, str]] = []
    box, ask = machine.deps.toolbox, machine.name_of("ask")
    for at, reply in enumerate(told):
        ran = [
            (call["name"], result)
            for call, results in zip(reply.calls, reply.results, strict=True)
            for result in results
            if "not_run" not in marks(result)
        ]
        if any(result.status != "error" and (name in box.tools or name == ask) for name, result in ran):
            found.clear()
        found += [
            (at, name)
            for name, result in ran
            if result.status == "error"
            and (name in box.delegates or (box.is_effect(name) and marks(result).get("unknown")))
        ]
    return found
