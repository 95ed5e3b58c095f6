"""The tools of the unit cases, and what happens inside them: a record, a kill, a stop."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopcheck.observed import ToolRun

POLLS = 12
BIG = 10_000_000
PAGE = 20_000
"""The length of a page in characters."""
READS = ("read", "poll", "big", "page")
"""Tools that change nothing; all others may."""
_TEXT = {"type": "string"}


def _definition(name: str, description: str, /, **arguments: Mapping[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": arguments, "required": list(arguments)}
    return {"name": name, "description": description, "parameters": schema, "reads": name in READS}


DEFINITIONS: Mapping[str, Mapping[str, Any]] = {
    one["name"]: one
    for one in (
        _definition("read", "Read a record.", name={**_TEXT, "description": "The name of the record."}),
        _definition(
            "write",
            "Write a record.",
            name={**_TEXT, "description": "The name of the record."},
            text={**_TEXT, "description": "What to write."},
        ),
        _definition(
            "pay",
            "Pay money to somebody.",
            to={**_TEXT, "description": "Who gets it."},
            amount={"type": "integer", "description": "How much."},
        ),
        _definition("fail", "Deploy something.", what={**_TEXT, "description": "What to deploy."}),
        _definition("poll", "Look how far a job is.", job={**_TEXT, "description": "The name of the job."}),
        _definition("big", "Read a log file.", name={**_TEXT, "description": "The name of the log file."}),
        _definition("page", "Read a page.", name={**_TEXT, "description": "The name of the page."}),
    )
}


@dataclass
class Plan:
    """What happens inside a tool during one step.

    tool, nth, when: the run at which the process is killed, `before` or `after` its effect. stop: the run is
    asked to stop while this tool runs.
    """

    tool: str = ""
    nth: int = 1
    when: str = ""
    stop: str = ""
    kill: Callable[[], None] = lambda: None
    on_stop: Callable[[], None] = lambda: None


@dataclass
class KitWorld:
    """The kit's tools. gate: the completion check, which passes `never` or `after_write`. ran: the times and
    effects of the runs."""

    gate_passes: str = ""
    plan: Plan = field(default_factory=Plan)
    ran: list[tuple[int, ToolRun]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, int] = {}

    def new_step(self, plan: Plan) -> None:
        """Applies a plan from now on, and counts the runs from 0."""
        self.plan = plan
        self._runs.clear()

    def gate(self) -> str | None:
        done = self.gate_passes == "after_write" and self._count("write") > 0
        self._note("gate", {"passed": done}, "gate")
        return None if done else "The report has not been written yet."

    def call(self, name: str, args: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        if name not in DEFINITIONS:
            return 404, {"error": f"There is no tool {name!r}."}
        missing = [one for one in DEFINITIONS[name]["parameters"]["required"] if one not in args]
        if missing:
            return 422, {"error": f"{name} needs {', '.join(missing)}."}
        with self._lock:
            self._runs[name] = nth = self._runs.get(name, 0) + 1
        self._perhaps_kill(name, nth, "before")
        self._note(name, args, "read" if name in READS else "failed" if name == "fail" else "effect")
        if self.plan.stop == name and nth == 1:
            # It has taken effect but has not returned yet.
            self.plan.on_stop()
            time.sleep(0.3)
        self._perhaps_kill(name, nth, "after")
        if name == "fail":
            return 422, {"error": "disk-17 is full"}
        return 200, {"result": self._result(name, args)}

    def _result(self, name: str, args: Mapping[str, Any]) -> str:
        match name:
            case "read":
                return f"{args['name']} holds: all quiet"
            case "write":
                return f"written: {args['name']}"
            case "pay":
                return f"paid {args['amount']} to {args['to']}"
            case "poll":
                so_far = self._count("poll") - 1
                state = "done" if so_far >= POLLS else f"running, {so_far * 100 // POLLS} %"
                return f"{args['job']}: {state}"
        line = f"{args['name']}: nothing happened\n"
        return line * ((PAGE if name == "page" else BIG) // len(line))

    def _perhaps_kill(self, tool: str, nth: int, when: str) -> None:
        if (self.plan.tool, self.plan.nth, self.plan.when) == (tool, nth, when):
            if when == "before":
                time.sleep(0.3)  # so that calls that run in parallel have taken effect
            self.plan.kill()
            if when == "before":
                raise ConnectionAbortedError("the subject is gone before its call took place")

    def _note(self, tool: str, args: Mapping[str, Any], what: str) -> None:
        with self._lock:
            self.ran.append((time.monotonic_ns(), ToolRun(tool, dict(args), what)))

    def _count(self, tool: str) -> int:
        with self._lock:
            return sum(one.tool == tool for _, one in self.ran)


def list_tools(names: Sequence[str]) -> list[Mapping[str, Any]]:
    return [DEFINITIONS[name] for name in names]
