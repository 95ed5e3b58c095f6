"""What the stateful test knows of a thread: which moves are legal, and what must hold after each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff import Action, Answer, Extend, Failed, Finished, Limits, Message, Paused, Retry, SignoffError
from signoff.graph.messages import marks
from signoff.nodes.journal import recorded
from signoff.session.commands import Stop, ThreadCommand
from signoff.session.status import Condition, ThreadStatus
from tests.support.stateful.checks import finished_rightly, history_faults, shrunk


def legal(move: ThreadCommand, status: ThreadStatus, on_pending: str) -> bool:
    """Whether a thread that stands so can do this, as the docs of the session say."""
    condition, outcome = status.condition, status.outcome
    match move:
        case None:
            return condition is not Condition.UNKNOWN
        case Answer(value=value, interrupt_id=meant):
            waiting = status.waiting
            return (
                condition is Condition.WAITING
                and meant is None
                and waiting is not None
                and fitting(waiting, value)
            )
        case Extend(turns=turns):
            limit = outcome is not None and outcome["status"] == "limit"
            return limit and not isinstance(turns, bool) and turns > 0
        case Retry():
            return outcome is not None and outcome["status"] in ("error", "success")
        case Stop():
            return condition in (Condition.WAITING, Condition.STOPPED)
        case str():
            return bool(move.strip()) and not (condition is Condition.WAITING and on_pending == "refuse")
    return False


def fitting(waiting: Any, answer: Any) -> bool:
    try:
        waiting.read(answer)
    except SignoffError:
        return False
    return True


def same(before: ThreadStatus, now: ThreadStatus) -> bool:
    """Whether nothing was written between these two looks at a thread."""
    parts = ("condition", "waiting", "outcome", "changed")
    alike = all(getattr(before, part) == getattr(now, part) for part in parts)
    return alike and before.values.get("messages") == now.values.get("messages")


def fits(decision: Any, status: ThreadStatus, *, paused: bool, by_step: bool) -> None:
    """Fails for a decision that is not where the thread stands."""
    match decision:
        case Finished(outcome=outcome) | Failed(outcome=outcome):
            assert status.outcome == outcome.model_dump()
            assert isinstance(decision, Failed) == (outcome.status == "error")
        case Paused():
            assert paused, f"{decision} was not asked for"
            assert status.condition is Condition.STOPPED
        case Message():
            assert by_step, "only a step ends with what the model says"
            assert status.condition is Condition.STOPPED
        case Action():
            assert replace(decision, unknown=False) == status.waiting
        case _:
            assert decision == status.waiting


class Seen(Protocol):
    """What there is to see of the world."""

    effects: Counter[tuple[str, str]]
    again: Counter[tuple[str, str]]
    never: set[str]
    settings: Any
    storage: Any


@dataclass
class Watch:
    """What was seen of one thread, to compare what it is later. words: how often people have answered in its
    task `task`, each of which is good for a turn."""

    thread: str
    messages: list[BaseMessage] = field(default_factory=list)
    words: int = 0
    task: str = ""
    extended: int = 0
    records: set[str] = field(default_factory=set)
    fork: bool = False

    def forked(self, target: str) -> "Watch":
        return Watch(target, words=self.words, task=self.task, extended=self.extended, fork=True)

    def moves(self, move: ThreadCommand, before: ThreadStatus) -> None:
        if before.task.id != self.task:
            self.task, self.words = before.task.id, 0
        # A question stands as soon as its reply is saved, though the process was killed before it could wait.
        waits = before.condition in (Condition.WAITING, Condition.STOPPED)
        self.words += isinstance(move, Answer | str) and waits
        self.extended += isinstance(move, Extend)

    def faults(self, status: ThreadStatus, world: Seen) -> Iterator[str]:
        messages = list(status.values.get("messages", ()))
        yield from shrunk(self.messages, messages)
        self.messages = messages
        yield from history_faults(messages, ended=status.condition is Condition.ENDED, was_routed=False)
        yield from self._limits(status, world.settings.limits)
        yield from self._effects(messages, world)
        yield from self._outcome(messages, status, world)

    def _limits(self, status: ThreadStatus, limits: Limits) -> Iterator[str]:
        task = status.task
        if task.turns > task.most_turns(limits.turns) + self.words:
            yield f"{task.turns} turns of {task.most_turns(limits.turns)}"
        # After a stop nobody can say of a call whether it has begun: it counts, and may be one too many.
        unknown = sum("unknown" in marks(result) for reply in task.replies for result in reply.results)
        if limits.tool_calls and task.total.tool_calls - unknown > limits.tool_calls * (1 + self.extended):
            yield f"{task.total.tool_calls} tool calls of {limits.tool_calls}"
        if task.talk_turns > limits.talk_turns + self.words:
            yield f"{task.talk_turns} replies without a call"
        for reply in task.replies:
            work = [reply.result(call) for call in reply.calls if call.effect is None]
            if (
                sum(found is not None and "not_run" not in marks(found) for found in work)
                > limits.calls_per_reply
            ):
                yield f"more than {limits.calls_per_reply} calls of one reply have run"

    def _effects(self, messages: Sequence[BaseMessage], world: Seen) -> Iterator[str]:
        done = {
            token: times
            for (thread, token), times in world.effects.items()
            if thread == self.thread and times
        }
        for own, times in done.items():
            if times > 1 + world.again[self.thread, own]:
                yield f"{own} took place {times} times"
            if own in world.never:
                yield f"{own} took place, and must not"
        results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
        made = [call for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
        times_made = Counter(call["id"] for call in made)
        for call in made:
            token, found = call["args"].get("name"), results.get(call["id"] or "")
            # Before it is routed, a new reply may have ids that were there already.
            if token is None or found is None or times_made[call["id"]] > 1:
                continue
            if "not_run" in marks(found) and token in done:
                yield f"{token} took place, and is told as not run: {found.text}"
            if "did " in found.text and token not in done:
                yield f"{token} is told as done, and did not take place"
            told = "did " in found.text or "unknown" in marks(found) or "responded" in marks(found)
            if token in done and call["name"] != "drive" and not told:
                yield f"{token} took place, and is told as {found.text}"

    def _outcome(self, messages: Sequence[BaseMessage], status: ThreadStatus, world: Seen) -> Iterator[str]:
        found = {one.task: one for one in recorded(world.storage.store, self.thread)}
        if self.records - set(found):
            yield "a recorded outcome is gone"
        self.records = set(found)
        outcome: Any = status.outcome
        if outcome is None:
            return
        if outcome["task"] != status.task.id or outcome["thread_id"] != self.thread:
            yield f"the outcome is of {outcome['task']}, the task is {status.task.id}"
        if outcome["status"] not in ("success", "limit", "error"):
            yield f"the outcome is {outcome['status']}"
        if outcome["status"] == "success" and not finished_rightly(
            messages, outcome["task"], {"finish_task"}
        ):
            yield "a success without an accepted finish"
        if not self.fork and (outcome["task"] not in found or found[outcome["task"]].model_dump() != outcome):
            yield "the outcome is not what is recorded"
