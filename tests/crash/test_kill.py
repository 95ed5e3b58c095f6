"""A thread outlives its process: killed by SIGKILL at every moment, it is picked up by its ID."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import build_graph, current_outcome, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel
from tests.support.prepared import PreparedPython
from tests.support.sweeps.kill import THREAD, add, script

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.thorough
def test_killed_before_and_after_every_write_it_ends_as_if_it_had_not_been(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sweeps.kill", tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    figure(f"{len(kills) - 1} kills around every write, all threads ended as if there had been none")
    assert len(kills) > 100
    assert [kill["alive"] for kill in kills] == [False] * (len(kills) - 1) + [True]
    ends = {json.dumps([kill["ended"], kill["messages"]]) for kill in kills}
    assert len(ends) == 1
    assert [kill["recorded"] for kill in kills] == [["The first task.", "The second task."]] * len(kills)
    assert kills[-1]["ended"]["summary"] == "The second task."
    stale = [kill for kill in kills if kill["stood"]["outcome"] == "The first task."]
    assert stale, "some kill fell just after the new message was saved on the ended thread"
    check_paths([kill["path"] for kill in kills])


def check_paths(told: list[list[str]]) -> None:
    """The path of each thread is that of the last one, which nothing had killed."""
    # A message that was lost with the process is sent again.
    paths = [
        [step for step, before in zip(path, ["", *path], strict=False) if step != before] for path in told
    ]
    whole = paths[-1]
    # LangGraph drops what a state wrote when a new message comes before there is a checkpoint of it.
    end = whole.index("finish ended")
    dropped = whole[:end] + whole[end + 1 :]
    assert [path for path in paths if path not in (whole, dropped)] == []
    assert sum(path == whole for path in paths) > len(paths) - 5


WAITS = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from tests.crash.test_kill import open_graph
with open_graph(sys.argv[1]) as graph:
    graph.invoke({{"messages": [("user", "the first")]}}, {THREAD!r})
    print("waiting", flush=True)
    sys.stdin.read()
"""


class open_graph:
    """The graph of the sweep on the database `file`."""

    def __init__(self, file: str | Path) -> None:
        self.storage = sqlite_storage(file)

    def __enter__(self) -> Graph:
        return build_graph(ScriptedModel(script), [add], storage=self.storage.__enter__())

    def __exit__(self, *error: Any) -> None:
        self.storage.__exit__(*error)


def test_killed_while_it_waits_for_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    with PreparedPython(
        ["-c", WAITS, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    with open_graph(file) as graph:
        (pending,) = graph.get_state(THREAD).interrupts
        assert current_outcome(graph.get_state(THREAD).values) is None
        result = graph.invoke(Command(resume={pending.id: "blue"}), THREAD)
    assert result["outcome"]["summary"] == "The first task."
    assert result["outcome"]["seconds_waiting"] > 0
    assert "blue" in [message.text for message in result["messages"]]
