"""What is recorded of a task that has ended: what led back to work, what was needless, what was cut short."""

import json
import time
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Limits, build_graph, go_on
from signoff.models import ScriptedModel, call, reply
from signoff.records import Figures, TaskRecord, read_ended

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}


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

WRITE, LOST, READ, OTHER = call("write"), call("write", ok=False), call("read"), call("read", path="b")
FINISH = call("finish_task", summary="All of it.")
PARTIAL = call("finish_task", summary="Half of it.", outcome="partial")
ASK, THINK = call("ask_user", question="Well?"), call("think", thought="hm")
VOID = [LOST, FINISH]
"""A finish that is refused for the call beside it."""
NO_FINISH = call("finish_task", summary="")
ON = go_on()


def recorded(*script: Any, given: Any = (GO,), limits: Limits | None = None, **options: Any) -> TaskRecord:
    """The record of the task after these inputs; a text answers what waits."""
    store = InMemoryStore()
    graph = build_graph(
        ScriptedModel([*script, *[WRITE] * 9], chunk_size=10_000),
        [write, read, pay],
        limits=limits or Limits(turns=len(script)),
        checkpointer=InMemorySaver(),
        store=store,
        **options,
    )
    for each in given:
        waits = graph.get_state(THREAD).interrupts
        graph.invoke(Command(resume={waits[0].id: each}) if isinstance(each, str) else each, THREAD)
    return read_ended(store)[-1]


def figures(*script: Any, **how: Any) -> Figures:
    return recorded(*script, **how).figures


# What the model replies after a reminder, whether its next reply led back to work, and how often it talked.
NEXT_REPLIES: dict[str, tuple[list[Any], dict[str, tuple[int, int]], int]] = {
    "a working tool": ([WRITE], {"talked": (1, 1)}, 1),
    "a finish": ([FINISH], {"talked": (1, 1)}, 1),
    "words again": (["nearly", WRITE], {"talked": (2, 1)}, 2),
    "a thought alone": ([THINK, WRITE], {"talked": (1, 0)}, 1),
    "nothing at all": ([reply(), WRITE], {"talked": (1, 0), "empty": (1, 1)}, 1),
    "a malformed call": ([call("write", raw='{"ok": ')], {"talked": (1, 0)}, 1),
}


@pytest.mark.parametrize("name", NEXT_REPLIES)
def test_a_reminder_led_back_to_work_when_the_next_reply_did(name: str) -> None:
    replies, nudges, talk = NEXT_REPLIES[name]
    found = figures("hi", *replies, FINISH, limits=Limits(turns=30))
    assert {kind: (count["given"], count["back"]) for kind, count in found["nudges"].items()} == nudges
    assert found["talk"] == talk


# What comes between a refused finish and the one that is accepted, and whether the refusal was needless.
BETWEEN: dict[str, tuple[list[Any], Any, int]] = {
    "nothing": ([], FINISH, 1),
    "a thought": ([THINK], FINISH, 1),
    "a read": ([READ], FINISH, 0),
    "a write": ([WRITE], FINISH, 0),
    "work beside the accepted finish": ([], [WRITE, FINISH], 0),
    "nothing, but it claims less": ([], PARTIAL, 0),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_refusal_was_needless_when_the_claim_was_accepted_without_work_between(name: str) -> None:
    between, finish, needless = BETWEEN[name]
    found = figures(VOID, *between, finish, limits=Limits(turns=30))
    assert found["refused"] == {"siblings": {"times": 1, "needless": needless}}


def test_a_call_that_a_person_rejected_between_is_no_work() -> None:
    script, limits = (VOID, call("pay"), FINISH), Limits(turns=30)
    found = figures(*script, limits=limits, approvals={"pay": True}, given=(GO, "reject"))
    assert found["refused"] == {"siblings": {"times": 1, "needless": 1}}


def test_what_a_person_sent_back_is_never_needless() -> None:
    asks = call("finish_task", summary="All of it.", requires_user_confirmation=True)
    found = figures(asks, FINISH, given=(GO, "Not yet."), limits=Limits(turns=30))
    assert found["refused"] == {"sent_back": {"times": 1, "needless": 0}}


@pytest.mark.parametrize("confirms", [True, False])
def test_a_person_who_confirmed_is_known_of(confirms: bool) -> None:
    finish = call("finish_task", summary="All of it.", requires_user_confirmation=confirms)
    assert figures(finish, given=(GO, "yes") if confirms else (GO,))["confirmed"] is confirms


# What comes after a limit until the accepted finish, and whether the limit cut the task short.
AFTER: dict[str, tuple[list[Any], int]] = {
    "a finish at once": ([FINISH], 1),
    "a look, then a finish": ([READ, FINISH], 1),
    "a change, then a finish": ([WRITE, FINISH], 0),
    "a finish that claims less": ([PARTIAL], 0),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_limit_cut_a_task_short_when_nothing_changed_until_the_accepted_finish(name: str) -> None:
    after, cut_short = AFTER[name]
    limits = Limits(turns=1)
    assert figures(WRITE, limits=limits)["cut_short"] == 0
    found = figures(WRITE, *after, limits=limits, given=(GO, go_on(turns=9)))
    assert found["ends"] == [{"status": "limit", "reason": "turns", "turns": 1}]
    assert found["cut_short"] == cut_short


def test_each_limit_is_judged_by_what_came_after_it() -> None:
    found = figures(WRITE, WRITE, FINISH, limits=Limits(turns=1), given=(GO, go_on(turns=1), go_on(turns=1)))
    assert [end["turns"] for end in found["ends"]] == [1, 2]
    assert (found["cut_short"], found["resumed"]) == (1, 2)


def test_an_error_before_a_retry_is_no_limit() -> None:
    found = figures(WRITE, RuntimeError("down"), FINISH, limits=Limits(turns=30), given=(GO, ON))
    assert (found["ends"][0]["status"], found["cut_short"]) == ("error", 0)


# Replies after the last change that brought nothing.
WENT_ON: dict[str, tuple[list[Any], int]] = {
    "a look": ([READ], 0),
    "the same look again": ([READ, READ], 1),
    "another look": ([READ, OTHER], 0),
    "words": (["it is done", "really"], 2),
    "a thought": ([THINK], 0),
    "a finish that was refused": ([NO_FINISH], 1),
}


@pytest.mark.parametrize("name", WENT_ON)
def test_replies_after_the_last_change_that_brought_nothing(name: str) -> None:
    between, went_on = WENT_ON[name]
    assert figures(WRITE, *between, FINISH, limits=Limits(turns=30))["went_on"] == went_on
    assert figures(WRITE, *between)["went_on"] == 0, "it never ended as done"


def test_the_rules_that_left_a_trace() -> None:
    found = figures("hi", ASK, FINISH, given=(GO, "blue"), limits=Limits(turns=30))
    assert found["rules"] == {"talked": 1, "think": 3, "claimed": 1, "asked": 1}
    assert figures(WRITE)["rules"] == {"think": 1, "turns": 1}
    assert figures(RuntimeError("down"))["rules"] == {}


def test_the_model_and_the_times_come_from_the_replies() -> None:
    begun = time.time()
    record = recorded(WRITE, FINISH)
    assert record.figures["model"] == "scripted"
    assert begun <= record.began <= record.at <= time.time()
    nothing = figures(RuntimeError("down"))
    assert (nothing["model"], nothing["began"]) == ("", None)


def test_the_record_stays_small() -> None:
    """Whatever a model writes: reasons, kinds and names are bounded, texts are not in it."""
    huge = "x" * 5_000
    script = [[call(huge, text=huge), call("finish_task", summary=huge, outcome=huge)] for _ in range(10)]
    limits, given = Limits(turns=1, refusals=99, repeats=None), (GO, *[go_on(turns=1)] * 9)
    found = figures(*script, limits=limits, given=given)
    assert len(found["ends"]) == 4
    assert len(json.dumps(found)) < 2048
