"""What goes wrong in a run, drawn from a seed: kills, and replies as providers and models give them."""

import random
from dataclasses import dataclass

from benchmarks.agentdojo.task import Key, Task

KILLS = ("killed before a call", "killed in a call", "killed after a call")
REPLIES = ("a cut reply", "words without a call", "the same ids again")
ENDS = ("a failed call beside the finish", "a second finish")
PROVIDER = ("a dropped connection", "status 429", "status 500")
NAMES = ("nothing", *KILLS, *REPLIES, *ENDS, *PROVIDER)


@dataclass(frozen=True)
class Fault:
    """at: the place of the call, among those that solve the task, at which it happens."""

    name: str
    at: int = 0

    def kills(self, key: Key, task: Task) -> str:
        """Whether the process is killed "before" this call takes place, or "in" it."""
        if self.name not in KILLS[:2] or task.key(task.calls[self.at]) != key:
            return ""
        return "before" if self.name == KILLS[0] else "in"


def drawn(name: str, task: Task, seed: int) -> Fault | None:
    """The fault of this name in this task; None where the task has no place for it."""
    chance = random.Random(f"{seed} {name} {task.name}")
    places = (name in KILLS and task.effects()) or range(len(task.calls))
    if name == ENDS[0]:
        # A call that fails leaves something out that its tool needs.
        places = [at for at in places if any(_needed(task, at))]
    if not places and name not in ("nothing", *ENDS[1:]):
        return None
    return Fault(name, chance.choice(list(places)) if places else 0)


def _needed(task: Task, at: int) -> list[str]:
    fields = task.tools[task.calls[at].name].parameters.model_fields
    return [name for name, field in fields.items() if field.is_required()]
