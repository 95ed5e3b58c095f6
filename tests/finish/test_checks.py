"""Completion checks: what each comes to, what the model is told of it, and what a check cannot do."""

import asyncio
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from signoff import Check, build_graph, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, TEXTS, WRITE, Play, check, play, results
from tests.support.process_table import gone

GIVEN_UP = call("finish_task", summary="x", outcome="partial")
BLOCKED = call("finish_task", summary="x", outcome="blocked")
YES: Any = Command(resume="yes")


def passes(*checks: Any) -> Play:
    return play([FINISH], checks=list(checks), verified="verified", refusals=0)


def fails(*checks: Any, told: list[str]) -> Play:
    return play(
        [FINISH, GIVEN_UP], checks=list(checks), claim="partial", verified="asserted", refusals=1, told=told
    )


async def later() -> bool:
    await asyncio.sleep(0.01)
    return True


class Thing:
    """An object that can be called."""

    async def __call__(self, claim: dict[str, Any]) -> bool:
        return bool(claim["summary"])


def raises(error: BaseException) -> Callable[[], None]:
    def broken() -> None:
        raise error

    return broken


def raises_later(error: BaseException) -> Callable[[], Any]:
    async def broken() -> None:
        raise error

    return broken


def hangs() -> None:
    time.sleep(5)


def tampers(claim: dict[str, Any], messages: list[Any], state: dict[str, Any]) -> None:
    claim["summary"] = "changed"
    messages.clear()
    state.clear()


def two(number: int, claim: dict[str, Any]) -> bool:
    return number == 2 and claim["outcome"] == "done"


PASSES = {
    "an async function": passes(later),
    "it sees the claim": passes(lambda claim: (claim["summary"], claim["outcome"]) == ("All of it.", "done")),
    "it sees all": passes(lambda **given: set(given) == {"claim", "arguments", "messages", "state"}),
    "a command line": passes("echo hello | grep -q hello && test 1 -lt 2"),
    "a program and its arguments": passes([sys.executable, "-c", "import sys; sys.exit(0)"]),
    "a command has nothing to read": passes('test -z "$(cat)"'),
    "it changes nothing of the claim": passes(tampers),
}

FAILS = {
    "false": fails(lambda: False, told=["<check_returned> <lambda> False"]),
    "words": fails(lambda: "two are missing", told=["<check_failed> <lambda>", "two are missing"]),
    "it raises": fails(raises(ValueError("no index")), told=["<check_raised> broken ValueError", "no index"]),
    "it exits": fails(raises(SystemExit(3)), told=["<check_raised> broken SystemExit"]),
    "it is cancelled": fails(raises_later(asyncio.CancelledError()), told=["broken CancelledError"]),
    "it hangs": fails(Check(hangs, seconds=0.3), told=["<check_late> hangs 0.3"]),
    "a command fails": fails("echo oh no; exit 3", told=["<check_exit> echo oh no; exit 3 3", "oh no"]),
    "no such program": fails(["/no/such/program"], told=["<check_not_started> /no/such/program"]),
    "a command is killed": fails("kill -9 $$", told=["<check_signal> kill -9 $$ 9"]),
    "a command hangs": fails(Check("echo begun; sleep 30", seconds=0.5), told=["<check_killed>", "begun"]),
    "it ignores signals": fails(Check("trap '' TERM INT; sleep 30", seconds=0.5), told=["<check_killed>"]),
    "output that is no text": fails(r"printf '\377\000x'; exit 1", told=["\ufffd\ufffdx"]),
    "all are run": fails("echo one; false", lambda: "two", told=["echo one; false, <lambda>", "two"]),
}


def asks() -> bool:
    return bool(interrupt("ok?") == "yes")


def worked(messages: list[Any]) -> bool:
    return len(messages) > 4


def counts(messages: list[Any]) -> Any:
    return len(messages) > 5 or f"{len(messages)} are not enough"


CLAIMS = {
    "no check: asserted": play([FINISH], verified="asserted", checks=[]),
    "blocked proves nothing": play([BLOCKED], checks=["false"], claim="blocked", verified="asserted"),
    "work puts it right": play([FINISH, WRITE, FINISH], checks=[worked], ran="write", verified="verified"),
    "it may say something else of the same": play([FINISH] * 3, saved=False, checks=[counts], refusals=2),
    "a person accepts": play([FINISH] * 2, then=YES, checks=["false"], waits="finish", verified="unverified"),
    "it may ask": play([FINISH], then=YES, checks=[asks], waits="foreign", verified="verified"),
}

PLAYS = {
    **{f"passes: {name}": case for name, case in PASSES.items()},
    **{f"fails: {name}": case for name, case in FAILS.items()},
    **CLAIMS,
}


@pytest.mark.parametrize("name", PLAYS)
def test_a_check(name: str) -> None:
    check(PLAYS[name])


def test_the_outcome_keeps_each_check_that_ran_by_its_name_and_last_line() -> None:
    def is_tidy() -> None: ...

    partial: Any = functools.partial(two, 2)
    checks = ["echo first; echo 3 passed", is_tidy, partial, Thing(), ["echo", "x y"], "true " + "z" * 100]
    outcome = outcome_of(build_graph(ScriptedModel([FINISH]), checks=[*checks, is_tidy]).invoke(GO))
    lines = {found.name: found.said for found in outcome.checks if found.said}
    assert lines == {"echo first; echo 3 passed": "3 passed", "echo x y": "x y"}
    others = [found.name for found in outcome.checks if not found.said]
    assert others == ["is_tidy", "two", "Thing", "true " + "z" * 74 + "…", "is_tidy (2)"]


def test_what_a_person_accepts_keeps_the_verdict_and_shows_it() -> None:
    case = play([FINISH, FINISH], then=YES, checks=[lambda: "two tests fail"])
    played = check(case)
    outcome = outcome_of(played.result)
    assert "two tests fail" in played.waits[0]["problem"]
    (kept,) = outcome.checks
    assert (kept.passed, "two tests fail" in kept.said, outcome.verified) == (False, True, "unverified")


# What a check cannot do.


def test_20_mb_of_output_are_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loud = "echo the beginning; head -c 20000000 /dev/zero | tr '\\0' a; echo; echo the end; false"
    policy = {"result_chars": 2000, "texts": TEXTS}
    result = build_graph(ScriptedModel([FINISH, GIVEN_UP]), checks=[loud], policy=policy).invoke(GO)
    (told, _) = results(result)
    (kept,) = (tmp_path / "signoff" / "outputs").rglob("*.txt")
    assert len(told) < 3000
    assert "the end" in told
    assert str(kept) in told
    assert kept.stat().st_size < 10_000_000
    assert "the beginning" in kept.read_text()


def test_a_command_that_is_killed_takes_its_children_along_and_leaves_nothing_open(tmp_path: Path) -> None:
    noted, before = tmp_path / "pid", len(os.listdir("/proc/self/fd"))
    loud = Check(f"sh -c 'echo $$ > {noted}; sleep 60' & wait", seconds=0.7)
    build_graph(ScriptedModel([FINISH, GIVEN_UP]), checks=[loud]).invoke(GO)
    assert gone(int(noted.read_text()))
    assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_a_run_that_is_cancelled_kills_the_command(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    graph = build_graph(ScriptedModel([FINISH]), checks=[f"echo $$ > {noted}; sleep 60"])
    running = asyncio.ensure_future(graph.ainvoke(GO))
    while not noted.exists() or not noted.read_text():
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(gone, int(noted.read_text()))


async def test_a_check_that_waits_does_not_hold_up_other_runs() -> None:
    both = threading.Barrier(2, timeout=10)
    graph = build_graph(ScriptedModel([FINISH, FINISH]), checks=[lambda: both.wait() is not None])
    found = await asyncio.gather(*(graph.ainvoke(GO) for _ in range(2)))
    assert [outcome_of(result).verified for result in found] == ["verified"] * 2
