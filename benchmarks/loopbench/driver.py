"""Runs scenarios on one framework: its steps, its kills, and the record of what happened."""

import json
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.loopbench.observed import WAITING, Died, Event, Observed, Ran, Stepped, Told
from benchmarks.loopbench.process import Dead, Hello, Process, Silent
from benchmarks.loopbench.scenario import Scenario, Step
from benchmarks.loopbench.server import ModelServer

PATIENCE = 60.0
"""Seconds for one step; after that the run counts as hung."""

SLOW = 1.0
"""Seconds that the model takes when processes run side by side, so that they meet."""


@dataclass(frozen=True)
class Cell:
    """One scenario on one framework: `ok`, `fail` or `n/a`, and why."""

    scenario: str
    mark: str
    why: str
    observed: Observed | None = None


def missing(scenario: Scenario, lacks: Mapping[str, str]) -> Cell | None:
    """The cell of a scenario that does not count, since the framework does not claim what it needs."""
    found = [need for need in scenario.needs if need in lacks]
    return Cell(scenario.name, "n/a", f"{found[0]}: {lacks[found[0]]}") if found else None


def judged(scenario: Scenario, seen: Observed) -> Cell:
    """The verdict on what happened."""
    found = scenario.judge(seen)
    if not found.ok and any(scenario.unruly in shown.forbids for shown in seen.calls[:1]):
        why = f"its request forbids the reply of this scenario: {found.why}"
        return Cell(scenario.name, "n/a", why, seen)
    return Cell(scenario.name, "ok" if found.ok else "fail", found.why, seen)


class Bench:
    """One framework on the bench. Scenarios share a process as long as none kills it."""

    def __init__(self, python: Path, adapter: Path) -> None:
        self._python = python
        self._adapter = adapter
        self._scratch = tempfile.TemporaryDirectory(prefix="loopbench-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        self._errors = (self.folder / "stderr.txt").open("ab")
        self._process = self._start()
        self.hello: Hello = self._process.hello

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close()
        self._errors.close()
        self._scratch.cleanup()

    @property
    def errors(self) -> str:
        """What the framework printed so far."""
        return (self.folder / "stderr.txt").read_text(errors="replace")

    def run(self, scenario: Scenario) -> Cell:
        """The verdict on this framework in this scenario."""
        unclaimed = missing(scenario, self.hello.lacks)
        return unclaimed or judged(scenario, self.observe(scenario))

    def observe(self, scenario: Scenario) -> Observed:
        """Everything that happens in the scenario."""
        with ModelServer(scenario, self.hello.manner) as server:
            run = _Run(self, scenario, server)
            run.play()
            return Observed(run.in_order(), server.capped)

    def process(self, *, fresh: bool = False) -> Process:
        """The process; a new one when it has died, or when a fresh one is wanted."""
        if fresh or not self._process.alive:
            self._process.close()
            self._process = self._start()
        return self._process

    def another(self) -> Process:
        """A second process beside the first one."""
        return self._start()

    def _start(self) -> Process:
        return Process(self._python, self._adapter, self._errors)


class _Run:
    """One run of one scenario."""

    def __init__(self, bench: Bench, scenario: Scenario, server: ModelServer) -> None:
        self.bench = bench
        self.scenario = scenario
        self.server = server
        self.folder = bench.folder / scenario.name
        (self.folder / "store").mkdir(parents=True)
        self.events: list[tuple[int, Event]] = []
        self.pending: Sequence[Mapping[str, Any]] = ()
        self.status = ""
        self._process: Process | None = None

    def play(self) -> None:
        for step in self.scenario.steps:
            for turn in range(step.times):
                if turn and self.status not in WAITING:
                    break
                self._step(step)
                if self.status == "hung":
                    return

    def in_order(self) -> tuple[Event, ...]:
        """The events of both processes: they share one clock."""
        file = self.folder / "ran.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        ran = [json.loads(line) for line in lines]
        tools = [(run["at"], Ran(run["tool"], run["args"], run["what"])) for run in ran]
        found: list[tuple[int, Event]] = [*self.events, *self.server.seen, *tools]
        return tuple(event for _, event in sorted(found, key=lambda pair: pair[0]))

    def _step(self, step: Step) -> None:
        processes = [self._ready(fresh=step.fresh)]
        processes += [self._set_up(self.bench.another()) for _ in range(step.at_once - 1)]
        self._note(Stepped(step.do, step.text))
        self.server.on_request = self._killer(step, processes[0])
        self.server.delay = SLOW if len(processes) > 1 else 0.0
        threads = [threading.Thread(target=self._ask, args=(process, step)) for process in processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.server.on_request = lambda: None
        for process in processes[1:]:
            process.close()

    def _ask(self, process: Process, step: Step) -> None:
        try:
            told = process.ask(self._order(step), PATIENCE)
        except Dead:
            self.status, self.pending = "died", ()
            self._note(Died() if step.kill else Told("error", "its process died"))
        except Silent:
            self._note(Told("hung", f"no answer within {PATIENCE:g} s"))
            self.status = "hung"
        else:
            self.status, self.pending = told["status"], told["pending"]
            self._note(Told(told["status"], told["words"], told["final"], tuple(told["pending"])))

    def _order(self, step: Step) -> dict[str, Any]:
        decisions = [_decision(step, call["args"]) for call in self.pending] or [_decision(step, {})]
        plan = {"stop": step.stop}
        if step.kill and step.kill.when != "request":
            plan |= asdict(step.kill)
        return {"do": step.do, "text": step.text, "decisions": decisions, "plan": plan}

    def _killer(self, step: Step, process: Process) -> Any:
        """What ends the process when the nth request of this step comes in."""
        left = step.kill.nth if step.kill and step.kill.when == "request" else 0

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                process.kill()

        return count

    def _ready(self, *, fresh: bool) -> Process:
        found = self.bench.process(fresh=fresh)
        if found is not self._process:
            self._process = self._set_up(found)
        return self._process

    def _set_up(self, process: Process) -> Process:
        setup = {**asdict(self.scenario.setup), "url": self.server.url, "folder": str(self.folder / "store")}
        with suppress(Dead):  # the step that follows says so
            process.ask({"do": "setup", "setup": setup}, PATIENCE)
        return process

    def _note(self, event: Event) -> None:
        self.events.append((time.monotonic_ns(), event))


def _decision(step: Step, args: Mapping[str, Any]) -> dict[str, Any]:
    """What is decided on a call with these arguments."""
    for decision in step.decisions:
        if all(args.get(key) == value for key, value in decision.get("when", {}).items()):
            return {key: value for key, value in decision.items() if key != "when"}
    return {}
