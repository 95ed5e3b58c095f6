"""Going on, undoing and stopping from outside, without looking at the thread first.

Each of the three is a LangGraph command that updates one key, so that it is the same as JSON for LangGraph's
server: `{"command": {"update": {"go_on": {"turns": 10}}}}`. No channel takes that update: the entry of the
graph reads the thread, which it holds by then, and puts in its place what LangGraph needs there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from langgraph.types import Command

from signoff.graph.errors import SetupError
from signoff.graph.finish.again import another_try, marked, more_turns
from signoff.graph.foreign import valid_text
from signoff.graph.outcome import current_outcome
from signoff.graph.texts import DEFAULT_TEXTS, Texts

GO_ON = "go_on"
"""The key of the command."""
GONE_ON = "gone_on"
"""The channel of the ids by which a thread went on: not the key, or what is put in its place would be taken
for the command again."""
_MOST_IDS = 100


@dataclass(frozen=True)
class GoOn:
    """To go on, whatever stopped the thread; see `go_on`."""

    turns: int | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        turns, name = self.turns, self.id
        if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
            raise SetupError(f"go_on(turns=) takes a whole number of turns, at least 1, not {turns!r:.80}.")
        if name is not None and (not isinstance(name, str) or not name or valid_text(name) != name):
            raise SetupError(f"go_on(id=) takes text without NUL, not {name!r:.80}.")


@dataclass(frozen=True)
class Undo:
    """To undo the effects of a task that has ended; see `undo`."""

    ask: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.ask, bool):
            raise SetupError(f"undo(ask=) takes True or False, not {self.ask!r:.80}.")


@dataclass(frozen=True)
class Stop:
    """To end the task as cancelled; see `stop`."""


Instruction = GoOn | Undo | Stop
_KINDS: Mapping[str, type[Instruction]] = {GO_ON: GoOn, "undo": Undo, "stop": Stop}


def go_on(turns: int | None = None, id: str | None = None) -> Command[Any]:
    """Goes on, whatever stopped the thread: `graph.invoke(go_on(), config)`, and wherever an input is taken.

    After a kill or a pause the thread continues where it stood. After a limit all limits count anew, and
    there are `turns` more, by default as many as the run's limit. After an error or a person's stop it tries
    again. A thread that waits comes back with its `__interrupt__`, and one that ended in success with its
    outcome: nothing runs. Raises ThreadUnknown for a thread that does not exist.

    id: goes on only once under this id, so that a button that was pressed three times grants once.
    """
    instruction = GoOn(turns, id)
    options = {"turns": instruction.turns, "id": instruction.id}
    return Command(update={GO_ON: {name: value for name, value in options.items() if value is not None}})


def undo(ask: bool = False) -> Command[Any]:
    """Undoes the effects of a task that has ended, newest first: `graph.invoke(undo(), config)`.

    ask: whether a person must approve every undo; otherwise only those that the approval policy names.
    Effects that are undone already stay so, and are listed again. Raises ThreadError when the task has not
    ended.
    """
    return Command(update={"undo": {"ask": Undo(ask).ask}})


def stop() -> Command[Any]:
    """Ends the task as an error with the reason `cancelled`: `graph.invoke(stop(), config)`.

    What waits, waits no longer. Raises ThreadError when the task has ended.
    """
    return Command(update={"stop": {}})


def instruction_of(given: Any) -> Instruction | None:
    """The instruction that an input of the graph is; None for any other input. Raises SetupError for one with
    options that it does not have."""
    if not isinstance(given, Command) or not isinstance(given.update, Mapping) or len(given.update) != 1:
        return None
    ((name, options),) = given.update.items()
    if name not in _KINDS:
        return None
    if given.goto or given.resume is not None:
        raise SetupError(f"{name}() goes alone; leave goto= and resume= out of the command.")
    known = [field.name for field in fields(_KINDS[name])]
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not set(options) <= set(known):
        raise SetupError(f"{name} takes {', '.join(known) or 'nothing'} by name, not {options!r:.80}.")
    return _KINDS[name](**options)


def continuation(
    instruction: GoOn,
    values: Mapping[str, Any],
    left: Command[Any] | None,
    turns: int,
    texts: Texts = DEFAULT_TEXTS,
) -> Command[Any] | None:
    """The input by which a thread goes on that does not wait; None where LangGraph runs what is left, if
    anything is.

    left: the input that continues a thread without an end. turns: the turn limit of the run.
    """
    outcome, earlier = current_outcome(values), values.get(GONE_ON) or []
    ended = "" if outcome is None else outcome["status"]
    if ended == "success" or (ended and instruction.id in earlier):
        return None
    if not ended:
        command = left
    elif ended == "limit":
        command = more_turns(values, instruction.turns or turns, texts)
    else:
        command = another_try(values, texts)
    if instruction.id is None or instruction.id in earlier:
        return command
    command = marked(command, instruction.id) if ended and command else command or Command()
    ids = [*earlier, instruction.id][-_MOST_IDS:]
    return Command(goto=command.goto, update={**(command.update or {}), GONE_ON: ids})


def turn_limit(context: Any, default: int) -> int:
    """The turn limit of a run with this context."""
    turns = context.get("turns") if isinstance(context, Mapping) else getattr(context, "turns", None)
    return turns if isinstance(turns, int) else default
