"""The model of all subjects: it knows the calls that solve the task, and reads from the history which of them
have their results. So it goes on in a new process as a real one would."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
import openai
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from benchmarks.agentdojo.faults import ENDS, KILLS, PROVIDER, REPLIES, Fault
from benchmarks.agentdojo.task import Key, Task
from benchmarks.agentdojo.world import World, die
from signoff.graph.messages import marks

TALK = "I will go on with the next step now."


class Model:
    """finish: the name of the tool that ends a task; empty where words do."""

    def __init__(self, task: Task, world: World, fault: Fault | None, finish: str) -> None:
        self._task, self._world, self._finish = task, world, finish
        self._fault = fault or Fault("nothing")
        # A fault is of one process, and comes once.
        self._been = False

    def reply(self, seen: list[BaseMessage]) -> Any:
        """The next reply, or the error in place of it."""
        at = self._done(seen)
        name, said = self._fault.name, [one for one in seen if isinstance(one, AIMessage)]
        if name == KILLS[2] and at > self._fault.at:
            die()
        here = at == min(self._fault.at, len(self._task.calls))
        if here and not self._been and name in (*PROVIDER, *REPLIES[:2]):
            self._been = True
            if name in PROVIDER:
                return _error(name)
            return TALK if name == REPLIES[1] else _cut(self._task.calls[at].name)
        if at < len(self._task.calls):
            if name == ENDS[0] and at == len(self._task.calls) - 1 and not self._failed(seen):
                return self._with_a_failed_call(len(said))
            call = self._task.calls[at]
            return self._calls([(call.name, dict(call.args))], len(said))
        return self._end(len(said))

    def _end(self, number: int) -> Any:
        if not self._finish:
            return AIMessage(self._task.answer or "Done.")
        ends = [(self._finish, {"summary": self._task.answer or "Done."})]
        if self._fault.name == ENDS[1]:
            ends.append((self._finish, {"summary": "It is done, once more."}))
        return self._calls(ends, number)

    def _with_a_failed_call(self, number: int) -> AIMessage:
        """The end of the work is said beside a call that leaves out what its tool needs."""
        failing = (self._task.calls[self._fault.at].name, dict[str, Any]())
        answer = self._task.answer or "Done."
        if not self._finish:
            return self._calls([failing], number, answer)
        return self._calls([failing, (self._finish, {"summary": answer})], number)

    def _failed(self, seen: Sequence[BaseMessage]) -> bool:
        return any(
            call["name"] in self._task.tools and not call["args"] and self._task.calls[self._fault.at].args
            for one in seen
            if isinstance(one, AIMessage)
            for call in one.tool_calls
        )

    def _calls(self, calls: Sequence[tuple[str, dict[str, Any]]], number: int, text: str = "") -> AIMessage:
        same = self._fault.name == REPLIES[2]
        ids = [f"call_{at}" if same else f"call_{number}_{at}" for at in range(len(calls))]
        made = [{"name": name, "args": args, "id": id} for (name, args), id in zip(calls, ids, strict=True)]
        return AIMessage(text, tool_calls=made)

    def _done(self, seen: Sequence[BaseMessage]) -> int:
        """How many of the calls have their results. Where nobody knows whether one took place, the model
        looks, and calls again only where it has not."""
        have = Counter[Key]()
        for at, message in enumerate(seen):
            if not isinstance(message, AIMessage):
                continue
            for call, result in zip(message.tool_calls, _results(seen, at, message), strict=True):
                if result is None or call["name"] not in self._task.tools:
                    continue
                try:
                    key = self._task.tools[call["name"]].key(call["args"])
                except ValueError:
                    continue
                unknown = marks(result).get("unknown") and key in {ran for ran, _ in self._world.ran}
                have[key] += result.status != "error" or bool(unknown)
        for place, asked in enumerate(self._task.calls):
            if not have[self._task.key(asked)]:
                return place
            have[self._task.key(asked)] -= 1
        return len(self._task.calls)


def _results(seen: Sequence[BaseMessage], at: int, message: AIMessage) -> list[ToolMessage | None]:
    """The results of this reply's calls: those after it, up to the next reply."""
    found: dict[str, ToolMessage] = {}
    for one in seen[at + 1 :]:
        if isinstance(one, AIMessage):
            break
        if isinstance(one, ToolMessage):
            found.setdefault(one.tool_call_id, one)
    return [found.get(call["id"] or "") for call in message.tool_calls]


def _cut(name: str) -> AIMessage:
    broken = {"name": name, "args": '{"', "id": "call_cut", "error": None, "type": "invalid_tool_call"}
    metadata = {"finish_reason": "length"}
    return AIMessage("", invalid_tool_calls=[broken], response_metadata=metadata)


def _error(name: str) -> Exception:
    request = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
    if name == PROVIDER[0]:
        return httpx.RemoteProtocolError("peer closed connection without sending complete message body")
    status = 429 if name == PROVIDER[1] else 500
    # The package of OpenAI has its own type for it.
    response: Any = httpx.Response(status, request=request)
    kind = openai.RateLimitError if status == 429 else openai.InternalServerError
    return kind(f"Error code: {status}", response=response, body=None)
