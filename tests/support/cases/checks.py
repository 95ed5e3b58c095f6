"""Completion checks on a bench: what passes, and what the model is told of what does not."""

import asyncio
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from langgraph.types import Command

from signoff.models import call
from tests.support.cases.loop import FINISH, GO, SUCCESS, WRITE, limit
from tests.support.reviews import Review

GIVEN_UP = call("finish_task", summary="x", outcome="partial")
REFUSED = {"status": "success", "claim": "partial", "verified": "asserted", "refusals": 1}
VERIFIED = {**SUCCESS, "verified": "verified", "refusals": 0, "turns": 1}
PYTHON = sys.executable


def passes(*checks: Any, **options: Any) -> Review:
    return Review([FINISH], options={"checks": list(checks), **options}, ends=VERIFIED)


def fails(*checks: Any, says: list[str], **options: Any) -> Review:
    return Review([FINISH, GIVEN_UP], options={"checks": list(checks), **options}, ends=REFUSED, says=says)


async def slowly_true() -> bool:
    await asyncio.sleep(0.01)
    return True


async def slowly_wrong() -> str:
    await asyncio.sleep(0.01)
    return "the page is empty"


class Object:
    """An object that can be called."""

    async def __call__(self, claim: dict[str, Any]) -> bool:
        return bool(claim["summary"])


def raises(error: BaseException) -> Callable[[], None]:
    def broken() -> None:
        raise error

    return broken


def araises(error: BaseException) -> Callable[[], Any]:
    async def abroken() -> None:
        raise error

    return abroken


def hangs() -> None:
    time.sleep(5)


async def ahangs() -> None:
    await asyncio.sleep(5)


def tampers(claim: dict[str, Any], messages: list[Any], state: dict[str, Any]) -> None:
    claim["summary"] = "changed"
    messages.clear()
    state.clear()


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


def two(number: int, claim: dict[str, Any]) -> bool:
    return number == 2 and claim["outcome"] == "done"


PASSES = {
    "True": passes(lambda: True),
    "None": passes(lambda: None),
    "an async function": passes(slowly_true),
    "a function that gives back a coroutine": passes(lambda: slowly_true()),
    "an object": passes(Object()),
    "a partial function": passes(functools.partial(two, 2)),
    "it sees the claim": passes(
        lambda claim: claim["summary"] == "All of it." and claim["outcome"] == "done"
    ),
    "it sees the arguments as the model gave them": passes(
        lambda arguments: arguments == {"summary": "All of it."}
    ),
    "it sees the messages": passes(lambda messages: messages[0].text == "do it"),
    "it sees the state": passes(lambda state: len(state["messages"]) == 2),
    "it sees all of it": passes(lambda **given: set(given) == {"claim", "arguments", "messages", "state"}),
    "an argument with a default of its own": passes(lambda claim, least=1: len(claim["summary"]) > least),
    "a command": passes("true"),
    "a command line": passes("echo hello | grep -q hello && test 1 -lt 2"),
    "a program and its arguments": passes([PYTHON, "-c", "import sys; sys.exit(0)"]),
    "it has nothing to read": passes('test -z "$(cat)"'),
    "several": passes(lambda: True, "true", slowly_true),
    "it changes nothing of the claim": passes(tampers),
    "it leaves something behind": passes("sleep 5 &"),
}

FAILS = {
    "False": fails(lambda: False, says=["<lambda> returned False."]),
    "words": fails(lambda: "two tests are missing", says=["<lambda> failed:\ntwo tests are missing"]),
    "no words": fails(lambda: "", says=["<lambda> failed."]),
    "another value": fails(lambda: 0, says=["returned 0"]),
    "a value that cannot be shown": fails(Unprintable, says=["returned <Unprintable>"]),
    "an async function": fails(slowly_wrong, says=["slowly_wrong failed:\nthe page is empty"]),
    "it raises": fails(raises(ValueError("no index")), says=["broken raised ValueError:\nno index"]),
    "it raises a time-out of its own": fails(
        raises(TimeoutError("slow")), says=["broken raised TimeoutError"]
    ),
    "it exits": fails(raises(SystemExit(3)), says=["broken raised SystemExit"]),
    "an async function raises": fails(araises(ValueError("no")), says=["abroken raised ValueError:\nno"]),
    "an async function exits": fails(araises(SystemExit(3)), says=["abroken raised SystemExit"]),
    "an async function is cancelled": fails(
        araises(asyncio.CancelledError()), says=["abroken raised CancelledError"]
    ),
    "it hangs": fails(hangs, says=["hangs did not come back within 0.3 seconds."], check_seconds=0.3),
    "an async function hangs": fails(ahangs, says=["ahangs did not come back"], check_seconds=0.3),
    "a command fails": fails("echo oh no; exit 3", says=["failed with exit code 3:\noh no"]),
    "a command writes to stderr": fails("echo oh no >&2; exit 1", says=["oh no"]),
    "a command that does not exist": fails(
        ["/no/such/program"], says=["could not be started", "No such file"]
    ),
    "a command that the shell does not know": fails("no-such-command-here", says=["exit code 127"]),
    "a command with a NUL": fails(["echo", "a\0b"], says=["could not be started"]),
    "a command is killed": fails("kill -9 $$", says=["was ended by signal 9"]),
    "a command hangs": fails(
        "echo begun; sleep 30",
        says=["did not end within 0.5 seconds and was killed:\nbegun"],
        check_seconds=0.5,
    ),
    "a command hangs and cannot be stopped politely": fails(
        "trap '' TERM INT HUP; sleep 30 & wait", says=["was killed"], check_seconds=0.5
    ),
    "output that is no text": fails(r"printf '\377\000x'; exit 1", says=["\ufffd\ufffdx"]),
    "all are run, and all that fail are told": fails(
        "echo one; false",
        lambda: True,
        lambda: "two",
        says=["did not pass: echo one; false, <lambda> (2).", "one", "two"],
    ),
    "braces in the output": fails("echo '{0} {name}'; false", says=["{0} {name}"]),
}

CLAIMS = {
    "no check: asserted": Review([FINISH], ends={**SUCCESS, "verified": "asserted"}),
    "an honest blocked has nothing to prove": Review(
        [call("finish_task", summary="x", outcome="blocked")],
        options={"checks": ["false"]},
        ends={"status": "success", "claim": "blocked", "verified": "asserted", "refusals": 0},
    ),
    "work puts it right": Review(
        [FINISH, WRITE, FINISH],
        options={"checks": [lambda messages: any(found.text == "written" for found in messages)]},
        ran=["write"],
        ends={**SUCCESS, "verified": "verified", "refusals": 1},
    ),
    "the same failure twice: a person may accept it": Review(
        [FINISH, FINISH],
        options={"checks": ["date +%N; false"]},
        given=[GO, Command(resume="yes")],
        asks={"summary": "All of it.", "claim": "done"},
        ends={**SUCCESS, "verified": "unverified", "refusals": 1},
    ),
    "the same failure twice, and nobody to ask: a limit": Review(
        [FINISH, FINISH],
        options={"checks": ["date +%N; false"]},
        saved=False,
        ends={**limit("review_deadlock"), "refusals": 2},
    ),
    "another check fails the second time: no standstill": Review(
        [FINISH, FINISH, FINISH],
        options={"checks": [lambda messages: len(messages) > 2, lambda messages: len(messages) != 4]},
        saved=False,
        ends={**SUCCESS, "verified": "verified", "refusals": 2},
    ),
    "what could not run, accepted by a person, is unverified": Review(
        [FINISH, FINISH],
        options={"checks": [["/no/such/program"]]},
        given=[GO, Command(resume="yes")],
        asks={"claim": "done"},
        ends={**SUCCESS, "verified": "unverified"},
    ),
}

CASES = {**PASSES, **FAILS, **CLAIMS}
