"""Judges the standing finish, in this order: its arguments, the calls before it in the same reply, whether it
is only a phase, the completion checks, the evidence, whether a person must confirm it."""

from collections.abc import Mapping
from typing import Any

from signoff.graph.finish.evidence import doubt, moved
from signoff.graph.history.reader import ACCEPTED, PHASE
from signoff.graph.history.task import is_new, is_phase, percentage, with_phase
from signoff.graph.kinds import Kind
from signoff.graph.machine import Event
from signoff.graph.state import AgentState
from signoff.nodes.finishing.case import Case, Refusal, accept
from signoff.nodes.finishing.checks import CheckResults, run_checks
from signoff.nodes.node import NodeContext, Part, Report, Steps
from signoff.tools.control import needs_confirmation


def review(state: AgentState, run: NodeContext) -> Steps:
    case = Case.of(state, run)
    if case is None:
        # The history was changed by another way since decide looked at it: compress and decide look again.
        return Report(Event.REFUSED)
    if case.verdict == ACCEPTED and _ends(state, case):
        # The process was killed before the task could end: nothing is judged, or run, a second time.
        return Report(Event.ACCEPTED)
    claim, refusal = judge(case)
    if refusal:
        return case.refuse(refusal)
    if is_phase(claim):
        return _phase(case, claim)
    checked = (yield from _checked(case, claim)) if _is_done(claim) else CheckResults()
    refusal = _unproven(case, claim, checked)
    if refusal:
        return case.refuse(refusal, seconds=checked.seconds, checks=checked.runs)
    notes = {"seconds": checked.seconds} if checked.runs else {}
    if needs_confirmation(claim):
        return case.confirm(claim, checked.verified, seconds=checked.seconds, checks=checked.runs)
    accepted = run.kit.texts.results["accepted"].format()
    return (yield from accept(case, claim, checked.verified, accepted, checked.runs, **notes))


def judge(case: Case) -> tuple[dict[str, Any], Refusal | None]:
    """What the finish claims, and why it is refused by what the history alone says of it."""
    controls, call = case.run.kit.toolbox.controls, case.call
    if error := controls.problem(call.name, call.args):
        return controls.salvage(call.name, call.args), case.refused("arguments", error=error)
    claim = controls.read(call.name, call.args)
    if "summary" in claim and not str(claim["summary"]).strip():
        return claim, case.refused("empty_summary")
    failed = [before.name for before in case.reply.calls[: call.index] if case.reply.failed(before)]
    if failed:
        return claim, case.refused("siblings", names=", ".join(failed))
    work = [beside.name for beside in case.reply.calls if beside.effect is None]
    if work and case.run.kit.finish_alone:
        return claim, case.refused("mixed", names=", ".join(work))
    return claim, None


def _is_done(claim: Mapping[str, Any]) -> bool:
    """Whether the claim is that the task is done: an honest "blocked" has nothing to prove."""
    return bool(claim.get("outcome", "done") == "done")


def _ends(state: AgentState, case: Case) -> bool:
    ending = state.get("ending")
    return ending is not None and (ending["task"], ending["status"]) == (case.task.id, "success")


def _phase(case: Case, claim: Mapping[str, Any]) -> Report:
    task, done = case.task, percentage(claim)
    if task.phases:
        last = task.phases[-1]
        values = {"percentage": f"{done:g}", "before": f"{last['percentage']:g}"}
        if done < last["percentage"]:
            return case.refuse(case.refused("phase_back", **values))
        if not is_new(claim, task.phases) and not moved(task.replies[last["turn"] :]):
            return case.refuse(case.refused("phase_idle", **values))
    turn = 1 + next(at for at, reply in enumerate(task.replies) if reply is case.reply)
    phases = with_phase(case.state.get("phases"), task.id, claim, turn)
    texts, following = case.run.kit.texts.results, phases["done"][-1]["next_phase"]
    goes_on = texts["next_phase"].format(phase=following) if following else texts["rest"].format()
    told = case.told("phase", percentage=f"{done:g}", next=goes_on)
    return Report(Event.PHASE, {"verdicts": case.verdicts(PHASE), "phases": phases, "messages": told})


def _checked(case: Case, claim: Mapping[str, Any]) -> Part[CheckResults]:
    return (yield from run_checks(claim, case.call.args, case.state, case.run))


def _unproven(case: Case, claim: Mapping[str, Any], checked: CheckResults) -> Refusal | None:
    """Why the checks, or the evidence, do not bear the claim out."""
    if checked.names:
        names = ", ".join(checked.names)
        told = case.refused("checks", names=names, output=checked.output)
        return Refusal(told.text, case.refused("checks", names=names, output=checked.mark).verdict)
    box, cited = case.run.kit.toolbox, claim.get("evidence")
    if not case.run.kit.evidence or not _is_done(claim) or not isinstance(cited, list):
        return None
    found = doubt(
        cited, case.call, case.task, box.is_effect, lambda name: box.kinds.get(name) is Kind.TERMINAL
    )
    return case.refused(found.why, id=found.id, last=found.last) if found else None
