"""Does it end, and does it say that a limit ended it?"""

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Finish, call, reply
from benchmarks.loopbench.scenario import Kill, Scenario, Setup, Step, Verdict, approve, send, verdict

ALLOWED = 3
OVER = 1
"""Some find out by one call more, whose reply they drop: that is no second budget either."""
READS = tuple(reply(call("read", name=f"record {number}")) for number in range(12))
POLLS = 12


def _limit_said(seen: Observed) -> Verdict:
    return verdict(
        seen, seen.last.status != "limit" and f"it ended as {seen.last.status}, with no mark of the limit"
    )


def _last_turn(seen: Observed) -> Verdict:
    return verdict(
        seen,
        not seen.succeeded and "work that was done within the limit is no success",
        len(seen.effects("write")) != 1 and f"the work was done {len(seen.effects('write'))} times",
    )


def _limit_in_batch(seen: Observed) -> Verdict:
    return verdict(
        seen,
        len(seen.effects("write")) > 2 and f"{len(seen.effects('write'))} calls ran, 2 were allowed",
        any(shown.dangling for shown in seen.calls) and "the model was shown a call without a result",
    )


def _limit_over_pauses(seen: Observed) -> Verdict:
    second = seen.since(1)
    return verdict(
        seen,
        len(second.calls) > ALLOWED + OVER
        and f"{len(second.calls)} model calls in a task, {ALLOWED} were allowed",
        len(second.effects("pay")) < ALLOWED - 1 and "the second task did not get its own limit",
        second.succeeded and "a limit passed for a success",
    )


def _limit_over_restart(seen: Observed) -> Verdict:
    # The reply that came in while its process was killed is lost; asking for it again is no second budget.
    allowed = ALLOWED + 2
    return verdict(
        seen,
        len(seen.calls) > allowed + OVER
        and f"{len(seen.calls)} model calls in a task, {allowed - 1} were allowed",
        seen.last.status != "limit" and f"it ended as {seen.last.status}, with no mark of the limit",
    )


def _loop(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "going round in circles passed for a success")


def _polling(seen: Observed) -> Verdict:
    polls = sum(shown.says("done") for shown in seen.calls)
    return verdict(
        seen,
        not seen.succeeded and "patient polling was cut off",
        not polls and "the model never saw the job done",
    )


SCENARIOS = (
    Scenario(
        "limit_said",
        "Does a run that a limit ended say so?",
        "The caller can tell it from a success without reading prose.",
        _limit_said,
        READS,
        Setup(("read",), turns=ALLOWED),
        needs=("turn_limit",),
    ),
    Scenario(
        "finish_on_last_turn",
        "Is a finish on the last allowed call of the model a success?",
        "Yes: the work was done within the limit.",
        _last_turn,
        (reply(call("write", name="report", text="all of it")),),
        Setup(turns=2),
        needs=("turn_limit",),
        then=reply(Finish("The report is written.")),
    ),
    Scenario(
        "limit_in_batch",
        "What if a limit on tool calls is reached in the middle of a reply?",
        "No more than allowed run, and no call stays without a result in what the model is shown.",
        _limit_in_batch,
        (reply(*(call("write", name=f"part {number}", text="x") for number in range(4))),),
        Setup(tool_calls=2),
        needs=("call_limit",),
    ),
    Scenario(
        "limit_over_pauses",
        "Does a limit of a task hold while people approve its calls?",
        "The calls of the model in one task are counted over its pauses, and the next task has its own: else "
        "a run that pauses has no limit.",
        _limit_over_pauses,
        (reply(call("read", name="list")), reply(Finish("There are bills to pay."))),
        Setup(("read", "pay"), approve=("pay",), turns=ALLOWED),
        (send("Look whether there are bills."), send("Pay them all."), approve(times=10)),
        needs=("turn_limit", "approval"),
        then=reply(call("pay", to="ada", amount=5)),
    ),
    Scenario(
        "limit_over_restart",
        "Does a limit of a task hold over a crash?",
        "What was used up before the process was killed counts: else a run that crashes has no limit.",
        _limit_over_restart,
        READS,
        Setup(("read",), turns=ALLOWED + 1),
        (send(kill=Kill(nth=3, when="request")), Step("resume")),
        needs=("turn_limit", "crash"),
    ),
    Scenario(
        "loop",
        "Does a model that goes round in circles come to an end with nothing configured?",
        "The run ends by itself within 60 calls of the model and does not say success.",
        _loop,
        (reply(call("read", name="a")), reply(call("read", name="b")), reply(call("read", name="c"))) * 30,
        Setup(("read",)),
    ),
    Scenario(
        "polling",
        "Is a model that looks again and again until a job is done let alone?",
        "Its results change, so it is no loop: it comes to its end.",
        _polling,
        (reply(call("poll", job="build")),) * (POLLS + 1),
        Setup(("poll",), turns=30),
        then=reply(Finish("The build is done.")),
        needs=("turn_limit",),
    ),
)
