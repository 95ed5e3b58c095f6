"""Runs the completion checks of a claim, in sync and async graphs, and survives whatever they do."""

import asyncio
import copy
import hashlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from signoff.graph import clock
from signoff.graph.foreign import being_ended, capped, gets_past, unanswered
from signoff.graph.inside.speed import started
from signoff.graph.state import AgentState
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.nodes.tool_calls.output import read
from signoff.tools.checks import CommandCheck, Failure, Found, FunctionCheck, OneCheck

_LEAST_CHARACTERS = 1_000
_SAID = 300

_T = TypeVar("_T")


@dataclass(frozen=True)
class CheckResults:
    """The results of the checks: those that ran, as fields of `CheckRun`, how long they took, which failed
    (`names`), and their output, in words for the model. mark: a hash that recognises repeated failures: for
    functions it covers the message; the output of a command often changes from run to run (its duration, for
    example), so only its failure counts.
    """

    runs: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    names: tuple[str, ...] = ()
    output: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Checking:
    """Runs checks one after the other, also after a failure; returns their results."""

    checks: Sequence[OneCheck]
    given: Mapping[str, Any]

    def do(self, run: NodeContext) -> CheckResults:
        begun = clock.monotonic()
        found = [self._one(check, run) for check in self.checks]
        return self._read(found, begun, run)

    async def ado(self, run: NodeContext) -> CheckResults:
        begun = clock.monotonic()
        found = [await self._aone(check, run) for check in self.checks]
        # A long output is written to a file, and a server forbids such blocking in its event loop.
        return await asyncio.to_thread(self._read, found, begun, run)

    def _one(self, check: OneCheck, run: NodeContext) -> Found:
        if isinstance(check, CommandCheck):
            return check.run(lambda: False)
        future = started(partial(_called, check, self.given, run))
        wait([future], timeout=check.seconds)
        return future.result() if future.done() else check.late()

    async def _aone(self, check: OneCheck, run: NodeContext) -> Found:
        stop = threading.Event()
        waiting: asyncio.Future[Found]
        if isinstance(check, CommandCheck):
            waiting = asyncio.wrap_future(started(partial(check.run, stop.is_set)))
        elif check.is_async:
            waiting = asyncio.ensure_future(_awaited(check, self.given, run))
        else:
            waiting = asyncio.wrap_future(started(partial(_called, check, self.given, run)))
        seconds = None if isinstance(check, CommandCheck) else check.seconds
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            stop.set()
            done = waiting.done()
            waiting.cancel()
        if not done and isinstance(check, FunctionCheck):
            return check.late()
        if waiting.cancelled() and isinstance(check, FunctionCheck):
            return check.raised(asyncio.CancelledError())
        return waiting.result()

    def _read(self, found: Sequence[Found], begun: float, run: NodeContext) -> CheckResults:
        failures = [failure for failure in found if isinstance(failure, Failure)]
        texts, keep = run.deps.texts.results, run.outputs.keep("check")
        most = max(_LEAST_CHARACTERS, run.deps.result_chars // max(1, len(failures)))
        lines = []
        for failure in failures:
            line = texts[failure.why].format(name=failure.name, detail=failure.detail)
            output = capped(failure.output.strip(), limit=most, keep=keep)
            lines.append(f"\n\n{line}:\n{output}" if output else f"\n\n{line}.")
        names = tuple(failure.name for failure in failures)
        runs = tuple(_record_of(one, texts) for one in found)
        return CheckResults(runs, clock.monotonic() - begun, names, "".join(lines), self._mark(found))

    def _mark(self, found: Sequence[Found]) -> str:
        checked = zip(self.checks, found, strict=True)
        said = [
            (failure.detail, failure.output)
            for check, failure in checked
            if isinstance(failure, Failure) and isinstance(check, FunctionCheck)
        ]
        return f" [{hashlib.sha256(repr(said).encode()).hexdigest()[:12]}]" if said else ""


def _record_of(found: Found, texts: Mapping[str, str]) -> dict[str, Any]:
    """The part of a check that the outcome keeps: the last line of its output, which usually has the
    verdict."""
    last = next((line for line in reversed(found.output.splitlines()) if line.strip()), "")
    if isinstance(found, Failure):
        how = texts[found.why].format(name=found.name, detail=found.detail)
        last = f"{how}: {last.strip()}" if last else how
    return {"name": found.name, "passed": not isinstance(found, Failure), "said": last.strip()[:_SAID]}


def run_checks(
    claim: Mapping[str, Any], arguments: Mapping[str, Any], state: AgentState, run: NodeContext
) -> Part[CheckResults]:
    """A part of a node: runs the graph's checks on this claim."""
    given = {
        "claim": copy.deepcopy(dict(claim)),
        "arguments": copy.deepcopy(dict(arguments)),
        "messages": list(state["messages"]),
        "state": dict(state),
        "context": run.users_context,
    }
    checked: CheckResults = yield Checking(run.deps.checks, given)
    return checked


def _called(check: FunctionCheck, given: Mapping[str, Any], run: NodeContext) -> Found:
    try:
        value = read(check.call(given))
    except BaseException as raised:
        error = unanswered(raised, can_ask=run.can_ask)
        if gets_past(error):
            raise
        return check.raised(error)
    return check.judge(value)


async def _awaited(check: FunctionCheck, given: Mapping[str, Any], run: NodeContext) -> Found:
    try:
        value = await check.call(given)
    except BaseException as raised:
        error = unanswered(raised, can_ask=run.can_ask)
        if gets_past(error) or being_ended(error):
            raise
        return check.raised(error)
    return check.judge(value)
