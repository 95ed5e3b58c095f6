"""Completion checks: what each comes to, what the model is told of it, and what a check cannot do."""

import asyncio
import functools
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from signoff import Check, SetupError, build_graph, outcome_of
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


async def later_wrong() -> str:
    await asyncio.sleep(0.01)
    return "the page is empty"


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


async def hangs_later() -> None:
    await asyncio.sleep(5)


def tampers(claim: dict[str, Any], messages: list[Any], state: dict[str, Any]) -> None:
    claim["summary"] = "changed"
    messages.clear()
    state.clear()


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


def fails_at(number: int) -> Callable[..., bool]:
    return lambda messages: len(messages) != number


def two(number: int, claim: dict[str, Any]) -> bool:
    return number == 2 and claim["outcome"] == "done"


PASSES = {
    "true": passes(lambda: True),
    "nothing": passes(lambda: None),
    "an async function": passes(later),
    "a function that gives back a coroutine": passes(lambda: later()),
    "an object": passes(Thing()),
    "a partial function": passes(functools.partial(two, 2)),
    "it sees the claim": passes(lambda claim: (claim["summary"], claim["outcome"]) == ("All of it.", "done")),
    "it sees the arguments as they came": passes(lambda arguments: arguments == {"summary": "All of it."}),
    "it sees the messages": passes(lambda messages: messages[0].text == "do it"),
    "it sees the state": passes(lambda state: len(state["messages"]) == 2),
    "it sees all": passes(lambda **given: set(given) == {"claim", "arguments", "messages", "state"}),
    "an argument with a default of its own": passes(lambda claim, least=1: len(claim["summary"]) > least),
    "a command line": passes("echo hello | grep -q hello && test 1 -lt 2"),
    "a program and its arguments": passes([sys.executable, "-c", "import sys; sys.exit(0)"]),
    "a command has nothing to read": passes('test -z "$(cat)"'),
    "several": passes(lambda: True, "true", later),
    "it changes nothing of the claim": passes(tampers),
    "it leaves something behind": passes("sleep 5 &"),
}

FAILS = {
    "false": fails(lambda: False, told=["<check_returned> <lambda> False"]),
    "words": fails(lambda: "two are missing", told=["<check_failed> <lambda>", "two are missing"]),
    "no words": fails(lambda: "", told=["<check_failed> <lambda>"]),
    "another value": fails(lambda: 0, told=["<check_returned> <lambda> 0"]),
    "a value that cannot be shown": fails(lambda: Unprintable(), told=["<Unprintable>"]),
    "an async function": fails(later_wrong, told=["<check_failed> later_wrong", "the page is empty"]),
    "it raises": fails(raises(ValueError("no index")), told=["<check_raised> broken ValueError", "no index"]),
    "it raises a time-out": fails(raises(TimeoutError("slow")), told=["<check_raised> broken TimeoutError"]),
    "it exits": fails(raises(SystemExit(3)), told=["<check_raised> broken SystemExit"]),
    "an async function raises": fails(
        raises_later(ValueError("no")), told=["<check_raised> broken ValueError"]
    ),
    "an async function exits": fails(raises_later(SystemExit(3)), told=["<check_raised> broken SystemExit"]),
    "an async function is cancelled": fails(
        raises_later(asyncio.CancelledError()), told=["<check_raised> broken CancelledError"]
    ),
    "it hangs": fails(Check(hangs, seconds=0.3), told=["<check_late> hangs 0.3"]),
    "an async function hangs": fails(Check(hangs_later, seconds=0.3), told=["<check_late> hangs_later 0.3"]),
    "a command fails": fails("echo oh no; exit 3", told=["<check_exit> echo oh no; exit 3 3", "oh no"]),
    "a command writes to stderr": fails("echo oh no >&2; exit 1", told=["oh no"]),
    "a program that does not exist": fails(
        ["/no/such/program"], told=["<check_not_started> /no/such/program"]
    ),
    "a command that the shell does not know": fails(
        "no-such-command", told=["<check_exit> no-such-command 127"]
    ),
    "a command is killed": fails("kill -9 $$", told=["<check_signal> kill -9 $$ 9"]),
    "a command hangs": fails(Check("echo begun; sleep 30", seconds=0.5), told=["<check_killed>", "begun"]),
    "a command that cannot be stopped politely": fails(
        Check("trap '' TERM INT HUP; sleep 30 & wait", seconds=0.5), told=["<check_killed>"]
    ),
    "output that is no text": fails(r"printf '\377\000x'; exit 1", told=["\ufffd\ufffdx"]),
    "braces in the output": fails("echo '{0} {name}'; false", told=["{0} {name}"]),
    "all are run, and all that fail are told": fails(
        "echo one; false", lambda: True, lambda: "two", told=["echo one; false, <lambda> (2)", "one", "two"]
    ),
}

CLAIMS = {
    "no check: asserted": play([FINISH], verified="asserted", checks=[]),
    "an honest blocked has nothing to prove": play(
        [BLOCKED], checks=["false"], claim="blocked", verified="asserted"
    ),
    "work puts it right": play(
        [FINISH, WRITE, FINISH],
        checks=[lambda messages: len(messages) > 4],
        ran="write",
        verified="verified",
        refusals=1,
    ),
    "the same failure twice: a person may accept": play(
        [FINISH, FINISH], then=YES, checks=["date +%N; false"], waits="finish", verified="unverified"
    ),
    "the same failure twice, and nobody there": play(
        [FINISH, FINISH], checks=["date +%N; false"], saved=False, reason="review_deadlock", refusals=2
    ),
    "another check fails the second time": play(
        [FINISH] * 3, checks=[fails_at(2), fails_at(4)], saved=False, verified="verified", refusals=2
    ),
    "a check may ask a person by itself": play(
        [FINISH], then=YES, checks=[lambda: interrupt("ok?") == "yes"], waits="foreign", verified="verified"
    ),
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
    checks = [
        "echo first; echo 3 passed",
        is_tidy,
        partial,
        Thing(),
        "echo  a\n echo b",
        ["echo", "x y"],
        "true " + "z" * 100,
        is_tidy,
    ]
    outcome = outcome_of(build_graph(ScriptedModel([FINISH]), checks=checks).invoke(GO))
    assert [(found.name, found.said) for found in outcome.checks if found.said] == [
        ("echo first; echo 3 passed", "3 passed"),
        ("echo a echo b", "b"),
        ("echo x y", "x y"),
    ]
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


def test_a_check_that_deletes_the_workspace_is_survived(tmp_path: Path) -> None:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "made.txt").touch()
    checks = [
        Check("test -f made.txt", folder=place),
        lambda: shutil.rmtree(place, ignore_errors=True),
        Check("cat made.txt", folder=place),
    ]
    case = play(
        [FINISH, WRITE, FINISH, GIVEN_UP],
        checks=checks,
        ran="write",
        claim="partial",
        refusals=2,
        told="<check_not_started> cat made.txt",
    )
    check(case)


def test_100_mb_of_output_are_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loud = "echo the beginning; head -c 100000000 /dev/zero | tr '\\0' a; echo; echo the end; false"
    policy = {"result_chars": 2000, "texts": TEXTS}
    result = build_graph(ScriptedModel([FINISH, GIVEN_UP]), checks=[loud], policy=policy).invoke(GO)
    (told, _) = results(result)
    (kept,) = (tmp_path / "signoff" / "outputs").rglob("*.txt")
    assert len(told) < 3000
    assert "the end" in told
    assert str(kept) in told
    assert kept.stat().st_size < 10_000_000
    assert "the beginning" in kept.read_text()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


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


def test_the_time_of_checks_is_working_time() -> None:
    graph = build_graph(ScriptedModel([FINISH]), checks=[lambda: time.sleep(0.3)])
    assert outcome_of(graph.invoke(GO)).seconds_active >= 0.3


WRONG: dict[str, Callable[[], Any]] = {
    "a single command": lambda: "pytest",
    "nothing in a command": lambda: [" "],
    "no words in a program": lambda: [[]],
    "a number": lambda: [5],
    "a number among words": lambda: [["echo", 5]],
    "an argument that no check gets": lambda: [lambda result: True],
    "an argument without a name": lambda: [eval("lambda a, /: True")],
    "a folder that does not exist": lambda: [Check("true", folder="/no/such")],
    "no time": lambda: [Check("true", seconds=0)],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_check_is_refused_when_the_graph_is_built(name: str) -> None:
    with pytest.raises(SetupError):
        build_graph(ScriptedModel([]), checks=WRONG[name]())
