"""When is the work done?"""

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Ask, Finish, call, reply
from benchmarks.loopbench.scenario import Scenario, Setup, Verdict, send, verdict

WRITE = call("write", name="report", text="all of it")
GOOD = {"city": "Oslo", "population": 709_000}


def _batch_finish(seen: Observed) -> Verdict:
    return verdict(
        seen,
        seen.succeeded
        and not seen.effects("write")
        and "success, but the write beside the finish was not done",
        len(seen.effects("write")) > 1 and "the write was done twice",
    )


def _failed_sibling(seen: Observed) -> Verdict:
    told = any(shown.says("disk-17") for shown in seen.calls)
    return verdict(seen, seen.succeeded and not told and "success, and the model never saw the failure")


def _blind_finish(seen: Observed) -> Verdict:
    told = any(shown.says("balance holds") for shown in seen.calls)
    return verdict(seen, seen.succeeded and not told and "success, and the model never saw what it had read")


def _plain_answer(seen: Observed) -> Verdict:
    return verdict(
        seen,
        not seen.succeeded and "the answer did not come back as a success",
        "Oslo" not in str(seen.last.final) and "the answer did not reach the caller",
        len(seen.calls) > 2 and f"the model was called {len(seen.calls)} times for one answer",
    )


def _repeated_finish(seen: Observed) -> Verdict:
    return verdict(
        seen,
        not seen.succeeded and "it did not end as a success",
        len(seen.calls) > 1 and "the model was called again after it had finished",
    )


def _calls_after_finish(seen: Observed) -> Verdict:
    told = any(shown.says("written: report") for shown in seen.calls)
    unseen = seen.succeeded and bool(seen.effects("write")) and not told
    return verdict(seen, unseen and "it went on to write after the finish, and nobody saw the result")


def _earlier_finish(seen: Observed) -> Verdict:
    second = seen.since(1)
    return verdict(
        seen,
        not second.succeeded and "the second task did not end as a success",
        not second.effects("write", name="appendix") and "the second task was not done",
        "appendix" not in str(second.last.final) and "the answer is not that of the second task",
    )


def _promise(seen: Observed) -> Verdict:
    return verdict(
        seen, seen.succeeded and not seen.effects("write") and "a promise was taken for the end of the work"
    )


def _talk_forever(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "talk was taken for a finish")


def _structured_never(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "success with an answer that does not fit")


def _structured_repaired(seen: Observed) -> Verdict:
    return verdict(
        seen,
        not seen.succeeded and "it did not end as a success",
        seen.last.final != GOOD and f"the answer is {seen.last.final!r}",
    )


def _gate_never(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "success, although the check never passed")


def _gate_after_write(seen: Observed) -> Verdict:
    told = any(shown.says("has not been written yet") for shown in seen.calls)
    return verdict(
        seen,
        not seen.succeeded and "it did not end as a success",
        not seen.effects("write") and "the work was not done",
        not told and "the model was not told what is missing",
    )


def _ask_and_finish(seen: Observed) -> Verdict:
    return verdict(seen, seen.succeeded and "success over a question that nobody answered")


SCENARIOS = (
    Scenario(
        "batch_finish",
        "What becomes of a write that stands beside a finish in one reply?",
        "It is done, once, before the run says success; or the run does not say success. A caller who reads "
        "success relies on all work of that reply being done.",
        _batch_finish,
        (reply(WRITE, Finish("The report is written.")),),
        Setup(finish="call"),
        needs=("finish_call",),
        then=reply(Finish("The report is written.")),
    ),
    Scenario(
        "failed_sibling",
        "Is a finish believed that was claimed beside a call that fails?",
        "The model sees the failure before the run says success, or the run does not say success. The claim "
        "was made before its author could know.",
        _failed_sibling,
        (reply(call("fail", what="version 2"), Finish("Deployed without problems.")),),
        Setup(("read", "fail"), finish="call"),
        needs=("finish_call",),
        then=reply(Finish("The deployment failed: the disk is full.")),
    ),
    Scenario(
        "blind_finish",
        "Is a finish believed that was claimed beside a read whose result it reports?",
        "The model sees what it has read before the run says success, or the run does not say success: what "
        "the finish says of it is a guess.",
        _blind_finish,
        (reply(call("read", name="balance"), Finish("The balance is 500.")),),
        Setup(("read",), finish="call"),
        needs=("finish_call",),
        then=reply(Finish("The balance is quiet.")),
    ),
    Scenario(
        "repeated_finish",
        "What does the same finish twice in one reply come to?",
        "One end, as a success, without another call of the model: it said the same thing twice.",
        _repeated_finish,
        (reply(Finish("All is done."), Finish("All is done.")),),
        Setup(finish="call"),
        needs=("finish_call",),
    ),
    Scenario(
        "calls_after_finish",
        "What becomes of a write that stands after the finish in one reply?",
        "It is not done; or it is done and the model sees its result before the run says success. Nothing is "
        "changed behind the back of a run that has ended.",
        _calls_after_finish,
        (reply(Finish("Nothing needs to be written."), WRITE),),
        Setup(finish="call"),
        needs=("finish_call",),
    ),
    Scenario(
        "earlier_finish",
        "Does the finish of an earlier task end the next one?",
        "The second message gets its own work and its own answer: the finish in the history is not its own.",
        _earlier_finish,
        (
            reply(Finish("The report is written.")),
            reply(call("write", name="appendix", text="figures")),
            reply(Finish("The appendix is written.")),
        ),
        steps=(send("Write the report."), send("Now write the appendix.")),
    ),
    Scenario(
        "plain_answer",
        "Is an answer in words enough where the user only asked something?",
        "The words are the run's result, as a success, with at most one reminder: most models answer a "
        "question without a call.",
        _plain_answer,
        (),
        steps=(send("What is the capital of Norway?"),),
        then=reply("The capital of Norway is Oslo."),
        unruly="talk",
    ),
    Scenario(
        "promise",
        "Is 'I will do it now' without a call the end of the work?",
        "The run goes on, or does not say success: where a finish is a call, an announcement is none.",
        _promise,
        (reply("I will write the report now."), reply(WRITE), reply(Finish("The report is written."))),
        Setup(finish="call"),
        needs=("finish_call",),
        unruly="talk",
    ),
    Scenario(
        "talk_forever",
        "What becomes of a model that only talks, whatever it is told?",
        "The run ends by itself, with nothing configured, and does not say success.",
        _talk_forever,
        (),
        Setup(finish="call"),
        needs=("finish_call",),
        then=reply("I am still thinking about it."),
        unruly="talk",
    ),
    Scenario(
        "structured_never",
        "What if the structured answer never fits its shape?",
        "The run ends by itself, with nothing configured, and does not say success.",
        _structured_never,
        (),
        Setup(finish="structured"),
        needs=("structured",),
        then=reply(Finish("Here it is.", {"city": "Oslo"})),
        unruly="shape",
    ),
    Scenario(
        "structured_repaired",
        "What if the structured answer fits at the second attempt?",
        "The model is told what is wrong, and the second answer is the run's.",
        _structured_repaired,
        (reply(Finish("Here it is.", {"city": "Oslo"})),),
        Setup(finish="structured"),
        needs=("structured",),
        then=reply(Finish("Here it is.", GOOD)),
        unruly="shape",
    ),
    Scenario(
        "gate_never",
        "What if a completion check refuses every finish?",
        "The run ends by itself, with nothing else configured, and does not say success: a check that cannot "
        "be met must not spin.",
        _gate_never,
        (reply(WRITE),),
        Setup(gate="never"),
        needs=("gate",),
        then=reply(Finish("The report is written.")),
    ),
    Scenario(
        "gate_after_write",
        "Does a refused finish lead back to work?",
        "The model is told what is missing, does it, and the run ends as a success.",
        _gate_after_write,
        (reply(Finish("All is done.")), reply(WRITE)),
        Setup(gate="after_write"),
        needs=("gate",),
        then=reply(Finish("The report is written.")),
    ),
    Scenario(
        "ask_and_finish",
        "Which counts when a reply asks the user and finishes?",
        "The question is put, or the run does not say success: the model does not know the answer yet.",
        _ask_and_finish,
        (reply(Ask("Which city?"), Finish("It is done.")),),
        Setup(finish="call", asks=True),
        needs=("ask", "finish_call"),
    ),
)
