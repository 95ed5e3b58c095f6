"""A case: what the model says, what happens from outside, and what is right. Each is a file in `cases/`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from loopcheck.judge import CallCheck, Check, ToolCheck, Verdict, WordsCheck, judge, read_check, walk
from loopcheck.observed import Observed
from loopcheck.reading import BadFile, Node, Read, choice, many, optional, read_file
from loopcheck.replies import Ask, Call, Delegate, Finish, Part, Reply

FOLDER = Path(__file__).parent / "cases"
THEMES = ("Ending", "Odd replies", "Limits", "Crashes", "People", "Sub-agents", "Context")

FEATURES: Mapping[str, str] = {
    "finish_call": "the model ends the work with a call, and the same reply can hold other calls",
    "finish_again": "after such a call the thread continues with a new message, on top of the whole history",
    "structured": "a final answer with a given schema, validated",
    "turn_limit": "a limit on model calls",
    "call_limit": "a limit on tool calls",
    "gate": "a check of the final answer that can send the model back to work",
    "approval": "a person approves a call before it runs",
    "approval_ids": "a decision names its call by the call's ID",
    "edit": "a person approves a call with edited arguments",
    "durable_wait": "a person's answer can be delivered in another process",
    "crash": "a run whose process was killed continues in another process, from the framework's own storage",
    "one_runner": "two processes cannot continue the same run at the same time",
    "ask": "the model asks the user with a call, and the run waits for the answer",
    "deadline": "a question that nobody answers gets its default answer after a time",
    "stop": "a run can be stopped from outside, at a point where nothing is lost",
    "children": "an agent delegates a task to a sub-agent and gets its result",
    "child_limit": "a limit on the model calls of one sub-agent",
    "tree_limit": "one limit on the model calls of an agent and all its sub-agents together",
    "child_wait": "a sub-agent's question or approval reaches the run's caller, and the answer comes back",
    "child_durable": "a sub-agent's question or approval can be answered in another process",
    "recursion": "a sub-agent can delegate to an agent like itself",
    "compaction": "a history that outgrows the model's context is compacted, without configuration",
    "memory": "a thread continues with a new message in another process, from the framework's own storage",
}
Moment = Literal["before", "after", "request"]
Do = Literal["say", "decide", "answer", "resume", "expire"]
Way = Literal["any", "call", "structured"]
Gate = Literal["", "never", "after_write"]
Unruly = Literal["", "talk", "shape"]


@dataclass(frozen=True)
class Kill:
    """When the process gets SIGKILL: before or after the effect of the nth run of `tool` in this step, or
    when the nth model request of this step arrives."""

    tool: str = ""
    nth: int = 1
    when: Moment = "after"


@dataclass(frozen=True)
class Step:
    """Something that happens from outside.

    do: `say` a message, `decide` on the waiting calls, `answer` a question, `resume` an interrupted run,
    `expire` (time passes beyond every deadline). decisions: each waiting call gets the first one whose `when`
    matches its arguments. by_id: the decisions come in their own order, each with the ID of the call that it
    matches; a call without a match stays undecided, and a `late` decision is for a call that waited before
    and no longer does. fresh: in a new process. times: repeat up to this often while the run waits. at_once:
    in this many processes at the same time. stop: the run is asked to stop while this tool runs.
    """

    do: Do
    text: str = ""
    decisions: tuple[Mapping[str, Any], ...] = ()
    by_id: bool = False
    kill: Kill | None = None
    fresh: bool = False
    times: int = 1
    at_once: int = 1
    stop: str = ""


@dataclass(frozen=True)
class Setup:
    """What the framework's user knows when building the agent; the script is not part of it.

    tools: from the kit. finish: `any` natural way to end, a finishing `call`, or a `structured` answer.
    approve: tools that need approval. turns, tool_calls: limits of one task. gate: a completion check that
    passes `never` or `after_write`. asks: the model may ask the user. helpers: the names of the sub-agents;
    if there are any, they have the tools and approvals, and the agent has only them. helper_turns: a limit of
    each. tree_turns: one limit of all. recursive: each sub-agent can delegate to itself.
    """

    tools: tuple[str, ...] = ("read", "write")
    finish: Way = "any"
    approve: tuple[str, ...] = ()
    turns: int | None = None
    tool_calls: int | None = None
    gate: Gate = ""
    asks: bool = False
    helpers: tuple[str, ...] = ()
    helper_turns: int | None = None
    tree_turns: int | None = None
    recursive: bool = False


_DONE = Reply((Finish("All is done."),))


@dataclass(frozen=True)
class Role:
    """What the model says to a sub-agent, which its `task` identifies.

    script, then: as in a case. cornered: what it says to a request that offers no tools.
    """

    task: str
    script: tuple[Reply, ...]
    then: Reply = _DONE
    cornered: Reply | None = None


@dataclass(frozen=True)
class Case:
    """One question to an agent loop.

    version: of its judgement; results of two versions are not compared. promise: what a user can rely on.
    right: what is right, and why. script: the model's replies in order; `then`: every later one. cornered:
    what it says to a request that offers no tools. by_history: the number of replies in the request selects
    the next one, as with a real model; otherwise the number of calls does. needs: features that a framework
    must claim for the case to count. unruly: the kind of the first reply, if a request can forbid it: text
    only (`talk`), or invalid arguments (`shape`); a framework that forbids it does not fail. roles: of the
    sub-agents. must, must_not: the judgement. link: a public report of the problem. disputed: the public
    thread of a dispute; until it is settled, the case counts for nobody.
    """

    name: str
    question: str
    right: str
    script: tuple[Reply, ...]
    must: tuple[Check, ...]
    must_not: tuple[Check, ...] = ()
    version: int = 1
    theme: str = THEMES[0]
    promise: str = ""
    setup: Setup = field(default_factory=Setup)
    steps: tuple[Step, ...] = (Step("say", "Do the work."),)
    needs: tuple[str, ...] = ()
    then: Reply = _DONE
    cornered: Reply | None = None
    by_history: bool = False
    unruly: Unruly = ""
    roles: tuple[Role, ...] = ()
    link: str | None = None
    disputed: str | None = None

    def judge(self, seen: Observed) -> Verdict:
        """Judges what happened."""
        return judge(self.must, self.must_not, seen)

    def reply(self, number: int, who: str = "", *, cornered: bool = False) -> Reply:
        """Returns the reply with this number, from 0, to the agent or to the sub-agent with this task."""
        speaks = next((role for role in self.roles if role.task == who), self)
        said = speaks.script[number] if number < len(speaks.script) else speaks.then
        return speaks.cornered if cornered and speaks.cornered else said

    def who(self, told: str) -> str:
        """Returns the task of the sub-agent whose prompt this is; empty for the agent."""
        return next((role.task for role in self.roles if role.task in told), "")


@cache
def load_cases() -> tuple[Case, ...]:
    """Returns all cases, in the order of the table. Raises BadFile for an invalid file."""
    found = [read_case(file) for file in FOLDER.glob("*.json")]
    return tuple(sorted(found, key=lambda case: (THEMES.index(case.theme), case.name)))


def read_case(file: Path) -> Case:
    """Reads the case from one file. Raises BadFile, which names file and field."""
    node = read_file(file)
    given = node.object(_CASE, _REQUIRED)
    if given["name"] != file.stem:
        raise node.fields()["name"].bad(f"it differs from the file name, {file.stem!r}")
    case = Case(**given)
    for field_, checks in (("must", case.must), ("must_not", case.must_not)):
        for number, check in enumerate(checks):
            problem = next(filter(None, (_problem(case, one) for one in walk(check))), "")
            if problem:
                raise BadFile(f"{node.at}{field_}[{number}]: {problem}")
    return case


def _problem(case: Case, check: Check) -> str:
    """Raises BadFile if a check does not fit its case."""
    last = max(check.after_step, check.before_step)
    if last > len(case.steps):
        return f"there is no step {last}"
    if any(step.times > 1 for step in case.steps[: max(last - 1, 0)]):
        # It may repeat, so the numbers of the later steps are not known in advance.
        return f"a step before step {last} has `times`"
    ran = (*case.setup.tools, *(["gate"] if case.setup.gate else []))
    if isinstance(check, ToolCheck) and check.tool not in ran:
        return f"the setup has no tool {check.tool!r}"
    who = check.who if isinstance(check, CallCheck | WordsCheck) else None
    if who and who not in [role.task for role in case.roles]:
        return f"there is no role with the task {who!r}"
    return ""


def _must(node: Node) -> tuple[Check, ...]:
    """Requires at least one check: a subject that does nothing would pass a case that only forbids."""
    if not node.items():
        raise node.bad("it is empty; add what must have happened")
    return tuple(read_check(item) for item in node.items())


def _made(kind: Callable[..., Any], known: Mapping[str, Read], *required: str) -> Read:
    """Reads an object and builds an instance of this class from it."""
    return lambda node: kind(**node.object(known, required))


def _link(node: Node) -> str:
    if not node.words().startswith("https://"):
        raise node.bad("a link to a public thread must begin with https://")
    return node.words()


_PARTS: Mapping[str, tuple[Callable[..., Part], Mapping[str, Read], tuple[str, ...]]] = {
    "text": (lambda text: text, {"text": Node.text}, ()),
    "call": (
        lambda call, args=None, **more: Call(call, args or {}, **more),
        {"call": Node.words, "args": Node.mapping, "id": Node.words, "raw": Node.text},
        (),
    ),
    "finish": (
        lambda finish, **more: Finish(finish, **more),
        {"finish": Node.text, "value": Node.mapping, "cut": Node.flag},
        (),
    ),
    "ask": (
        lambda ask, **more: Ask(ask, **more),
        {"ask": Node.words, "default": Node.text, "seconds": Node.number},
        (),
    ),
    "delegate": (
        lambda delegate, task: Delegate(delegate, task),
        {"delegate": Node.words, "task": Node.words},
        ("task",),
    ),
}
"""The parts of a reply by their first field: how each is built and read, and what it needs."""


def _part(node: Node) -> Part:
    kind = next((name for name in _PARTS if name in node.fields()), None)
    if kind is None:
        raise node.bad(f"a part of a reply needs one of these fields: {', '.join(_PARTS)}")
    make, known, required = _PARTS[kind]
    return make(**node.object(known, required))


def _reply(node: Node) -> Reply:
    known: Mapping[str, Read] = {"parts": many(_part), "reason": Node.words, "error": Node.positive}
    if "parts" not in node.fields() and "error" not in node.fields():
        raise node.bad("a reply needs `parts` or an `error`")
    return Reply(**node.object(known))


def _script(node: Node) -> tuple[Reply, ...]:
    """Reads replies and repeated groups of them: `$n` in a group is the number of the repetition."""
    found: list[Reply] = []
    for item in node.items():
        if "repeat" in item.fields():
            group = item.object({"repeat": Node.positive, "of": lambda one: one}, ("repeat", "of"))
            for number in range(1, group["repeat"] + 1):
                found += [_reply(_numbered(one, number)) for one in group["of"].items()]
        else:
            found.append(_reply(item))
    return tuple(found)


def _numbered(node: Node, number: int) -> Node:
    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill(one) for name, one in value.items()}
        if isinstance(value, list):
            return [fill(one) for one in value]
        return value.replace("$n", str(number)) if isinstance(value, str) else value

    return Node(fill(node.value), node.at)


def _decision(node: Node) -> Mapping[str, Any]:
    known: Mapping[str, Read] = {
        "type": choice(("approve", "reject", "edit"), "decision"),
        "message": Node.text,
        "args": Node.mapping,
        "when": Node.mapping,
        "late": Node.flag,
    }
    return node.object(known, ("type",))


_KILL: Mapping[str, Read] = {
    "tool": Node.words,
    "nth": Node.positive,
    "when": choice(get_args(Moment), "moment"),
}
_STEP: Mapping[str, Read] = {
    "do": choice(get_args(Do), "kind of step"),
    "text": Node.text,
    "decisions": many(_decision),
    "by_id": Node.flag,
    "kill": _made(Kill, _KILL),
    "fresh": Node.flag,
    "times": Node.positive,
    "at_once": Node.positive,
    "stop": Node.words,
}
_SETUP: Mapping[str, Read] = {
    "tools": many(Node.words),
    "finish": choice(get_args(Way), "way to finish"),
    "approve": many(Node.words),
    "turns": Node.positive,
    "tool_calls": Node.positive,
    "gate": choice(get_args(Gate), "gate"),
    "asks": Node.flag,
    "helpers": many(Node.words),
    "helper_turns": Node.positive,
    "tree_turns": Node.positive,
    "recursive": Node.flag,
}
_ROLE: Mapping[str, Read] = {"task": Node.words, "script": _script, "then": _reply, "cornered": _reply}
_CASE: Mapping[str, Read] = {
    "name": Node.words,
    "version": Node.positive,
    "theme": choice(THEMES, "theme"),
    "promise": Node.words,
    "question": Node.words,
    "right": Node.words,
    "link": optional(_link),
    "disputed": optional(_link),
    "needs": many(choice(tuple(FEATURES), "feature")),
    "setup": _made(Setup, _SETUP, "tools"),
    "steps": many(_made(Step, _STEP, "do")),
    "script": _script,
    "then": _reply,
    "cornered": _reply,
    "by_history": Node.flag,
    "unruly": choice(get_args(Unruly), "unruliness"),
    "roles": many(_made(Role, _ROLE, "task", "script", "then")),
    "must": _must,
    "must_not": many(read_check),
}
_REQUIRED = tuple(name for name in _CASE if name not in ("disputed", "cornered"))
