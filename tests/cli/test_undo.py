"""`signoff undo`, and how an undone task is told: in the card, by `show` and as JSON."""

from itertools import takewhile
from pathlib import Path

import pytest

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of
from tests.support.benches.cli import Bench, one_sentence, steps, undone_elsewhere

NEW = 'call("write_file", path="new.md", content="x\\n")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="8080")'
DONE = 'call("finish_task", summary="All done.")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def listed(shown: str, heading: str) -> list[str]:
    """The lines of a list below this heading."""
    lines = [line.strip() for line in shown.splitlines()]
    below = lines[lines.index(heading) + 1 :]
    return [line.removeprefix("• ") for line in takewhile(lambda line: line.startswith("• "), below)]


def test_a_success_that_was_undone_says_so(bench: Bench) -> None:
    undone_elsewhere(bench)
    shown = bench("show", "t1").stdout
    assert "Asserted: done, and undone since" in shown
    assert listed(shown, "Undone:") == ["deploy(target='blue') → Removed from blue."]
    assert listed(shown, "Not undone, and standing:") == ["announce() (its tool has no undo)"]
    found = bench.json("show", "t1")["tasks"][-1]["outcome"]["undo"]
    assert [one["said"] for one in found["undone"]] == ["Removed from blue."]
    assert [one["why"] for one in found["standing"]] == ["no_undo"]


@pytest.mark.parametrize(("turns", "exit_code"), [("3", 0), ("2", 3)])
def test_edits_of_files_stand(turns: str, exit_code: int, bench: Bench) -> None:
    bench.model(steps(NEW, EDIT, DONE))
    assert bench.run("Go", "--turns", turns).exit_code == exit_code
    told = bench("undo", "t1")
    assert told.exit_code == exit_code, told.output
    assert bench.config.read_text() == "PORT = 8080\n"
    assert (bench.workspace / "new.md").read_text() == "x\n"
    assert "undone since" not in told.stdout
    assert listed(told.stdout, "Not undone, and standing:") == [
        "edit_file(path='config.py', old='3000', new='8080') (its tool has no undo)",
        "write_file(path='new.md', content='x\\n') (its tool has no undo)",
    ]


def test_a_task_that_did_nothing_has_nothing_to_undo(bench: Bench) -> None:
    bench.model(steps(DONE))
    bench.run()
    assert "There was nothing to undo." in bench("undo", "t1").stdout


def test_what_has_not_ended_is_not_undone(bench: Bench) -> None:
    bench.model(steps(EDIT, 'call("ask_user", question="Which?")'))
    bench.run()
    one_sentence(bench("undo", "t1"), "has not ended", "resume")
    one_sentence(bench("undo", "nobody"), "There is no thread 'nobody'")


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
