"""Threads that a program began: everybody sees them; only its own graph, by `--graph`, goes on with them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from signoff import Session, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.load import load_graph
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import SCRIPT, Bench, offered, one_sentence, steps, words_of
from tests.support.benches.cli_steps import DONE, SAY

PROGRAM = (
    SCRIPT
    + """
from pathlib import Path
from signoff import build_graph
from langchain_core.tools import StructuredTool

def deploy(target: str) -> str:
    "Deploy."
    with Path({log!r}).open("a") as log:
        log.write(target)
    return f"deployed to {{target}}"

def undo(args, result):
    Path({log!r}).unlink()
    return "Removed."

def graph(storage=None):
    tool = StructuredTool.from_function(deploy, metadata={{"undo": undo}})
    return build_graph(model, [tool], storage=storage, **{options})
"""
)
DEPLOY = 'call("deploy", target="blue")'
ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'
SHELL = 'call("run_shell", command="touch ran")'
APPROVED: dict[str, Any] = {"approvals": {"deploy": True}}
HANDED: dict[str, Any] = {"approvals": {"deploy": "hand_over"}}


class Program:
    """A program with a graph of its own. begin: thread t1, by `Session` in the program."""

    def __init__(self, bench: Bench, *script: str, **options: Any) -> None:
        self.log = bench.folder / "deployed.log"
        file = bench.folder / "program.py"
        file.write_text(PROGRAM.format(steps=steps(*script), delay=0, log=str(self.log), options=options))
        self.named = f"{file}:graph"
        self.graph = ("--graph", self.named)
        # What the command line would run in its place.
        bench.model(steps(SHELL, SHELL, DONE))
        self.bench = bench

    def begin(self) -> Any:
        with sqlite_storage(self.bench.database) as storage:
            return Session(load_graph(self.named, storage), "t1").run("do it")

    def resume(self, *words: str) -> Any:
        return self.bench("resume", *self.graph, "t1", *words)

    @property
    def effects(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


# How the program left the thread: its script, and options of its graph.
LEFT: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "asks": ([ASK], {}),
    "waits for an action": ([DEPLOY], HANDED),
    "at a limit": ([DEPLOY] * 2, {"limits": {"turns": 1}}),
    "done": ([DONE], {}),
}


@pytest.mark.parametrize("left", LEFT)
def test_everybody_sees_it_and_the_command_line_never_goes_on_with_it(bench: Bench, left: str) -> None:
    script, options = LEFT[left]
    program = Program(bench, *script, **options)
    program.begin()
    shown, found, effects = bench("show", "t1"), bench.json("show", "t1"), program.effects
    assert (shown.exit_code, bench("threads").stdout.count("t1")) == (0, 1)
    commands = [*offered(shown.stdout).values(), *([words_of(found["resume"])] if found["resume"] else [])]
    assert bool(commands) == left.startswith(("asks", "waits"))
    assert ("--graph module:name" in shown.stdout) == (left != "done")
    assert [words for words in commands if words[words.index("--graph") + 1] != "module:name"] == []
    for words in (["run", "more", "-t", "t1"], ["resume", "t1"], ["resume", "t1", "8080"], ["undo", "t1"]):
        one_sentence(bench(*words), "--graph module:name")
    one_sentence(bench("replay", "t1"), "--graph")
    assert bench.json("show", "t1") == found
    assert (program.effects, (Path.cwd() / "ran").exists()) == (effects, False)


def test_its_graph_goes_on_with_it_and_with_a_fork(bench: Bench) -> None:
    program = Program(bench, ASK, DEPLOY, DONE)
    program.begin()
    assert "--graph module:name" in bench("fork", "t1", "--to", "copy").stdout
    one_sentence(bench("resume", "copy", "8080"), "--graph module:name")
    assert (program.resume("8080").exit_code, program.effects) == (0, ["blue"])
    assert bench("resume", *program.graph, "copy", "8080").exit_code == 0
    assert [bench.json("show", thread)["status"] for thread in ("t1", "copy")] == ["success", "success"]


def test_a_thread_begins_stops_and_ends_by_the_printed_commands(bench: Bench) -> None:
    program = Program(bench, ASK, DEPLOY, DEPLOY, DONE, **APPROVED, limits={"turns": 3})
    asked = bench("run", "Deploy it", *program.graph, "-t", "t1")
    assert (asked.exit_code, asked.stdout.startswith("t1\n")) == (4, True), asked.output
    for label, answer in (("Answer", "9090"), ("Reject", "not this one"), ("Approve", "")):
        words = offered(asked.stdout)[label]
        assert words[words.index("--graph") + 1] == program.named
        if answer:
            words = [*words[:-1], words[-1].replace("your answer", answer).replace("your reason", answer)]
        asked = bench(*words)
    assert (asked.exit_code, program.effects) == (3, ["blue"]), asked.output
    (on,) = offered(asked.stdout).values()
    assert (bench(*on).exit_code, program.effects) == (0, ["blue"])
    asked = bench("undo", *program.graph, "t1")
    assert (asked.exit_code, program.effects) == (4, ["blue"]), asked.output
    assert (bench(*offered(asked.stdout)["Approve"]).exit_code, program.effects) == (0, [])


def test_a_thread_of_the_command_line_is_not_continued_by_a_programs_graph(bench: Bench) -> None:
    program = Program(bench, DONE)
    bench.model(steps(ASK))
    assert bench.run().exit_code == 4
    before = bench.json("show", "t1")
    one_sentence(program.resume("8080"), "--graph")
    assert bench.json("show", "t1") == before


# A call that was handed over: `resume` hands it out, and its result is the answer.


def test_an_action_is_handed_out_and_answered_by_its_result(bench: Bench) -> None:
    program = Program(bench, DEPLOY, SAY, **HANDED)
    with sqlite_storage(bench.database) as storage:
        load_graph(program.named, storage).invoke(GO, config("t1"))
    (row,) = json.loads(bench("threads", "--json").stdout)
    assert (row["status"], row["waits_for"], row["what"]) == ("waiting", "action", "deploy")
    assert "target: blue" in bench("show", "t1").stdout, "which hands it out to nobody"
    actions = [json.loads(program.resume("--json").stdout)["action"] for _ in range(2)]
    assert ["unknown" in action for action in actions] == [False, True], "it may have been done"
    *words, answer = offered(program.resume().stdout)["Answer"]
    assert answer == "its result"
    assert bench(*words, "It is up.").exit_code == 0
    (event,) = (event for event in bench.told() if event["kind"] == "call")
    assert (event["name"], event["ok"], event["result"]) == ("deploy", True, "It is up.")


# Threads of LangChain's agents with Guards.
LOOK, FINISH = call("look", name="a"), call("finish_task", summary="All of it.")
ASKS = call("ask_user", question="Which one?")
GO: Any = {"messages": [("user", "do it")]}
# A thread by its name: its script, and what the list and `show` say of it.
ENDS: Mapping[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "done": ([LOOK, FINISH], {"status": "success", "turns": 2}, ["seen a", "All of it."]),
    "limit": ([LOOK], {"status": "limit", "turns": 1}, ["Turn limit"]),
    "asks": ([ASKS], {"status": "waiting", "turns": 1}, ["do it", "Which one?"]),
}


@tool
def look(name: str) -> str:
    """Look at something."""
    return f"seen {name}"


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def test_threads_of_agents_with_guards_are_seen_and_go_on_in_their_own_program(bench: Bench) -> None:
    with sqlite_storage(bench.database) as storage:
        saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
        for name, (script, _, _) in ENDS.items():
            guards = Guards(limits={"turns": len(script)})
            agent = guarded(create_agent(ScriptedModel(script), [look], middleware=[guards], **saved))
            agent.invoke(GO, config(name))
    found = {row["thread_id"]: row for row in json.loads(bench("threads", "--json").stdout)}
    for name, (_, row, words) in ENDS.items():
        assert found[name].items() >= {**row, "task": "do it"}.items()
        shown = bench("show", name).stdout
        assert [one for one in words if one not in shown] == []
    before = {name: bench.json("show", name) for name in ENDS}
    for words in (["resume", "limit"], ["resume", "asks", "red"], ["fork", "done"]):
        one_sentence(bench(*words), "go_on()")
    assert {name: bench.json("show", name) for name in ENDS} == before
