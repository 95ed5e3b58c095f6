"""The record of effects: a file that calls append to, independent of journal and checkpoints."""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """The external system for the effects: an account book that accepts each (account, step) once.

    An entry is one line. `called`: a call began, `done`: the effect, `refused`: the effect already existed.
    """

    file: Path

    def note(self, what: str, account: str, step: int, call: str) -> None:
        line = json.dumps({"what": what, "account": account, "step": step, "call": call, "pid": os.getpid()})
        with self.file.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def book(self, account: str, step: int, call: str) -> bool:
        """Books the effect, unless it exists: account and step are its idempotency key."""
        with self.file.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new = not self.has(account, step)
            self.note("done" if new else "refused", account, step, call)
            return new

    def has(self, account: str, step: int) -> bool:
        return (account, step) in self.keys("done", "account", "step")

    def keys(self, what: str, *names: str) -> Counter[tuple[Any, ...]]:
        """Returns how often each of these values occurs in the entries of one kind."""
        found = (entry for entry in self._entries() if entry["what"] == what)
        return Counter(tuple(entry[name] for name in names) for entry in found)

    def _entries(self) -> list[Mapping[str, Any]]:
        text = self.file.read_text() if self.file.exists() else ""
        # A line that a killed process left incomplete has no line end.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
