"""A task: what is asked, the tools, the calls that solve it, and how its end is judged. Where tasks come from
is for a source (`source.py`) to know."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

Key = tuple[str, str]


@dataclass(frozen=True)
class Tool:
    """A function of the world. run: is given the world's state and the arguments, and may change the
    state."""

    name: str
    description: str
    parameters: type[BaseModel]
    run: Callable[[Any, Mapping[str, Any]], Any]
    reads: bool

    def key(self, args: Mapping[str, Any]) -> Key:
        """By what two calls are the same: the name, and the arguments as the tool gets them."""
        whole = self.parameters.model_validate(dict(args)).model_dump(mode="json")
        return self.name, json.dumps(whole, sort_keys=True, default=str)


@dataclass(frozen=True)
class Call:
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """begin: the state of the world at the beginning. solved: whether the answer and the state are right, as
    the source judges it; it is told of the calls that ran, too."""

    name: str
    prompt: str
    tools: Mapping[str, Tool]
    calls: Sequence[Call]
    answer: str
    begin: Callable[[], Any]
    solved: Callable[[str, Any, Sequence[Call]], bool]

    def key(self, call: Call) -> Key:
        return self.tools[call.name].key(call.args)

    def effects(self) -> list[int]:
        """The places of the calls that change the world."""
        return [at for at, call in enumerate(self.calls) if not self.tools[call.name].reads]

    def twice(self, ran: Iterable[Key]) -> list[str]:
        """The effects that took place more often than the task asks for."""
        asked, found = Counter(map(self.key, self.calls)), Counter(ran)
        return [key[0] for key, times in found.items() if times > asked[key] and not self.tools[key[0]].reads]


@dataclass
class Done:
    """What came of a run. ended: whether the agent said that it is done. processes: how many it took."""

    subject: str
    task: str
    fault: str
    solved: bool = False
    twice: list[str] = field(default_factory=list)
    ended: bool = False
    processes: int = 0
    why: str = ""

    @property
    def right(self) -> bool:
        return self.ended and self.solved and not self.twice

    @property
    def wrongly(self) -> bool:
        """It said that it is done, and it was not so."""
        return self.ended and not self.right
