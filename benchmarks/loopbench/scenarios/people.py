"""A person is asked, and answers: in time, late, twice, or with something else."""

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Ask, Finish, call, reply
from benchmarks.loopbench.scenario import (
    Scenario,
    Setup,
    Step,
    Verdict,
    approve,
    decide,
    reject,
    send,
    verdict,
)

PAY = call("pay", to="ada", amount=5)
PAID = reply(Finish("Ada is paid."))
PAYING = Setup(("read", "pay"), approve=("pay",))


def broke(seen: Observed) -> str:
    """Asking and answering is no reason for a run to fail."""
    return f"it ended in an error ({seen.last.words})" if seen.last.status == "error" else ""


def unasked(seen: Observed) -> str:
    """Something was paid before anybody had decided."""
    decided = [step for step in seen.steps() if step.do == "decide"]
    early = seen.before(decided[0]) if decided else seen
    return "paid without asking" if early.effects("pay") else ""


def _approved_later(seen: Observed) -> Verdict:
    return verdict(
        seen,
        broke(seen),
        unasked(seen),
        len(seen.effects("pay")) != 1 and f"paid {len(seen.effects('pay'))} times",
        not seen.succeeded and "it did not come to its end",
    )


def _approved_twice(seen: Observed) -> Verdict:
    return verdict(
        seen,
        broke(seen),
        unasked(seen),
        len(seen.effects("pay")) != 1 and f"paid {len(seen.effects('pay'))} times",
        bool(seen.since(2).calls) and "the second approval called the model for a run that had ended",
    )


def _message_while_waiting(seen: Observed) -> Verdict:
    later = seen.since(1).calls
    heard = seen.last.status == "refused" or any(shown.says("pay nobody") for shown in later)
    return verdict(
        seen,
        broke(seen),
        unasked(seen),
        any(shown.dangling for shown in later) and "the model was shown a call without a result",
        not heard and "the message did not reach the model",
    )


def _other_arguments(seen: Observed) -> Verdict:
    return verdict(
        seen,
        unasked(seen),
        len(seen.effects("pay", amount=5)) != 1 and "what was approved was not done once",
        bool(seen.effects("pay", amount=500)) and "an approval of 5 paid 500",
    )


def _edited(seen: Observed) -> Verdict:
    amounts = [run.args["amount"] for run in seen.effects("pay")]
    return verdict(
        seen,
        broke(seen),
        unasked(seen),
        amounts != [5] and f"paid {amounts}, approved was 5",
        not any(shown.says("paid 5 to ada") for shown in seen.calls)
        and "the model did not see what was paid",
    )


def _rejected(seen: Observed) -> Verdict:
    return verdict(
        seen,
        broke(seen),
        bool(seen.effects("pay")) and "paid what was rejected",
        not any(shown.says("too much") for shown in seen.calls) and "the model was not told why",
        any(shown.dangling for shown in seen.calls) and "the model was shown a call without a result",
    )


def _one_of_two(seen: Observed) -> Verdict:
    paid = [str(run.args["to"]) for run in seen.effects("pay")]
    return verdict(
        seen, broke(seen), unasked(seen), paid != ["ada"] and f"paid {paid}, approved was ada alone"
    )


def _empty_answer(seen: Observed) -> Verdict:
    asked = bool(seen.reports) and seen.reports[0].status == "question"
    return verdict(
        seen,
        not asked and "the question was not put",
        len(seen.calls) != 2 and "the model was not called once more",
        any(shown.dangling for shown in seen.calls) and "the model was shown a call without a result",
        not seen.succeeded and "it did not come to its end",
    )


def _deadline(seen: Observed) -> Verdict:
    told = any(shown.says("Oslo") for shown in seen.since(1).calls)
    return verdict(
        seen,
        not seen.succeeded and "it did not come to its end",
        not told and "the default did not reach the model",
    )


def _stopped(seen: Observed) -> Verdict:
    return verdict(
        seen,
        len(seen.effects()) > 1 and "it went on to work",
        len(seen.calls) > 1 and "it went on to call the model",
        seen.succeeded and "a run that was stopped says success",
    )


SCENARIOS = (
    Scenario(
        "approved_later",
        "Can an approval be given in another process?",
        "Nothing is paid before it, and it is paid once after it, although the process that asked is gone.",
        _approved_later,
        (reply(PAY),),
        PAYING,
        (send("Pay ada 5."), approve(fresh=True)),
        needs=("approval", "durable_wait"),
        then=PAID,
        by_history=True,
    ),
    Scenario(
        "approved_twice",
        "What does the same approval delivered twice come to?",
        "One payment: the second finds nothing that waits.",
        _approved_twice,
        (reply(PAY),),
        PAYING,
        (send("Pay ada 5."), approve(), approve()),
        needs=("approval",),
        then=PAID,
        by_history=True,
    ),
    Scenario(
        "message_while_waiting",
        "What if the user writes something else while an approval waits?",
        "Nothing is paid without approval, the message reaches the model, and the call that waited has a "
        "result in what it is shown; or the message is refused, and the approval waits on.",
        _message_while_waiting,
        (reply(PAY), reply(call("read", name="bill"))),
        PAYING,
        (send("Pay ada 5."), send("Stop: pay nobody, just read the bill.")),
        needs=("approval",),
        then=reply(Finish("Nobody was paid.")),
    ),
    Scenario(
        "other_arguments",
        "Does an approval cover a later call with other arguments?",
        "No: somebody approved 5, not 500, whatever id the second call has.",
        _other_arguments,
        (
            reply(call("pay", to="ada", amount=5, id="call_0")),
            reply(call("pay", to="ada", amount=500, id="call_0")),
        ),
        PAYING,
        (send("Pay ada 5."), approve()),
        needs=("approval",),
        then=PAID,
    ),
    Scenario(
        "edited",
        "Does what a person changed before approving run, and does the model see it?",
        "Exactly what was approved is paid, once, and the model is shown what was paid.",
        _edited,
        (reply(call("pay", to="ada", amount=500)),),
        PAYING,
        (send("Pay ada 5."), decide({"type": "edit", "args": {"to": "ada", "amount": 5}})),
        needs=("approval", "edit"),
        then=PAID,
    ),
    Scenario(
        "rejected",
        "What becomes of a call that a person rejects?",
        "It is not run, and the model is told why.",
        _rejected,
        (reply(call("pay", to="ada", amount=500)),),
        PAYING,
        (send("Pay ada 500."), decide(reject("That is too much."))),
        needs=("approval",),
        then=reply(Finish("Nobody was paid.")),
    ),
    Scenario(
        "one_of_two",
        "Can one of two calls of a reply be approved and the other rejected?",
        "The approved one runs, the other does not.",
        _one_of_two,
        (reply(PAY, call("pay", to="bob", amount=7)),),
        PAYING,
        (
            send("Pay ada 5 and bob 7."),
            decide(
                {"type": "approve", "when": {"to": "ada"}},
                {**reject("Bob is paid already."), "when": {"to": "bob"}},
                times=3,
            ),
        ),
        needs=("approval",),
        then=reply(Finish("Ada is paid, bob is not.")),
    ),
    Scenario(
        "empty_answer",
        "Is an empty answer an answer?",
        "The run goes on, once, and the question has a result in what the model is shown.",
        _empty_answer,
        (reply(Ask("Which city?")),),
        Setup(asks=True),
        (send("Write about a city."), Step("answer", "")),
        needs=("ask",),
        then=reply(Finish("I took Oslo.")),
    ),
    Scenario(
        "deadline",
        "What if nobody answers a question in time?",
        "Its default is taken, and the run goes on.",
        _deadline,
        (reply(Ask("Which city?", default="Oslo", seconds=60)),),
        Setup(asks=True),
        (send("Write about a city."), Step("expire")),
        needs=("ask", "deadline"),
        then=reply(Finish("I took Oslo.")),
    ),
    Scenario(
        "stopped",
        "Does a run that is asked to stop while a tool runs do anything more?",
        "The tool ends, then nothing runs and the model is not called again, and it does not say success.",
        _stopped,
        (reply(call("write", name="a", text="1")), reply(call("write", name="b", text="2"))),
        steps=(send("Write a and b.", stop="write"),),
        needs=("stop",),
        then=reply(Finish("Both are written.")),
    ),
)
