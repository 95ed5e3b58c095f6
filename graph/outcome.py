"""The outcome of a task: how it ended, its last changes and its open points."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, get_args, overload

from langgraph.types import StateSnapshot
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_serializer
from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from signoff.graph.errors import SetupError, ThreadError, unknown_thread
from signoff.graph.finish.lines import CALL, RESULT, line, shown_call
from signoff.graph.finish.passed_over import passed_over
from signoff.graph.foreign import explain
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task, is_phase
from signoff.graph.history.usage import NOT_CORRECTIONS, Used
from signoff.graph.kinds import SENT_BACK
from signoff.graph.messages import marks
from signoff.graph.state import Ending, Undoing
from signoff.graph.texts import Texts
from signoff.graph.vocabulary import CLAIMS, OPEN_POINTS, REASONS, STANDING, following

MOST_CHANGES = 8
_NO_TURN = ("truncated", "filtered", "too_many", "tool_calls", "cost", "seconds")


def changes(task: Task, is_effect: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The last calls of the task that may have changed something, newest last, each with its result in one
    line, as fields of `Change`. A delegate's call is followed by the delegate's own changes, from its result.
    is_effect: whether a tool of this name may change something."""
    found = (
        change
        for reply in reversed(task.replies)
        for call in reversed(reply.calls)
        if call.effect is None and is_effect(call.name) and may_have_run(reply, call)
        for change in (*reversed(_below(reply, call)), _change(reply, call))
    )
    last = [change for change, _ in zip(found, range(MOST_CHANGES), strict=False)]
    return last[::-1]


def open_calls(task: Task) -> list[str]:
    """The calls left open at the end, unless they may have run, and those of the last reply that did not
    run."""
    last = task.last
    due = [call for call in task.due if last is None or not may_have_run(last, call)]
    found = [*due, *(call for call in (task.ask, task.finish) if call)]
    for call, result in zip(last.calls, last.found, strict=True) if last else ():
        if result is not None and marks(result).get("not_run") in _NO_TURN:
            found.append(call)
    return [f"{call.name}({dict(call.args)})" for call in found]


def open_points(task: Task) -> list[str]:
    """What the model or the review last reported as open, one sentence each: the next phase, the status of
    the last thought, and why the last finish did not count."""
    points = []
    if task.phases and (following := task.phases[-1]["next_phase"]):
        points.append(f"the next phase: {line(following, RESULT)}")
    if status := _status(task):
        points.append(f"its last status: {line(status, RESULT)}")
    if (refused := _last_finish(task)) and (why := _why_not(task, *refused)):
        points.append(f"its last finish did not count: {line(why, RESULT)}")
    return points


def failures_below(task: Task) -> list[str]:
    """Why delegates of the task failed that no later reply has called with success, one sentence each."""
    failed: dict[str | None, list[str]] = {}
    for reply in task.replies if task.total.children else ():
        ended = [(one.name, mark.get("why")) for one in reply.results if (mark := marks(one).get("delegate"))]
        failed |= {name: [why for other, why in ended if why and other == name] for name, _ in ended}
    sentence = OPEN_POINTS["delegate"]
    return [sentence.format(name=name, why=why) for name, reasons in failed.items() for why in reasons]


def last_claim(task: Task) -> dict[str, Any]:
    """The arguments of the last finish, whether it counted or not."""
    found = _last_finish(task)
    return dict(found[1].args) if found else {}


def may_have_run(reply: Reply, call: Call) -> bool:
    """Whether the call may have run; it has not if a person responded in place of the tool."""
    found = reply.result(call)
    return found is not None and not {"not_run", "responded"} & marks(found).keys()


def _change(reply: Reply, call: Call) -> dict[str, Any]:
    found = reply.result(call)
    assert found is not None, "only what has a result is asked for"
    came = "unknown" if marks(found).get("unknown") else "error" if found.status == "error" else "ok"
    return {"call": shown_call(call), "result": line(found.text, RESULT), "came": came}


def _below(reply: Reply, call: Call) -> list[dict[str, Any]]:
    """The possible changes of a delegate and all delegates below it, each call prefixed with its name."""
    found = reply.result(call)
    told = marks(found).get("delegate", {}).get("changes", ()) if found is not None else ()
    return [{**one, "call": line(f"{call.name} / {one['call']}", CALL)} for one in told]


def _status(task: Task) -> str:
    thoughts = (
        said
        for reply in reversed(task.replies)
        for call in reversed(reply.calls)
        if call.effect == "continue" and call.problem is None and (said := call.args.get("status"))
    )
    return str(next(thoughts, ""))


def _last_finish(task: Task) -> tuple[Reply, Call] | None:
    return next(_finishes(task), None)


def _finishes(task: Task) -> Iterator[tuple[Reply, Call]]:
    for reply in reversed(task.replies):
        for call in reversed(reply.calls):
            if call.effect == "finish" and not is_phase(call.args):
                yield reply, call


def _why_not(task: Task, reply: Reply, call: Call) -> str:
    refused, found = task.refused.get(reply.key(call)), reply.result(call)
    if refused and refused["why"]:
        return refused["why"]
    if refused and refused["kind"] == SENT_BACK:
        return found.text if found else "a person sent it back"
    return found.text if found is not None and reply.failed(call) and reply.was_run(call) else ""


Status = Literal["success", "limit", "error"]
Claim = Literal["done", "partial", "blocked", "impossible"]


class Usage(BaseModel):
    """Tokens of all model calls of a task, including summaries, as reported by the provider; `estimated` if
    it reported none for some call, whose tokens were then estimated."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    estimated: bool = False


class TreeUse(BaseModel):
    """The usage of a task and all delegates below it. delegates: the number of this task's delegate calls.
    total_tokens: includes replies lost in a crash, as far as a ledger was kept."""

    delegates: int
    turns: int
    tool_calls: int
    total_tokens: int
    seconds_active: float


class CheckRun(BaseModel):
    """A completion check that ran. said: the last line of its output, or how it failed."""

    name: str
    passed: bool
    said: str = ""


StandingReason = Literal[
    "no_undo",
    "failed",
    "unknown",
    "elsewhere",
    "handed_over",
    "another_graph",
    "rejected",
    "not_approved",
    "stopped",
    "undo_failed",
    "undo_unknown",
]


class UndoneCall(BaseModel):
    """A call whose effect was undone. call: the call in one line. said: what its undo returned. path: the
    delegates that lead to the one that made the call, from the top."""

    call: str
    said: str = ""
    path: list[str] = Field(default_factory=list)


class StandingCall(BaseModel):
    """A call whose effect was not undone, or may not have been. said: what its undo, or a person, said.

    why: `no_undo`: its tool has no undo, or is no longer in the graph. `failed`: the call failed, and may
    have had part of its effect. `unknown`: it is unknown whether the call took effect. `elsewhere`: the
    journal of this thread does not have it, because a fork or an imported history shows what another thread
    did. `handed_over`: the driver made the call. `another_graph`: it belongs to a delegate that this graph no
    longer has. `rejected`: a person refused to undo it. `not_approved`: approval was needed, and nobody could
    be asked. `stopped`: the undo was stopped before. `undo_failed`: its undo raised. `undo_unknown`: its undo
    was interrupted or timed out, and never runs again.
    """

    call: str
    why: StandingReason
    said: str = ""
    path: list[str] = Field(default_factory=list)


class UndoReport(BaseModel):
    """The result of undoing a task: which effects were undone and which were not, newest first."""

    undone: list[UndoneCall] = Field(default_factory=list)
    standing: list[StandingCall] = Field(default_factory=list)


class Change(BaseModel):
    """A call that may have changed something, in one line. result: its beginning and its end.

    came: `ok`, `error`, or `unknown` if its process ended before its result was saved.
    """

    call: str
    result: str
    came: Literal["ok", "error", "unknown"]


ResultT = TypeVar("ResultT", default=Any)
"""The type of a task's result: `response_format`, if that is a type."""


class Outcome(BaseModel, Generic[ResultT]):
    """How a task ended.

    status: `success` (a finish was accepted), `limit` or `error`. A limit or an error never reads as success.
    reason: `finish_task` for a success, else the rule that ended it (`turns`, `talk_turns`, `model_error`,
        `content_filter`, `cancelled`, `superseded`, `needs_person`, `no_task`); `middleware`: a hook of one
        jumped to the end, or failed; `review_deadlock`: the same finish was refused again for the same
        reason, or too many finishes in a row, with no work in between, and no person could be asked.
    claim: the model's claim about its work; None without a valid finish, or `partial` at a limit if it had
        reported phases. A finish that needed a person but could not ask one keeps its claim.
    verified: `verified` when at least one check ran and all passed, `asserted` when none ran, `unverified`
        when a person accepted what the review refused; None without an accepted finish.
    checks: the checks that ran on the last claim, in order.
    result: the result, as `response_format` describes it; or what your own finishing tool returned. It is
        stored as JSON; `outcome_of` and the decisions of a session turn it into an instance again.
    summary, pending_issues: the model's own words; without a success, the issues of its last finish.
    changes: the last calls that may have changed something, newest last, at most eight; a delegate's call is
        followed by those below it, with the names that lead there.
    phases: the parts of the task reported as done, oldest first: percentage, summary, next_phase and the
        number of the turn.
    last_text: the last text of the model. open_work: calls that never ran; empty after a success.
    open_points: what is open, one sentence each. After a claim of "done" that was accepted: the unknown
        effects and failed delegates that it passes over. Else the delegates that failed, each with the cause,
        and without a success what was last reported: the next phase, the status of the last thought, why the
        last finish did not count.
    tree: the usage of the task together with all delegates below it; None if it called no delegates. All
        other counts are of this task alone.
    models: the number of replies of each model, by the name that the provider reports, or the requested name
        if there are several models; empty for models without a name.
    retries: how often a model call was retried after a transient error, or with the next model; counts the
        calls that returned a reply and the one that ended the task.
    seconds_retrying: the waiting time between these attempts, which counts as active.
    seconds_active: in model calls and tools. seconds_waiting: for people.
    undo: which effects were undone after this end, and which were not; None if no undo was requested.
    error: one sentence, with what to do. next: after a limit, one sentence on how to continue the task.
    """

    # A newer version of the same form may have written more.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    status: Status
    reason: str
    claim: Claim | None = None
    verified: Literal["verified", "asserted", "unverified"] | None = None
    checks: list[CheckRun] = Field(default_factory=list)
    result: ResultT | None = None
    summary: str = ""
    pending_issues: list[str] = Field(default_factory=list)
    phases: list[dict[str, Any]] = Field(default_factory=list)
    changes: list[Change] = Field(default_factory=list)
    last_text: str = ""
    open_work: list[str] = Field(default_factory=list)
    open_points: list[str] = Field(default_factory=list)
    turns: int = 0
    nudges: int = 0
    refusals: int = 0
    tool_calls: int = 0
    usage: Usage = Field(default_factory=Usage)
    tree: TreeUse | None = None
    models: dict[str, int] = Field(default_factory=dict)
    retries: int = 0
    seconds_retrying: float = 0.0
    seconds_active: float = 0.0
    seconds_waiting: float = 0.0
    error: str | None = None
    next: str = ""
    undo: UndoReport | None = None
    thread_id: str | None = None
    task: str = ""

    @field_serializer("result")
    def _as_json(self, result: Any) -> Any:
        return None if result is None else to_jsonable_python(result, by_alias=False)

    @property
    def succeeded(self) -> bool:
        """Whether the task is done: a success that claims "done" and was not undone since."""
        undone = self.undo is not None and bool(self.undo.undone)
        return self.status == "success" and self.claim == "done" and not undone


class RunResult(dict[str, Any], Generic[ResultT]):
    """What `graph.invoke` returns: a dict with `messages` and `outcome`, and `__interrupt__` where it waits.

    `outcome_of` reads the outcome of it.
    """

    shape: TypeAdapter[ResultT] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied or pickled result is a plain dict.
        return dict, (dict(self),)


@overload
def outcome_of(result: RunResult[ResultT]) -> Outcome[ResultT]: ...
@overload
def outcome_of(
    result: Mapping[str, Any] | StateSnapshot, response_format: type[ResultT]
) -> Outcome[ResultT]: ...
@overload
def outcome_of(result: Mapping[str, Any] | StateSnapshot) -> Outcome: ...
def outcome_of(
    result: Mapping[str, Any] | StateSnapshot, response_format: type[Any] | None = None
) -> Outcome:
    """The outcome of a run: `outcome_of(graph.invoke(…)).result` is an instance of its `response_format`.

    result: the return value of `invoke`; or the values of a state, or of `stream_mode="values"`, which need
        the type as well: without it the result stays JSON.

    Raises ThreadError for a task that has not ended and a thread that does not exist, SetupError for anything
    that is not the result of a run, and for a stored result that does not match the type.
    """
    values = result.values if isinstance(result, StateSnapshot) else result
    if isinstance(result, StateSnapshot) and not values:
        raise unknown_thread(str(result.config.get("configurable", {}).get("thread_id")))
    if not isinstance(values, Mapping) or "outcome" not in values:
        raise SetupError("outcome_of takes what graph.invoke returned, or graph.get_state(config).values.")
    outcome = current_outcome(values) if "ended" in values else values["outcome"]
    if outcome is None:
        raise ThreadError(
            "The task has not ended: it waits (result['__interrupt__'] says for what), or was interrupted."
        )
    shape = values.shape if isinstance(values, RunResult) else None
    return typed_outcome(outcome, TypeAdapter(response_format) if response_format is not None else shape)


def typed_outcome(outcome: Mapping[str, Any], shape: TypeAdapter[ResultT] | None) -> Outcome[ResultT]:
    """The outcome with its result as an instance of `shape`. Raises SetupError if it does not match."""
    found = outcome.get("result")
    if shape is not None and found is not None:
        try:
            found = read_result(shape, found)
        except ValidationError as error:
            raise SetupError(
                f"The stored result does not fit response_format: {explain(error)} outcome['result'] has it "
                "as JSON."
            ) from error
    return Outcome.model_validate({**outcome, "result": found})


def read_result(shape: TypeAdapter[ResultT], stored: Any) -> ResultT:
    """The instance of a stored result. Raises ValidationError if it does not match."""
    # Through JSON: a strict type accepts a date as text only there. It is stored by field names.
    return shape.validate_json(json.dumps(stored), by_alias=True, by_name=True)


def current_outcome(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outcome of a thread that has ended; None while its task runs or waits, or if it was interrupted.

    `state` is `graph.get_state(config).values`. An outcome with a newer message after it is of an earlier
    task: a process killed just after a new message was saved leaves the new message and the old success.
    (`get_state().next == ()` proves nothing: it is also empty when a process was killed between two writes.)
    """
    if not isinstance(state, Mapping):
        raise SetupError("current_outcome takes the values of a state: graph.get_state(config).values.")
    outcome: dict[str, Any] | None = state.get("outcome")
    ended, messages = state.get("ended"), state.get("messages") or ()
    if outcome is None or ended is None:
        return None
    return outcome if ended["message"] == (messages[-1].id if messages else "") else None


def conclude(
    task: Task,
    ending: Ending,
    thread_id: str | None,
    is_effect: Callable[[str], bool],
    undoing: Undoing | None = None,
) -> Outcome:
    """The outcome of `task`, from its history and the way it ended.

    is_effect: whether a tool of this name may change something. undoing: the undo of this or another task's
    effects.
    """
    results = [result for reply in task.replies for result in reply.results]
    success, holds = ending["status"] == "success", "claim" in ending
    claimed = ending.get("claim") or {}
    issues = issues_of(claimed if holds else last_claim(task))
    if holds and claimed.get("outcome", "done") == "done":
        points = passed_over(task, claimed, is_effect)
    else:
        points = [*([] if holds else open_points(task)), *failures_below(task)]
    if claimed.get("requires_user_confirmation"):
        issues.append("The model asks a person to confirm the result.")
    reported = ending["status"] == "limit" and bool(task.phases)
    return Outcome.model_validate(
        {
            "status": ending["status"],
            "reason": ending["reason"],
            "claim": _claim(claimed) if holds else "partial" if reported else None,
            "verified": ending.get("verified", "asserted") if success else None,
            "checks": ending.get("checks", []),
            "result": claimed.get("result", ending.get("result")) if holds else None,
            "summary": task.phases[-1]["summary"] if reported else summary_of(claimed),
            "pending_issues": issues,
            "phases": [dict(phase) for phase in task.phases],
            "changes": changes(task, is_effect),
            "last_text": task.last_text,
            "open_work": [] if holds else open_calls(task),
            "open_points": points,
            "turns": task.turns,
            "nudges": sum(kind not in NOT_CORRECTIONS for kind in task.nudges),
            "refusals": _refusals(task),
            "tool_calls": task.total.tool_calls,
            "usage": _usage(task.total),
            "tree": _tree(task),
            "models": _models(task),
            "retries": task.total.retries + ending.get("retries", 0),
            "seconds_retrying": round(task.total.held + ending.get("seconds_retrying", 0.0), 3),
            "seconds_active": round(task.total.seconds, 3),
            "seconds_waiting": round(sum(marks(r).get("waited", 0.0) for r in results), 3),
            "error": ending.get("error"),
            "next": following(ending["reason"]) if ending["status"] == "limit" else "",
            "undo": _undone(undoing) if undoing and undoing["task"] == task.id else None,
            "thread_id": thread_id,
            "task": task.id,
        }
    )


def _undone(undoing: Undoing) -> dict[str, Any]:
    told = [
        (step["why"], {"call": step["call"], "said": step["said"], "path": step["path"]})
        for step in undoing["done"]
    ]
    return {
        "undone": [one for why, one in told if why is None],
        "standing": [{**one, "why": why} for why, one in told if why is not None],
    }


def told_undone(report: UndoReport, texts: Texts) -> str:
    """The message that reports an undo to the caller."""
    undone = [_undone_line(one) for one in report.undone]
    standing = [f"{_undone_line(one)} ({STANDING[one.why]})" for one in report.standing]
    parts = [("undone", undone), ("standing", standing)]
    said = [texts.answers[key].format(calls="\n".join(lines)) for key, lines in parts if lines]
    return "".join(said) or texts.answers["nothing_undone"].format()


def undone_lines(outcome: Mapping[str, Any]) -> list[str]:
    """The effects undone after this end, one line each, newest first."""
    report = outcome["undo"] or {}
    return [_undone_line(UndoneCall.model_validate(one)) for one in report.get("undone", ())]


def one_line(text: str) -> str:
    """The result of a call or of its undo, on one line."""
    return line(text, RESULT)


def _undone_line(found: UndoneCall | StandingCall) -> str:
    return f"- {' / '.join([*found.path, found.call])}"


def _tree(task: Task) -> dict[str, Any] | None:
    total = task.total
    if not total.children:
        return None
    return {
        "delegates": total.children,
        "turns": task.turns + total.below_turns,
        "tool_calls": total.tool_calls + total.below_calls,
        "total_tokens": total.total_tokens
        + total.below_tokens
        + int(task.lost("tokens", since_extended=False)),
        "seconds_active": round(total.seconds + total.below_seconds, 3),
    }


def _models(task: Task) -> dict[str, int]:
    notes = ((marks(reply.message), reply.message.response_metadata) for reply in task.replies)
    names = (own.get("model") or answers.get("model_name") for own, answers in notes)
    return dict(Counter(name for name in names if isinstance(name, str) and name))


def _claim(claimed: Mapping[str, Any]) -> str | None:
    """The claim of a finish: `done` if its tool has no such argument, None if the word is unknown."""
    word = claimed.get("outcome", "done")
    return word if word in get_args(Claim) else None


def answer_of(outcome: Outcome, claim: Mapping[str, Any], why: str, texts: Texts) -> str:
    """The final message to the caller: the answer or the summary of the finish, whose arguments are in
    `claim`. For an unfinished task it starts by saying so, and why."""
    answers = texts.answers
    said_of_undo = "" if outcome.undo is None else told_undone(outcome.undo, texts)
    if outcome.status == "success":
        words = claim.get("answer")
        said = words if isinstance(words, str) and words.strip() else outcome.summary
        if not said.strip() and isinstance(outcome.result, str):
            said = outcome.result
        said = said if said.strip() else answers["no_words"].format()
        key = "success" if outcome.claim in ("done", None) else "claimed"
        claimed = CLAIMS[outcome.claim].shown if outcome.claim else ""
        return answers[key].format(said=said, claim=claimed) + said_of_undo
    shown = REASONS[outcome.reason].shown if outcome.reason in REASONS else outcome.reason
    why = f"{shown}: {_sentence(why)}" if why else _sentence(shown)
    last = outcome.summary or outcome.last_text
    said = answers["last_words"].format(said=last) if last else ""
    return answers[outcome.status].format(why=why, next=outcome.next, said=said).strip() + said_of_undo


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."


def summary_of(claimed: Mapping[str, Any]) -> str:
    """The model's own words: the summary, or, for a tool without one, all arguments except the request for
    confirmation."""
    if "summary" in claimed:
        return str(claimed["summary"])
    said = {name: value for name, value in claimed.items() if name != "requires_user_confirmation"}
    return "; ".join(f"{name}: {value}" for name, value in said.items())


def issues_of(claimed: Mapping[str, Any]) -> list[str]:
    """The issues that a finish leaves open."""
    value = claimed.get("pending_issues")
    if value is None:
        return []
    return [str(part) for part in value] if isinstance(value, list | tuple) else [str(value)]


def _refusals(task: Task) -> int:
    calls = [(reply, call) for reply in task.replies for call in reply.calls if call.effect == "finish"]
    return sum(
        reply.key(call) in task.refused or (reply.failed(call) and reply.was_run(call))
        for reply, call in calls
    )


def _usage(total: Used) -> Usage:
    return Usage(
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        total_tokens=total.total_tokens,
        estimated=total.estimated > 0,
    )
