"""The world of a task: it records every call, and can kill the subject around one of them."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from loopcheck.faults import KILLS, Fault
from loopcheck.sources.task import Call, Key, Task


class TaskWorld:
    """kill: ends the subject's process. killed: whether it did. ran: the turn and effect of each call."""

    def __init__(self, task: Task, fault: Fault, kill: Callable[[], None]) -> None:
        self.state = task.begin()
        self.turn = 0
        self.ran: list[tuple[int, Key, Call]] = []
        self._task, self._kill = task, kill
        self.killed = False
        self._kills_at: Key | None = None
        if fault.name in KILLS[:2]:
            self._kills_at = task.key(task.calls[fault.at])
        self._before = fault.name == KILLS[0]
        self._lock = threading.Lock()

    def took_place(self, turn: int) -> Counter[Key]:
        """Returns the calls of this turn, and how often each took place."""
        with self._lock:
            return Counter(key for number, key, _ in self.ran if number == turn)

    def gate(self) -> str | None:
        return None

    def call(self, name: str, args: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        tool = self._task.tools.get(name)
        if tool is None:
            return 404, {"error": f"There is no tool {name!r}."}
        with self._lock:
            try:
                key = tool.key(args)
                if key == self._kills_at and self._before:
                    self._dies("the subject is gone before its call took place")
                found = tool.run(self.state, args)
            except ConnectionAbortedError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a tool raises is told to the agent
                return 422, {"error": f"{type(error).__name__}: {error}"[:2000]}
            self.ran.append((self.turn, key, Call(name, dict(args))))
            if key == self._kills_at:
                self._dies("the subject is gone before it has the result")
        return 200, {"result": found}

    def _dies(self, why: str) -> None:
        self._kills_at, self.killed = None, True
        self._kill()
        raise ConnectionAbortedError(why)
