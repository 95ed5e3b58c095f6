"""Runs unit cases on one subject: their steps and kills, and the record of what happened."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

from loopcheck.bench import Bench, Seat
from loopcheck.case import Case, Step
from loopcheck.kit import KitWorld, Plan, list_tools
from loopcheck.observed import WAITING, Death, Event, Observed, Report, Status, StepStart
from loopcheck.outside import line
from loopcheck.process import Dead, NoAnswer, Process, Silent, Unfit
from loopcheck.replies import Reply
from loopcheck.stage import MOST_CALLS, ModelRequest, Stage

SLOW = 1.0
"""The model's delay in seconds if processes run in parallel, so that their runs overlap."""
NEEDS_A_COMMAND = (
    "it was given by its URL alone, and the suite can kill and start only what it has a command for"
)


@dataclass(frozen=True)
class Cell:
    """One case on one subject: `ok`, `fail` or `n/a`, and why."""

    case: str
    mark: str
    why: str
    observed: Observed | None = None


def leave_out(case: Case, lacks: Mapping[str, str], *, killable: bool = True) -> Cell | None:
    """Returns the cell of a case that does not count because the subject does not claim what it needs."""
    if case.disputed:
        return Cell(case.name, "n/a", f"disputed: {case.disputed}")
    found = [need for need in case.needs if need in lacks]
    if found:
        return Cell(case.name, "n/a", f"{found[0]}: {lacks[found[0]]}")
    if not killable and any(step.kill or step.fresh or step.at_once > 1 for step in case.steps):
        return Cell(case.name, "n/a", NEEDS_A_COMMAND)
    return None


def judge_case(case: Case, seen: Observed) -> Cell:
    """Returns the verdict on what happened."""
    found = case.judge(seen)
    if not found.ok and any(case.unruly in shown.forbids for shown in seen.calls[:1]):
        why = f"its request forbids the reply of this case: {found.why}"
        return Cell(case.name, "n/a", why, seen)
    return Cell(case.name, "ok" if found.ok else "fail", found.why, seen)


def run_case(bench: Bench, case: Case) -> Cell:
    """Runs the case on the subject and returns the verdict."""
    unclaimed = leave_out(case, bench.hello.lacks, killable=bench.killable)
    return unclaimed or judge_case(case, observe(bench, case))


def observe(bench: Bench, case: Case) -> Observed:
    """Runs the case and returns the record of everything that happened."""
    script, world = Script(case), KitWorld(case.setup.gate)
    with Stage(script, world, bench.hello.manner) as stage:
        played = _Run(bench, case, stage, world)
        played.play()
        found: list[tuple[int, Event]] = [*played.events, *stage.seen, *world.ran]
        return Observed(tuple(event for _, event in sorted(found, key=lambda pair: pair[0])), stage.capped)


class Script:
    """The model of a case."""

    most = MOST_CALLS

    def __init__(self, case: Case) -> None:
        self._case = case
        self.finish: str = case.setup.finish

    def who(self, told: str) -> str:
        return self._case.who(told)

    def reply(self, asked: ModelRequest) -> Reply:
        own = sum(message.role == "assistant" for message in asked.sent)
        number = own if self._case.by_history else asked.served
        return self._case.reply(number, asked.who, cornered=asked.cornered)


class _Run:
    """One run of one case."""

    def __init__(self, bench: Bench, case: Case, stage: Stage, world: KitWorld) -> None:
        self.bench, self.case, self.stage, self.world = bench, case, stage, world
        self.events: list[tuple[int, Event]] = []
        self.pending: Sequence[Mapping[str, Any]] = ()
        self.waited: list[Mapping[str, Any]] = []
        """All calls that have waited for a decision so far."""
        self.status: Status | Literal["", "died"] = ""
        self._seat = Seat(bench, self._setup())

    def play(self) -> None:
        for step in self.case.steps:
            for turn in range(step.times):
                if turn and self.status not in WAITING:
                    break
                self._step(step)
                if self.status == "hung":
                    return

    def _setup(self) -> dict[str, Any]:
        given = self.case.setup
        return {
            "model": self.stage.url,
            "tools_url": self.stage.tools_url,
            "tools": list_tools(given.tools),
            "folder": str(self.bench.new_folder()),
            "thread": "bench",
            "system": "",
            "gate": bool(given.gate),
            **{name: getattr(given, name) for name in _GIVEN},
        }

    def _step(self, step: Step) -> None:
        self._note(StepStart(step.do, step.text))
        with ExitStack() as others:
            processes = self._ready(step, others)
            self._plan(step, processes)
            asks = [threading.Thread(target=self._ask, args=(process, step)) for process in processes]
            for ask in asks:
                ask.start()
            for ask in asks:
                ask.join()
            self.stage.on_request = lambda: None
            self.world.new_step(Plan())

    def _ready(self, step: Step, others: ExitStack) -> list[Process]:
        """Returns the processes for this step. others: closes all but the first."""
        found: list[Process] = []
        try:
            found.append(self._seat.ready(fresh=step.fresh))
            for _ in range(step.at_once - 1):
                another = self.bench.start_another()
                others.callback(another.close)
                found.append(self._seat.set_up(another))
        except NoAnswer as error:
            self.status = "hung" if isinstance(error, Silent) else "error"
            self._note(Report(self.status, f"it could not be set up: {error}"))
        return found

    def _plan(self, step: Step, processes: Sequence[Process]) -> None:
        """Prepares what happens inside this step."""
        plan = Plan(stop=step.stop, kill=self._seat.kill, on_stop=self._seat.ask_to_stop)
        if step.kill and step.kill.when != "request":
            plan.tool, plan.nth, plan.when = step.kill.tool, step.kill.nth, step.kill.when
        self.world.new_step(plan)
        self.stage.on_request = self._killer(step)
        self.stage.delay = SLOW if len(processes) > 1 else 0.0

    def _ask(self, process: Process, step: Step) -> None:
        order: dict[str, Any] = {"do": step.do, "text": step.text}
        if step.do == "decide":
            order["decisions"] = self._decisions(step)
            if not order["decisions"]:
                return
        try:
            told = read_report(process.ask("/step", order, self.bench.patience))
        except NoAnswer as error:
            if isinstance(error, Dead) and step.kill:
                self.status, self.pending = "died", ()
                self._note(Death())
            else:
                self.status = "hung"
                self._note(Report("hung", str(error)))
        else:
            self.status = told.status
            if step.do != "decide" or told.status not in ("refused", "error"):
                # A refused decision decides nothing, so the calls may still wait.
                self.pending = told.pending
            self.waited += told.pending
            self._note(told)

    def _decisions(self, step: Step) -> list[dict[str, Any]]:
        """Returns a decision on each waiting call, in their order; or, by ID, in the order of the step."""
        if not step.by_id:
            return [_decision(step, call["args"]) for call in self.pending] or [_decision(step, {})]
        found = []
        for decision in step.decisions:
            gone = [one for one in self.waited if one not in self.pending]
            fitting = [
                call for call in (gone if decision.get("late") else self.pending) if _fits(decision, call)
            ]
            if fitting:
                found.append({"id": fitting[-1]["id"], **_sent(decision)})
        return found

    def _killer(self, step: Step) -> Callable[[], None]:
        """Returns the hook that kills the process at the nth request of this step."""
        left = step.kill.nth if step.kill and step.kill.when == "request" else 0

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._seat.kill()

        return count

    def _note(self, event: Event) -> None:
        self.events.append((time.monotonic_ns(), event))


_GIVEN = (
    "finish",
    "approve",
    "turns",
    "tool_calls",
    "asks",
    "helpers",
    "helper_turns",
    "tree_turns",
    "recursive",
)


def read_report(said: Mapping[str, Any]) -> Report:
    """Reads from the subject's answer how a step ended. Raises Unfit for an invalid report."""
    status = said.get("status")
    if status not in _STATUSES:
        raise Unfit(f"It reported the status {line(repr(status), 60)}; there are: {', '.join(_STATUSES)}.")
    with suppress(TypeError, KeyError, ValueError):
        waiting = tuple(_waits(one) for one in said.get("pending") or ())
        return Report(status, str(said.get("words") or ""), said.get("final"), waiting)
    raise Unfit("What it reported as `pending` is no list of calls.")


def _waits(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": str(call["name"]), "args": dict(call["args"]), "id": str(call.get("id") or "")}


_STATUSES = ("success", "limit", "error", "question", "approval", "stopped", "refused")


def _decision(step: Step, args: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the decision on a call with these arguments."""
    fitting = (one for one in step.decisions if _fits(one, {"args": args}))
    return next(map(_sent, fitting), {})


def _fits(decision: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    return all(call["args"].get(key) == value for key, value in decision.get("when", {}).items())


def _sent(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in decision.items() if key not in ("when", "late")}
