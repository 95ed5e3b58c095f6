"""What must hold of how a task ends: by what, within which limits, and never by another task."""

from langchain_core.messages import AIMessage

from signoff.graph.machine import Event, State
from signoff.graph.messages import marks
from signoff.verify import reading
from signoff.verify.machine import Machine, Step
from signoff.verify.seen import Why, asks_model, ends

_ENDS = {
    "success": {Event.ACCEPTED, Event.CONFIRMED},
    "limit": {Event.EXHAUSTED, Event.DEADLOCK},
    "error": {Event.FAILED, Event.CANCELLED},
}


def one_of_three(step: Step, _: Machine) -> Why:
    if not ends(step):
        return None
    outcome = step.after.state.get("outcome")
    if outcome is None:
        return "the task has ended without an outcome"
    if step.before.via is Event.ENDED:
        return None
    allowed = _ENDS.get(outcome["status"], set())
    return None if step.before.via in allowed else f"{outcome['status']} by {step.before.via!s}"


def rests_on_a_finish(step: Step, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) else None
    if not outcome or outcome["status"] != "success":
        return None
    finish = machine.name_of("finish")
    for told in reading.of_task(step.after):
        at = reading.control_at(told, machine)
        if at is None or told.message.tool_calls[at]["name"] != finish:
            continue
        agreed = outcome["verified"] == "unverified" or reading.person_spoke(step.after, told)
        if agreed or reading.right_finish(told, machine):
            return None
    return "no reply of this task holds a finish that may be accepted"


def finish_ends(step: Step, machine: Machine) -> Why:
    """Looked at where the model is asked again, and where the task ends otherwise."""
    told = reading.of_task(step.before)
    if not told or step.before.via is Event.ENDED or step.before.state.get("stop"):
        return None
    otherwise = ends(step) and (step.after.state.get("outcome") or {}).get("status") != "success"
    if not (asks_model(step) or otherwise) or not reading.right_finish(told[-1], machine):
        return None
    if reading.person_spoke(step.before, told[-1]) or _continued(step, told[-1]) or machine.kit.finish_alone:
        return None
    return "a right finish has not ended the task"


def _continued(step: Step, told: reading.Told) -> bool:
    """Whether the history itself says why a finish did not hold, or what came after it."""
    after = reading.words_since(step.before, told)
    return any(marks(message).get("nudge") in ("refused", "phase", "resumed") for message in after)


def own_task(step: Step, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome")
    point = step.after
    if step.before.place is State.COMPRESS and step.before.fresh and step.after.place is State.DECIDE:
        spoken = any(isinstance(m, AIMessage) for m in point.messages[point.fresh :])
        if not spoken and outcome is not None:
            return "the outcome of the earlier task is still there while the next one runs"
    if not ends(step) or not point.fresh or not outcome:
        return None
    said = [m for m in point.messages[point.fresh :] if isinstance(m, AIMessage)]
    if outcome["turns"] > len(said):
        return f"{outcome['turns']} turns are counted, and the task had {len(said)}"
    finish = machine.name_of("finish")
    if outcome["status"] == "success" and not any(c["name"] == finish for m in said for c in m.tool_calls):
        return "a success without a finish in this task"
    return None


def nothing_new(step: Step, machine: Machine) -> Why:
    state, messages = step.before.state, step.before.messages
    ended = state.get("ended")
    over = ended is not None and ended["message"] == (messages[-1].id if messages else "")
    outcome = state.get("outcome")
    if not (over and outcome):
        return None
    if asks_model(step) or step.ran:
        return "something runs in a thread that has ended"
    changed = ends(step) and step.after.state.get("outcome") != outcome
    return "another outcome of the same task" if changed else None


def stop_stops(step: Step, _: Machine) -> Why:
    state = step.before.state
    stopped = bool(state.get("stop")) and state.get("stop") == state.get("task")
    if stopped and (step.ran or asks_model(step)):
        return "something runs although a stop was requested"
    return None


def somebody_waits(step: Step, machine: Machine) -> Why:
    return "nobody can be asked" if step.after.waiting is not None and not machine.can_ask else None


def something_to_do(step: Step, _: Machine) -> Why:
    return (
        "the model is asked, and there is no task" if asks_model(step) and not step.before.messages else None
    )
