"""Functions that are asked before each call of the model: one that fails, hangs, or holds up a pause."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from signoff import Limits, Session, build_graph, retry, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.decisions import Paused
from signoff.storage.sqlite import SqliteStorage

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
OPTIONS = {"system_prompt": "Be kind.", "select_tools": ["look"]}


def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def built(functions: dict[str, Any], **options: Any) -> Graph:
    return build_graph(ScriptedModel([FINISH]), [look], **functions, **options)


def played(graph: Any, way: str, given: Any = GO) -> dict[str, Any]:
    found = graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))
    return dict(found)


def raises(state: Any, context: Any) -> Any:
    raise LookupError("no such user.")


def exits(state: Any, context: Any) -> Any:
    raise SystemExit(3)


FAILING: dict[str, tuple[str, Callable[[Any, Any], Any], str]] = {
    "a prompt that raises": (
        "system_prompt",
        raises,
        "system_prompt= (raises) raised LookupError: no such user.",
    ),
    "a prompt that exits": ("system_prompt", exits, "system_prompt= (exits) raised SystemExit: 3."),
    "a prompt that is none": ("system_prompt", lambda *_: None, "returned None, and not a text"),
    "tools that raise": ("select_tools", raises, "select_tools= (raises) raised LookupError: no such user."),
    "a partial": ("select_tools", partial(raises), "select_tools= (raises) raised LookupError"),
    "tools that there are not": (
        "select_tools",
        lambda *_: ["lok"],
        "picked lok, which this graph does not have; its tools are: look.",
    ),
    "no list of tools": ("select_tools", lambda *_: 3, "returned 3, and not the tools to offer (TypeError"),
    "one name in place of a list": (
        "select_tools",
        lambda *_: "look",
        "returned 'look', and not the tools to offer (TypeError: pass a list of them).",
    ),
    "no tools in the list": ("select_tools", lambda *_: [3], "returned [3], and not the tools to offer"),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", FAILING)
def test_one_that_fails_ends_the_task_as_an_error_from_which_it_is_tried_again(
    case: str, way: str, storage: SqliteStorage
) -> None:
    option, function, says = FAILING[case]
    broken = [True]

    def given(state: Any, context: Any) -> Any:
        return function(state, context) if broken else OPTIONS[option]

    given.__name__ = getattr(function, "__name__", "raises")
    graph = built({option: given}, storage=storage)
    outcome = played(graph, way)["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "model_error")
    assert says in outcome["error"]
    assert outcome["error"].endswith("Fix it, then retry the thread; everything so far is saved.")
    broken.clear()
    again = played(graph, way, retry(graph.get_state(THREAD).values))
    assert again["outcome"]["status"] == "success"


def hangs(state: Any, context: Any) -> Any:
    time.sleep(30)


def spins(state: Any, context: Any) -> Any:
    # Not for ever: nothing ends a thread that was abandoned, and it would slow down what runs after it.
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pass


async def waits(state: Any, context: Any) -> Any:
    await asyncio.sleep(30)


HANGING: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "a prompt that sleeps": ("system_prompt", hangs),
    "a prompt that computes": ("system_prompt", spins),
    "a prompt that is awaited": ("system_prompt", waits),
    "a prompt that gives an awaitable": ("system_prompt", lambda state, context: waits(state, context)),
    "tools": ("select_tools", hangs),
}
BOUNDS: dict[str, tuple[dict[str, Any], str]] = {
    "silence": ({"model_seconds": 0.3}, "did not return in time (model_seconds)"),
    "the task's time": ({"limits": Limits(seconds=0.3)}, "in time (the task's limit of seconds)"),
}


@pytest.mark.timed
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("case", HANGING)
def test_one_that_hangs_is_ended_by_the_bounds_of_a_model_call(case: str, bound: str, way: str) -> None:
    option, function = HANGING[case]
    options, says = BOUNDS[bound]
    graph = built({option: function}, **options)
    begun = time.monotonic()
    outcome = played(graph, way)["outcome"]
    assert time.monotonic() - begun < 5
    assert (outcome["status"], outcome["reason"]) == ("error", "model_error")
    assert says in outcome["error"]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_pause_does_not_wait_for_one_that_hangs(option: str, storage: SqliteStorage) -> None:
    begun, hanging = threading.Event(), [True]

    def function(state: Any, context: Any) -> Any:
        begun.set()
        if hanging:
            time.sleep(30)
        return OPTIONS[option]

    graph = built({option: function}, storage=storage)
    session, found = Session(graph, "t"), list[Any]()
    thread = threading.Thread(target=lambda: found.append(session.run("go")))
    thread.start()
    assert begun.wait(10)
    assert session.pause()
    thread.join(10)
    assert found == [Paused("pause")]
    hanging.clear()
    assert played(graph, "sync", None)["outcome"]["status"] == "success"
