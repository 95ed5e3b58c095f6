"""`signoff undo`: what a task has done is taken back, and told in the card, by `show` and as JSON."""

from pathlib import Path

import pytest

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of
from tests.support.benches.cli import Bench, one_sentence, steps

NEW = 'call("write_file", path="new.md", content="x\\n")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="8080")'
AGAIN = 'call("edit_file", path="config.py", old="8080", new="9090")'
DONE = 'call("finish_task", summary="All done.")'
RESTORED = "edit_file(path='config.py', old='3000', new='8080') → Restored config.py."
REMOVED = "write_file(path='new.md', content='x\\n') → Removed new.md, which it had created."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def files(bench: Bench) -> dict[str, str]:
    return {path.name: path.read_text() for path in bench.workspace.glob("*.*")}


def test_a_success_is_undone_and_says_so_wherever_it_is_shown(bench: Bench) -> None:
    bench.model(steps(NEW, EDIT, DONE))
    before = files(bench)
    assert bench.run().exit_code == 0
    assert files(bench) == {"config.py": "PORT = 8080\n", "new.md": "x\n"}
    told = bench("undo", "t1")
    assert told.exit_code == 0, told.output
    assert files(bench) == before
    for shown in (told.stdout, bench("show", "t1").stdout):
        assert "Asserted: done, and undone since" in shown
        lines = [line.strip() for line in shown.splitlines()]
        at = lines.index("Undone:")
        assert lines[at + 1 : at + 3] == [f"• {RESTORED}", f"• {REMOVED}"]
        assert "Not undone" not in shown
    found = bench.json("undo", "t1")["outcome"]["undo"]
    assert [one["said"] for one in found["undone"]] == [
        "Restored config.py.",
        "Removed new.md, which it had created.",
    ]
    assert bench.json("show", "t1")["tasks"][-1]["outcome"]["undo"] == found


def test_what_has_changed_since_stands_and_a_task_at_its_limit_can_be_undone(bench: Bench) -> None:
    bench.model(steps(NEW, EDIT, AGAIN))
    assert bench.run("Go", "--turns", "3").exit_code == 3
    (bench.workspace / "new.md").write_text("mine\n")
    told = bench("undo", "t1")
    assert told.exit_code == 3, told.output
    assert files(bench) == {"config.py": "PORT = 3000\n", "new.md": "mine\n"}
    lines = [line.strip() for line in told.stdout.splitlines()]
    standing = lines[lines.index("Not undone, and standing:") + 1]
    assert "new.md has changed since, and was left as it is." in standing
    assert standing.endswith("(its undo failed)")


def test_a_task_that_did_nothing_has_nothing_to_undo(bench: Bench) -> None:
    bench.model(steps(DONE))
    bench.run()
    assert "There was nothing to undo." in bench("undo", "t1").stdout


@pytest.mark.parametrize("way", ["--ask", "by the policy of the run"])
@pytest.mark.parametrize("answer", ["approve", "reject: leave it"])
def test_an_undo_that_needs_a_person_is_decided_on(bench: Bench, way: str, answer: str) -> None:
    bench.model(steps(EDIT, DONE))
    if way == "--ask":
        bench.run()
    else:
        bench.run("Go", "--approve", "write")
        assert bench("resume", "t1", bench.decide()).exit_code == 0
    asked = bench("undo", "t1", *(["--ask"] if way == "--ask" else []))
    assert (asked.exit_code, "undo_edit_file" in asked.stdout) == (4, True), asked.output
    told = bench("resume", "t1", bench.decide(answer))
    assert told.exit_code == 0, told.output
    approved = answer == "approve"
    assert files(bench)["config.py"] == ("PORT = 3000\n" if approved else "PORT = 8080\n")
    found = bench.json("show", "t1")["tasks"][-1]["outcome"]["undo"]
    assert [one["why"] for one in found["standing"]] == ([] if approved else ["rejected"])


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
