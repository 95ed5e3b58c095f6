"""The properties of every step of every run: of limits and reminders, of calls, and of how a task ends.

Each property is one sentence, and a function that says why a step breaks it. The function reads the history
and what was observed from outside, not what the machine reports.
"""

from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff.graph.history.reader import ACCEPTED, read_messages, verdicts_of
from signoff.graph.history.task import current_task
from signoff.graph.machine import Event, State
from signoff.graph.messages import is_reply, marks
from signoff.graph.rules import is_last_turn, repeats_to_mention
from signoff.verify import reading
from signoff.verify.machine import Machine, MachinePoint, MachineStep

Why = str | None


def asks_model(step: MachineStep) -> bool:
    return step.before.place is State.CALL_LLM


def ends(step: MachineStep) -> bool:
    return step.after.place is None and step.before.place is not None


_SILENT = ("talked", "truncated", "reasoning", "empty", "filtered")


def within_limits(step: MachineStep, machine: Machine) -> Why:
    if not asks_model(step):
        return None
    records = reading.of_task(step.before)
    most = _most_turns(step.before, machine)
    if len(records) < most or (records and reading.person_spoke(step.before, records[-1])):
        return None
    return f"the model is asked for reply {len(records) + 1} of at most {most}"


def _most_turns(point: MachinePoint, machine: Machine) -> int:
    """Returns the turns that this task may take: those granted by `go_on` come on top of what was
    left when they were granted."""
    most, turns = machine.deps.limits.turns, 0
    for message in point.messages[reading.task_start(point) :]:
        turns += is_reply(message)
        if granted := marks(message).get("granted"):
            most = max(most, turns) + granted
    return most


def real_limit(step: MachineStep, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) else None
    if not outcome or outcome["status"] != "limit" or step.before.via is Event.ENDED:
        return None
    limits, records = machine.deps.limits, reading.of_task(step.after)
    most = _most_turns(step.after, machine)
    if outcome["reason"] == "turns" and len(records) < most:
        return f"ended by turns after {len(records)} of {most}"
    talk = sum(not reply.calls for reply in records)
    if outcome["reason"] == "talk_turns" and talk < limits.talk_turns:
        return f"ended by talk_turns after {talk}"
    calls = sum(len(reply.calls) for reply in records) + _calls_below(step.after)
    if outcome["reason"] == "tool_calls" and calls <= (limits.tool_calls or 0):
        return f"ended by tool_calls after {calls}"
    if outcome["reason"] == "review_deadlock" and "refused" not in reading.nudges(step.after):
        refused = reading.refused_in_a_row(step.after, records, machine)
        if not any(refused.count(one) > 1 for one in refused) and len(refused) < (limits.refusals or 0):
            return f"ended by review_deadlock after {len(refused)} refusals in a row"
    return None


def _calls_below(point: MachinePoint) -> int:
    """Returns the tool calls of the task's delegates, as their results tell them."""
    told = (marks(message).get("delegate") for message in point.messages[reading.task_start(point) :])
    return sum(int(found["used"]["tool_calls"]) for found in told if found)


def row_ends(step: MachineStep, machine: Machine) -> Why:
    records = reading.of_task(step.before) if asks_model(step) else []
    if (
        not records
        or "resumed" in reading.nudges(step.before)
        or reading.person_spoke(step.before, records[-1])
    ):
        return None
    limits = machine.deps.limits
    if reading.silent_in_a_row(records) >= limits.talk_turns:
        return f"{limits.talk_turns} replies in a row without a call, and the model is called again"
    if len(records) > 1 and all(reply.stop == "content_filter" for reply in records[-2:]):
        return "two refusals in a row, and the model is called again"
    refused = reading.refused_in_a_row(step.before, records, machine)
    if limits.refusals is not None and len(refused) >= limits.refusals:
        return f"{len(refused)} finishes were refused in a row, and the model is called again"
    same = reading.same_in_a_row(step.before, records) if limits.repeats and records[-1].calls else 0
    if limits.repeats and same >= limits.repeats:
        return f"the same work {same} times in a row, and the model is called again"
    at = repeats_to_mention(limits)
    if at and same >= at and "repeating" not in reading.nudges(step.before):
        return "the same work several times in a row, and the model was not warned"
    return None


def budget_ends(step: MachineStep, machine: Machine) -> Why:
    records = reading.of_task(step.before) if asks_model(step) else []
    limits = machine.deps.limits
    if not records or "resumed" in reading.nudges(step.before):
        return None
    used = sum((reply.message.usage_metadata or {"total_tokens": 0})["total_tokens"] for reply in records)
    if limits.tokens is not None and used >= limits.tokens:
        return f"{used} tokens of {limits.tokens}"
    if (
        limits.cost is not None
        and limits.prices is not None
        and used * limits.prices.input / 1e6 >= limits.cost
    ):
        return f"{used} tokens cost more than {limits.cost}"
    results = [found for reply in records for results in reply.results for found in results]
    if any(marks(found).get("not_run") == "tool_calls" for found in results):
        return "a call was refused since there were too many, and the model is called again"
    return None


def no_spin(step: MachineStep, machine: Machine) -> Why:
    records = reading.of_task(step.before) if asks_model(step) else []
    if len(records) < 2 or "resumed" in reading.nudges(step.before):
        return None
    last = records[-2:]
    if any(len(reply.calls) != 1 or reply.calls[0]["name"] != machine.name_of("finish") for reply in last):
        return None
    if last[0].calls[0]["args"] != last[1].calls[0]["args"]:
        return None
    texts = [[found.text for found in reply.results[0] if found.status == "error"] for reply in last]
    spoken = any(reading.person_spoke(step.before, reply) for reply in last)
    return "the same refusal twice in a row" if texts[0] and texts[0] == texts[1] and not spoken else None


def slip_is_told(step: MachineStep, machine: Machine) -> Why:
    records = reading.of_task(step.before) if asks_model(step) else []
    if not records or (records[-1].calls and records[-1].stop != "length"):
        return None
    if reading.person_spoke(step.before, records[-1]) or reading.control_at(records[-1], machine) is not None:
        return None
    kinds = {marks(message).get("nudge") for message in reading.words_since(step.before, records[-1])}
    if machine.deps.toolbox.dialogue and records[-1].message.text and records[-1].stop == "stop":
        return "the model's text was not put to the user"
    return None if kinds & {*_SILENT, "resumed"} else "the model got no reminder of what its last reply lacks"


def near_is_told(step: MachineStep, machine: Machine) -> Why:
    if not asks_model(step):
        return None
    records = reading.of_task(step.before)
    left = _most_turns(step.before, machine) - len(records)
    if left == 1 and len(records) and "near_limit" not in reading.nudges(step.before):
        return "the last turn, and the model was not warned"
    kinds = reading.nudges(step.before)
    if kinds.count("near_limit") > 1 + kinds.count("resumed"):
        return "the model was warned twice that the limit is near"
    return None


def round_is_thought(step: MachineStep, machine: Machine) -> Why:
    records = reading.of_task(step.before) if asks_model(step) and machine.deps.toolbox.rounds else []
    worked = bool(records) and any(
        call["name"] in machine.deps.toolbox.tools for call in records[-1].message.tool_calls
    )
    if not worked or records[-1].stop == "length":
        return None
    kinds = [marks(message).get("nudge") for message in reading.words_since(step.before, records[-1])]
    return (
        None
        if "round" in kinds
        else "the next batch, and the model was not asked to think about the last one"
    )


def finish_is_answered(step: MachineStep, machine: Machine) -> Why:
    if not asks_model(step) or "resumed" in reading.nudges(step.before):
        return None
    for record in reading.of_task(step.before):
        at = reading.control_at(record, machine)
        if at is not None and not any(
            f.text.strip() and "not_run" not in marks(f) for f in record.results[at]
        ):
            return "a finish or a question stands while the model is called again, with no reason given"
    return None


def question_is_put(step: MachineStep, machine: Machine) -> Why:
    success = ends(step) and (step.after.state.get("outcome") or {}).get("status") == "success"
    if not (asks_model(step) or success):
        return None
    for record in reading.of_task(step.after if success else step.before):
        at = reading.control_at(record, machine)
        asked = at is not None and record.message.tool_calls[at]["name"] == machine.name_of("ask")
        passed = asked and at is not None and all("not_run" in marks(found) for found in record.results[at])
        if passed and "resumed" not in reading.nudges(step.before):
            return "a question of this task was ignored"
    return None


def nothing_after(step: MachineStep, machine: Machine) -> Why:
    if not (step.ran or asks_model(step)):
        return None
    state = step.before.state
    if ACCEPTED in verdicts_of(state.get("verdicts"), state.get("task", "")).values():
        return "a finish of this task was accepted before"
    for record in reading.of_task(step.before):
        at = reading.control_at(record, machine)
        late = [call["id"] for call in record.calls[at + 1 :]] if at is not None else []
        if any(call_id in late for call_id in step.ran):
            return "a call after a finish or a question has run"
    return None


def answered_once(step: MachineStep, _: Machine) -> Why:
    if not (ends(step) or asks_model(step)):
        return None
    messages = step.after.messages if ends(step) else step.before.messages
    known: set[str] = set()
    for record in reading.replies(messages):
        for call, found in zip(record.calls, record.results, strict=True):
            if not call["id"] or call["id"] in known:
                return f"two calls have the id {call['id']!r}"
            known.add(call["id"])
            if len(found) != 1:
                return f"{call['name']} has {len(found)} results"
    strange = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id not in known]
    return "a result belongs to no call" if strange else None


def prompt_is_whole(step: MachineStep, _: Machine) -> Why:
    return None if step.prompt is None else open_call(step.prompt)


def open_call(prompt: list[BaseMessage]) -> Why:
    """Returns why a provider would refuse these messages; None if it would not."""
    waiting: list[str] = []
    known: set[str] = set()
    for message in prompt:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return "a result without its call"
            waiting.remove(message.tool_call_id)
        elif waiting:
            return "a call is not answered before the next message"
        elif isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                return "a call that is not valid JSON"
            waiting = [str(call["id"]) for call in message.tool_calls]
            if known & set(waiting) or len(set(waiting)) < len(waiting):
                return "two calls with the same id"
            known |= set(waiting)
    return "the last call is open" if waiting else None


def at_most_once(step: MachineStep, machine: Machine) -> Why:
    effects = {
        call["id"]: call["name"]
        for record in reading.replies(step.before.messages)
        for call in record.message.tool_calls
    }
    again = [
        c for c in step.ran if step.after.ran[c] > 1 and machine.deps.toolbox.is_effect(effects.get(c, ""))
    ]
    return f"{effects[again[0]]} has run {step.after.ran[again[0]]} times" if again else None


def undone_at_most_once(step: MachineStep, _: Machine) -> Why:
    again = [effect for effect in step.undone if step.after.undone[effect] > 1]
    return f"{again[0]} has run {step.after.undone[again[0]]} times" if again else None


def undone_after_an_end(step: MachineStep, machine: Machine) -> Why:
    if not step.undone:
        return None
    ending, asked = step.before.state.get("ending"), any("undo" in one for one in step.before.path)
    if ending is None or ending["task"] != step.before.state.get("task"):
        return "an effect of a task that has not ended is undone"
    if not asked and (ending["status"] == "success" or machine.deps.on_failure == "keep"):
        return f"it was not requested, and the task has ended with {ending['status']}"
    return None


def undone_to_the_end(step: MachineStep, _: Machine) -> Why:
    if step.after.via not in (Event.UNDO, Event.NEXT) or step.after.place is State.UNDO:
        return None
    return f"{step.after.via!s} leads to {step.after.place!s}, and the undo is not over"


def no_effect_is_forgotten(step: MachineStep, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) and step.before.via is Event.UNDONE else None
    if ends(step) and step.before.via is not Event.UNDONE:
        given, box = step.after.state.get("outcome"), machine.deps.toolbox
        effects = [name for name in _ran_of_task(step.after) if box.is_effect(name)]
        if given and given["status"] != "success" and machine.deps.on_failure == "undo" and effects:
            return None if given["undo"] else f"{effects[0]} has run, the task failed, and nothing is undone"
    if not outcome:
        return None
    report = outcome["undo"]
    if report is None:
        return "effects were undone, and the outcome does not say so"
    listed = len(report["undone"]) + len(report["standing"])
    ran = [name for name in _ran_of_task(step.after) if machine.deps.toolbox.is_effect(name)]
    return None if listed == len(ran) else f"{len(ran)} effects, and {listed} of them are listed"


def _ran_of_task(point: MachinePoint) -> list[str]:
    """Returns the tools of the calls of this task that may have taken effect."""
    return [
        str(call["name"])
        for told in reading.of_task(point)
        for call, results in zip(told.calls, told.results, strict=True)
        if results and not any("not_run" in marks(found) for found in results)
    ]


def what_ran_is_told(step: MachineStep, machine: Machine) -> Why:
    if not (ends(step) or asks_model(step)):
        return None
    point = step.after if ends(step) else step.before
    for record in reading.replies(point.messages):
        for call, found in zip(record.calls, record.results, strict=True):
            ran = call["id"] in point.ran and machine.deps.toolbox.is_effect(call["name"])
            if ran and any("not_run" in marks(result) for result in found):
                return f"{call['name']} has run, and the history says that it has not"
    return None


def cut_never_runs(step: MachineStep, _: Machine) -> Why:
    for record in reading.replies(step.before.messages) if step.ran else ():
        ran = any(call["id"] in step.ran for call in record.calls)
        if ran and record.stop in ("length", "content_filter"):
            return "a call of a reply that was cut off or filtered has run"
    return None


def only_agreed(step: MachineStep, machine: Machine) -> Why:
    for record in reading.replies(step.before.messages) if step.ran else ():
        for call in record.message.tool_calls:
            if call["id"] not in step.ran or call["id"] in step.before.agreed:
                continue
            if machine.deps.toolbox.needs_approval(call["name"], call["args"]):
                return f"{call['name']} has run, and no person approved it"
    return None


_ENDS = {
    "success": {Event.ACCEPTED, Event.CONFIRMED},
    "limit": {Event.EXHAUSTED, Event.DEADLOCK},
    "error": {Event.FAILED, Event.CANCELLED},
}


def one_of_three(step: MachineStep, _: Machine) -> Why:
    if not ends(step):
        return None
    outcome = step.after.state.get("outcome")
    if outcome is None:
        return "the task has ended without an outcome"
    # The event before the undo shows how the task ended.
    if step.before.via in (Event.ENDED, Event.UNDONE):
        return None
    allowed = _ENDS.get(outcome["status"], set())
    return None if step.before.via in allowed else f"{outcome['status']} by {step.before.via!s}"


def rests_on_a_finish(step: MachineStep, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) else None
    if not outcome or outcome["status"] != "success":
        return None
    finish = machine.name_of("finish")
    for record in reading.of_task(step.after):
        at = reading.control_at(record, machine)
        if at is None or record.message.tool_calls[at]["name"] != finish:
            continue
        agreed = outcome["verified"] == "unverified" or reading.person_spoke(step.after, record)
        if agreed or reading.right_finish(record, machine):
            return None
    return "no reply of this task has a finish that may be accepted"


def finish_ends(step: MachineStep, machine: Machine) -> Why:
    """Checked where the model is called again, and where the task ends in another way."""
    records = reading.of_task(step.before)
    if not records or step.before.via is Event.ENDED or step.before.state.get("stop"):
        return None
    otherwise = ends(step) and (step.after.state.get("outcome") or {}).get("status") != "success"
    if not (asks_model(step) or otherwise) or not reading.right_finish(records[-1], machine):
        return None
    if reading.person_spoke(step.before, records[-1]) or _continued(step, records[-1]):
        return None
    if reading.left_open(records, machine):
        # It may have been refused once for that.
        return None
    return "a valid finish has not ended the task"


def _continued(step: MachineStep, records: reading.ReplyRecord) -> bool:
    """Whether the history itself says why a finish did not end the task, or what came after it."""
    after = reading.words_since(step.before, records)
    return any(marks(message).get("nudge") in ("refused", "phase", "resumed") for message in after)


def nothing_is_passed_over(step: MachineStep, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome") if ends(step) else None
    if not outcome or (outcome["status"], outcome["claim"]) != ("success", "done"):
        return None
    records, finish = reading.of_task(step.after), machine.name_of("finish")
    for at, name in reading.left_open(records, machine):
        if not any(name in point for point in outcome["open_points"]):
            return f"the task is done, and nothing in it says what is open of {name}"
        told = [
            found.text
            for record in records[at + 1 :]
            for call, results in zip(record.calls, record.results, strict=True)
            for found in results
            if call["name"] == finish
        ]
        known = step.before.via is Event.CONFIRMED or any(name in text for text in told)
        if not known and not _is_last(step, machine):
            return f"the task is done over {name}, and the model was not informed"
    return None


def _is_last(step: MachineStep, machine: Machine) -> bool:
    reader = read_messages(step.before.state, machine.deps.toolbox)
    return is_last_turn(current_task(reader, step.before.state), machine.deps.limits)


def result_is_valid(step: MachineStep, machine: Machine) -> Why:
    outcome, check = step.after.state.get("outcome") if ends(step) else None, machine.deps.result_check
    if check is None or not outcome or outcome["status"] != "success":
        return None
    if outcome["claim"] in ("blocked", "impossible"):
        return None
    return "a success without a result" if outcome["result"] is None else check(outcome["result"]) or None


def own_task(step: MachineStep, machine: Machine) -> Why:
    outcome = step.after.state.get("outcome")
    point = step.after
    if step.before.place is State.COMPRESS and step.before.fresh and step.after.place is State.DECIDE:
        spoken = any(map(is_reply, point.messages[point.fresh :]))
        if not spoken and outcome is not None:
            return "the outcome of the earlier task is still there while the next one runs"
    if not ends(step) or not point.fresh or not outcome:
        return None
    said = list(filter(is_reply, point.messages[point.fresh :]))
    if outcome["turns"] > len(said):
        return f"{outcome['turns']} turns are counted, and the task had {len(said)}"
    finish = machine.name_of("finish")
    if outcome["status"] == "success" and not any(c["name"] == finish for m in said for c in m.tool_calls):
        return "a success without a finish in this task"
    return None


def nothing_new(step: MachineStep, machine: Machine) -> Why:
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


def stop_stops(step: MachineStep, _: Machine) -> Why:
    state = step.before.state
    stopped = bool(state.get("stop")) and state.get("stop") == state.get("task")
    if stopped and (step.ran or asks_model(step)):
        return "something runs although a stop was requested"
    return None


def somebody_waits(step: MachineStep, machine: Machine) -> Why:
    return "nobody can be asked" if step.after.waiting is not None and not machine.can_ask else None


def something_to_do(step: MachineStep, _: Machine) -> Why:
    return (
        "the model is called, and there is no task" if asks_model(step) and not step.before.messages else None
    )


@dataclass(frozen=True)
class Property:
    """A name, what must hold, and why a step breaks it (None: it does not)."""

    name: str
    sentence: str
    broken: Callable[[MachineStep, Machine], Why]


PROPERTIES: tuple[Property, ...] = (
    Property("three ends", "A task ends only by success, limit or error.", one_of_three),
    Property(
        "rests on a finish",
        "A success rests on a finish of this task that may be accepted.",
        rests_on_a_finish,
    ),
    Property("within its limits", "The model is never called beyond the turn limit.", within_limits),
    Property("real limits", "A limit ends a task only when it has been reached.", real_limit),
    Property("a finish ends", "A valid finish ends the task, even on the very last turn.", finish_ends),
    Property(
        "nothing passed over",
        "A success that claims done names each failed delegate and unknown effect, and its model knew of it.",
        nothing_is_passed_over,
    ),
    Property(
        "a valid result", "With a response_format no success is without a valid result.", result_is_valid
    ),
    Property(
        "a finish is answered",
        "A finish that does not end the task is refused with a reason.",
        finish_is_answered,
    ),
    Property(
        "a question is asked",
        "A person is asked a question before anything else happens.",
        question_is_put,
    ),
    Property(
        "nothing after a finish",
        "Nothing runs after an accepted finish, or after a question.",
        nothing_after,
    ),
    Property("answered once", "Every call is answered exactly once in the history.", answered_once),
    Property("whole prompts", "A prompt never has an open call.", prompt_is_whole),
    Property("its own task", "An earlier task never ends a later one, nor counts towards it.", own_task),
    Property(
        "at most once",
        "A call that may change something runs at most once, wherever the process is killed.",
        at_most_once,
    ),
    Property(
        "undone once", "An undo runs at most once, wherever the process is killed.", undone_at_most_once
    ),
    Property(
        "undone after a failure",
        "The effects of a task are undone after its end: after a failure, or on request.",
        undone_after_an_end,
    ),
    Property(
        "undone to the end",
        "An undo that was requested or has started continues in its own state until nothing is left.",
        undone_to_the_end,
    ),
    Property(
        "no effect forgotten",
        "An undone task's outcome lists each of its effects, as undone or as not undone.",
        no_effect_is_forgotten,
    ),
    Property(
        "history shows what ran",
        "The history never says that a call did not run if it did.",
        what_ran_is_told,
    ),
    Property(
        "no truncated call", "No call of a reply that was cut off or filtered ever runs.", cut_never_runs
    ),
    Property(
        "only approved calls",
        "A call that needs approval runs only after a person has approved it.",
        only_agreed,
    ),
    Property("a stop stops", "After a stop nothing runs, and the model is not called.", stop_stops),
    Property(
        "repetition ends",
        "Talk, refusals, refused finishes and repeated work end the task at their limit.",
        row_ends,
    ),
    Property(
        "budgets end",
        "The model is not called when its tokens, money or calls are used up.",
        budget_ends,
    ),
    Property("no spin", "The same refusal of the same claim is not given twice in a row.", no_spin),
    Property("rounds", "In rounds the model thinks after each batch.", round_is_thought),
    Property(
        "nothing new",
        "A thread that has ended gives the same outcome again, and runs nothing.",
        nothing_new,
    ),
    Property("a person can be asked", "Nothing waits for a person if nobody can be asked.", somebody_waits),
    Property("a task", "The model is called only when there is a task.", something_to_do),
    Property("talk gets a reminder", "A reply without a call is answered by a reminder.", slip_is_told),
    Property("the last turn is announced", "The model is warned once before its last turn.", near_is_told),
)
