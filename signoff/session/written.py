"""The text of a written test, with marks for what was recorded."""

import re


def template(*, delegates: bool) -> str:
    """The text with marks (`@moves@`); with those of delegates, if there are any."""
    blocks = _DELEGATES if delegates else _PLAIN
    return re.sub(r"^#(\w+)\n", lambda mark: blocks.get(mark[1], ""), _TEMPLATE, flags=re.M)


_PLAIN = {
    "typing": """\
from typing import Any
""",
    "signoff": """\
from signoff import Answer, Limits, Prices, Session
from signoff import build_graph, go_on, sqlite_storage, standard_controls, stop
""",
}

_DELEGATES = {
    "typing": """\
from threading import Lock
from typing import Annotated, Any
""",
    "import": """\
import warnings
from collections.abc import Mapping
""",
    "injected": """\
from langgraph.prebuilt import InjectedState
""",
    "signoff": """\
from signoff import (
    Answer,
    Limits,
    Prices,
    Session,
    ThreadStatus,
    build_graph,
    delegate,
    go_on,
    sqlite_storage,
    standard_controls,
    stop,
)
from signoff.session import Choose
""",
    "steps": '''\
from signoff.session.below import ChildThread, children


def answer_below(path: tuple[str, ...], call_id: str, value: Any) -> Choose:
    """The answer to what a delegate waits for with this call."""

    def command(status: ThreadStatus) -> Answer:
        for one in status.waits:
            document = one.document()
            calls = document.get("call_ids", [document.get("call_id", "")])
            if one.path == path and call_id in calls:
                return Answer(value, one.interrupt_id)
        raise AssertionError(f"{path} does not wait for an answer to {call_id!r}")

    return Choose(command)

''',
    "data": """\
# The graphs of the delegates by the way to them: their tools as above, and their settings.
DELEGATES: dict[tuple[str, ...], Any] = @delegates@

# The machines of the delegates: what each was given, its replies, what its tools gave, and its checks.
MACHINES: list[dict[str, Any]] = @machines@

""",
    "code": '''\
class Delegates:
    """The delegates with their machines; each machine plays its own script. A machine is known by the message
    that began it."""

    def __init__(self, missing: list[str]) -> None:
        self.missing = missing
        lists = ("script", "results", "checks")
        self.left = [{**one, **{name: list(one[name]) for name in lists}} for one in MACHINES]
        self.begun = dict[str, dict[str, Any]]()
        self.lock = Lock()

    def machine(self, path: tuple[str, ...], messages: Any) -> dict[str, Any]:
        first = next(one for one in messages if one.type == "human")
        with self.lock:
            if first.id not in self.begun:
                same = [one for one in self.left if (one["path"], one["task"]) == (path, first.text)]
                assert same, f"nothing was recorded of {path} with the task {first.text!r}"
                self.left.remove(same[0])
                self.begun[first.id] = same[0]
            return self.begun[first.id]

    def below(self, path: tuple[str, ...]) -> list[Any]:
        """The delegates that the machines at this path may call."""
        return [
            delegate(way[-1], self.graph(way), description=way[-1], parallel=told["parallel"])
            for way, told in DELEGATES.items()
            if way[:-1] == path
        ]

    def graph(self, path: tuple[str, ...]) -> Any:
        told = DELEGATES[path]

        def say(messages: Any) -> Any:
            script = self.machine(path, messages)["script"]
            assert script, f"the script of {path} has ended"
            return script.pop(0)

        def check(messages: Any) -> bool:
            return bool(self.machine(path, messages)["checks"].pop(0))

        def tool(name: str) -> StructuredTool:
            def run(state_of_machine: Annotated[Any, InjectedState], **arguments: Any) -> Any:
                results = self.machine(path, state_of_machine["messages"])["results"]
                return recorded_result(name, arguments, results, self.missing)

            return recorded_tool(name, told["tools"][name], run)

        with warnings.catch_warnings():
            # A graph by itself could not wait for a person; this one is saved by the graph above it.
            warnings.simplefilter("ignore")
            return build_graph(
                ScriptedModel(say),
                [*map(tool, told["tools"]), *self.below(path)],
                checks=[check] if told["checked"] else [],
                **told["settings"],
            )

    def assert_done(self) -> None:
        unused = [*self.left, *(one for one in self.begun.values() if one["script"])]
        assert unused == [], "the delegates were called otherwise"


def paths(found: Mapping[str, ChildThread]) -> list[str]:
    """The paths of these machines and of those below them."""
    told = []
    for one in found.values():
        way = "".join(f"{name} / " for name in one.path)
        told += [f"{way}{in_words(step)}" for step in one.steps if step.name]
        told += paths(one.below)
    return told


''',
    "tools": """\
    delegates = Delegates(missing)
    tools += delegates.below(())
""",
    "path": """\
        path += paths(children(graph, session.thread_id, session.status().values))
""",
    "end": """\
    delegates.assert_done()
""",
}

_TEMPLATE = '''\
"""What the thread @thread_id@ of @begun@ did, expected of this version of Signoff.

Written by `signoff replay --to-test` (Signoff @signoff@). It plays what the model said, what tools gave
and what people answered; it needs no model, no tool and no database. It fails when a rule now decides
otherwise.
"""

import json
#import
from pathlib import Path
#typing

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool, ToolException
#injected
from pydantic import create_model

#signoff
from signoff.models import ScriptedModel, call, reply
#steps

MOVES: list[Any] = @moves@

SCRIPT: list[Any] = @script@

# Each tool with its kind, the types of its arguments, and those that it needs.
TOOLS: dict[str, Any] = @tools@

# The tool, its arguments, whether it succeeded, and what it gave.
RESULTS: list[Any] = @results@

CHECKS: list[bool] = @checks@

PATH = @path@

EXPECTED = @expected@

OUTCOMES = @outcomes@

#data
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


def recorded_result(name: str, arguments: dict[str, Any], left: list[Any], missing: list[str]) -> Any:
    """What the recorded tool gave."""
    given = {key: value for key, value in arguments.items() if value is not None}
    same = [one for one in left if one[0] == name]
    exact = [one for one in same if {k: v for k, v in one[1].items() if v is not None} == given]
    if not same:
        missing.append(f"{name}({json.dumps(given, default=str)})")
        raise ToolException("nothing was recorded of this call")
    found = (exact or same)[0]
    left.remove(found)
    if found[2]:
        return found[3]
    raise ToolException(found[3])


def recorded_tool(name: str, told: Any, run: Any) -> StructuredTool:
    """A tool like the recorded one."""
    kind, fields, required = told
    schema: Any = {"type": "object", "properties": {}, "additionalProperties": True}
    if fields is not None:
        types = {key: TYPES.get(sort, Any) for key, sort in fields.items()}
        made = {key: (sort, ...) if key in required else (sort | None, None) for key, sort in types.items()}
        schema = create_model(name, **made)
    return StructuredTool(name=name, description=name, func=run, args_schema=schema, metadata={"kind": kind})


#code
def in_words(step: Any) -> str:
    return f"{step.name}: {step.event}" + (f" by {step.rule}" if step.rule else "")


def play(folder: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Runs the thread again: its path, and how its tasks ended."""
    left, missing, checked = list(RESULTS), list[str](), iter(CHECKS)

    def check() -> bool:
        return next(checked)

    def tool(name: str) -> StructuredTool:
        def run(**arguments: Any) -> Any:
            return recorded_result(name, arguments, left, missing)

        return recorded_tool(name, TOOLS[name], run)

    ends, tools = [], [tool(name) for name in TOOLS]
#tools
    with sqlite_storage(folder / "thread.sqlite") as storage:
        model = ScriptedModel(SCRIPT)
        graph = build_graph(
            model, tools, storage=storage, @with_checks@@settings@
        )
        # Changed rules may go round in circles: then it ends as an error.
        session = Session(graph, "recorded", config={"recursion_limit": 100 + 10 * len(PATH)})
        for move in MOVES:
            decision = session.run(move)
            if outcome := getattr(decision, "outcome", None):
                ends.append({name: getattr(outcome, name) for name in EXPECTED})
        path = [in_words(step) for turn in session.history() for step in turn.steps if step.name]
#path
        model.assert_done()
    assert missing == [], "the tools were called otherwise"
#end
    return path, ends


def @name@(tmp_path: Path) -> None:
    path, outcomes = play(tmp_path)
    assert path == PATH
    assert outcomes == OUTCOMES
'''
