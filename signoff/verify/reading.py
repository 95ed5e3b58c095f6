"""The history read once more, by other means than the machine's own: what the properties go by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.messages import is_genuine, is_reply, marks, nudge_kind
from signoff.verify.machine import Machine, MachinePoint


@dataclass(frozen=True)
class ReplyRecord:
    """One reply of the current task, and what the history says of each of its calls."""

    message: AIMessage
    calls: Sequence[Mapping[str, Any]]
    results: Sequence[Sequence[ToolMessage]]

    @property
    def stop(self) -> str:
        return str(self.message.response_metadata.get("finish_reason"))

    def failed(self, at: int) -> bool:
        return any(found.status == "error" for found in self.results[at])


def calls_of(message: AIMessage) -> list[Mapping[str, Any]]:
    """All calls of a reply, those that are no JSON last."""
    return [*message.tool_calls, *message.invalid_tool_calls]


def replies(messages: Sequence[BaseMessage]) -> Iterator[ReplyRecord]:
    """Every reply with the results that come after it and before the same ids are used again."""
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
    """The position of the message that began the current task."""
    ids = [message.id for message in point.messages]
    task = point.state.get("task")
    return ids.index(task) if task in ids else 0


def of_task(point: MachinePoint) -> list[ReplyRecord]:
    """The replies of the current task."""
    begun = {id(message) for message in point.messages[task_start(point) :]}
    return [told for told in replies(point.messages) if id(told.message) in begun]


def control_at(told: ReplyRecord, machine: Machine) -> int | None:
    """The position of the first finish or question that counts."""
    finish, ask = machine.name_of("finish"), machine.name_of("ask")
    for at, call in enumerate(told.message.tool_calls):
        if told.stop == "length" and at:
            return None
        if call["name"] == finish or (call["name"] == ask and call["args"].get("question") != ""):
            return at
    return None


def right_finish(told: ReplyRecord, machine: Machine) -> bool:
    """Whether a reply ends the task by itself: a finish that is valid, whole, and after calls that all
    succeeded, and that asks for nobody."""
    at = control_at(told, machine)
    if at is None or told.message.tool_calls[at]["name"] != machine.name_of("finish"):
        return False
    args = told.message.tool_calls[at]["args"]
    if "at" not in marks(told.message) and told.failed(at):
        # An import in which it did not hold.
        return False
    if any(marks(found).get("unknown") for found in told.results[at]):
        # A finishing tool that had begun to run when the process was killed.
        return False
    whole = told.stop not in ("length", "content_filter")
    plain = args.get("completion_percentage", 100) == 100 and not args.get("requires_user_confirmation")
    said = str(args.get("summary", "x")).strip()
    proven = (
        not said.startswith("Unproven") or args.get("outcome", "done") != "done" or not machine.deps.checks
    )
    return whole and plain and bool(said) and proven and not any(told.failed(before) for before in range(at))


def words_since(point: MachinePoint, told: ReplyRecord) -> list[HumanMessage]:
    """What stands after a reply in a person's role."""
    at = next(i for i, message in enumerate(point.messages) if message is told.message)
    return [message for message in point.messages[at:] if isinstance(message, HumanMessage)]


def nudges(point: MachinePoint) -> list[str]:
    """The reminders of the current task."""
    return [kind for message in point.messages[task_start(point) :] if (kind := nudge_kind(message))]


def person_spoke(point: MachinePoint, told: ReplyRecord) -> bool:
    """Whether a person has said something since this reply."""
    at = next(i for i, message in enumerate(point.messages) if message is told.message)
    return any(
        is_genuine(message)
        or any(name in marks(message) for name in ("answered", "waited", "sent_back"))
        or nudge_kind(message) == "sent_back"
        for message in point.messages[at:]
    )


def silent_in_a_row(told: Sequence[ReplyRecord]) -> int:
    """The replies without a call at the end; a reply that only thinks counts neither way."""
    count = 0
    for reply in reversed(told):
        if any(call["name"] != "think" for call in reply.calls):
            break
        count += not reply.calls
    return count


def refused_in_a_row(point: MachinePoint, told: Sequence[ReplyRecord], machine: Machine) -> list[Any]:
    """The finishes at the end that were refused, and with what words, with no work and no word of a person
    after the first."""
    names, refused = [machine.name_of(role) for role in ("finish", "think")], list[Any]()
    for reply in reversed(told):
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


def same_in_a_row(point: MachinePoint, told: Sequence[ReplyRecord]) -> int:
    """How many replies at the end are the same calls with the same results."""
    done = [(_shape(reply), reply) for reply in told if reply.calls]
    count = 0
    for shape, reply in reversed(done):
        if shape != done[-1][0] or (count and person_spoke(point, reply)):
            break
        count += 1
    return count


def _shape(told: ReplyRecord) -> Sequence[Any]:
    texts = [[str(found.content) for found in results] for results in told.results]
    return [[(call["name"], call["args"]) for call in told.calls], texts]
