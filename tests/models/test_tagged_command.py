"""`--protocol tagged`: a model that works by text on the command line."""

from pathlib import Path

import pytest

from tests.support.benches.cli import Bench
from tests.support.tagged_replies import CODE, DONE

WORKING = "<STATE_UPDATE>\nApproach: a\nStatus: Working\n</STATE_UPDATE>"
FAILS = f"<PLAN>Try.</PLAN>\n```python\nprint(secret)\n```\n{WORKING}"
ASKS = "<PLAN>Ask.</PLAN>\n<ASK>Which one?</ASK>"
TAGGED = ("--protocol", "tagged")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_run_computes_debugs_and_finishes(bench: Bench) -> None:
    bench.model(repr([FAILS, f"First this.\n{CODE}", DONE]))
    result = bench.run("Compute", *TAGGED)
    assert result.exit_code == 0, result.output
    assert "It is 1." in result.stdout
    assert "First this." in result.stdout, "words beside the parts are shown"
    assert "<PLAN>" not in result.stdout
    turns = bench.json("show", "t1")["tasks"][0]["turns"]
    assert [turn["status"] for turn in turns] == ["Debugging", "Working", "Working"]
    shown = bench("show", "t1").stdout
    assert "Debugging" in shown
    assert "<PLAN>" not in shown


def test_a_thread_keeps_its_protocol_and_its_constitution(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "principles.txt"
    file.write_text("Be exact.\n")
    bench.model(f"{[ASKS, CODE, DONE, DONE]!r} + [call('finish_task', summary='x')]")
    began = bench.run("Compute", *TAGGED, "--turns", "2", "--constitution", str(file))
    assert began.exit_code == 4
    file.unlink()
    assert bench("resume", "t1", "The first").exit_code == 3
    assert bench("resume", "t1", "--turns", "5").exit_code == 0
    assert bench.run("Again").exit_code == 0
    settings = bench.json("show", "t1")["settings"]
    assert (settings["protocol"], settings["turns"], settings["constitution"]) == ("tagged", 2, "Be exact.")
    assert bench.run("And more", "--protocol", "tools").exit_code == 0
    settings = bench.json("show", "t1")["settings"]
    assert (settings["protocol"], settings["turns"]) == ("tools", 30)
