"""How a task continues after its end: what going on writes, and which delegates continue, too.

A delegate that ended with its parent, or shortly before it, has already returned a result for its call. If
nothing has come after that result, it is withdrawn: the call is open again, and its delegate continues where
it stopped, in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langgraph.types import Command

from signoff.graph.errors import ThreadError
from signoff.graph.machine import Event, enters
from signoff.graph.messages import answer, is_answer, is_genuine, is_reply, marks, nudge
from signoff.graph.outcome import current_outcome, undone_lines
from signoff.graph.state import Undoing
from signoff.graph.texts import DEFAULT_TEXTS, Texts

LEFT = "left"
"""The status of a delegate that was started and has not ended."""


def more_turns(state: Mapping[str, Any], turns: int, texts: Texts = DEFAULT_TEXTS) -> Command[Any]:
    """The input that continues a task that ended at a limit, with `turns` more turns.

    The turns add to the limit of the graph. If more than that were used, after answered questions or under a
    higher limit, they add to those used, so that there are always at least `turns` more. Works after every
    limit: all other limits (tool calls, tokens, seconds, cost, replies without a call, repetitions) count
    from now on, so that the full amount is available again. Delegates that ended at a limit just before
    continue, too, with the same number of extra turns.
    """
    outcome = current_outcome(state) or {}
    before = state.get("extra") or {}
    granted = before["turns"] if before.get("task") == outcome["task"] else 0
    spent = state.get("spent") or {}
    mine = spent if spent.get("task") == outcome["task"] else {}
    update: dict[str, Any] = {"extra": {"task": outcome["task"], "turns": granted + turns}}
    tree = state.get("tree") or {}
    if tree.get("task") == outcome["task"] and "lost" in tree:
        update["tree"] = {**tree, "counted": tree["lost"]}
    notes = {"extended": dict(mine), "granted": turns, "at_turn": outcome["turns"]}
    return _again("limit", texts, state, notes, turns, **update)


def another_try(state: Mapping[str, Any], texts: Texts = DEFAULT_TEXTS) -> Command[Any]:
    """The input that continues a task that ended with an error. Delegates that failed just before, or ended
    with it, continue where they stopped."""
    return _again("error", texts, state, {}, 0, stop="")


def undoing(state: Mapping[str, Any], *, ask: bool) -> Command[Any]:
    """The input that undoes the effects of a task that has ended, newest first.

    ask: whether a person must approve every undo; otherwise only those that the approval policy names. Raises
    ThreadError when the task has not ended. Effects that are already undone stay so, and are listed again.
    """
    outcome = current_outcome(state)
    if outcome is None:
        raise ThreadError("The task has not ended; stop it first, or let it end, and undo it then.")
    begun = Undoing(task=outcome["task"], ask=ask, decisions={}, problem="", done=[], over=False)
    return entering(Event.UNDO, outcome=None, undo=begun)


def entering(event: Event, **update: Any) -> Command[Any]:
    """The input by which `event` enters a thread with nothing left to run, with its state update."""
    return Command(goto=str(enters(event)), update={"event": str(event), **update})


def _again(
    status: str,
    texts: Texts,
    state: Mapping[str, Any],
    notes: Mapping[str, Any],
    turns: int,
    **update: Any,
) -> Command[Any]:
    outcome = current_outcome(state) or {}
    text, taken = texts.nudges["resumed"].format(), list[ToolMessage]()
    if outcome.get("undo"):
        # The history no longer matches the world, and the model would build on it. Nor may a delegate
        # continue without knowing what was undone.
        undone = undone_lines(outcome)
        text = texts.nudges["resumed_undone"].format(undone="\n".join(undone)) if undone else text
        notes, update = {**notes, "undone": undone}, {**update, "undo": None}
    else:
        taken = _to_take_back(state["messages"], (status, LEFT))
    if taken:
        delegates = {found.tool_call_id: marks(found)["delegate"]["used"] for found in taken}
        notes = {**notes, "again": {"delegates": delegates, "turns": turns}}
    mark = nudge("resumed", text, **notes)
    removed = [RemoveMessage(id=found.id or "") for found in taken]
    moved = _answers_without(taken, state["messages"]) if taken else []
    found = entering(Event.GO_ON, messages=[*removed, *moved, mark], outcome=None, **update)
    # A LangChain agent has other nodes than the machine: its guards decide where an input enters.
    place = (state.get("guards") or {}).get("enters")
    return Command(goto=place, update=found.update) if place else found


def _to_take_back(messages: Sequence[BaseMessage], statuses: Sequence[str]) -> list[ToolMessage]:
    """The results of the last reply's delegates that ended in one of these ways."""
    found = list[ToolMessage]()
    for message in reversed(messages):
        if is_genuine(message):
            break
        if not isinstance(message, ToolMessage) and "undone" in marks(message):
            # Gone on after an undo already: what no delegate knew then, none knows now.
            break
        if is_reply(message):
            return [one for one in found if marks(one).get("reply", message.id) == message.id]
        if isinstance(message, ToolMessage) and message.id:
            delegate = marks(message).get("delegate")
            found += [message] if delegate and delegate["status"] in statuses else []
    return []


def _answers_without(taken: Sequence[BaseMessage], messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The answers that followed one of the messages that are `taken`, each as following what stands before
    it then: one that does not is another thread's, which the model is shown."""
    gone, before, found = {message.id for message in taken}, "", list[BaseMessage]()
    for message in messages:
        if is_answer(message) and marks(message)["after"] in gone:
            told = message.text, marks(message)["answer"], before
            found.append(answer(*told, id=message.id, name=message.name))
        if message.id not in gone:
            before = message.id or ""
    return found


@dataclass(frozen=True)
class GoingOn:
    """How a delegate continues after its result was withdrawn. mark: the id of the message that records it.
    turns: the extra turns; 0 after an error. used: what it and all delegates below it had used by then, from
    the marks of its result."""

    mark: str
    turns: int
    used: Mapping[str, Any]

    def command(self, state: Mapping[str, Any], texts: Texts) -> Command[Any] | None:
        """The input for the delegate with this state; None if it has already continued, or had not ended."""
        messages = state["messages"]
        outcome = current_outcome(state)
        if outcome is None or any(message.id == self.mark for message in messages):
            return None
        if outcome["status"] != ("limit" if self.turns else "error"):
            return None
        found = more_turns(state, self.turns, texts) if self.turns else another_try(state, texts)
        return marked(found, self.mark)


def marked(command: Command[Any], mark: str | None) -> Command[Any]:
    """The input that continues after an end, with this id for the message that it adds."""
    if mark is None or not isinstance(command.update, dict):
        return command
    *removed, message = command.update["messages"]
    added = message.model_copy(update={"id": mark})
    return Command(goto=command.goto, update={**command.update, "messages": [*removed, added]})


def going_on(messages: Sequence[BaseMessage]) -> Mapping[str, GoingOn]:
    """The delegates of the last reply that continue, by call id."""
    found: dict[str, GoingOn] = {}
    for message in reversed(messages):
        if is_reply(message):
            break
        if (again := marks(message).get("again")) and message.id:
            for call_id, used in again["delegates"].items():
                found.setdefault(call_id, GoingOn(message.id, again["turns"], used))
    return found
