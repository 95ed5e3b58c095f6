"""A task: what the user says, the tools, the moves that solve it, and how its end is judged.

Where tasks come from is for a source to know: the modules beside this one read them from public packages,
whose own checkers judge.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
State = Any
"""The world of a source, as its package has it."""


def unchanged(args: Mapping[str, Any]) -> Mapping[str, Any]:
    return args


@dataclass(frozen=True)
class Tool:
    """A function of the world.

    parameters: JSON schema of an object. run: is given the world's state and the arguments, may change the
    state, and returns what the agent is told; it raises what makes a call a failed one. reads: it changes
    nothing. whole: the arguments as the tool gets them, with its defaults.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[State, Mapping[str, Any]], str]
    reads: bool
    whole: Callable[[Mapping[str, Any]], Mapping[str, Any]] = unchanged

    def key(self, args: Mapping[str, Any]) -> Key:
        """By what two calls are the same. Raises what `whole` raises for arguments that do not fit."""
        return self.name, json.dumps(_plain(self.whole(args)), sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    """5 and 5.0 are the same number: some frameworks make one of the other."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Call:
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """The agent asks the user. does: changes the world as the user does, before the answer is given."""

    question: str
    answer: str
    does: Callable[[State], None] | None = None


Move = Call | Ask


@dataclass(frozen=True)
class Turn:
    """say: what the user says. moves: what a right agent then does. answer: with what it ends the turn."""

    say: str
    moves: Sequence[Move]
    answer: str

    @property
    def calls(self) -> list[Call]:
        return [move for move in self.moves if isinstance(move, Call)]


@dataclass(frozen=True)
class Task:
    """begin: a new world as it is at the beginning, whose `run`s of tools change it in place.

    solved: whether the world and the answers of the turns are right, as the source's own checker judges;
    it is told of the calls that took place, too. system: what the agent is told beside the user's words.
    All `say` and all answers of the user (`Ask.answer`) of a task differ from each other.
    """

    source: str
    name: str
    turns: Sequence[Turn]
    tools: Mapping[str, Tool]
    begin: Callable[[], State]
    solved: Callable[[State, Sequence[str], Sequence[Call]], bool]
    system: str = ""

    @property
    def calls(self) -> list[Call]:
        return [call for turn in self.turns for call in turn.calls]

    def key(self, call: Call) -> Key:
        return self.tools[call.name].key(call.args)

    def effects(self) -> list[int]:
        """The places, among all calls, of those that change the world."""
        return [at for at, call in enumerate(self.calls) if not self.tools[call.name].reads]

    def twice(self, ran: Iterable[Key]) -> list[str]:
        """The effects that took place more often than the task asks for."""
        return [key[0] for key in self._more(Counter(ran), self._asked())]

    def lost(self, ran: Iterable[Key]) -> list[str]:
        """The effects that the task asks for and that did not take place: a checker may not look at all."""
        return [key[0] for key in self._more(self._asked(), Counter(ran))]

    def _asked(self) -> Counter[Key]:
        return Counter(map(self.key, self.calls))

    def _more(self, those: Counter[Key], than: Counter[Key]) -> list[Key]:
        """The effects of which there are more in `those`."""
        return [key for key, times in those.items() if times > than[key] and not self.tools[key[0]].reads]


@dataclass(frozen=True)
class Source:
    """A public set of tasks. packages: pinned, with pip's options for them; licence: of package and data.

    tasks: all that take part, in an order that does not change. left_out: those that do not, each with why.
    """

    name: str
    title: str
    packages: Sequence[str]
    licence: str
    link: str
    tasks: Callable[[], Sequence[Task]]
    left_out: Mapping[str, str] = field(default_factory=dict)
