"""The limits in the whole loop: sync, async, and with a new process after every step."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.types import Command

from signoff import (
    Limits,
    Prices,
    SetupError,
    build_graph,
    current_outcome,
    extend,
    go_on,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call, reply
from signoff.storage.sqlite import SqliteStorage
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?")
SAME, OTHER, THINK = call("work", n=0), call("look", n=0), call("think", thought="hm")
PRICES = Prices(input=1, output=1)


def works(count: int, **usage: Any) -> list[Any]:
    """Calls that all differ."""
    return [reply(call("work", n=n), **usage) for n in range(count)]


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


class Bench:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.polled = 0

    def tools(self) -> list[Callable[..., str]]:
        def work(n: int) -> str:
            """Work."""
            self.ran.append(f"work {n}")
            return "worked"

        def look(n: int) -> str:
            """Look."""
            self.ran.append(f"look {n}")
            return "seen"

        def poll() -> str:
            """Poll."""
            self.polled += 1
            return f"{self.polled} %"

        def slow() -> str:
            """Takes its time."""
            self.ran.append("slow")
            time.sleep(0.8)
            return "done"

        look.metadata = {"kind": "read"}  # type: ignore[attr-defined]  # a function takes any attribute
        return [work, look, poll, slow]


@dataclass
class Case:
    """`says` are texts of reminders and results, in any order."""

    script: list[Any]
    limits: Limits
    reason: str = "finish_task"
    ends: dict[str, Any] = field(default_factory=dict)
    ran: int | None = None
    says: Sequence[str] = ()
    answers: Sequence[Any] = ()


CASES = {
    "as many calls as may run, then a finish": Case(
        [*works(2), FINISH], Limits(tool_calls=2), ran=2, ends={"tool_calls": 2, "turns": 3, "nudges": 1}
    ),
    "one call more is refused, and that is the end": Case(
        works(3),
        Limits(tool_calls=2),
        "tool_calls",
        ran=2,
        ends={"tool_calls": 2, "turns": 3, "open_work": ["work({'n': 2})"], "error": None},
        says=["1 tool call(s) left", "all tool calls that this task may make are used up"],
    ),
    "the calls of a reply that are too many are refused": Case(
        [["So be it.", *(call("work", n=n) for n in range(5))]],
        Limits(tool_calls=3),
        "tool_calls",
        ran=3,
        ends={"open_work": ["work({'n': 3})", "work({'n': 4})"], "last_text": "So be it."},
    ),
    "reads that run together, too": Case(
        [[call("look", n=n) for n in range(5)]], Limits(tool_calls=3), "tool_calls", ran=3
    ),
    "a finish with the last call of all": Case(
        [[call("work", n=0), call("work", n=1), FINISH]], Limits(tool_calls=2), ran=2
    ),
    "a finish after a refused call is void": Case(
        [[call("work", n=0), call("work", n=1), FINISH]],
        Limits(tool_calls=1),
        "tool_calls",
        ran=1,
        ends={"status": "limit", "claim": None, "refusals": 1},
    ),
    "bad calls cost nothing": Case(
        [call("nothing"), call("work", m=1), *works(1), FINISH], Limits(tool_calls=2), ran=1
    ),
    "tokens, judged between turns": Case(
        [paid(call("work", n=n)) for n in range(3)],
        Limits(tokens=300),
        "tokens",
        ran=3,
        ends={"turns": 3, "tool_calls": 3},
        says=[],
    ),
    "near the limit of tokens the model is told": Case(
        [*(paid(call("work", n=n)) for n in range(5)), paid(FINISH)],
        Limits(tokens=600),
        ends={"nudges": 1, "turns": 6},
        says=["about 100 tokens left"],
    ),
    "a finish on the last token": Case([paid(SAME), paid(FINISH)], Limits(tokens=200)),
    "an answer gets no more tokens": Case(
        [paid(ASK)], Limits(tokens=100), "tokens", answers=["blue"], ends={"turns": 1}
    ),
    "an answer gets one more turn": Case([ASK, FINISH], Limits(turns=1), answers=["blue"]),
    "the calls of a reply that costs too much are refused": Case(
        [paid(SAME), paid(call("work", n=1), call("work", n=2))],
        Limits(cost=0.0002, prices=PRICES),
        "cost",
        ran=1,
        ends={"open_work": ["work({'n': 1})", "work({'n': 2})"]},
        says=["all that this task may cost is spent"],
    ),
    "a finish on the last cent": Case([paid(SAME), paid(FINISH)], Limits(cost=0.0002, prices=PRICES)),
    "cost is free where nothing is limited": Case([paid(SAME), paid(FINISH)], Limits(prices=PRICES)),
    "the calls that are left when the time is over are refused": Case(
        [[call("slow"), call("slow"), call("slow")]],
        Limits(seconds=0.75),
        "seconds",
        ran=1,
        ends={"open_work": ["slow({})", "slow({})"]},
        says=["working time of this task is used up"],
    ),
    "the same work again and again": Case(
        [SAME] * 5,
        Limits(),
        "repeats",
        ran=5,
        ends={"turns": 5, "nudges": 1},
        says=["the same 3 times in a row"],
    ),
    "talk and thoughts between": Case(
        [SAME, "hm", SAME, THINK, SAME, "hm", SAME, THINK, SAME], Limits(), "repeats", ran=5
    ),
    "two calls in turn": Case([SAME, OTHER] * 5, Limits(), "repeats", ran=10, ends={"nudges": 1}),
    "three calls in turn": Case([SAME, OTHER, call("look", n=1)] * 5, Limits(), "repeats", ran=15),
    "a batch again and again": Case([[SAME, OTHER]] * 5, Limits(), "repeats", ran=10),
    "polling is no repetition": Case([call("poll")] * 12 + [FINISH], Limits(), ends={"nudges": 0}),
    "told in time, it does something else": Case(
        [SAME] * 3 + [call("work", n=1), FINISH], Limits(), ends={"nudges": 1}
    ),
    "the same call that does not exist": Case([call("nothing")] * 5, Limits(), "repeats", ran=0),
    "a finish after a row": Case([SAME] * 4 + [[SAME, FINISH]], Limits()),
    "told of the row, then of the limit": Case(
        [SAME] * 4, Limits(turns=4), "turns", ends={"nudges": 2}, says=["the same 3 times", "1 turn(s) left"]
    ),
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("mode", ["sync", "async", "restarts"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(40)
async def test_case(name: str, mode: str, storage: SqliteStorage) -> None:
    case, bench = CASES[name], Bench()
    with ScriptedModel(case.script) as model:
        for given in [GO, *(Command(resume=answer) for answer in case.answers)]:

            def fresh() -> Any:
                return build_graph(model, bench.tools(), limits=case.limits, storage=storage)

            if mode == "async":
                result = await fresh().ainvoke(given, THREAD)
            elif mode == "sync":
                result = fresh().invoke(given, THREAD)
            else:
                result = by_steps(fresh, given)
    outcome = result["outcome"]
    assert outcome["reason"] == case.reason
    assert outcome["status"] == ("success" if case.reason == "finish_task" else "limit")
    assert {key: outcome[key] for key in case.ends} == case.ends
    assert ("Extend it" in outcome["next"]) == (outcome["status"] == "limit")
    assert case.ran is None or len(bench.ran) == case.ran
    told = [m.text for m in result["messages"] if isinstance(m, HumanMessage | ToolMessage)]
    assert [text for text in case.says if text not in "\n".join(told)] == []


def by_steps(fresh: Callable[[], Any], given: Any) -> dict[str, Any]:
    """Every step of the machine by another graph that has read nothing before."""
    while True:
        graph = fresh()
        try:
            found: dict[str, Any] = graph.invoke(given, THREAD | {"recursion_limit": 1})
        except GraphRecursionError:
            reached = graph.get_state(THREAD)
            if current_outcome(reached.values):
                return dict(reached.values)
            given = go_on(reached)
        else:
            return found


AGAIN: dict[str, tuple[list[Any], Limits]] = {
    "turns": (works(2), Limits(turns=2)),
    "tool_calls": (works(3), Limits(tool_calls=2)),
    "tokens": ([paid(SAME), paid(OTHER)], Limits(tokens=200)),
    "cost": ([paid(SAME), paid(OTHER)], Limits(cost=0.0002, prices=PRICES)),
    "seconds": ([[call("slow"), call("slow")]], Limits(seconds=0.75)),
    "talk_turns": (["a", "b"], Limits(talk_turns=2)),
    "repeats": ([SAME, SAME], Limits(repeats=2)),
}


@pytest.mark.parametrize("reason", AGAIN)
def test_extending_goes_on_after_every_limit(reason: str, storage: SqliteStorage) -> None:
    script, limits = AGAIN[reason]
    after = [reply(part, usage=(1, 1)) for part in ("c", SAME, FINISH)]
    with ScriptedModel([*script, *after]) as model:
        graph = build_graph(model, Bench().tools(), limits=limits, storage=storage)
        first = graph.invoke(GO, THREAD)["outcome"]
        assert (first["status"], first["reason"]) == ("limit", reason)
        last = graph.invoke(extend(graph.get_state(THREAD).values, turns=3), THREAD)["outcome"]
    assert (last["status"], last["task"]) == ("success", first["task"])
    assert last["turns"] == first["turns"] + 3


@pytest.mark.parametrize("reason", sorted(set(AGAIN) - {"turns"}))
def test_an_extension_grants_the_whole_amount_once_more_and_no_more(
    reason: str, storage: SqliteStorage
) -> None:
    script, limits = AGAIN[reason]
    with ScriptedModel([*script, *script]) as model:
        graph = build_graph(model, Bench().tools(), limits=limits, storage=storage)
        first = graph.invoke(GO, THREAD)["outcome"]
        second = graph.invoke(extend(graph.get_state(THREAD).values, turns=9), THREAD)["outcome"]
    assert (second["reason"], second["turns"]) == (reason, 2 * first["turns"])
    assert second["tool_calls"] == 2 * first["tool_calls"]
    assert second["usage"]["total_tokens"] >= 2 * first["usage"]["total_tokens"]


def test_the_context_sets_limits_for_one_run() -> None:
    with ScriptedModel(works(2)) as model:
        graph = build_graph(model, Bench().tools())
        outcome = graph.invoke(GO, context={"tool_calls": 1})["outcome"]
    assert (outcome["reason"], outcome["tool_calls"]) == ("tool_calls", 1)


def test_a_cost_for_one_run_needs_the_prices_of_the_graph() -> None:
    graph = build_graph(ScriptedModel([FINISH]))
    with pytest.raises(SetupError, match="No price is known for the model"):
        graph.invoke(GO, context={"cost": 1.0})
    priced = build_graph(ScriptedModel([paid(SAME)]), Bench().tools(), limits=Limits(prices=PRICES))
    assert priced.invoke(GO, context={"cost": 0.0001})["outcome"]["reason"] == "cost"


def test_wrong_limits_of_a_run_are_refused_with_a_sentence() -> None:
    with pytest.raises(SetupError, match="Context: turns: Input should be greater"):
        build_graph(ScriptedModel([])).invoke(GO, context={"turns": 0})


def test_a_call_that_has_started_is_not_refused_by_a_limit_that_came_later(storage: SqliteStorage) -> None:
    """Killed after the effect; the run that picks it up may make no further calls."""

    def pay() -> str:
        """Pay."""
        interrupt_process()
        return "never heard"

    with ScriptedModel([*works(1), [call("pay"), call("pay")]]) as model:
        graph = build_graph(model, [*Bench().tools(), pay], storage=storage)
        with pytest.raises(KeyboardInterrupt):
            graph.invoke(GO, THREAD)
        result = graph.invoke(go_on(graph.get_state(THREAD)), THREAD, context={"tool_calls": 1})
    results = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert results[0] == "worked"
    assert sorted(text.split(":")[0] for text in results[1:]) == ["Not run", "Outcome unknown"]
    assert result["outcome"]["reason"] == "tool_calls"
