"""What must hold of calls: what runs, and what the history and the model are told of it."""

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff.graph.history.section import ACCEPTED, verdicts_of
from signoff.graph.messages import marks
from signoff.verify import reading
from signoff.verify.machine import Machine, Step
from signoff.verify.seen import Why, asks_model, ends


def finish_is_answered(step: Step, machine: Machine) -> Why:
    if not asks_model(step) or "resumed" in reading.nudges(step.before):
        return None
    for told in reading.of_task(step.before):
        at = reading.control_at(told, machine)
        if at is not None and not any(f.text.strip() and "not_run" not in marks(f) for f in told.results[at]):
            return "a finish or a question stands while the model is asked again, and no reason is told"
    return None


def question_is_put(step: Step, machine: Machine) -> Why:
    success = ends(step) and (step.after.state.get("outcome") or {}).get("status") == "success"
    if not (asks_model(step) or success):
        return None
    for told in reading.of_task(step.after if success else step.before):
        at = reading.control_at(told, machine)
        asked = at is not None and told.message.tool_calls[at]["name"] == machine.name_of("ask")
        passed = asked and at is not None and all("not_run" in marks(found) for found in told.results[at])
        if passed and "resumed" not in reading.nudges(step.before):
            return "a question of this task was passed over"
    return None


def nothing_after(step: Step, machine: Machine) -> Why:
    if not (step.ran or asks_model(step)):
        return None
    state = step.before.state
    if ACCEPTED in verdicts_of(state.get("verdicts"), state.get("task", "")).values():
        return "a finish of this task was accepted before"
    for told in reading.of_task(step.before):
        at = reading.control_at(told, machine)
        late = [call["id"] for call in told.calls[at + 1 :]] if at is not None else []
        if any(call_id in late for call_id in step.ran):
            return "a call after a finish or a question has run"
    return None


def answered_once(step: Step, _: Machine) -> Why:
    if not (ends(step) or asks_model(step)):
        return None
    messages = step.after.messages if ends(step) else step.before.messages
    known: set[str] = set()
    for told in reading.replies(messages):
        for call, found in zip(told.calls, told.results, strict=True):
            if not call["id"] or call["id"] in known:
                return f"two calls have the id {call['id']!r}"
            known.add(call["id"])
            if len(found) != 1:
                return f"{call['name']} has {len(found)} results"
    strange = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id not in known]
    return "a result belongs to no call" if strange else None


def view_is_whole(step: Step, _: Machine) -> Why:
    return None if step.view is None else open_call(step.view)


def open_call(view: list[BaseMessage]) -> Why:
    """Why a provider would refuse these messages; None when it would not."""
    waiting: list[str] = []
    known: set[str] = set()
    for message in view:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return "a result without its call"
            waiting.remove(message.tool_call_id)
        elif waiting:
            return "a call is not answered before the next message"
        elif isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                return "a call that is no JSON"
            waiting = [str(call["id"]) for call in message.tool_calls]
            if known & set(waiting) or len(set(waiting)) < len(waiting):
                return "two calls with one id"
            known |= set(waiting)
    return "the last call is open" if waiting else None


def at_most_once(step: Step, machine: Machine) -> Why:
    effects = {
        call["id"]: call["name"]
        for told in reading.replies(step.before.messages)
        for call in told.message.tool_calls
    }
    again = [
        c for c in step.ran if step.after.ran[c] > 1 and machine.kit.toolbox.is_effect(effects.get(c, ""))
    ]
    return f"{effects[again[0]]} has run {step.after.ran[again[0]]} times" if again else None


def what_ran_is_told(step: Step, machine: Machine) -> Why:
    if not (ends(step) or asks_model(step)):
        return None
    point = step.after if ends(step) else step.before
    for told in reading.replies(point.messages):
        for call, found in zip(told.calls, told.results, strict=True):
            ran = call["id"] in point.ran and machine.kit.toolbox.is_effect(call["name"])
            if ran and any("not_run" in marks(result) for result in found):
                return f"{call['name']} has run, and the history says that it has not"
    return None


def cut_never_runs(step: Step, _: Machine) -> Why:
    for told in reading.replies(step.before.messages) if step.ran else ():
        if told.stop == "length" and any(call["id"] in step.ran for call in told.calls):
            return "a call of a reply that was cut off has run"
    return None


def only_agreed(step: Step, machine: Machine) -> Why:
    for told in reading.replies(step.before.messages) if step.ran else ():
        for call in told.message.tool_calls:
            if call["id"] not in step.ran or call["id"] in step.before.agreed:
                continue
            if machine.kit.toolbox.needs_approval(call["name"], call["args"]):
                return f"{call['name']} has run, and no person agreed to it"
    return None
