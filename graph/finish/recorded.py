"""The stored figures of a task, which the analytics keep beside its outcome."""

from typing import NotRequired, TypedDict


class NudgeFigures(TypedDict):
    """Reminders of one kind. back: those after which the model went back to work.

    It did if the very next reply makes a valid call of a working tool, a finish or a question. Talk, an empty
    reply, only `think` or a request for turns, malformed calls and no further reply do not count. A reminder
    between two rounds corrects nothing and is not counted.
    """

    given: int
    back: int


class RefusalFigures(TypedDict):
    """Finishes refused for one reason. needless: those whose claim was right.

    A refusal was needless if a later finish with the same claim was accepted and no working tool had run in
    between. A finish that a person sent back is a refusal, but never needless.
    """

    times: int
    needless: int


class EndFigures(TypedDict):
    """One end of a task; the task may continue afterwards."""

    status: str
    reason: str
    turns: int


class DelegateFigures(TypedDict):
    """The calls of one delegate: how many, how many succeeded, and the usage of all, including delegates
    below."""

    calls: int
    done: int
    turns: int
    tokens: int
    tool_calls: int


class Figures(TypedDict):
    """The figures of one task; JSON, below 2 KB.

    at: when it ended; began: when its first model call began (both in seconds since 1970).
    model: the name in its last reply. talk: replies without tool calls.
    nudges: by kind. refused: finishes, by reason. end: how it ended; ends: how it had ended before, the last
    four times; resumed: how often it continued after an end.

    cut_short: limits that ended the task although its work was already done, provided that the later claim is
    right. Nothing extra runs to find that out: a limit counts when the task was extended afterwards and ended
    with an accepted "done" that no check contradicts, and no call that may change something ran in between.
    Since nothing changed, the checks would have passed at the limit, too. A limit that is never extended is
    not counted, so this is a lower bound.

    went_on: for a task that ended as done, the useless replies after the last call that may have changed
    something: text alone, a needlessly refused finish, or only calls that repeat earlier ones since that
    change, with the same arguments. confirmed: a person confirmed the finish.

    delegates: the delegates that the task called, by name; absent if it called none.

    rules: how often each rule of `decide` fired that leaves a trace: a turn (`think`), a claim, a question, a
    reminder, and the rule that ended the task.
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
    went_on: int
    confirmed: bool
    delegates: NotRequired[dict[str, DelegateFigures]]
    rules: dict[str, int]
