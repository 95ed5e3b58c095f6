"""Processes that are killed in hooks and wrappers of middleware: nothing is lost, no effect runs twice."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.tools import tool

from signoff import build_graph, current_outcome, go_on, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from tests.support.prepared import PreparedPython

ROOT = Path(__file__).parents[2]
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")


class Deadly(AgentMiddleware[Any, Any, Any]):
    """Writes down each of its hooks, and kills its process in the one that it is told, once."""

    def __init__(self, at: str, log: Path) -> None:
        super().__init__()
        self.at, self.log = at, log

    def _note(self, name: str) -> None:
        with self.log.open("a") as file:
            print(name, file=file)
        # Of a process that goes on, `at` is empty.
        if name == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_agent(self, state: Any, runtime: Any) -> None:
        self._note("before_agent")

    def before_model(self, state: Any, runtime: Any) -> None:
        self._note("before_model")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._note("model asked")
        found = handler(request)
        self._note("model answered")
        return found

    def after_model(self, state: Any, runtime: Any) -> None:
        self._note("after_model")

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self._note("tool asked")
        found = handler(request)
        self._note("tool answered")
        return found

    def after_agent(self, state: Any, runtime: Any) -> None:
        self._note("after_agent")


def graph(storage: Any, at: str, log: Path) -> Graph:
    def script(messages: list[Any]) -> Any:
        said = [message for message in messages if message.type == "tool"]
        return FINISH if said else call("pay")

    @tool
    def pay() -> str:
        """Pay."""
        with log.open("a") as file:
            print("paid", file=file)
        return "paid"

    given = [ToolRetryMiddleware(initial_delay=0), Deadly(at, log)]
    return build_graph(ScriptedModel(script), [pay], middleware=given, storage=storage)


KILLED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.drop_in.test_middleware_crash import THREAD, graph, sqlite_storage
with sqlite_storage(sys.argv[1]) as storage:
    graph(storage, sys.argv[3], Path(sys.argv[2])).invoke({{"messages": [("user", "go")]}}, THREAD)
"""

# Where it is killed: how often it pays in all, and what does not run again when it goes on.
PLACES: dict[str, tuple[int, list[str]]] = {
    "before_agent": (1, []),
    "before_model": (1, []),
    "model asked": (1, ["before_agent"]),
    "model answered": (1, ["before_agent"]),
    "after_model": (1, ["before_agent"]),
    "tool asked": (0, ["before_agent"]),
    "tool answered": (1, ["before_agent"]),
    "after_agent": (1, ["before_agent"]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", PLACES)
def test_a_thread_whose_process_is_killed_goes_on_and_pays_at_most_once(place: str, tmp_path: Path) -> None:
    paid, over = PLACES[place]
    file, log = tmp_path / "threads.sqlite", tmp_path / "log"
    with PreparedPython(["-c", KILLED, file, log, place]) as process:
        assert process.wait() == -signal.SIGKILL
    before = log.read_text().splitlines()
    assert before[-1] == place
    with sqlite_storage(file) as storage:
        built = graph(storage, "", log)
        state = built.get_state(THREAD)
        assert current_outcome(state.values) is None
        result = built.invoke(go_on(state), THREAD)
    assert result["outcome"]["status"] == "success"
    lines = log.read_text().splitlines()
    assert lines.count("paid") == paid
    assert not set(lines[len(before) :]) & set(over)
    if place.startswith("tool"):
        assert next(m.text for m in result["messages"] if m.type == "tool").startswith("Outcome unknown: pay")
