"""The properties of every step of machines that call each other.

Like those of a single machine, they read the histories, and what was observed from outside.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.machine import Event, State
from signoff.graph.messages import marks
from signoff.verify import reading
from signoff.verify.machine import MachinePoint
from signoff.verify.properties import Why
from signoff.verify.tree import TOP, Standing, Tree, TreePoint, TreeStep, path

REPLY_TOKENS = 2
"""The cost of each reply of the simulated model."""


def one_machine(step: TreeStep, _: Tree) -> Why:
    calls = step.after.calls
    if len(set(calls.values())) < len(calls):
        return "one call has two machines"
    return None


def told_as_it_is(step: TreeStep, _: Tree) -> Why:
    for ns, found in _results(step):
        child = step.after.below.get(ns)
        outcome = None if child is None or child.place is not None else child.state.get("outcome")
        done = outcome is not None and (outcome["status"], outcome["claim"]) == ("success", "done")
        if found.status == "success" and not done:
            came = f"{outcome['status']} ({outcome['claim']})" if outcome else "nothing yet"
            return f"{path(ns)} is reported as done, and has ended as {came}"
        if found.status == "error" and done and "not_run" not in marks(found):
            return f"{path(ns)} is reported as failed, and is done"
    return None


def nothing_is_lost(step: TreeStep, _: Tree) -> Why:
    """A result before the end is right only if the task was ended or replaced."""
    if step.step.before.place is not State.EXECUTE:
        return None
    for ns, _found in _results(step):
        child = step.after.below.get(ns)
        if child is not None and child.place is not None:
            return f"{path(ns)} is at work or waits, and its call is settled"
    return None


def what_ran_is_told(step: TreeStep, tree: Tree) -> Why:
    for ns, found in _results(step):
        mark = marks(found)
        ran = [one for one in step.after.below if one == ns or one.startswith(f"{ns}|")]
        if "not_run" in mark and any(_effects(step.after.below[one], one, tree) for one in ran):
            return f"{path(ns)} is reported as never started, and effects below it have run"
    return None


def told_has_run(step: TreeStep, tree: Tree) -> Why:
    point, box = step.step.after, tree.plain(step.ns).deps.toolbox
    for told in reading.replies(point.messages):
        for call, results in zip(told.calls, told.results, strict=True):
            works = call["name"] in box.tools and call["name"] not in box.delegates
            for found in results if works and box.is_effect(call["name"]) else ():
                kept = {"not_run", "unknown"} & set(marks(found))
                if not kept and call["id"] not in point.ran:
                    return f"{call['name']} of {path(step.ns)} is reported as done, and has never run"
    return None


def within_the_bound(step: TreeStep, tree: Tree) -> Why:
    """Each extension grants the full amount again, from the current usage on."""
    limits = tree.top.deps.limits
    times = 1 + sum("extended" in marks(message) for message in step.after.top.messages)
    if limits.tokens is not None and step.step.before.place is State.CALL_LLM:
        spent = sum(map(_tokens, step.after.all.values()))
        # A machine that has ended had started its last reply in parallel with the others.
        beside = max(1, sum(step.before.is_live(ns) for ns in step.before.below))
        if spent > times * (limits.tokens + REPLY_TOKENS * beside):
            return f"{spent} tokens of {times} x {limits.tokens}, with {beside} beside each other"
    if limits.tool_calls is not None:
        ran = len(step.after.below) + sum(sum(one.ran.values()) for one in step.after.all.values())
        if ran > times * limits.tool_calls:
            return f"{ran} calls of {times} x {limits.tool_calls}"
    return None


def the_stricter_policy(step: TreeStep, tree: Tree) -> Why:
    for call in _ran(step):
        if call["id"] in step.step.before.agreed:
            continue
        above = step.ns
        while above != TOP:
            above = above.rpartition("|")[0]
            if tree.plain(above).deps.toolbox.approvals.allowed(call["name"], call["args"]):
                return f"{call['name']} of {path(step.ns)} has run, and no person approved it"
    return None


def a_stop_stops_all(step: TreeStep, _: Tree) -> Why:
    stopped = step.before.top.via is Event.STOP or step.before.top.state.get("stop")
    works = step.ns != TOP and (step.step.ran or step.step.before.place is State.CALL_LLM)
    return f"{path(step.ns)} continues after a stop" if stopped and works else None


def waits_are_at_the_top(point: TreePoint, standing: Standing) -> Why:
    """Checked where nothing can run without a person."""
    if standing.running or standing.done:
        return None
    asked = {one.id: one.value for one in standing.asked}
    for ns in point.below:
        waits = point.below[ns].waiting is not None and point.is_live(ns)
        if waits and ns not in asked:
            return f"{path(ns)} waits, and nobody is asked"
    for ns, value in asked.items():
        if list(value.get("path", ())) != path(ns).split("/"):
            return f"{path(ns)} waits, and is shown as {value.get('path')}"
    return None if asked else "nothing can run, and nobody is asked"


def _results(step: TreeStep) -> Iterator[tuple[str, ToolMessage]]:
    """Yields the delegate results that this step has added, by the namespaces of their machines."""
    if len(step.step.after.messages) <= len(step.step.before.messages):
        return
    owned = {call[2]: ns for ns, call in step.after.calls.items() if call[0] == step.ns}
    for message in step.step.update.get("messages", ()):
        if isinstance(message, ToolMessage) and message.tool_call_id in owned:
            yield owned[message.tool_call_id], message


def _ran(step: TreeStep) -> Iterator[Mapping[str, Any]]:
    for told in reading.replies(step.step.before.messages) if step.step.ran else ():
        for call in told.message.tool_calls:
            if call["id"] in step.step.ran:
                yield call


def _effects(point: MachinePoint, ns: str, tree: Tree) -> bool:
    box = tree.plain(ns).deps.toolbox
    calls = {call["id"]: call["name"] for told in reading.replies(point.messages) for call in told.calls}
    return any(box.is_effect(calls.get(call_id, "")) for call_id in point.ran)


def _tokens(point: MachinePoint) -> int:
    used = (told.message.usage_metadata for told in reading.replies(point.messages))
    return sum(one["total_tokens"] if one else 0 for one in used)


@dataclass(frozen=True)
class TreeProperty:
    """A name, what must hold, and why a step breaks it (None: it does not)."""

    name: str
    sentence: str
    broken: Callable[[TreeStep, Tree], Why]


NO_LOST_WAIT = "no lost wait"
NO_DEADLOCK = "no deadlock"

TREE_PROPERTIES: tuple[TreeProperty, ...] = (
    TreeProperty(
        "one machine", "Each call of a delegate has one machine, wherever the process is killed.", one_machine
    ),
    TreeProperty(
        "reported as it is", "A delegate is reported as done only if its task has ended so.", told_as_it_is
    ),
    TreeProperty(
        "nothing is lost", "The call of a delegate that is at work or waits stays open.", nothing_is_lost
    ),
    TreeProperty(
        "effects below are reported",
        "A delegate is never reported as not run if an effect below it has run.",
        what_ran_is_told,
    ),
    TreeProperty(
        "reported has run", "An effect that is reported as done has run, in this machine.", told_has_run
    ),
    TreeProperty(
        "one bound",
        "All machines together use at most the limit, plus one reply of each running machine.",
        within_the_bound,
    ),
    TreeProperty(
        "the stricter policy",
        "A call for which any graph above requires approval runs only after a person has approved it.",
        the_stricter_policy,
    ),
    TreeProperty("a stop stops all", "After a stop no machine below continues.", a_stop_stops_all),
)
TREE_OVERALL: Mapping[str, str] = {
    NO_LOST_WAIT: "Whatever any machine waits for is asked at the top, with its path, all at once.",
    NO_DEADLOCK: "From every state all machines can end.",
}
