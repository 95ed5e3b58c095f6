"""Answers questions whose deadline has passed with their defaults, including those of delegates. Needs no
model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph import clock
from signoff.graph.build import Graph
from signoff.graph.compiled.inputs import entry_update
from signoff.graph.inside.private import within_saver
from signoff.graph.machine import Event
from signoff.graph.messages import result
from signoff.session.copying import namespaces_below
from signoff.session.decisions import Question
from signoff.session.status import config_of, deps_of, graph_of_machine, look
from signoff.tools.answers import expired

_INTERRUPT = "__interrupt__"


@dataclass(frozen=True)
class Expired:
    """A question that nobody answered in time, and the default that answered it. path: the names of the
    delegates from the top to the one that asked; empty for the thread's own machine."""

    thread_id: str
    question: str
    answer: str
    path: tuple[str, ...] = ()


def expire(graph: Graph, thread_id: str, now: float | None = None) -> Expired | None:
    """Answers those questions of the thread whose deadline has passed with their defaults; returns the first
    of them. now: epoch seconds.

    Continue the thread like one that was stopped: `Session.run()`, or `signoff resume`; other pending
    requests appear again once it has run. Returns None if nothing has expired. Raises ThreadBusy if the
    thread is running.
    """
    return next(iter(expire_all(graph, thread_id, now)), None)


def expire_all(graph: Graph, thread_id: str, now: float | None = None) -> list[Expired]:
    """Like `expire`, but returns all questions that it has answered."""
    found = list[Expired]()
    with graph.runner(config_of(thread_id)) as hold, hold.here():
        status, texts = look(graph, thread_id), deps_of(graph).texts
        moment, answered = clock.now() if now is None else now, list[Any]()
        for waiting in status.waits:
            if not isinstance(waiting, Question):
                continue
            answer = expired(waiting.document(), moment, texts)
            if answer is None:
                continue
            if not waiting.path:
                answered.append(_answered(status.values, waiting, answer))
            elif not _answer_below(graph, thread_id, waiting, answer):
                continue
            found.append(Expired(thread_id, waiting.text, answer, waiting.path))
        if found:
            graph.update_state(config_of(thread_id), *entry_update(Event.EXPIRE, {"messages": answered}))
    return found


def _answer_below(graph: Graph, thread_id: str, waiting: Question, answer: str) -> bool:
    """Writes the answer into the machine of the delegate that asks, unless a killed process has already done
    so. Returns False if no machine accepts it: another graph asks, and only a run can answer that.
    """
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a thread that waits has one"
    for ns in sorted(namespaces_below(saver, thread_id), key=len, reverse=True):
        place: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
        saved = saver.get_tuple(place)
        if saved is None or not any(
            one.id == waiting.interrupt_id
            for _, channel, value in saved.pending_writes or ()
            if channel == _INTERRUPT
            for one in value
        ):
            continue
        if "machine" not in saved.checkpoint["channel_values"]:
            return False
        machine = graph_of_machine(saved)
        place = {"configurable": within_saver(place["configurable"], saver)}
        values: Any = machine.get_state(place).values
        if not any(found[0] == waiting._call_id for found in _open_questions(values)):
            # This machine is above the one that asks, which has been answered.
            return True
        update = {"messages": [_answered(values, waiting, answer)]}
        machine.update_state(place, *entry_update(Event.EXPIRE, update))
        return True
    return False


def _open_questions(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The calls without a result, by id, tool and reply, newest first."""
    closed = {message.tool_call_id for message in values["messages"] if message.type == "tool"}
    return [
        (call["id"] or "", call["name"], message.id or "")
        for message in reversed(values["messages"])
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] not in closed
    ]


def _answered(values: Mapping[str, Any], waiting: Question, answer: str) -> Any:
    known = (found for found in _open_questions(values) if found[0] == waiting._call_id)
    call_id, name, reply_id = next(known, (waiting._call_id, "ask_user", ""))
    return result(call_id, name, answer, answered=True, expired=True, reply=reply_id)
