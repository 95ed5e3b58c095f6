"""Normalises the reply, answers what is answered without running anything, and says what comes next."""

import uuid
from collections.abc import Set as AbstractSet
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from signoff.graph.history import Task
from signoff.graph.machine import Event
from signoff.graph.marks import not_run, result
from signoff.graph.replies import Call, Reply, with_call_ids
from signoff.graph.state import AgentState, Decision, append_messages
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.tools.control import Effect


def route_tools(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    assert task.last is not None, "there is a reply to route"
    written: list[Any] = []
    if renamed := unique_ids(task.last, task.call_ids):
        written.append(renamed)
        messages = append_messages(state["messages"], written)
        task = run.task({**state, "messages": messages})
    answers = {call.index: answer(call, run) for call in task.due}
    written += [found for found in answers.values() if found]
    update: dict[str, Any] = {"messages": written} if written else {}
    if not all(answers.values()):
        return Report(Event.WORK, update)
    if _talked(task):
        why = "the reply is text without a call"
        update["decision"] = Decision(rule="talked", event=Event.TALKED.value, why=why)
        return Report(Event.TALKED, update)
    return Report(Event.SETTLED, update)


def _talked(task: Task) -> bool:
    return task.last is not None and task.last.talk and "talked" not in task.nudged


def unique_ids(reply: Reply, taken: AbstractSet[str]) -> AIMessage | None:
    """The reply with an id of its own for every open call; None when each has one already.

    Providers repeat "call_0" in every reply, or give none. The new id is made from the reply's id and the
    position of the call, so that a repetition of this step makes the same one.
    """
    seen = set(taken)
    fresh: dict[int, str] = {}
    for call in reply.calls:
        if reply.open(call) and (not call.id or call.id in seen):
            name = f"{reply.message.id}:{call.index}"
            fresh[call.index] = f"call_{uuid.uuid5(uuid.NAMESPACE_OID, name).hex[:24]}"
        seen.add(fresh.get(call.index, call.id))
    return with_call_ids(reply.message, fresh) if fresh else None


def answer(call: Call, run: Run) -> ToolMessage | None:
    """The result of a call that runs nothing: a thought, or a call that cannot run. None for real work."""
    texts, limit = run.kit.texts.results, run.limits.calls_per_reply
    if call.problem:
        text = texts[call.problem].format(name=call.name, error=call.error)
        return not_run(call.id, call.name, text, call.problem)
    if call.effect is Effect.CONTINUE:
        return result(call.id, call.name, texts["thought"])
    if call.name not in run.kit.tools:
        names = ", ".join([*run.kit.tools, *run.kit.controls])
        return not_run(call.id, call.name, texts["unknown"].format(name=call.name, tools=names), "unknown")
    if call.index >= limit:
        return not_run(call.id, call.name, texts["too_many"].format(name=call.name, limit=limit), "too_many")
    return None
