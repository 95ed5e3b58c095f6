"""Judges the standing finish by the criteria of `REVIEW`, in order."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.finish.passed_over import REFUSAL, to_refuse
from signoff.graph.finish.standstill import moved
from signoff.graph.history.reader import ACCEPTED, PHASE
from signoff.graph.history.task import is_new, is_phase, percentage, with_phase
from signoff.graph.machine import Event
from signoff.graph.messages import add_notes
from signoff.graph.rules import is_last_turn
from signoff.graph.state import AgentState
from signoff.nodes.finishing.case import Case, Refusal, accept
from signoff.nodes.finishing.checks import CheckResults, run_checks
from signoff.nodes.node import Middleware, NodeContext, Report, Steps
from signoff.nodes.requests import Part
from signoff.tools.control import needs_confirmation


@dataclass
class Hearing:
    """A finish while it is judged: its claim, the results of its checks so far, and the writes of
    middleware."""

    case: Case
    claim: dict[str, Any]
    checked: CheckResults = field(default_factory=CheckResults)
    written: dict[str, Any] = field(default_factory=dict)

    @property
    def verified(self) -> str:
        """What the claim is based on if its checks do not contradict it."""
        return "verified" if self.checked.runs else "asserted"


Judgement = Refusal | Report | None
"""The result of a criterion: a refusal, another end of the review, or None when it has no objection."""


@dataclass(frozen=True)
class Criterion:
    """One criterion of the review."""

    name: str
    judge: Callable[[Hearing], Judgement | Part[Judgement]]


def review(state: AgentState, run: NodeContext) -> Steps:
    case = Case.of(state, run)
    if case is None:
        # The history has changed since `decide` ran: compress and decide run again.
        return Report(Event.REFUSED)
    if case.verdict == ACCEPTED and _ends(state, case):
        # The process was killed before the task could end: nothing is judged or run a second time.
        return Report(Event.ACCEPTED)
    hearing = Hearing(case, case.claim)
    for criterion in REVIEW:
        judgement = criterion.judge(hearing)
        if isinstance(judgement, Generator):
            judgement = yield from judgement
        if isinstance(judgement, Refusal):
            refused = case.refuse(judgement, seconds=hearing.checked.seconds, checks=hearing.checked.runs)
            return _with(refused, hearing.written)
        if judgement is not None:
            return _with(judgement, hearing.written)
    checked = hearing.checked
    notes = {"seconds": checked.seconds} if checked.runs else {}
    accepted = run.deps.texts.results["accepted"].format()
    report = yield from accept(case, hearing.claim, hearing.verified, accepted, checked.runs, **notes)
    return _with(report, hearing.written)


def _with(report: Report, written: dict[str, Any]) -> Report:
    """The report, with the writes of middleware."""
    if not written:
        return report
    messages = [*report.update.get("messages", ()), *written.get("messages", ())]
    return replace(report, update={**written, **report.update, "messages": messages})


def judge(case: Case) -> tuple[dict[str, Any], Refusal | None]:
    """What the finish claims, and its refusal if the history alone refuses it."""
    hearing = Hearing(case, case.claim)
    for criterion in BY_HISTORY:
        judgement = criterion.judge(hearing)
        if isinstance(judgement, Refusal):
            return hearing.claim, judgement
    return hearing.claim, None


def _arguments(hearing: Hearing) -> Judgement:
    case = hearing.case
    error = case.run.deps.toolbox.controls.problem(case.call.name, case.call.args)
    return case.refused("arguments", error=error) if error else None


def _summary(hearing: Hearing) -> Judgement:
    claim = hearing.claim
    empty = "summary" in claim and not str(claim["summary"]).strip()
    return hearing.case.refused("empty_summary") if empty else None


def _result(hearing: Hearing) -> Judgement:
    """A tool with code of its own gives its result later, see `accept`."""
    case, claim = hearing.case, hearing.claim
    why = "" if case.is_run or is_phase(claim) else case.lacks_result(claim)
    return case.refused("result", error=why) if why else None


def _siblings(hearing: Hearing) -> Judgement:
    case = hearing.case
    failed = [before.name for before in case.reply.calls[: case.call.index] if case.reply.failed(before)]
    return case.refused("siblings", names=", ".join(failed)) if failed else None


def _is_done(claim: Mapping[str, Any]) -> bool:
    """Whether the claim is that the task is done: an honest "blocked" has nothing to prove."""
    return bool(claim.get("outcome", "done") == "done")


def _ends(state: AgentState, case: Case) -> bool:
    ending = state.get("ending")
    return ending is not None and (ending["task"], ending["status"]) == (case.task.id, "success")


def _phase(hearing: Hearing) -> Judgement:
    case, claim = hearing.case, hearing.claim
    if not is_phase(claim):
        return None
    task, done = case.task, percentage(claim)
    if task.phases:
        last = task.phases[-1]
        values = {"percentage": f"{done:g}", "before": f"{last['percentage']:g}"}
        if done < last["percentage"]:
            return case.refused("phase_back", **values)
        if not is_new(claim, task.phases) and not moved(task.replies[last["turn"] :]):
            return case.refused("phase_idle", **values)
    turn = 1 + next(at for at, reply in enumerate(task.replies) if reply is case.reply)
    phases = with_phase(case.state.get("phases"), task.id, claim, turn)
    texts, following = case.run.deps.texts.results, phases["done"][-1]["next_phase"]
    goes_on = texts["next_phase"].format(phase=following) if following else texts["rest"].format()
    answers = case.feedback("phase", percentage=f"{done:g}", next=goes_on)
    said = {name: value for name, value in phases["done"][-1].items() if name != "turn"}
    answers = [
        add_notes(found, {"phase": said}) if isinstance(found, ToolMessage) else found for found in answers
    ]
    return Report(Event.PHASE, {"verdicts": case.verdicts(PHASE), "phases": phases, "messages": answers})


def _open(hearing: Hearing) -> Judgement:
    """Refuses "done" once over an unknown effect or a failed delegate. A later claim is believed, and so is
    one that could not be made again; the outcome lists what they pass over."""
    case, claim = hearing.case, hearing.claim
    if not _is_done(claim) or is_phase(claim) or is_last_turn(case.task, case.run.limits):
        return None
    points = to_refuse(case.task, case.run.deps.toolbox.is_effect)
    said = "; ".join(point.sentence for point in points)
    return case.refused(REFUSAL, points=said) if points else None


def _checks(hearing: Hearing) -> Part[Judgement]:
    case, claim = hearing.case, hearing.claim
    if not _is_done(claim) or not case.run.deps.checks:
        return None
    hearing.checked = checked = yield from run_checks(claim, case.call.args, case.state, case.run)
    if not checked.names:
        return None
    names = ", ".join(checked.names)
    refusal = case.refused("checks", names=names, output=checked.output)
    return Refusal(refusal.text, case.refused("checks", names=names, output=checked.mark).verdict)


def _middleware(hearing: Hearing) -> Judgement | Part[Judgement]:
    around = hearing.case.run.deps.middleware
    return None if around is None else _last_word(hearing, around)


def _last_word(hearing: Hearing, around: Middleware) -> Part[Judgement]:
    case = hearing.case
    hearing.written, why = yield from around.last_word(case.state, case.run)
    return case.refused("middleware", reason=why) if why else None


def _confirmation(hearing: Hearing) -> Judgement:
    case, checked = hearing.case, hearing.checked
    named = case.run.deps.toolbox.approvals.confirms(case.call.name, case.call.args)
    if not named and not needs_confirmation(hearing.claim):
        return None
    return case.confirm(hearing.claim, hearing.verified, seconds=checked.seconds, checks=checked.runs)


_FIRST = (
    Criterion("arguments", _arguments),
    Criterion("summary", _summary),
    Criterion("result", _result),
    Criterion("siblings", _siblings),
)
_LEFT_OPEN = Criterion("open", _open)

BY_HISTORY = (*_FIRST, _LEFT_OPEN)
"""The criteria that need only the history; a finish that a person is asked about must pass them, too."""

REVIEW = (
    *_FIRST,
    Criterion("phase", _phase),
    _LEFT_OPEN,
    Criterion("checks", _checks),
    Criterion("middleware", _middleware),
    Criterion("confirmation", _confirmation),
)
"""The order of the review. The first criterion with an objection decides; a finish that passes all of them is
accepted."""
