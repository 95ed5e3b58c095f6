"""`signoff undo`: what a task has done is taken back, in a program of its own."""

from pathlib import Path

import pytest

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of
from tests.support.benches.cli import Bench, one_sentence


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_thread_of_another_program_is_undone_there(bench: Bench) -> None:
    def deploy(target: str) -> str:
        """Deploy."""
        return f"deployed to {target}"

    script = [call("deploy", target="blue"), call("finish_task", summary="Done.")]
    with sqlite_storage(bench.database) as storage:
        graph = build_graph(ScriptedModel(script), [deploy], storage=storage)
        graph.invoke({"messages": [("user", "do it")]}, config_of("t1"))
    before = bench.json("show", "t1")
    refused = bench("undo", "t1", SIGNOFF_MODEL="scripted:/not/there.py")
    one_sentence(refused, "another program", "Session(graph, thread_id).undo()", "Nothing was changed.")
    assert bench.json("show", "t1") == before
