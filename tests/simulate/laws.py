"""The laws, held against every thread after each move, and how often each was met.

A law is met where it could have been broken: a reply that says "done" and is no end, a call whose process
died, an answer to what waits no longer.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from signoff import Answer, Ended, ThreadStatus
from signoff.session import Condition
from tests.simulate.cast import Loop, Stage
from tests.simulate.storage import Database

FINISH = "finish_task"
COUNTED = re.compile(r"counted \d+")


def shown(status: ThreadStatus) -> Any:
    """What there is to see of a thread."""
    messages = [(m.id, m.content) for m in status.values.get("messages", ())]
    return status.condition, status.waits, status.outcome, messages


class Laws:
    """What is known of the threads of one schedule."""

    def __init__(self, loop: Loop, stage: Stage, database: Database, met: Counter[str]) -> None:
        self.loop, self.stage, self.database, self.met = loop, stage, database, met
        self.histories: dict[str, list[BaseMessage]] = {}
        self.texts: dict[str, list[str]] = {}
        self.granted = Counter[str]()
        self.offered = 0

    def meets(self, *numbers: int) -> None:
        self.met.update(f"law {number}" for number in numbers)

    def begins(self, thread: str, command: Any, before: ThreadStatus) -> None:
        """Notes what a person says, before it is said."""
        said = command.value if isinstance(command, Answer) else command
        # An answer is good for a turn, and going on for as many as the limit.
        update: Any = command.update if isinstance(command, Command) else {}
        self.granted[thread] += update["go_on"].get("turns", self.loop.turns) if "go_on" in update else 1
        is_text = isinstance(said, str) and "#" in said
        # Several waits take no message.
        if is_text and not (isinstance(command, str) and len(before.waits) > 1):
            texts = self.texts.setdefault(thread, [])
            texts += [] if said in texts else [said]

    def approves(self, wait: Any, yes: bool) -> None:
        """Notes what a person has been shown, and lets run."""
        for call in wait.calls:
            token = str(call.args.get("name"))
            if yes:
                # Shown again after its process has died: a person lets it run once more.
                own = self.stage.running, token
                self.stage.again[own] += self.stage.effects[own] > 0
                self.stage.approved.add(own)

    def forked(self, thread: str, target: str) -> None:
        """A copy has the history of the thread up to some point, and is a thread of its own from there."""
        self.texts[target] = [*self.texts.get(thread, ())]
        self.granted[target] = self.granted[thread]

    def unchanged(self, kind: str, content: Any, before: ThreadStatus, now: ThreadStatus) -> None:
        """Law 9: what was refused has changed nothing."""
        self.meets(9)
        is_same = self.database.content() == content
        if not is_same and before.condition in (Condition.STOPPED, Condition.ENDED):
            # What a process had left without its checkpoint may have got it.
            is_same = shown(before) == shown(now)
        assert is_same, f"law 9: {kind} was refused, and has changed something"

    def stopped(self, decision: Any) -> None:
        """Law 2: a task that was stopped has ended as cancelled."""
        if isinstance(decision, Ended):
            assert decision.outcome.reason == "cancelled", (
                f"law 2: stopped, and told as {decision.outcome.reason}"
            )

    def hold(self, thread: str, status: ThreadStatus, decision: Any) -> None:
        """Fails with the laws that a thread breaks."""
        messages = list(status.values.get("messages", ()))
        broken = [
            *self.stage.faults,
            *(f"law 11: {write}, by a runner that does not hold it" for write in self.database.unheld),
            *self._kept(thread, messages),
            *self._effects(thread, messages),
            *self._seconds(thread, status),
            *self._words(thread, messages),
            *self._calls(messages, status),
            *self._end(messages, status, decision),
        ]
        assert not broken, "; ".join(broken)

    def _kept(self, thread: str, messages: Sequence[BaseMessage]) -> Iterator[str]:
        """Law 8 and 14: the history only grows."""
        before, self.histories[thread] = self.histories.get(thread, []), list(messages)
        here = {m.id for m in messages}
        # A delegate that an end cut short goes on with its task, and is told anew.
        before = [m for m in before if m.id in here or not (isinstance(m, ToolMessage) and m.name == "deep")]
        if [m.id for m in before] != [m.id for m in messages[: len(before)]]:
            yield "law 8: the history has lost, or moved, messages"
        if len({m.id for m in messages}) < len(messages):
            yield "law 8: two messages have the same id"

    def _effects(self, thread: str, messages: Sequence[BaseMessage]) -> Iterator[str]:
        """Laws 6, 7 and 10: at most once, told as they were, never from half a reply or unapproved."""
        if len(self.stage.never) > self.offered:
            self.offered = len(self.stage.never)
            self.meets(7)
        if self.stage.approved:
            self.meets(10)
        for (own, token), times in self.stage.effects.items():
            if times > 1 + self.stage.again[own, token]:
                yield f"law 6: {token} took place {times} times in thread {own!r}"
            if token in self.stage.never:
                yield f"law 7: {token} took place, and must not"
            if self.stage.undone[own, token] > times:
                yield f"law 6: {token} was undone {self.stage.undone[own, token]} times"
        told = [m.text for m in messages if isinstance(m, ToolMessage) and COUNTED.fullmatch(m.text)]
        if len(set(told)) < len(told):
            yield f"law 6: an effect is told as that of two calls: {told}"
        # A new reply may repeat ids of an earlier one until it is routed, so only what follows it answers it.
        results = dict[str, ToolMessage]()
        for message in reversed(messages):
            if isinstance(message, ToolMessage):
                results[message.tool_call_id] = message
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                token, found = str(call["args"].get("name")), results.get(call["id"] or "")
                if found is not None and token.startswith("e"):
                    yield from self._told(thread, token, found.text)

    def _told(self, thread: str, token: str, text: str) -> Iterator[str]:
        """Law 6: what the model is told of a call is what took place."""
        took_place = self.stage.effects[thread, token]
        if f"did {token}" in text and not took_place:
            yield f"law 6: {token} is told as done, and did not take place"
        if re.fullmatch(r"did e\d+", text) and text != f"did {token}":
            yield f"law 6: {token} is told as {text!r}"
        if "not run" in text and took_place:
            yield f"law 6: {token} took place, and is told as not run: {text}"

    def _seconds(self, thread: str, status: ThreadStatus) -> Iterator[str]:
        """Law 2 and 4: the time of models and tools counts, and no time of people."""
        outcome, limit = status.outcome, self.loop.seconds
        if outcome is None:
            return
        if outcome.seconds_active > self.stage.worked[thread] + 0.01:
            yield f"law 4: a task worked {outcome.seconds_active} s, of {self.stage.worked[thread]} in all"
        if outcome.reason == "seconds":
            self.met["limit of seconds"] += 1
            # A limit counts the time of delegates, too.
            seconds = (outcome.tree or outcome).seconds_active
            if limit is None or seconds < limit:
                yield f"law 2: the time was up after {seconds} s"

    def _words(self, thread: str, messages: Sequence[BaseMessage]) -> Iterator[str]:
        """Law 8: each message of a person is there once. A move that was killed may not have been heard."""
        for text in self.texts.get(thread, ()):
            times = sum(isinstance(m, HumanMessage) and m.text == text for m in messages)
            if times > 1:
                yield f"law 8: {text!r} stands there {times} times"
            elif any(text in m.text for m in messages):
                self.meets(8)

    def _calls(self, messages: Sequence[BaseMessage], status: ThreadStatus) -> Iterator[str]:
        """Every call is answered at most once, and once a task has ended."""
        answered = Counter(m.tool_call_id for m in messages if isinstance(m, ToolMessage))
        made = Counter(
            call["id"]
            for m in messages
            if isinstance(m, AIMessage)
            for call in (*m.tool_calls, *m.invalid_tool_calls)
        )
        if any(times > max(1, made[name]) for name, times in answered.items()):
            yield "law 4: a call is answered more than once"
        if status.condition is Condition.ENDED and answered != made:
            yield "law 4: a task has ended, and calls are open"

    def _end(self, messages: Sequence[BaseMessage], status: ThreadStatus, decision: Any) -> Iterator[str]:
        """Laws 1, 2, 4, 5, 12 and 13: how a task ends."""
        # The machine's own words at the end have no usage.
        replies = [m for m in messages if isinstance(m, AIMessage) and m.usage_metadata]
        if replies and not replies[-1].tool_calls:
            self.meets(1)
            if status.outcome is not None and status.outcome.status == "success":
                yield "law 1: words have ended the task"
        if status.condition is not Condition.ENDED:
            return
        outcome = status.outcome
        assert outcome is not None, "it has ended"
        if outcome.status not in ("success", "limit", "error"):
            yield f"law 2: the outcome is {outcome.status!r}"
        if isinstance(decision, Ended) and decision.outcome.status != outcome.status:
            yield f"law 2: told as {decision.outcome.status}, saved as {outcome.status}"
        begun = next((at for at, m in enumerate(messages) if m.id == outcome.task), None)
        if begun is None:
            yield "law 4: the outcome is of a task that is not there"
            return
        later = [
            m for m in messages[begun + 1 :] if isinstance(m, HumanMessage) and m.text.startswith("do it")
        ]
        if later:
            yield "law 4: the outcome is of an earlier task"
        if begun:
            self.meets(4)
        if outcome.turns > self.loop.turns + self.granted[str(outcome.thread_id)]:
            yield f"law 2: {outcome.turns} turns of {self.loop.turns}, and {self.granted} granted"
        if outcome.status != "success":
            self.meets(2)
            return
        yield from self._success(messages[begun:], outcome)

    def _success(self, messages: Sequence[BaseMessage], outcome: Any) -> Iterator[str]:
        """Laws 1, 5, 12 and 13: what a success needs."""
        results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
        accepted = [
            (reply, call)
            for reply in messages
            if isinstance(reply, AIMessage)
            for call in reply.tool_calls
            if call["name"] == FINISH and call["id"] in results and results[call["id"]].status == "success"
        ]
        if not accepted:
            yield "law 1: a success without an accepted finish"
            return
        reply, finish = accepted[-1]
        if outcome.turns >= self.loop.turns:
            self.meets(5)
        before = reply.tool_calls[: reply.tool_calls.index(finish)]
        if any(results[call["id"]].status == "error" for call in before if call["id"] in results):
            yield "law 12: a finish beside a call that failed"
        if before or any("unknown" in m.text for m in results.values()):
            self.meets(12)
        if self.loop.has_result and finish["args"].get("outcome", "done") == "done":
            self.meets(13)
            if not isinstance(outcome.result, dict) or not isinstance(outcome.result.get("total"), int):
                yield f"law 13: a success with the result {outcome.result!r}"
