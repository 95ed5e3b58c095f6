"""Completion checks: what passes, what the model is told of what does not, and what a check cannot do."""

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

from signoff import build_graph, sqlite_storage
from signoff.graph.errors import SetupError
from signoff.models import ScriptedModel, call
from signoff.tools.checks import make_checks
from signoff.tools.commands import HALF, Kept, run_command
from tests.loop_cases import FINISH, GO, SUCCESS, THREAD, WRITE, limit
from tests.reviews import Review, both_modes, play

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


@both_modes
@pytest.mark.parametrize("name", CASES)
async def test_case(name: str, mode: str, tmp_path: Path) -> None:
    before = time.monotonic()
    await play(CASES[name], mode, tmp_path)
    assert time.monotonic() - before < 20


def test_commands_run_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "made.txt").touch()
    graph = build_graph(ScriptedModel([FINISH]), checks=["test -f made.txt"], checks_folder=tmp_path)
    assert graph.invoke({"messages": GO})["outcome"]["verified"] == "verified"


def test_a_person_is_told_what_the_checks_said(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([FINISH, FINISH]), storage=storage, checks=["echo oh no; false"])
        (pending,) = graph.invoke({"messages": GO}, THREAD)["__interrupt__"]
    assert "oh no" in pending.value["problem"]


@both_modes
async def test_100_mb_of_output(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loud = "head -c 100000000 /dev/zero | tr '\\0' a; echo; echo the end; false"
    model = ScriptedModel([FINISH, GIVEN_UP])
    graph = build_graph(model, checks=[loud], result_chars=2000)
    given = {"messages": GO}
    result = await graph.ainvoke(given) if mode == "async" else graph.invoke(given)
    told = result["messages"][2].text
    assert len(told) < 3000
    assert "the end" in told
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB
    (kept,) = (tmp_path / "signoff" / "outputs").iterdir()
    assert str(kept) in told
    assert 2 * HALF <= kept.stat().st_size < 2 * HALF + 200_000
    assert "bytes were not kept" in kept.read_text()


@both_modes
async def test_a_check_that_deletes_the_workspace_is_survived(mode: str, tmp_path: Path) -> None:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "work.txt").write_text("work")
    checks: list[Any] = [lambda: shutil.rmtree(place, ignore_errors=True), "cat work.txt"]
    model = ScriptedModel([FINISH, WRITE, FINISH, GIVEN_UP])

    def write(text: str) -> str:
        """Write."""
        return text

    graph = build_graph(model, [write], checks=checks, checks_folder=place)
    given = {"messages": GO}
    result = await graph.ainvoke(given) if mode == "async" else graph.invoke(given)
    assert (result["outcome"]["claim"], result["outcome"]["refusals"]) == ("partial", 2)
    assert "could not be started" in result["messages"][2].text


@both_modes
async def test_a_command_that_is_killed_takes_its_children_along(mode: str, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    loud = f"sh -c 'echo $$ > {noted}; sleep 60' & wait"
    graph = build_graph(ScriptedModel([FINISH, GIVEN_UP]), checks=[loud], check_seconds=0.7)
    given = {"messages": GO}
    await graph.ainvoke(given) if mode == "async" else graph.invoke(given)
    assert gone(int(noted.read_text()))


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


async def test_a_cancelled_run_kills_the_command(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    graph = build_graph(ScriptedModel([FINISH]), checks=[f"echo $$ > {noted}; sleep 60"])
    running = asyncio.ensure_future(graph.ainvoke({"messages": GO}))
    while not noted.exists() or not noted.read_text():
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(gone, int(noted.read_text()))


async def test_a_check_that_waits_does_not_hold_up_other_runs() -> None:
    """A blocking function runs in a thread of its own."""
    both = threading.Barrier(2, timeout=10)
    graph = build_graph(ScriptedModel([FINISH, FINISH]), checks=[lambda: both.wait() is not None])
    found = await asyncio.gather(*(graph.ainvoke({"messages": GO}) for _ in range(2)))
    assert [result["outcome"]["verified"] for result in found] == ["verified"] * 2


def test_the_time_of_checks_is_working_time() -> None:
    outcome = build_graph(ScriptedModel([FINISH]), checks=[lambda: time.sleep(0.3)]).invoke({"messages": GO})
    assert 0.3 <= outcome["outcome"]["seconds_active"] < 5


def test_a_check_may_ask_a_person(tmp_path: Path) -> None:
    """It is run anew with the answer, as a node of LangGraph is."""
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(
            ScriptedModel([FINISH]), storage=storage, checks=[lambda: interrupt("ok?") == "ok"]
        )
        assert graph.invoke({"messages": GO}, THREAD)["__interrupt__"][0].value == "ok?"
        assert graph.invoke(Command(resume="ok"), THREAD)["outcome"]["verified"] == "verified"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a single command": ({"checks": "pytest"}, "give a list"),
    "nothing in a command": ({"checks": [" "]}, "neither a function nor a command"),
    "no words in a program": ({"checks": [[]]}, "neither a function nor a command"),
    "a number": ({"checks": [5]}, "neither a function nor a command"),
    "a number among words": ({"checks": [["echo", 5]]}, "neither a function nor a command"),
    "an argument that no check gets": ({"checks": [lambda result: True]}, "asks for result"),
    "an argument without a name": ({"checks": [eval("lambda a, /: True")]}, "asks for a"),
    "a folder that does not exist": ({"checks": ["true"], "checks_folder": "/no/such"}, "is no folder"),
    "no time": ({"checks": ["true"], "check_seconds": 0}, "above 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_check_is_told_at_once(name: str) -> None:
    options, says = WRONG[name]
    with pytest.raises(SetupError, match=says):
        build_graph(ScriptedModel([]), **options)


def test_a_check_is_called_by_what_it_is() -> None:
    given: list[Any] = [
        hangs,
        functools.partial(two, 2),
        Object(),
        "echo  a\n b",
        ["x", "y"],
        "z" * 100,
        hangs,
        hangs,
    ]
    names = [check.name for check in make_checks(given)]
    cut = "z" * 79 + "…"
    assert names == ["hangs", "two", "Object", "echo a b", "x y", cut, "hangs (2)", "hangs (3)"]


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 30, 1000])
@pytest.mark.parametrize("piece", [1, 7, 64])
def test_what_is_kept_of_an_output(size: int, piece: int) -> None:
    kept, data = Kept(half=10), bytes(97 + n % 26 for n in range(size))
    for at in range(0, size, piece):
        kept.add(data[at : at + piece])
    text = kept.text()
    assert text.startswith(data[:10].decode())
    assert text.endswith(data[max(size - 10, 10) :].decode())
    if "not kept" not in text:
        assert text == data.decode()
    assert len(text) < 20 + piece + 60


def test_nothing_stays_open_after_a_command(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert run_command("echo x", tmp_path, 10, lambda: False).output == "x\n"
    assert len(os.listdir("/proc/self/fd")) <= before
