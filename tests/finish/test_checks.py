"""Completion checks: what each comes to, and what a check cannot do."""

import asyncio
import functools
import os
import resource
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from signoff import build_graph, sqlite_storage
from signoff.graph.errors import SetupError
from signoff.models import ScriptedModel
from signoff.tools.checks import HALF, CappedOutput, make_checks, run_command
from tests.support.cases.checks import CASES, GIVEN_UP, Object, hangs, two
from tests.support.cases.loop import FINISH, GO, THREAD, WRITE
from tests.support.process_table import gone
from tests.support.reviews import both_modes, play


@both_modes
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(52)
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
    (kept,) = (tmp_path / "signoff" / "outputs").rglob("*.txt")
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
    "a single command": ({"checks": "pytest"}, "pass a list"),
    "nothing in a command": ({"checks": [" "]}, "neither a function nor a command"),
    "no words in a program": ({"checks": [[]]}, "neither a function nor a command"),
    "a number": ({"checks": [5]}, "neither a function nor a command"),
    "a number among words": ({"checks": [["echo", 5]]}, "neither a function nor a command"),
    "an argument that no check gets": ({"checks": [lambda result: True]}, "asks for result"),
    "an argument without a name": ({"checks": [eval("lambda a, /: True")]}, "asks for a"),
    "a folder that does not exist": ({"checks": ["true"], "checks_folder": "/no/such"}, "is not a folder"),
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
    kept, data = CappedOutput(half=10), bytes(97 + n % 26 for n in range(size))
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
