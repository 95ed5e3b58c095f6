"""Questions whose deadline has passed: answered by their default, without a model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from signoff.graph.build import Graph
from signoff.graph.machine import Event, State
from signoff.graph.messages import result
from signoff.session.decisions import Question
from signoff.session.standing import config_of, kit_of, look
from signoff.tools.answers import expired


@dataclass(frozen=True)
class Expired:
    """A question that nobody answered in time, and what was taken as the answer."""

    thread_id: str
    question: str
    answer: str


def expire(graph: Graph, thread_id: str, now: float | None = None) -> Expired | None:
    """Answers the thread's question by its default when its deadline has passed (`now`: epoch seconds).

    The thread then goes on like one that was stopped: `Session.run()`, or `signoff resume`. None when
    nothing has expired. Raises ThreadBusy when the thread is running.
    """
    with graph.runner(config_of(thread_id)):
        standing = look(graph, thread_id)
        waiting, moment = standing.waiting, time.time() if now is None else now
        if not isinstance(waiting, Question):
            return None
        answer = expired({"type": "question", **waiting.document()}, moment, kit_of(graph).texts)
        if answer is None:
            return None
        name, reply_id = _asked_by(standing.values, waiting.call_id)
        answered = result(waiting.call_id, name, answer, answered=True, expired=True, reply=reply_id)
        values = {"messages": [answered], "event": str(Event.ANSWERED)}
        graph.update_state(config_of(thread_id), values, str(State.ASK_USER))
    return Expired(thread_id, waiting.text, answer)


def _asked_by(values: Mapping[str, Any], call_id: str) -> tuple[str, str]:
    """The tool and the reply of a call."""
    for message in reversed(values["messages"]):
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if call["id"] == call_id:
                return call["name"], message.id or ""
    return "ask_user", ""
