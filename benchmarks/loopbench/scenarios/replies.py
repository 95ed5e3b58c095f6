"""What providers and models really send now and then."""

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Finish, Reply, call, reply
from benchmarks.loopbench.scenario import Scenario, Setup, Verdict, verdict

WRITE = call("write", name="report", text="all of it")
FINISH = reply(Finish("The report is written."))
HALF = '{"name": "report", "text": "The first half of'


def _truncated_call(seen: Observed) -> Verdict:
    cut = [run for run in seen.effects("write") if run.args.get("text") != "all of it"]
    return verdict(
        seen,
        bool(cut) and "the call that broke off was run",
        seen.succeeded and not seen.effects("write") and "success without the write",
    )


def _truncated_finish(seen: Observed) -> Verdict:
    cut = seen.succeeded and "on the whole" not in str(seen.last.final)
    return verdict(seen, cut and "a finish that broke off was taken for the end")


def _truncated_answer(seen: Observed) -> Verdict:
    cut = seen.succeeded and "all is quiet" not in str(seen.last.final)
    return verdict(seen, cut and "an answer that broke off passed for a complete one")


def _empty_reply(seen: Observed) -> Verdict:
    return verdict(
        seen, seen.succeeded and not seen.effects("write") and "an empty reply was taken for the end"
    )


def _filtered(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "a reply cut by the provider's filter passed for a success")


def _goes_on(seen: Observed) -> Verdict:
    """The slip is survived: the model repairs it, and the work is done once."""
    return verdict(
        seen,
        not seen.succeeded and "one slip ended the run",
        len(seen.effects("write")) != 1 and f"the work was done {len(seen.effects('write'))} times",
    )


def _failing_tool(seen: Observed) -> Verdict:
    return verdict(seen, not seen.succeeded and "a failing tool ended the run")


def _each_once(seen: Observed) -> Verdict:
    first, second = seen.effects("write", name="a"), seen.effects("write", name="b")
    answered = bool(seen.calls) and all(seen.calls[-1].says(f"written: {name}") for name in "ab")
    return verdict(
        seen,
        max(len(first), len(second)) > 1 and "a call was run twice",
        seen.succeeded and (len(first), len(second)) != (1, 1) and "success, but a call was lost",
        seen.succeeded and not answered and "the model did not get both results",
    )


SCENARIOS = (
    Scenario(
        "truncated_call",
        "Is a call run whose arguments broke off at the token limit?",
        "Never with half its arguments: the model tries again, or the run says that it failed.",
        _truncated_call,
        (reply(call("write", raw=HALF), reason="length"), reply(WRITE)),
        then=FINISH,
    ),
    Scenario(
        "truncated_finish",
        "Does a finish count that broke off at the token limit?",
        "It is asked for again, or the run does not say success.",
        _truncated_finish,
        (Reply((Finish("The report is written, and its figures have been", cut=True),), "length"),),
        Setup(finish="call"),
        needs=("finish_call",),
        then=reply(Finish("The report is written, on the whole.")),
    ),
    Scenario(
        "truncated_answer",
        "Does an answer in words that broke off at the token limit count as one?",
        "It is not returned as a success without a mark: the provider said that it is cut.",
        _truncated_answer,
        (Reply(("The report says that, as far as",), "length"),),
        then=reply(Finish("The report says that all is quiet.")),
    ),
    Scenario(
        "empty_reply",
        "Is an empty reply the end of the work?",
        "The model is asked again, or the run does not say success: nothing was said, nothing was done.",
        _empty_reply,
        (reply(), reply(WRITE)),
        then=FINISH,
    ),
    Scenario(
        "filtered",
        "Is a reply that the provider's content filter cut a success?",
        "No: the run ends by itself and does not say success.",
        _filtered,
        (),
        then=Reply(("I cannot help with",), "content_filter"),
    ),
    Scenario(
        "malformed_call",
        "What if the arguments of a call are not JSON?",
        "The model is told, and gets on with its work.",
        _goes_on,
        (reply(call("write", raw='{"name": "report", "text": ')), reply(WRITE)),
        then=FINISH,
        unruly="shape",
    ),
    Scenario(
        "wrong_arguments",
        "What if the arguments of a call do not fit the tool?",
        "The model is told, and gets on with its work.",
        _goes_on,
        (reply(call("write", title="report")), reply(WRITE)),
        then=FINISH,
        unruly="shape",
    ),
    Scenario(
        "unknown_tool",
        "What if the model calls a tool that there is not?",
        "The model is told, and gets on with its work.",
        _goes_on,
        (reply(call("erase", disk="all")), reply(WRITE)),
        then=FINISH,
    ),
    Scenario(
        "failing_tool",
        "What if a tool raises an exception?",
        "The model is told, and can say so in its answer: tools fail every day.",
        _failing_tool,
        (reply(call("fail", what="version 2")),),
        Setup(("read", "fail")),
        then=reply(Finish("The deployment failed.")),
    ),
    Scenario(
        "duplicate_ids",
        "What if two calls of one reply have the same id?",
        "Each is done once and the model gets both results; or the run does not say success.",
        _each_once,
        (
            reply(
                call("write", name="a", text="1", id="call_0"), call("write", name="b", text="2", id="call_0")
            ),
        ),
        then=FINISH,
    ),
    Scenario(
        "reused_ids",
        "What if a later reply uses the id of an earlier call again?",
        "Each is done once and the model gets both results; or the run does not say success. Some servers "
        "count from call_0 in every reply.",
        _each_once,
        (
            reply(call("write", name="a", text="1", id="call_0")),
            reply(call("write", name="b", text="2", id="call_0")),
        ),
        then=FINISH,
    ),
    Scenario(
        "transient_error",
        "What if the provider is unavailable for a moment?",
        "The run goes on, and what was done before is not done again.",
        _goes_on,
        (reply(WRITE), Reply(error=503)),
        then=FINISH,
    ),
    Scenario(
        "big_result",
        "What if a tool returns 10 MB?",
        "The task can still be finished: what the model is shown afterwards fits its context.",
        _goes_on,
        (reply(call("big", name="server")), reply(WRITE)),
        Setup(("read", "write", "big")),
        then=FINISH,
    ),
)
