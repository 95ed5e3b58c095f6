"""Computes the figures that the analytics keep of a task, beside its outcome."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from signoff.graph.finish.recorded import DelegateFigures, EndFigures, Figures, NudgeFigures, RefusalFigures
from signoff.graph.history.replies import Call, Reply, fingerprint
from signoff.graph.history.task import Task
from signoff.graph.history.usage import NOT_CORRECTIONS, RESUMED
from signoff.graph.kinds import SENT_BACK
from signoff.graph.messages import Marks, marks
from signoff.graph.outcome import Outcome
from signoff.graph.rules import RULES
from signoff.graph.state import RefusedFinish

OTHER = "other"
_WORK = (None, "finish", "ask")
# An imported history must not make the entry large.
_MOST_ENDS = 4
_MOST_KINDS = 10
_KIND_CHARACTERS = 24
_NAME_CHARACTERS = 60


def figures(
    task: Task,
    outcome: Outcome,
    nudges: Sequence[tuple[str, int]],
    *,
    changes: Callable[[str], bool],
    earlier: Figures | None = None,
    at: float,
) -> Figures:
    """The figures of `task`, which ended with `outcome`. A pure function of what it is given.

    nudges: the reminders of the task, each with the number of replies before it.
    changes: whether a tool of this name may change something (kinds write and terminal).
    earlier: what was recorded when the task ended before; None when it never did.
    at: the time now, in seconds since 1970.
    """
    resumed = sum(kind == RESUMED for kind, _ in nudges)
    ends = _ends(earlier, resumed)
    found = Figures(
        at=at,
        began=_began(task),
        model=_model(task),
        talk=sum(reply.talk for reply in task.replies),
        nudges=_nudges(task, nudges),
        refused=_refused(task, outcome),
        end=EndFigures(status=outcome.status, reason=_short(outcome.reason), turns=outcome.turns),
        ends=ends,
        resumed=resumed,
        cut_short=sum(_was_done(task, outcome, end, changes) for end in ends),
        went_on=_went_on(task, changes) if outcome.succeeded else 0,
        confirmed=_confirmed(task) if outcome.status == "success" else False,
        rules=_rules(task, outcome, nudges),
    )
    if delegates := _delegates(task):
        found["delegates"] = delegates
    return found


def _delegates(task: Task) -> dict[str, DelegateFigures]:
    """The delegates of the task, from the results of their calls."""
    found: dict[str, DelegateFigures] = {}
    for reply in task.replies if task.total.children else ():
        for call in reply.calls:
            result = reply.result(call)
            if result is None or not (mark := marks(result).get("delegate")):
                continue
            name = call.name[:_NAME_CHARACTERS]
            if name not in found and len(found) == _MOST_KINDS:
                name = OTHER
            one = found.setdefault(name, DelegateFigures(calls=0, done=0, turns=0, tokens=0, tool_calls=0))
            used = mark["used"]
            one["calls"] += 1
            one["done"] += result.status != "error"
            one["turns"] += used["turns"]
            one["tokens"] += used["tokens"]
            one["tool_calls"] += used["tool_calls"]
    return found


def refusal_kind(refused: RefusedFinish | None) -> str:
    """The name of a refusal: a key of `Texts.refusals`, `sent_back`, or `other`.

    `other` covers the refusals of an imported history.
    """
    return refused["kind"] if refused else OTHER


def _nudges(task: Task, nudges: Sequence[tuple[str, int]]) -> dict[str, NudgeFigures]:
    given, back = Counter[str](), Counter[str]()
    for kind, after in nudges:
        if kind not in NOT_CORRECTIONS:
            kind = kind[:_KIND_CHARACTERS]
            given[kind] += 1
            back[kind] += any(_works(reply) for reply in task.replies[after : after + 1])
    return {
        kind: NudgeFigures(given=times, back=back[kind]) for kind, times in given.most_common(_MOST_KINDS)
    }


def _works(reply: Reply) -> bool:
    return any(call.problem is None and call.effect in _WORK for call in reply.calls)


def _refused(task: Task, outcome: Outcome) -> dict[str, RefusalFigures]:
    times, needless = Counter[str](), Counter[str]()
    finishes = list(_finishes(task))
    claims = [found for found in finishes if found[1].control is found[2]]
    accepted = claims[-1] if claims and outcome.status == "success" else None
    for place, reply, call in finishes:
        if not _is_refused(task, reply, call):
            continue
        kind = refusal_kind(task.refused.get(reply.key(call)))[:_KIND_CHARACTERS]
        times[kind] += 1
        if accepted and kind != SENT_BACK and place < accepted[0] and _claim(call) == _claim(accepted[2]):
            after = [*task.replies[place + 1 : accepted[0]], accepted[1]]
            needless[kind] += not any(_did_work(found) for found in after)
    return {
        kind: RefusalFigures(times=n, needless=needless[kind]) for kind, n in times.most_common(_MOST_KINDS)
    }


def _finishes(task: Task) -> Iterator[tuple[int, Reply, Call]]:
    """Every finish call, with its reply and the index of that reply."""
    for place, reply in enumerate(task.replies):
        for call in reply.calls:
            if call.effect == "finish":
                yield place, reply, call


def _is_refused(task: Task, reply: Reply, call: Call) -> bool:
    """Whether a finish was refused, as `Outcome.refusals` counts it: by its verdict, or by an imported result
    that is an error."""
    return reply.key(call) in task.refused or (reply.failed(call) and reply.was_run(call))


def _claim(call: Call) -> str:
    return str(call.args.get("outcome", "done"))


def _did_work(reply: Reply, counts: Callable[[str], bool] = lambda _: True) -> bool:
    """Whether a work call of the reply ran whose tool counts."""
    return any(call.effect is None and counts(call.name) and reply.was_run(call) for call in reply.calls)


def _ends(earlier: Figures | None, resumed: int) -> list[EndFigures]:
    """The earlier ends. The same end may be recorded twice; one before a new `resumed` mark is another."""
    if earlier is None:
        return []
    if earlier["resumed"] >= resumed:
        return earlier["ends"]
    return [*earlier["ends"], earlier["end"]][-_MOST_ENDS:]


def _was_done(task: Task, outcome: Outcome, end: EndFigures, changes: Callable[[str], bool]) -> bool:
    believed = outcome.succeeded and outcome.verified != "unverified"
    return end["status"] == "limit" and believed and not _changed(task, end["turns"], changes)


def _changed(task: Task, since: int, changes: Callable[[str], bool]) -> bool:
    return any(_did_work(reply, changes) for reply in task.replies[since:])


def _went_on(task: Task, changes: Callable[[str], bool]) -> int:
    """The number of replies without use since the last change, not counting the accepted finish."""
    changed = [at for at, reply in enumerate(task.replies) if _did_work(reply, changes)]
    idle, seen = 0, set[str]()
    for reply in task.replies[changed[-1] + 1 if changed else 0 : -1]:
        made = {fingerprint(call.name, call.args) for call in reply.calls if call.effect is None}
        idle += made <= seen and not _is_of_use(task, reply)
        seen |= made
    return idle


def _is_of_use(task: Task, reply: Reply) -> bool:
    """Whether a reply without new work is still of use: it thinks, asks, reports a phase, or makes a claim
    that a person sent back."""
    steering = [call for call in reply.calls if call.effect is not None and call.problem is None]
    refused = [task.refused.get(reply.key(call)) for call in steering if call.effect == "finish"]
    needless = all(found is not None and found["kind"] != SENT_BACK for found in refused)
    return any(call.effect != "finish" for call in steering) or not needless


def _confirmed(task: Task) -> bool:
    found = [marks(result) for reply in task.replies[-1:] for result in reply.results]
    return any(notes.get("confirmed") for notes in found)


def _rules(task: Task, outcome: Outcome, nudges: Sequence[tuple[str, int]]) -> dict[str, int]:
    names = {rule.name for rule in RULES}
    controls = [reply.control for reply in task.replies if reply.control]
    fired = Counter(kind for kind, _ in nudges if kind in names)
    fired["think"] = task.turns
    fired["claimed"] = sum(call.effect == "finish" for call in controls)
    fired["asked"] = sum(call.effect == "ask" for call in controls)
    if outcome.status != "success" and outcome.reason in names:
        fired[outcome.reason] += 1
    return {name: times for name, times in fired.items() if times}


def _began(task: Task) -> float | None:
    noted = marks(task.replies[0].message) if task.replies else Marks()
    return noted["at"] - noted.get("seconds", 0.0) if "at" in noted else None


def _model(task: Task) -> str:
    found = task.last.message.response_metadata.get("model_name") if task.last else None
    return _short(found) if isinstance(found, str) else ""


def _short(text: str) -> str:
    return text[:_NAME_CHARACTERS]
