"""What is recorded of a task that has ended: what led back to work, what was needless, what was cut short."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import Limits, build_graph, go_on
from signoff.models import ScriptedModel, call
from signoff.records import TaskRecord, read_ended
from tests.support.plays import ASK, FINISH, GO, THINK, THREAD, saved


@tool
def write(ok: bool = True) -> str:
    """Write."""
    if not ok:
        raise ValueError("it broke")
    return "written"


@tool
def read(path: str = "a") -> str:
    """Read."""
    return path


@tool
def pay() -> str:
    """Pay."""
    return "paid"


read.metadata = {"kind": "read"}

WRITE, LOST, READ = call("write"), call("write", ok=False), call("read")
PARTIAL = call("finish_task", summary="Half of it.", outcome="partial")
BLOCKED = call("finish_task", summary="No key.", outcome="blocked")
VOID = [LOST, FINISH]
"""A finish that is refused for the call beside it."""
NO_FINISH = call("finish_task", summary="")
CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)


def record_of(script: Sequence[Any], given: Sequence[Any], turns: int, approvals: Any = None) -> TaskRecord:
    """The record of the task after these inputs; a text answers what waits."""
    storage = saved()
    graph = build_graph(
        ScriptedModel([*script, *[WRITE] * 9], chunk_size=10_000),
        [write, read, pay],
        limits=Limits(turns=turns, refusals=99, repeats=None),
        approvals=approvals,
        **storage,
    )
    for each in given:
        waits = graph.get_state(THREAD).interrupts
        graph.invoke(Command(resume={waits[0].id: each}) if isinstance(each, str) else each, THREAD)
    return read_ended(storage["store"])[-1]


class Case(NamedTuple):
    """What the model replies before it works without an end, what is sent, and what is recorded of it."""

    script: list[Any]
    records: dict[str, Any]
    given: Sequence[Any] = (GO,)
    turns: int = 30
    approvals: Any = None


def nudged(given: int, back: int) -> dict[str, int]:
    return {"given": given, "back": back}


def needless(times: int) -> dict[str, Any]:
    return {"refused": {"siblings": {"times": 1, "needless": times}}}


LIMIT = {"status": "limit", "reason": "turns"}
SENT_BACK = {"refused": {"sent_back": {"times": 1, "needless": 0}}}
# Whether the reply after a reminder led back to work, and how often the model talked.
REMINDERS = {
    "words again": Case(["hi", "nearly", WRITE, FINISH], {"nudges": {"talked": nudged(2, 1)}, "talk": 2}),
    "a thought alone": Case(["hi", THINK, WRITE, FINISH], {"nudges": {"talked": nudged(1, 0)}, "talk": 1}),
}
# A refusal was needless when the same claim was accepted without work between.
REFUSALS = {
    "nothing": Case([VOID, FINISH], needless(1)),
    "a read": Case([VOID, READ, FINISH], needless(0)),
    "nothing, but it claims less": Case([VOID, PARTIAL], needless(0)),
    "what a person sent back": Case([CONFIRM, FINISH], SENT_BACK | {"confirmed": False}, (GO, "Not yet.")),
    "what a person confirmed": Case([CONFIRM], {"refused": {}, "confirmed": True}, (GO, "yes")),
}
# A limit cut a task short when nothing changed between it and the accepted finish.
LIMITED = (GO, go_on(turns=9))
LIMITS = {
    "a finish at once": Case([WRITE, FINISH], {"cut_short": 1, "ends": [LIMIT | {"turns": 1}]}, LIMITED, 1),
    "a change, then a finish": Case([WRITE, WRITE, FINISH], {"cut_short": 0}, LIMITED, 1),
    "a finish that gives up": Case([WRITE, BLOCKED], {"cut_short": 0}, LIMITED, 1),
    "each by what came after it": Case(
        [WRITE, WRITE, FINISH],
        {"cut_short": 1, "resumed": 2, "ends": [LIMIT | {"turns": 1}, LIMIT | {"turns": 2}]},
        (GO, go_on(turns=1), go_on(turns=1)),
        1,
    ),
}
# How many replies after the last change brought nothing.
REPLIES = {
    "the same look again": Case([WRITE, READ, READ, FINISH], {"went_on": 1}),
    "words": Case([WRITE, "it is done", "really", FINISH], {"went_on": 2}),
    "a finish that was refused": Case([WRITE, NO_FINISH, FINISH], {"went_on": 1}),
}
RULES = {
    "a question and a finish": Case(
        ["hi", ASK, FINISH], {"rules": {"talked": 1, "think": 3, "claimed": 1, "asked": 1}}, (GO, "blue")
    ),
    "an error": Case([RuntimeError("down")], {"rules": {}, "model": "", "began": None}),
}
CASES = {
    f"{group}: {name}": case
    for group, table in {
        "after a reminder": REMINDERS,
        "after a refusal": REFUSALS,
        "after a limit": LIMITS,
        "after the last change": REPLIES,
        "the rules of": RULES,
    }.items()
    for name, case in table.items()
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_recorded(name: str) -> None:
    script, records, given, turns, approvals = CASES[name]
    figures: Any = record_of(script, given, turns, approvals).figures
    assert {key: figures[key] for key in records} == records


def test_the_record_stays_small() -> None:
    """Whatever a model writes: reasons, kinds and names are bounded, texts are not in it."""
    huge = "x" * 5_000
    script = [[call(huge, text=huge), call("finish_task", summary=huge, outcome=huge)] for _ in range(10)]
    figures = record_of(script, [GO, *[go_on(turns=1)] * 9], 1).figures
    assert len(figures["ends"]) == 4
    assert len(json.dumps(figures)) < 2048
