"""The process is killed, by SIGKILL, and the run goes on in another one."""

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Finish, call, reply
from benchmarks.loopbench.scenario import Kill, Scenario, Setup, Step, Verdict, send, verdict

PAY = call("pay", to="ada", amount=5)
PAID = reply(Finish("As far as I know it is paid."))
WRITE = call("write", name="report", text="all of it")
RESUME = Step("resume")


def _gave_up(seen: Observed) -> str:
    """A run that cannot be picked up again did not survive."""
    return f"it did not go on ({seen.last.words})" if seen.last.status == "refused" else ""


def _after_effect(seen: Observed) -> Verdict:
    return verdict(
        seen, len(seen.effects("pay")) > 1 and "paid twice", _gave_up(seen), _lost(seen, "pay", "ada")
    )


def _between_tools(seen: Observed) -> Verdict:
    ada, bob = seen.effects("pay", to="ada"), seen.effects("pay", to="bob")
    return verdict(
        seen,
        len(ada) > 1 and "the payment that was done was done again",
        len(bob) > 1 and "the second payment was done twice",
        any(shown.dangling for shown in seen.calls) and "the model was shown a call without a result",
        _gave_up(seen),
    )


def _before_reply(seen: Observed) -> Verdict:
    return verdict(
        seen,
        len(seen.effects("write")) > 1 and "the write was done again",
        not seen.succeeded and "it did not come to its end",
    )


def _resumed_twice(seen: Observed) -> Verdict:
    first, second = seen.since(1).before(seen.steps()[2]), seen.since(2)
    return verdict(
        seen,
        len(seen.effects("write")) > 1 and "the write was done again",
        not first.succeeded and "it did not come to its end",
        bool(second.calls) and "the second resume called the model for a run that had ended",
    )


def _two_runners(seen: Observed) -> Verdict:
    return verdict(
        seen,
        len(seen.effects("pay")) > 1 and "paid twice",
        not any(report.status == "success" for report in seen.reports) and "it did not come to its end",
    )


def _lost(seen: Observed, tool: str, to: str) -> str:
    """A call whose effect happened must not vanish from what the model is shown."""
    later = seen.calls[1:]
    known = all(
        shown.says(to) or any(to in args for m in shown.messages for _, _, args in m.calls) for shown in later
    )
    return "" if known else f"the model was not shown that it had called {tool}"


SCENARIOS = (
    Scenario(
        "crash_after_effect",
        "Is a payment made again that was made just before the process was killed?",
        "Not by the framework on its own: what is not known to be undone is not repeated, and the model or a "
        "person is told. Paying twice is worse than asking.",
        _after_effect,
        (reply(PAY),),
        Setup(("read", "pay")),
        (send("Pay ada 5.", kill=Kill("pay", when="after")), RESUME),
        needs=("crash",),
        then=PAID,
        by_history=True,
    ),
    Scenario(
        "crash_between_tools",
        "What if the process is killed between two calls of one reply?",
        "The one that was done is not done again, and every call has a result in what the model is shown.",
        _between_tools,
        (reply(PAY, call("pay", to="bob", amount=7)),),
        Setup(("read", "pay")),
        (send("Pay ada 5 and bob 7.", kill=Kill("pay", nth=2, when="before")), RESUME),
        needs=("crash",),
        then=PAID,
        by_history=True,
    ),
    Scenario(
        "crash_before_reply",
        "What if the process is killed while it waits for the model?",
        "The run goes on from there, and what was done is not done again.",
        _before_reply,
        (reply(WRITE),),
        steps=(send(kill=Kill(nth=2, when="request")), RESUME),
        needs=("crash",),
        then=reply(Finish("The report is written.")),
        by_history=True,
    ),
    Scenario(
        "resumed_twice",
        "What if a run that was picked up after a crash and has ended is picked up again?",
        "Nothing: no call of the model, nothing done again.",
        _resumed_twice,
        (reply(WRITE),),
        steps=(send(kill=Kill(nth=2, when="request")), RESUME, RESUME),
        needs=("crash",),
        then=reply(Finish("The report is written.")),
        by_history=True,
    ),
    Scenario(
        "two_runners",
        "What if two processes pick the same run up at the same time?",
        "One of them does; the payment is made once.",
        _two_runners,
        (reply(call("read", name="bill")), reply(PAY)),
        Setup(("read", "pay")),
        (send("Pay the bill.", kill=Kill(nth=2, when="request")), Step("resume", at_once=2)),
        needs=("crash", "one_runner"),
        then=PAID,
        by_history=True,
    ),
)
