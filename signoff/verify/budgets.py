"""What must hold of limits, rows and reminders."""

from signoff.graph.machine import Event
from signoff.graph.messages import marks
from signoff.verify import reading
from signoff.verify.machine import Machine, Step
from signoff.verify.seen import Why, asks_model, ends

_SILENT = ("talked", "truncated", "reasoning", "empty", "filtered")


def within_limits(step: Step, machine: Machine) -> Why:
    if not asks_model(step):
        return None
    told = reading.of_task(step.before)
    most = machine.kit.limits.turns + _extra(step)
    if len(told) < most or (told and reading.person_spoke(step.before, told[-1])):
        return None
    return f"the model is asked for reply {len(told) + 1} of at most {most}"


def _extra(step: Step) -> int:
    """The turns that this task was given on top of its limit, by `extend` or on request."""
    state = step.before.state
    found = state.get("extra")
    extended = found["turns"] if found and found["task"] == state.get("task") else 0
    mine = step.before.messages[reading.task_start(step.before) :]
    return extended + sum(int(marks(message).get("granted", 0)) for message in mine)


def real_limit(step: Step, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) else None
    if not outcome or outcome["status"] != "limit" or step.before.via is Event.ENDED:
        return None
    limits, told = machine.kit.limits, reading.of_task(step.after)
    if outcome["reason"] == "turns" and len(told) < limits.turns:
        return f"ended by turns after {len(told)}"
    talk = sum(not reply.calls for reply in told)
    if outcome["reason"] == "talk_turns" and talk < limits.talk_turns:
        return f"ended by talk_turns after {talk}"
    calls = sum(len(reply.calls) for reply in told)
    if outcome["reason"] == "tool_calls" and calls <= (limits.tool_calls or 0):
        return f"ended by tool_calls after {calls}"
    if outcome["reason"] == "review_deadlock" and "refused" not in reading.nudges(step.after):
        refused = reading.refused_in_a_row(step.after, told, machine)
        if not any(refused.count(one) > 1 for one in refused) and len(refused) < (limits.refusals or 0):
            return f"ended by review_deadlock after {len(refused)} refusals in a row"
    return None


def row_ends(step: Step, machine: Machine) -> Why:
    told = reading.of_task(step.before) if asks_model(step) else []
    if not told or "resumed" in reading.nudges(step.before) or reading.person_spoke(step.before, told[-1]):
        return None
    limits = machine.kit.limits
    if reading.silent_in_a_row(told) >= limits.talk_turns:
        return f"{limits.talk_turns} replies in a row without a call, and the model is asked again"
    if len(told) > 1 and all(reply.stop == "content_filter" for reply in told[-2:]):
        return "two refusals in a row, and the model is asked again"
    refused = reading.refused_in_a_row(step.before, told, machine)
    if limits.refusals is not None and len(refused) >= limits.refusals:
        return f"{len(refused)} finishes were refused in a row, and the model is asked again"
    same = reading.same_in_a_row(step.before, told) if limits.repeats and told[-1].calls else 0
    if limits.repeats and same >= limits.repeats:
        return f"the same work {same} times in a row, and the model is asked again"
    if limits.tell_at and same >= limits.tell_at and "repeating" not in reading.nudges(step.before):
        return "the same work again and again, and the model was not told"
    return None


def budget_ends(step: Step, machine: Machine) -> Why:
    told = reading.of_task(step.before) if asks_model(step) else []
    limits = machine.kit.limits
    if not told or "resumed" in reading.nudges(step.before):
        return None
    used = sum((reply.message.usage_metadata or {"total_tokens": 0})["total_tokens"] for reply in told)
    if limits.tokens is not None and used >= limits.tokens:
        return f"{used} tokens of {limits.tokens}"
    if (
        limits.cost is not None
        and limits.prices is not None
        and used * limits.prices.input / 1e6 >= limits.cost
    ):
        return f"{used} tokens cost more than {limits.cost}"
    results = [found for reply in told for results in reply.results for found in results]
    if any(marks(found).get("not_run") == "tool_calls" for found in results):
        return "a call was refused since there were too many, and the model is asked again"
    return None


def no_spin(step: Step, machine: Machine) -> Why:
    told = reading.of_task(step.before) if asks_model(step) else []
    if len(told) < 2 or "resumed" in reading.nudges(step.before):
        return None
    last = told[-2:]
    if any(len(reply.calls) != 1 or reply.calls[0]["name"] != machine.name_of("finish") for reply in last):
        return None
    if last[0].calls[0]["args"] != last[1].calls[0]["args"]:
        return None
    texts = [[found.text for found in reply.results[0] if found.status == "error"] for reply in last]
    spoken = any(reading.person_spoke(step.before, reply) for reply in last)
    return "the same refusal twice in a row" if texts[0] and texts[0] == texts[1] and not spoken else None


def slip_is_told(step: Step, machine: Machine) -> Why:
    told = reading.of_task(step.before) if asks_model(step) else []
    if not told or (told[-1].calls and told[-1].stop != "length"):
        return None
    if reading.person_spoke(step.before, told[-1]) or reading.control_at(told[-1], machine) is not None:
        return None
    kinds = {marks(message).get("nudge") for message in reading.words_since(step.before, told[-1])}
    if machine.kit.toolbox.dialogue and told[-1].message.text and told[-1].stop == "stop":
        return "what the model said was not put to the user"
    return None if kinds & {*_SILENT, "resumed"} else "nobody told the model what its last reply lacks"


def near_is_told(step: Step, machine: Machine) -> Why:
    if not asks_model(step):
        return None
    limits, told = machine.kit.limits, reading.of_task(step.before)
    left = limits.turns + _extra(step) - len(told)
    if left == 1 and len(told) and "near_limit" not in reading.nudges(step.before):
        return "the last turn, and the model was not told that it is"
    kinds = reading.nudges(step.before)
    if kinds.count("near_limit") > 1 + kinds.count("resumed"):
        return "the model was told twice that the limit is near"
    return None


def round_is_thought(step: Step, machine: Machine) -> Why:
    told = reading.of_task(step.before) if asks_model(step) and machine.kit.toolbox.rounds else []
    worked = bool(told) and any(
        call["name"] in machine.kit.toolbox.tools for call in told[-1].message.tool_calls
    )
    if not worked or told[-1].stop == "length":
        return None
    kinds = [marks(message).get("nudge") for message in reading.words_since(step.before, told[-1])]
    return None if "round" in kinds else "the next batch, and nobody asked the model to think about the last"
