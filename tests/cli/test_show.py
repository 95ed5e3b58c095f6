"""`signoff show`: what happened in a thread turn by turn, through which states and by which rules."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from signoff.graph.machine import TRANSITIONS, State
from signoff.storage.sqlite import thread_lock
from tests.support.benches.cli import Bench, offered, steps

DONE = 'call("finish_task", summary="All done.")'
EMPTY = 'call("finish_task", summary="")'
LOOK = 'call("read_file", path="config.py")'
THINK = 'call("think", thought="First the port.")'
ASK = 'call("ask_user", question="Which?")'
TURN = "call_llm → route_tools → execute → decide"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


Way = tuple[str, str, list[str]]
WAYS: dict[str, tuple[str, list[str], list[Way]]] = {
    # script, options of run → of each turn: what happened, the states, the rules beside those of every turn
    "work, then done": (
        steps(LOOK, DONE),
        [],
        [
            ("call", TURN, []),
            ("", "call_llm → route_tools → decide → review → finish", ["claimed"]),
        ],
    ),
    "a nudge": (
        steps('"Hm."', DONE),
        [],
        [
            ("nudge", "call_llm → route_tools → nudge → compress → decide", []),
            ("", "call_llm → route_tools → decide → review → finish", ["claimed"]),
        ],
    ),
    "an empty reply": (
        f"[lambda m: {DONE} if 'was empty' in m[-1].text else '']",
        [],
        [
            ("nudge", "call_llm → route_tools → decide → nudge → compress → decide", ["empty"]),
            ("", "call_llm → route_tools → decide → review → finish", ["claimed"]),
        ],
    ),
    "a refused finish": (
        steps(EMPTY, DONE),
        [],
        [
            (
                "call",
                "call_llm → route_tools → decide → review → compress → decide",
                ["claimed"],
            ),
            ("", "call_llm → route_tools → decide → review → finish", ["claimed"]),
        ],
    ),
    "a limit": (
        steps(LOOK, LOOK),
        ["--turns", "2"],
        [
            ("call nudge", f"{TURN} → nudge → compress → decide", ["near_limit"]),
            ("call", f"{TURN} → finish", ["turns"]),
        ],
    ),
    "a thought, then a question": (
        steps(THINK, ASK),
        [],
        [
            ("thought", "call_llm → route_tools → decide", []),
            ("", "call_llm → route_tools → decide", ["asked"]),
        ],
    ),
    "a call that waits": (
        steps('call("write_file", path="new.md", content="x")'),
        ["--approve", "write"],
        [("", "call_llm → route_tools", [])],
    ),
    "a model that fails in the second turn": (
        steps(LOOK, "ValueError()"),
        [],
        [("call", f"{TURN} → call_llm → finish", [])],
    ),
    "a model that fails at once": (steps("ValueError()"), [], []),
}


@pytest.mark.parametrize("case", WAYS)
def test_the_way_of_each_turn(bench: Bench, case: str) -> None:
    script, options, expected = WAYS[case]
    bench.model(script)
    bench.run("Do it", *options)
    (task,) = bench.json("show", "t1")["tasks"]
    found = [_way(turn) for turn in task["turns"]]
    assert found == expected
    assert [turn["turn"] for turn in task["turns"]] == list(range(1, len(expected) + 1))
    lines = [line.strip() for line in bench("show", "t1").stdout.splitlines()]
    ways = [at for at, line in enumerate(lines) if "call_llm" in line]
    for at, (_, states, rules) in zip(ways, expected, strict=True):
        assert lines[at].partition(" · ")[0].lstrip("0123456789 ") == states
        assert [line.partition(":")[0] for line in lines[at + 1 : at + 1 + len(rules)]] == rules


def _way(turn: Any) -> Way:
    rules = [step["rule"] for step in turn["steps"] if step["rule"] not in ("", "think")]
    kinds = " ".join(event["kind"] for event in turn["events"])
    return kinds, " → ".join(step["state"] for step in turn["steps"]), rules


def test_every_step_is_a_move_of_the_machine_with_its_reason_and_its_checkpoint(bench: Bench) -> None:
    bench.model(steps(LOOK, EMPTY, '"Hm."', THINK, ASK))
    bench.run()
    saved = [step for turn in bench.json("show", "t1")["tasks"][0]["turns"] for step in turn["steps"]]
    for step, following in pairwise(saved):
        assert TRANSITIONS[State(step["state"])][step["event"]] == following["state"]
        assert step["next"] == [following["state"]]
        assert bool(step["rule"]) == bool(step["why"]) == (step["state"] == "decide")
    assert saved[-1]["next"] == ["ask_user"]
    assert len({step["checkpoint_id"] for step in saved}) == len(saved)
    assert sorted(step["at"] for step in saved) == [step["at"] for step in saved]


def test_figures_of_a_turn(bench: Bench) -> None:
    bench.model(f"[lambda m: (__import__('time').sleep(0.2), {LOOK})[1], {DONE}]")
    ended = bench.run("x", "--json")
    slow, quick = bench.json("show", "t1")["tasks"][0]["turns"]
    assert ended.exit_code == 0
    assert 0.2 <= slow["seconds"] < 5
    first, second = (line for line in bench("show", "t1").stdout.splitlines() if "call_llm" in line)
    assert first.endswith(f"decide · {slow['tokens']} tokens · {slow['seconds']:.1f} s")
    assert f"finish · {quick['tokens']} tokens" in second


def test_the_tasks_of_a_thread_in_order(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("run", "And more", "--thread", "t1")
    assert [(event["kind"], event["turn"]) for event in bench.told()] == [
        ("user", None),
        ("call", 1),
        ("question", 2),
        ("call", 3),
        ("outcome", None),
        ("user", None),
        ("outcome", None),
    ]
    first, second = bench.json("show", "t1")["tasks"]
    assert (first["words"], len(first["turns"]), first["outcome"]["turns"]) == (["Change it"], 4, 4)
    assert (second["words"], len(second["turns"]), second["outcome"]["turns"]) == (["And more"], 1, 1)
    assert first["task"] == first["outcome"]["task"] != second["task"] == second["outcome"]["task"]
    lines = bench("show", "t1").stdout.splitlines()
    told = [
        "you Change it",
        "  2 ? Which port?",
        "      8080",
        "Asserted: done",
        "you And more",
        "Asserted: done",
    ]
    assert [line for line in lines if line in told] == told


ANSWERS = {
    "question": (ASK, "8080", ["  1 ? Which?", "      8080"]),
    "confirmation": (
        'call("finish_task", summary="x", requires_user_confirmation=True)',
        "8080",
        ["      A person did not accept this: 8080"],
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_by_a_message_is_told_once(bench: Bench, case: str) -> None:
    script, message, expected = ANSWERS[case]
    bench.model(steps(script, DONE))
    bench.run("Do it")
    shown = bench("run", message, "-t", "t1").stdout, bench("show", "t1").stdout
    for out in shown:
        assert out.count(message) == 1
        assert [line for line in out.splitlines() if line in expected] == expected


def test_a_waiting_thread_ends_with_the_question(bench: Bench) -> None:
    bench.run()
    found = bench.json("show", "t1")
    assert (found["status"], found["outcome"]) == ("waiting", None)
    assert (found["question"]["question"], found["tasks"][0]["outcome"]) == ("Which port?", None)
    assert found["settings"]["workspace"] == str(bench.workspace)
    assert list(offered(bench("show", "t1").stdout)) == ["Answer"]


def test_a_running_thread(bench: Bench) -> None:
    bench.run()
    with thread_lock(bench.database, "t1"):
        found, shown = bench.json("show", "t1"), bench("show", "t1").stdout
    assert (found["status"], found["question"], found["resume"]) == ("running", None, None)
    assert shown.startswith("t1 · running · ")
    assert shown.endswith("It is running in another process.\n")


def test_a_way_that_was_left_by_an_extension_is_told_in_the_turn_before(bench: Bench) -> None:
    bench.model(steps(LOOK, LOOK, DONE))
    bench.run("Look", "--turns", "2")
    bench("extend", "t1", "1")
    (task,) = bench.json("show", "t1")["tasks"]
    kinds = [[event["kind"] for event in turn["events"]] for turn in task["turns"]]
    assert kinds == [["call", "nudge"], ["call", "nudge", "nudge"], []]
    assert "    ↻ the task goes on\n" in bench("show", "t1").stdout
