"""What the analytics keep of a task beside its outcome: its figures, as they are stored."""

from typing import NotRequired, TypedDict


class NudgeFigures(TypedDict):
    """Reminders of one kind. back: those after which the model went back to work.

    That is: the reply right after the reminder makes a call that can run, of a working tool, a finish or a
    question. These do not count: talk, an empty reply, `think` or a request for turns alone, malformed calls,
    no further reply. A reminder between two rounds puts nothing right and is not counted.
    """

    given: int
    back: int


class RefusalFigures(TypedDict):
    """Finishes refused for one reason. needless: those whose claim was right.

    That is: a finish that `review` refused, while a later one with the same claim was accepted and no working
    tool had run between the two. What a person sent back is a refusal and never needless.
    """

    times: int
    needless: int


class EndFigures(TypedDict):
    """One end of a task; it may go on afterwards."""

    status: str
    reason: str
    turns: int


class DelegateFigures(TypedDict):
    """The calls of one delegate: how many, how many of them were done, and what they and all below used."""

    calls: int
    done: int
    turns: int
    tokens: int
    tool_calls: int


class Figures(TypedDict):
    """The figures of one task; JSON, below 2 KB.

    at: when it ended; began: when its first model call began (both in seconds since 1970).
    model: the name that its last reply gave. talk: replies of words only.
    nudges: by kind. refused: finishes, by reason. end: how it ended; ends: how it had ended before, the last
    four times; resumed: how often it went on after an end.

    cut_short: limits that ended the task although its work was done, if the claim that it was is right.
    Nothing extra is run to find that out: it counts when the task was extended afterwards and ended with an
    accepted "done" that no check contradicts, and no call that may change something had run since. Nothing
    had changed, so the checks would have passed at the limit, too. A limit that nobody extends is never
    counted: this is a lower bound.

    went_on: replies that brought nothing, after the last call that may have changed something: words alone, a
    finish that was refused needlessly, or only calls that had been made since that change, with the same
    arguments; of a task that ended as done. confirmed: a person confirmed the finish. Neither was recorded by
    version 0.1.0.

    delegates: those that the task called, by name; it is not there for a task that called none.

    rules: how often a rule of `decide` fired, of those that leave a trace: a turn (`think`), a claim, a
    question, a reminder, and the rule that ended the task.
    """

    at: float
    began: float | None
    model: str
    talk: int
    nudges: dict[str, NudgeFigures]
    refused: dict[str, RefusalFigures]
    end: EndFigures
    ends: list[EndFigures]
    resumed: int
    cut_short: int
    went_on: NotRequired[int]
    confirmed: NotRequired[bool]
    delegates: NotRequired[dict[str, DelegateFigures]]
    rules: dict[str, int]
