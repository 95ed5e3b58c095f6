"""`signoff show`, `threads`, `replay` and `delete`: threads are looked at, decided again, and removed."""

import json
import runpy
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import Bench, one_sentence, steps
from tests.support.benches.cli_steps import CONFIRM, DONE, EDIT, LOOK, SAY, WRITE
from tests.support.benches.cli_terminal import Terminal, at_terminal

EMPTY = 'call("finish_task", summary="")'
THINK = 'call("think", thought="First the port.")'
ASK = 'call("ask_user", question="Which\\nport?")'


def listed(bench: Bench, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bench("threads", "--json", *words).stdout)
    return found


def test_each_turn_has_its_events_its_way_and_its_reasons(bench: Bench) -> None:
    bench.model(steps(LOOK, EMPTY, '"Hm."', THINK, ASK))
    bench.run("Do it")
    (task,) = bench.json("show", "t1")["tasks"]
    turns = task["turns"]
    assert [" ".join(event["kind"] for event in turn["events"]) for turn in turns] == [
        "call",
        "call",
        "nudge",
        "thought",
        "",
    ]
    lines = [line.strip() for line in bench("show", "t1").stdout.splitlines()]
    ways = [at for at, line in enumerate(lines) if "call_llm" in line]
    for at, turn in zip(ways, turns, strict=True):
        way = " → ".join(step["state"] for step in turn["steps"])
        assert lines[at].lstrip("0123456789 ").startswith(f"{way} · {turn['tokens']} tokens")
        rules = [
            f"{step['rule']}: {step['why']}" for step in turn["steps"] if step["rule"] not in ("", "think")
        ]
        assert lines[at + 1 : at + 1 + len(rules)] == rules


def test_the_tasks_of_a_thread_in_order(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("run", "And more", "--thread", "t1")
    events = [("user", None), ("call", 1), ("question", 2), ("call", 3), ("outcome", None)]
    assert [(event["kind"], event["turn"]) for event in bench.told()] == [*events, *events[:1], *events[-1:]]
    first, second = bench.json("show", "t1")["tasks"]
    assert [first["outcome"]["turns"], second["outcome"]["turns"]] == [4, 1]
    told = ["you Change it", "  2 ? Which port?", "      8080", "you And more"]
    assert [line for line in bench("show", "t1").stdout.splitlines() if line in told] == told


# Script and options of a run; status, claim, reason, turns, the kind of wait and what for; in words.
BOTH = steps(f"[{EDIT}, {WRITE}]")
ROWS: dict[str, tuple[str, list[str], str, str]] = {
    "done": (steps(DONE), [], "success done finish_task 1", "Asserted: done"),
    "limit": (f"[{LOOK}] * 3", ["--turns", "2"], "limit turns 2", "Turn limit"),
    "question": (steps(ASK), [], "waiting 1 answer Which\nport?", "waiting for an"),
    "approval": (BOTH, ["--approve", "write"], "waiting 1 approval edit_file, write_file", "waiting for app"),
    "confirmation": (steps(CONFIRM), [], "waiting 1 confirmation All done.", "waiting for confirmation"),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_list_says_how_a_thread_stands(bench: Bench, case: str) -> None:
    script, options, expected, words = ROWS[case]
    bench.model(script)
    begun = datetime.now(UTC)
    bench.run("The task", *options)
    (row,) = listed(bench)
    columns = (row[name] for name in ("status", "claim", "reason", "turns", "waits_for", "what"))
    assert " ".join(str(value) for value in columns if value is not None) == expected
    assert (row["thread_id"], row["task"]) == ("t1", "The task")
    assert begun <= datetime.fromisoformat(row["changed"]) <= datetime.now(UTC)
    head, line = bench("threads").stdout.splitlines()
    assert head.split() == ["thread", "status", "turns", "changed", "about"]
    assert line.startswith(f"t1      {words}")
    assert line.endswith(" s ago  " + " ".join((row["what"] or "The task").split()))
    assert bench("show", "t1").stdout.startswith(f"t1 · {words}")
    assert listed(bench) == [row], "looking changes nothing"
    assert listed(bench, "--condition", row["condition"]) == [row]
    assert listed(bench, "--condition", "paused") == []


def question(default: object) -> str:
    return f'call("ask_user", question="Which port?", deadline_seconds=0.01, default_answer={default!r})'


# The step of the model by the name of its thread, and the answer where the question expires.
EXPIRES: dict[str, tuple[str, str | None]] = {
    "past its deadline": (question("8080"), "8080"),
    "without a default": (question(None), ""),
    "a confirmation": (CONFIRM, None),
}


def test_questions_expire_once_with_their_default_and_no_others(bench: Bench) -> None:
    for name, (step, _) in EXPIRES.items():
        bench.model(steps(step, SAY))
        bench.run(thread=name)
    time.sleep(0.02)
    expired = {found["thread_id"]: found for found in listed(bench, "--expire", "--limit", "1")}
    assert listed(bench, "--expire") == []
    assert set(expired) == {name for name, (_, answer) in EXPIRES.items() if answer is not None}
    for name, found in expired.items():
        assert found["answer"] == (EXPIRES[name][1] or found["answer"])
        assert bench.json("resume", name)["outcome"]["summary"] == found["answer"]
    bench.model(steps(question("8080"), SAY))
    bench.run(thread="another")
    time.sleep(0.02)
    assert "Which port? → 8080  (go on: signoff resume " in bench("threads", "--expire").stdout


# A stored thread is decided again as it was; what would be decided otherwise is named.


def everything(bench: Bench) -> list[Any]:
    with sqlite_storage(bench.database) as storage:
        entries = storage.store.search((), limit=1_000)
        # How a thread stands is written whenever somebody has held it.
        kept = [item for item in entries if item.namespace[1] != "rows"]
        return [list(storage.checkpointer.list(None)), kept]


def test_a_replay_needs_neither_the_model_nor_the_tools_and_writes_nothing(bench: Bench) -> None:
    bench.run()
    for file in (bench.config, *bench.folder.glob("model*.py")):
        file.unlink()
    before = everything(bench)
    result = bench("replay", "t1")
    assert (result.exit_code, result.stderr, result.stdout[:9]) == (0, "", "The same:")
    assert bench.json("replay", "t1")["differences"] == []
    assert everything(bench) == before


def test_the_first_difference_is_shown_with_both_reasons(bench: Bench) -> None:
    bench.model(steps(LOOK, LOOK, LOOK, DONE))
    bench.run()
    result = bench("replay", "t1", "--turns=2")
    first = bench.json("replay", "t1", "--turns=2")["differences"][0]
    assert (result.exit_code, first["turn"], first["now"].split()[0]) == (1, 1, "near_limit")
    for when in ("stored", "now"):
        assert f"{when}: {first['what']} {first[when]}\n" in result.stdout


def test_a_replay_is_written_as_a_test_that_passes(bench: Bench) -> None:
    bench.run()
    bench("resume", "t1", "8080")
    file = bench.folder / "test_it.py"
    result = bench("replay", "t1", "--to-test", str(file))
    assert (result.exit_code, str(file) in result.stdout) == (0, True)
    assert bench("replay", "t1", "--to-test", "-").stdout == file.read_text("utf-8")
    (bench.folder / "run").mkdir()
    runpy.run_path(str(file))["test_thread_t1"](bench.folder / "run")
    one_sentence(bench("replay", "t1", "--to-test", "/nowhere/test.py"), "/nowhere/test.py")
    own = bench.folder / "own.py"
    own.write_text("def redact(text):\n    return text.replace('config', 'secret')\n")
    shown = bench("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact").stdout
    assert ("config.py" in shown, "secret.py" in shown) == (False, True)


# Deleting.


def run_threads(bench: Bench, **scripts: str) -> None:
    """Threads by these names; one that goes on ends at its second turn."""
    for name, script in scripts.items():
        bench.model(script)
        bench.run("The task", "--turns", "2", thread=name)


def left(bench: Bench) -> set[str]:
    return {row["thread_id"] for row in listed(bench)}


def test_a_thread_goes_with_everything_but_what_it_did(bench: Bench) -> None:
    run_threads(bench, a=steps(EDIT, DONE), b=steps(EDIT, DONE))
    bench("stats", "--rate", "5", "--thread", "a")
    assert bench.json("delete", "a", "--dry-run") == {"deleted": [], "kept": {}, "would_delete": ["a"]}
    assert bench("delete", "a").exit_code == 2, "there is nobody to ask"
    assert left(bench) == {"a", "b"}
    assert bench.json("delete", "a", "--yes") == {"deleted": ["a"], "kept": {}}
    assert left(bench) == {"b"}
    bench("delete", "b", "--yes")
    assert everything(bench) == [[], []]
    assert bench.config.read_text() == "PORT = 4000\n"


@pytest.mark.parametrize("typed", ["yes\n", "\n"])
def test_a_person_is_asked_before_deleting(bench: Bench, typed: str) -> None:
    run_threads(bench, a=steps(DONE))

    def person(shown: Terminal) -> None:
        shown.until("[y/N] ")
        shown.type(typed)

    code = at_terminal(bench, person, "delete", "a")
    assert (code, left(bench)) == ((0, set()) if typed == "yes\n" else (1, {"a"}))


def test_one_that_changes_while_the_person_thinks_stays(bench: Bench) -> None:
    run_threads(bench, a=steps(DONE), b=steps(DONE))

    def person(shown: Terminal) -> None:
        shown.until("[y/N] ")
        with sqlite_storage(bench.database) as storage:
            model = ScriptedModel([call("finish_task", summary="More.")])
            Session(build_graph(model, storage=storage), "b").run("More")
        shown.type("y\n")

    code = at_terminal(bench, person, "delete", "--older", "2099-01-01")
    assert (code, left(bench)) == (0, {"b"})


def test_which_older_threads_go(bench: Bench) -> None:
    run_threads(bench, limit=f"[{LOOK}] * 3", error=steps("ValueError()"), waiting=steps(ASK))
    since = datetime.now(UTC).isoformat()
    run_threads(bench, new=steps(DONE), runs=steps(DONE))
    with sqlite_storage(bench.database) as storage, storage.runner("runs"):
        for options, gone in (
            ([since], {"limit", "error"}),
            ([since, "--all"], {"waiting"}),
            (["2099-01-01", "--all"], {"new"}),
        ):
            before = left(bench)
            result = bench("delete", "--older", *options, "--yes")
            assert (result.exit_code, result.stderr, before - left(bench)) == (0, "", gone)
