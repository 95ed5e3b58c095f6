"""`signoff show`, `threads`, `replay` and `delete`: threads are looked at, decided again, and removed."""

import json
import runpy
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from signoff import Session, build_graph, sqlite_storage
from signoff.machine import TRANSITIONS, State
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import Bench, one_sentence, steps
from tests.support.benches.cli_terminal import Terminal, at_terminal

DONE = 'call("finish_task", summary="All done.")'
EMPTY = 'call("finish_task", summary="")'
LOOK = 'call("read_file", path="config.py")'
THINK = 'call("think", thought="First the port.")'
ASK = 'call("ask_user", question="Which\\nport?")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
WRITE = 'call("write_file", path="new.md", content="# New")'
CONFIRM = 'call("finish_task", summary="Look at it.", requires_user_confirmation=True)'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def listed(bench: Bench, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bench("threads", "--json", *words).stdout)
    return found


# The script and the options of a run; what happened in each of its turns.
WAYS: dict[str, tuple[str, list[str], list[str]]] = {
    "work, a finish that is refused, words, a thought, a question": (
        steps(LOOK, EMPTY, '"Hm."', THINK, ASK),
        [],
        ["call", "call", "nudge", "thought", ""],
    ),
    "an empty reply": (f"[lambda m: {DONE} if 'was empty' in m[-1].text else '']", [], ["nudge", ""]),
    "calls of the same id": (steps(*[LOOK.replace(")", ', id="c")')] * 2, DONE), [], ["call", "call", ""]),
    "a limit": (steps(LOOK, LOOK), ["--turns", "2"], ["call nudge", "call"]),
    "a call that waits": (steps(WRITE), ["--approve", "write"], [""]),
    "a model that fails in the second turn": (steps(LOOK, "ValueError()"), [], ["call"]),
    "a model that fails at once": (steps("ValueError()"), [], []),
}


@pytest.mark.parametrize("case", WAYS)
def test_each_turn_has_its_events_its_way_and_its_reasons(bench: Bench, case: str) -> None:
    script, options, events = WAYS[case]
    bench.model(script)
    bench.run("Do it", *options)
    (task,) = bench.json("show", "t1")["tasks"]
    turns = task["turns"]
    assert [" ".join(event["kind"] for event in turn["events"]) for turn in turns] == events
    assert [turn["turn"] for turn in turns] == list(range(1, len(turns) + 1))
    lines = [line.strip() for line in bench("show", "t1").stdout.splitlines()]
    ways = [at for at, line in enumerate(lines) if "call_llm" in line]
    for at, turn in zip(ways, turns, strict=True):
        way = " → ".join(step["state"] for step in turn["steps"])
        assert lines[at].lstrip("0123456789 ").startswith(f"{way} · {turn['tokens']} tokens")
        rules = [
            f"{step['rule']}: {step['why']}" for step in turn["steps"] if step["rule"] not in ("", "think")
        ]
        assert lines[at + 1 : at + 1 + len(rules)] == rules
    saved = [step for turn in turns for step in turn["steps"]]
    for step, following in pairwise(saved):
        assert TRANSITIONS[State(step["state"])][step["event"]] == following["state"]
        assert step["next"] == [following["state"]]
        assert bool(step["rule"]) == bool(step["why"]) == (step["state"] == "decide")
    assert len({step["checkpoint_id"] for step in saved}) == len(saved)
    assert sorted(step["at"] for step in saved) == [step["at"] for step in saved]


def test_the_tasks_of_a_thread_in_order(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("run", "And more", "--thread", "t1")
    events = [("user", None), ("call", 1), ("question", 2), ("call", 3), ("outcome", None)]
    assert [(event["kind"], event["turn"]) for event in bench.told()] == [*events, *events[:1], *events[-1:]]
    found = bench.json("show", "t1")
    first, second = found["tasks"]
    assert (first["words"], len(first["turns"]), first["outcome"]["turns"]) == (["Change it"], 4, 4)
    assert (second["words"], len(second["turns"]), second["outcome"]["turns"]) == (["And more"], 1, 1)
    assert first["task"] == first["outcome"]["task"] != second["task"] == second["outcome"]["task"]
    assert found["settings"]["workspace"] == str(bench.workspace)
    told = [
        "you Change it",
        "  2 ? Which port?",
        "      8080",
        "Asserted: done",
        "you And more",
        "Asserted: done",
    ]
    assert [line for line in bench("show", "t1").stdout.splitlines() if line in told] == told


# Script and options of a run; status, claim, reason, turns, the kind of wait and what for; in words.
Row = tuple[str, str | None, str | None, int, str | None, str | None]
PARTIAL = 'call("finish_task", summary="x", outcome="partial")'
TURNS = ["--turns", "2"]
ROWS: dict[str, tuple[str, list[str], Row, str]] = {
    "done": (steps(DONE), [], ("success", "done", "finish_task", 1, None, None), "Asserted: done"),
    "half": (steps(PARTIAL), [], ("success", "partial", "finish_task", 1, None, None), "Asserted: partly"),
    "broken": (steps("ValueError()"), [], ("error", None, "model_error", 0, None, None), "The model failed"),
    "limit": (f"[{LOOK}] * 3", TURNS, ("limit", None, "turns", 2, None, None), "Turn limit"),
    "question": (
        steps(LOOK, ASK),
        [],
        ("waiting", None, None, 2, "answer", "Which\nport?"),
        "waiting for an",
    ),
    "approval": (
        steps(f"[{EDIT}, {WRITE}]"),
        ["--approve", "write"],
        ("waiting", None, None, 1, "approval", "edit_file, write_file"),
        "waiting for approval",
    ),
    "confirmation": (
        steps(CONFIRM),
        [],
        ("waiting", None, None, 1, "confirmation", "Look at it."),
        "waiting for confirmation",
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_list_says_how_a_thread_stands(bench: Bench, case: str) -> None:
    script, options, expected, words = ROWS[case]
    bench.model(script)
    begun = datetime.now(UTC)
    bench.run("The task", *options)
    (row,) = listed(bench)
    names = ("status", "claim", "reason", "turns", "waits_for", "what")
    assert (row["thread_id"], row["task"], *(row[name] for name in names)) == ("t1", "The task", *expected)
    assert begun <= datetime.fromisoformat(row["changed"]) <= datetime.now(UTC)
    head, line = bench("threads").stdout.splitlines()
    assert head.split() == ["thread", "status", "turns", "changed", "about"]
    assert line.startswith(f"t1      {words}")
    assert line.endswith(" s ago  " + " ".join((expected[5] or "The task").split()))
    assert bench("show", "t1").stdout.startswith(f"t1 · {words}")
    assert listed(bench) == [row], "looking changes nothing"
    stands = row["condition"]
    assert [one["condition"] for one in listed(bench, "--condition", stands)] == [stands]
    assert listed(bench, "--condition", "paused") == []


def test_the_ones_changed_last_come_first_and_not_more_than_asked_for(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.run(f"Task {name}", thread=name)
    bench("resume", "b", "8080")
    assert [row["thread_id"] for row in listed(bench)] == ["b", "c", "a"]
    assert [row["thread_id"] for row in listed(bench, "--limit", "2")] == ["b", "c"]


def question(seconds: object, default: object) -> str:
    late = f"deadline_seconds={seconds!r}, default_answer={default!r}"
    return f'call("ask_user", question="Which port?", {late})'


# The step of the model by the name of its thread, and the answer where the question expires.
EXPIRES: dict[str, tuple[str, str | None]] = {
    "past its deadline": (question(0.01, "8080"), "8080"),
    "a deadline as text": (question("0.01", "9090"), "9090"),
    "without a default": (question(0.01, None), ""),
    "not yet": (question(1000, "8080"), None),
    "no deadline": (question(None, "8080"), None),
    "no usable deadline": (question(-1, "8080"), None),
    "a confirmation": (CONFIRM, None),
    "running": (question(0.01, "8080"), None),
    "damaged": (question(0.01, "8080"), None),
}


def test_questions_expire_once_with_their_default_and_no_others(bench: Bench) -> None:
    for name, (step, _) in EXPIRES.items():
        bench.model(steps(step, SAY))
        bench.run(thread=name)
    time.sleep(0.02)
    before = {row["thread_id"]: row for row in listed(bench)}
    with sqlite_storage(bench.database) as storage:
        storage.checkpointer.conn.execute("UPDATE checkpoints SET checkpoint=x'c1' WHERE thread_id='damaged'")
        storage.checkpointer.conn.commit()
        with storage.runner("running"):
            expired = {found["thread_id"]: found for found in listed(bench, "--expire", "--limit", "1")}
            assert listed(bench, "--expire") == []
    assert set(expired) == {name for name, (_, answer) in EXPIRES.items() if answer is not None}
    after = {row["thread_id"]: row for row in listed(bench)}
    assert {name for name in before if before[name] != after[name]} == {*expired, "damaged"}
    for name, found in expired.items():
        assert found["answer"] == (EXPIRES[name][1] or found["answer"])
        assert bench.json("resume", name)["outcome"]["summary"] == found["answer"]
    shown = bench("threads", "--expire").stdout
    assert (shown.startswith("running: Which port? → 8080  (go on: signoff resume "), shown.count("\n")) == (
        True,
        1,
    )


class TestReplay:
    """A stored thread is decided again as it was; what would be decided otherwise is named."""

    def everything(self, bench: Bench) -> list[Any]:
        with sqlite_storage(bench.database) as storage:
            return [list(storage.checkpointer.list(None)), list(storage.store.search((), limit=1_000))]

    def test_it_is_the_same_wherever_it_stands_and_nothing_runs(self, bench: Bench) -> None:
        bench.run()
        for words in (["resume", "t1", "8080"], ["run", "And once more", "-t", "t1"], None):
            before = self.everything(bench)
            result = bench("replay", "t1")
            assert (result.exit_code, result.stderr, result.stdout[:9]) == (0, "", "The same:")
            assert bench.json("replay", "t1")["differences"] == []
            assert self.everything(bench) == before
            if words:
                bench(*words)
        for file in (bench.config, *bench.folder.glob("model*.py")):
            file.unlink()
        assert bench("replay", "t1").exit_code == 0, "neither the model nor the tools are needed"

    @pytest.mark.parametrize(
        ("option", "now"), [("--turns=2", "near_limit"), ("--approve=read", "needs approval")]
    )
    def test_the_first_difference_is_shown_with_both_reasons(
        self, bench: Bench, option: str, now: str
    ) -> None:
        bench.model(steps(LOOK, LOOK, LOOK, DONE))
        bench.run()
        before = self.everything(bench)
        result = bench("replay", "t1", option)
        first = bench.json("replay", "t1", option)["differences"][0]
        assert (result.exit_code, first["turn"]) == (1, 1)
        assert first["now"].startswith(now)
        for when in ("stored", "now"):
            assert f"{when}: {first['what']} {first[when]}\n" in result.stdout
        assert self.everything(bench) == before

    def test_it_is_written_as_a_test_that_passes(self, bench: Bench) -> None:
        bench.run()
        bench("resume", "t1", "8080")
        file = bench.folder / "test_it.py"
        result = bench("replay", "t1", "--to-test", str(file))
        assert (result.exit_code, str(file) in result.stdout) == (0, True)
        text = file.read_text("utf-8")
        assert bench("replay", "t1", "--to-test", "-").stdout == text
        (bench.folder / "run").mkdir()
        runpy.run_path(str(file))["test_thread_t1"](bench.folder / "run")
        one_sentence(bench("replay", "t1", "--to-test", "/nowhere/test.py"), "/nowhere/test.py")

    def test_a_redaction_of_ones_own(self, bench: Bench) -> None:
        bench.run()
        own = bench.folder / "own.py"
        for body, why in (
            ("text.replace('config', 'secret')", ""),
            ("None", "None"),
            ("1 / 0", "ZeroDivision"),
        ):
            own.write_text(f"def redact(text):\n    return {body}\n")
            result = bench("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact")
            if why:
                one_sentence(result, why)
            else:
                assert ("config.py" in result.stdout, "secret.py" in result.stdout) == (False, True)


class TestDelete:
    def threads(self, bench: Bench, **scripts: str) -> None:
        """Threads by these names; `limit` ends at its second turn."""
        for name, script in scripts.items():
            bench.model(script)
            bench.run("The task", "--turns", "2", thread=name)

    def left(self, bench: Bench) -> set[str]:
        return {row["thread_id"] for row in listed(bench)}

    def test_a_thread_goes_with_everything_but_what_it_did(self, bench: Bench) -> None:
        self.threads(bench, a=steps(EDIT, DONE), b=steps(EDIT, DONE))
        bench("stats", "--rate", "5", "--thread", "a")
        assert bench("delete", "a", "--dry-run").stdout.splitlines()[1].startswith("a       Asserted")
        found = bench.json("delete", "a", "--dry-run")
        assert found == {"deleted": [], "kept": {}, "would_delete": ["a"]}
        assert self.left(bench) == {"a", "b"}
        for words in (["a"], ["a", "--json"]):
            assert bench("delete", *words).exit_code == 2, "there is nobody to ask"
        assert bench.json("delete", "a", "--yes") == {"deleted": ["a"], "kept": {}}
        assert self.left(bench) == {"b"}
        assert bench("delete", "b", "--yes").stdout == "Deleted b.\n"
        with sqlite_storage(bench.database) as storage:
            assert list(storage.checkpointer.list(None)) == []
            assert storage.store.search(()) == []
        assert bench.config.read_text() == "PORT = 4000\n"

    @pytest.mark.parametrize("typed", ["y\n", "yes\n", "n\n", "\n", "\x04"])
    def test_a_person_is_asked(self, bench: Bench, typed: str) -> None:
        self.threads(bench, a=steps(DONE))

        def person(shown: Terminal) -> None:
            shown.until("[y/N] ")
            shown.type(typed)

        code, _ = at_terminal(bench, person, "delete", "a")
        agreed = typed.startswith("y")
        assert (code, self.left(bench)) == ((0, set()) if agreed else (1, {"a"}))

    def test_one_that_changes_while_the_person_thinks_stays(self, bench: Bench) -> None:
        self.threads(bench, a=steps(DONE), b=steps(DONE))

        def person(shown: Terminal) -> None:
            shown.until("[y/N] ")
            with sqlite_storage(bench.database) as storage:
                model = ScriptedModel([call("finish_task", summary="More.")])
                Session(build_graph(model, storage=storage), "b").run("More")
            shown.type("y\n")

        code, _ = at_terminal(bench, person, "delete", "--older", "2099-01-01")
        assert (code, self.left(bench)) == (0, {"b"})

    STANDS: Mapping[str, str] = {
        "success": steps(DONE),
        "limit": f"[{LOOK}] * 3",
        "error": steps("ValueError()"),
        "waiting": steps(ASK),
    }
    OLDER: Mapping[str, tuple[Sequence[str], set[str]]] = {
        "those that ended": (["{since}"], {"success", "limit", "error"}),
        "those that wait, too": (["{since}", "--all"], {"success", "limit", "error", "waiting"}),
        "none of that age": (["50d", "--all"], set()),
        "all": (["2099-01-01", "--all"], {*STANDS, "new"}),
    }

    @pytest.mark.parametrize("case", OLDER)
    def test_which_older_threads_go(self, bench: Bench, case: str) -> None:
        options, expected = self.OLDER[case]
        self.threads(bench, **self.STANDS)
        since = datetime.now(UTC).isoformat()
        self.threads(bench, new=steps(DONE), runs=steps(DONE))
        words = ["--older", *(option.format(since=since) for option in options)]
        dry = bench.json("delete", *words, "--dry-run")
        with sqlite_storage(bench.database) as storage, storage.runner("runs"):
            result = bench("delete", *words, "--yes")
        assert set(dry.get("would_delete", ())) - {"runs"} == expected
        assert (result.exit_code, result.stderr) == (0, "")
        assert str(len(expected) or "No") in result.stdout
        assert self.left(bench) == {*self.STANDS, "new", "runs"} - expected

    def test_those_that_did_not_end_are_mentioned(self, bench: Bench) -> None:
        self.threads(bench, a=steps(ASK))
        assert "--all" in bench("delete", "--older", "2099-01-01", "--yes").stdout
        assert self.left(bench) == {"a"}
