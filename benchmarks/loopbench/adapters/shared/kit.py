"""The kit of tools that every agent under test gets. Standard library only."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wire import Setup

READS = ("read", "poll", "big")
"""Tools that change nothing; all others may."""
POLLS = 12
BIG = 10_000_000


@dataclass
class Plan:
    """What is to happen inside a tool during one step."""

    tool: str = ""
    nth: int = 1
    when: str = ""
    stop: str = ""


@dataclass
class Kit:
    """The tools. Each run of one is a line in a file, written by the tool itself: that is what happened."""

    setup: Setup
    plan: Plan = field(default_factory=Plan)
    on_stop: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._file = self.setup.folder.parent / "ran.jsonl"
        self._lock = threading.Lock()
        self._runs: dict[str, int] = {}

    def new_step(self, plan: Plan, on_stop: Callable[[], None]) -> None:
        """From now on the plan holds, and runs are counted anew."""
        self.plan, self.on_stop = plan, on_stop
        self._runs.clear()

    def functions(self) -> list[Callable[..., str]]:
        """The tools of the setup as plain functions with types and docstrings."""
        known = {"read": self._read(), "write": self._write(), "pay": self._pay(), "fail": self._fail()}
        known |= {"poll": self._poll(), "big": self._big()}
        return [known[name] for name in self.setup.tools]

    def gate(self) -> str | None:
        """The completion check: None when the work is done, else what is missing. For `setup.gate`."""
        done = self.setup.gate == "after_write" and any(run["tool"] == "write" for run in self._ran())
        self._note("gate", {"passed": done}, "gate")
        return None if done else "The report has not been written yet."

    def _read(self) -> Callable[..., str]:
        def read(name: str) -> str:
            """Read a record.

            Args:
                name: The name of the record.
            """
            return self._run("read", {"name": name}, lambda: f"{name} holds: all quiet")

        return read

    def _write(self) -> Callable[..., str]:
        def write(name: str, text: str) -> str:
            """Write a record.

            Args:
                name: The name of the record.
                text: What to write.
            """
            return self._run("write", {"name": name, "text": text}, lambda: f"written: {name}")

        return write

    def _pay(self) -> Callable[..., str]:
        def pay(to: str, amount: int) -> str:
            """Pay money to somebody.

            Args:
                to: Who gets it.
                amount: How much.
            """
            return self._run("pay", {"to": to, "amount": amount}, lambda: f"paid {amount} to {to}")

        return pay

    def _fail(self) -> Callable[..., str]:
        def fail(what: str) -> str:
            """Deploy something.

            Args:
                what: What to deploy.
            """
            self._run("fail", {"what": what}, lambda: "")
            raise OSError("disk-17 is full")

        return fail

    def _poll(self) -> Callable[..., str]:
        def poll(job: str) -> str:
            """Look how far a job is.

            Args:
                job: The name of the job.
            """
            so_far = sum(run["tool"] == "poll" for run in self._ran())
            state = "done" if so_far >= POLLS else f"running, {so_far * 100 // POLLS} %"
            return self._run("poll", {"job": job}, lambda: f"{job}: {state}")

        return poll

    def _big(self) -> Callable[..., str]:
        def big(name: str) -> str:
            """Read a log file.

            Args:
                name: The name of the log file.
            """
            line = f"{name}: nothing happened\n"
            return self._run("big", {"name": name}, lambda: line * (BIG // len(line)))

        return big

    def _run(self, tool: str, args: Mapping[str, Any], work: Callable[[], str]) -> str:
        with self._lock:
            self._runs[tool] = nth = self._runs.get(tool, 0) + 1
        if self.plan.stop == tool and nth == 1:
            threading.Thread(target=self.on_stop, daemon=True).start()
            time.sleep(0.3)
        self._perhaps_die(tool, nth, "before")
        self._note(tool, args, "read" if tool in READS else "failed" if tool == "fail" else "effect")
        self._perhaps_die(tool, nth, "after")
        return work()

    def _perhaps_die(self, tool: str, nth: int, when: str) -> None:
        if (self.plan.tool, self.plan.nth, self.plan.when) == (tool, nth, when):
            if when == "before":
                time.sleep(0.3)  # so that calls that run beside this one have done what they do
            os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, tool: str, args: Mapping[str, Any], what: str) -> None:
        line = json.dumps({"at": time.monotonic_ns(), "tool": tool, "args": args, "what": what}, default=str)
        with self._lock, self._file.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _ran(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []
        )
