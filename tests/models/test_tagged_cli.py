"""`--protocol tagged`: a model that works by text on the command line."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from signoff import build_graph, sqlite_storage
from signoff.front.settings import Given, Settings, settle
from signoff.models import ScriptedModel
from tests.support.benches.cli import Bench, one_sentence
from tests.support.tagged_replies import CODE, DONE

WORKING = "<STATE_UPDATE>\nApproach: a\nStatus: Working\n</STATE_UPDATE>"
FAILS = f"<PLAN>Try.</PLAN>\n```python\nprint(secret)\n```\n{WORKING}"
ASKS = "<PLAN>Ask.</PLAN>\n<ASK>Which one?</ASK>"
WRITES = '<CALL name="write_file">{"path": "a.txt", "content": "hi"}</CALL>'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_run_computes_debugs_and_finishes(bench: Bench) -> None:
    bench.model(repr([FAILS, f"{CODE}\n{WRITES}", DONE]))
    result = bench.run("Compute", "--protocol", "tagged")
    assert result.exit_code == 0, result.output
    assert "Asserted: done\n  It is 1." in result.stdout
    assert "<PLAN>" not in result.stdout
    assert (bench.workspace / "a.txt").read_text() == "hi"
    turns = bench.json("show", "t1")["tasks"][0]["turns"]
    assert [turn["status"] for turn in turns] == ["Debugging", "Working", "Working"]
    assert turns[0]["text"] == FAILS
    assert [event["name"] for turn in turns for event in turn["events"] if event["kind"] == "call"] == [
        "run_python",
        "run_python",
        "write_file",
    ]
    shown = bench("show", "t1").stdout
    assert "✗ run_python" in shown
    assert shown.index("status: Working") < shown.index("status: Debugging") < shown.rindex("Asserted: done")
    assert "<PLAN>" not in shown


def test_words_beside_the_parts_are_shown(bench: Bench) -> None:
    bench.model(repr([f"First this.\n{CODE}", "I am done. [FINALIZE]", DONE]))
    result = bench.run("Compute", "--protocol", "tagged")
    assert result.exit_code == 0
    assert "  1 First this.\n    ✓ run_python\n" in result.stdout
    assert "  2 I am done. [FINALIZE]\n" in result.stdout


def test_a_thread_keeps_its_protocol(bench: Bench) -> None:
    bench.model(repr([ASKS, CODE, DONE, DONE]))
    assert bench.run("Compute", "--protocol", "tagged", "--turns", "2").exit_code == 4
    answered = bench("resume", "t1", "The first")
    assert answered.exit_code == 3, answered.output
    assert bench("extend", "t1", "5").exit_code == 0
    assert bench.run("Again").exit_code == 0
    settings = bench.json("show", "t1")["settings"]
    assert (settings["protocol"], settings["turns"], settings["tools"]) == ("tagged", 2, ["python", "files"])


TAGGED = Settings(workspace="/", model="m", turns=7, talk_turns=3, tools=("python",), protocol="tagged")
PLAIN = TAGGED.model_copy(update={"protocol": "tools", "tools": ("shell",)})
SETTLED: Mapping[str, tuple[Given, Settings | None, tuple[str, int, tuple[str, ...]]]] = {
    "by default": (Given(model="m"), None, ("tools", 30, ("files", "shell"))),
    "tagged": (Given(model="m", protocol="tagged"), None, ("tagged", 10, ("python", "files"))),
    "tagged and small": (Given(protocol="tagged"), None, ("tagged", 10, ("python",))),
    "with other options": (
        Given(model="m", protocol="tagged", turns=4, tools="shell"),
        None,
        ("tagged", 4, ("shell",)),
    ),
    "the thread's": (Given(), TAGGED, ("tagged", 7, ("python",))),
    "given again": (Given(protocol="tagged"), TAGGED, ("tagged", 7, ("python",))),
    "another one": (Given(protocol="tagged"), PLAIN, ("tagged", 10, ("python", "files"))),
    "back again": (Given(protocol="tools"), TAGGED, ("tools", 30, ("files", "shell"))),
}


@pytest.mark.parametrize("case", SETTLED)
def test_what_a_protocol_brings(case: str) -> None:
    given, before, expected = SETTLED[case]
    settled = settle(given, before, {})
    assert (settled.protocol, settled.turns, settled.tools) == expected


def test_a_constitution_is_a_file_and_stays_with_the_thread(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "principles.txt"
    file.write_text("Be exact.\n")
    bench.model(repr([ASKS, DONE]))
    assert bench.run("Go", "--protocol", "tagged", "--constitution", str(file)).exit_code == 4
    file.unlink()
    assert bench("resume", "t1", "The first").exit_code == 0
    assert bench.json("show", "t1")["settings"]["constitution"] == "Be exact."
    with sqlite_storage(bench.database) as storage:
        state = build_graph(ScriptedModel([]), storage=storage).get_state(
            {"configurable": {"thread_id": "t1"}}
        )
    assert state.values["acting"]["constitution"] == "Be exact."


def test_a_constitution_that_cannot_be(bench: Bench, tmp_path: Path) -> None:
    alone = bench.run("Go", "--constitution", str(tmp_path))
    one_sentence(alone, "--constitution is for a model that works by text: add --protocol tagged.")
    missing = bench.run("Go", "--protocol", "tagged", "--constitution", str(tmp_path / "none.txt"))
    one_sentence(missing, "The constitution cannot be read from")


def test_a_protocol_that_there_is_not(bench: Bench) -> None:
    one_sentence(bench.run("Compute", "--protocol", "morse"), "--protocol is 'morse'; use tools or tagged.")


def test_a_thread_of_calls_can_go_on_by_text(bench: Bench) -> None:
    steps = (
        '[call("read_file", path="config.py"), call("finish_task", summary="It is 3000."), '
        + repr(DONE)
        + "]"
    )
    bench.model(steps)
    assert bench.run("Look").exit_code == 0
    assert bench.run("And now?", "--protocol", "tagged").exit_code == 0
    turns = [turn for task in bench.json("show", "t1")["tasks"] for turn in task["turns"]]
    assert [turn["status"] for turn in turns] == [None, None, None]
