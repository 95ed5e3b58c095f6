"""A case: what the model says, what happens from outside, and what is right. It is a file of `cases/`."""

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
    "finish_call": "the model ends the work by a call, beside which other calls can stand",
    "finish_again": "after such a call the thread goes on with a new message, which follows all before it",
    "structured": "a final answer of a given shape, validated",
    "turn_limit": "a limit on the calls of the model",
    "call_limit": "a limit on the calls of tools",
    "gate": "a check of the final answer that can send the model back to work",
    "approval": "a person approves a call before it runs",
    "approval_ids": "a decision names the call that it is for, by the id of the call",
    "edit": "a person approves a call with other arguments",
    "durable_wait": "what waits for a person can be answered by another process",
    "crash": "a run whose process was killed goes on in another process, from the framework's own storage",
    "one_runner": "two processes that go on with one run at the same time are kept apart",
    "ask": "the model asks the user by a call, and the run waits for the answer",
    "deadline": "a question nobody answers is answered by its default after a time",
    "stop": "a run is stopped from outside, at a point where nothing is lost",
    "children": "an agent gives a task to another one, a sub-agent, and gets its result",
    "child_limit": "a limit on the calls of the model of one sub-agent",
    "tree_limit": "one limit on the calls of the model of an agent and of all its sub-agents together",
    "child_wait": "what a sub-agent waits for reaches the caller of the run, and the answer comes back",
    "child_durable": "what a sub-agent waits for can be answered by another process",
    "recursion": "a sub-agent can give tasks to an agent like itself",
    "compaction": "a history that outgrows the model's context is made smaller, with nothing configured",
    "memory": "a thread goes on with a new message in another process, from the framework's own storage",
}
Moment = Literal["before", "after", "request"]
Do = Literal["say", "decide", "answer", "resume", "expire"]
Way = Literal["any", "call", "structured"]
Gate = Literal["", "never", "after_write"]
Unruly = Literal["", "talk", "shape"]


@dataclass(frozen=True)
class Kill:
    """Where the process gets SIGKILL: before or after the effect of the nth run of `tool` in this step, or
    when the nth request of this step reaches the model."""

    tool: str = ""
    nth: int = 1
    when: Moment = "after"


@dataclass(frozen=True)
class Step:
    """Something that happens from outside.

    do: `say` a message, `decide` on the calls that wait, `answer` a question, `resume` what was cut short,
    `expire` (time passes beyond every deadline). decisions: each call that waits gets the first one whose
    `when` its arguments fit. by_id: the decisions are given in their own order, each with the id of the call
    that it fits; a call that none fits is left undecided, and one that is `late` is for a call that waited
    before and does not any more. fresh: in a new process. times: again, up to so often, while it waits.
    at_once: in so many processes at the same time. stop: the run is asked to stop while this tool runs.
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
    """What the user of the framework knows when the agent is built; the script is not among it.

    tools: of the kit. finish: `any` natural way to end, a finishing `call`, or a `structured` answer.
    approve: tools that need approval. turns, tool_calls: limits of one task. gate: a completion check that
    passes `never` or `after_write`. asks: the model may ask the user. helpers: the names of its sub-agents;
    where there are some, the tools and approvals are theirs, and the agent has them alone. helper_turns: a
    limit of each. tree_turns: one limit of all. recursive: each sub-agent has itself as a sub-agent.
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
    """What the model says to a sub-agent, which is known by its `task`.

    script, then: as in a case. cornered: what it says to a request that lets it call nothing.
    """

    task: str
    script: tuple[Reply, ...]
    then: Reply = _DONE
    cornered: Reply | None = None


@dataclass(frozen=True)
class Case:
    """One question to an agent loop.

    version: of its judgement; results of two versions are not compared. promise: what a user may rely on.
    right: what is right, and why. script: the model's replies in order, `then` every one after them.
    cornered: what it says to a request that lets it call nothing. by_history: the reply follows from how many
    replies the model is shown, as a real one would answer; else from how often it was called. needs: features
    that a framework must claim for the case to count. unruly: what a request may forbid the provider to
    reply, and the script's first reply is: words alone (`talk`), or arguments that do not fit (`shape`). A
    framework that forbids it does not lose by it. roles: of the sub-agents. must, must_not: the judgement.
    link: where somebody tells of this pain in public. disputed: where the case is contested in public; as
    long as it is, it counts for nobody.
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
        """Whether what happened is right."""
        return judge(self.must, self.must_not, seen)

    def reply(self, number: int, who: str = "", *, cornered: bool = False) -> Reply:
        """The reply with this number, the first being 0, to the agent or to the sub-agent with this task."""
        speaks = next((role for role in self.roles if role.task == who), self)
        said = speaks.script[number] if number < len(speaks.script) else speaks.then
        return speaks.cornered if cornered and speaks.cornered else said

    def who(self, told: str) -> str:
        """The task of the sub-agent that was told this before it said anything; empty for the agent."""
        return next((role.task for role in self.roles if role.task in told), "")


@cache
def load_cases() -> tuple[Case, ...]:
    """All cases, in the order of the table. Raises BadFile for a file that is not as it should be."""
    found = [read_case(file) for file in FOLDER.glob("*.json")]
    return tuple(sorted(found, key=lambda case: (THEMES.index(case.theme), case.name)))


def read_case(file: Path) -> Case:
    """The case of one file. Raises BadFile, which names file and field."""
    node = read_file(file)
    given = node.object(_CASE, _REQUIRED)
    if given["name"] != file.stem:
        raise node.fields()["name"].bad(f"it differs from the name of the file, {file.stem!r}")
    case = Case(**given)
    for field_, checks in (("must", case.must), ("must_not", case.must_not)):
        for number, check in enumerate(checks):
            problem = next(filter(None, (_problem(case, one) for one in walk(check))), "")
            if problem:
                raise BadFile(f"{node.at}{field_}[{number}]: {problem}")
    return case


def _problem(case: Case, check: Check) -> str:
    """What of a check does not fit the case it stands in."""
    last = max(check.after_step, check.before_step)
    if last > len(case.steps):
        return f"there is no step {last}"
    if any(step.times > 1 for step in case.steps[: max(last - 1, 0)]):
        # It takes place up to so often, so the later steps have no numbers that are known before.
        return f"a step before step {last} has `times`"
    ran = (*case.setup.tools, *(["gate"] if case.setup.gate else []))
    if isinstance(check, ToolCheck) and check.tool not in ran:
        return f"the setup has no tool {check.tool!r}"
    who = check.who if isinstance(check, CallCheck | WordsCheck) else None
    if who and who not in [role.task for role in case.roles]:
        return f"there is no role with the task {who!r}"
    return ""


def _must(node: Node) -> tuple[Check, ...]:
    """At least one: a case that only forbids would be right for a subject that does nothing."""
    if not node.items():
        raise node.bad("it is empty; say what must have happened")
    return tuple(read_check(item) for item in node.items())


def _made(kind: Callable[..., Any], known: Mapping[str, Read], *required: str) -> Read:
    """Reads an object and makes one of this kind of it."""
    return lambda node: kind(**node.object(known, required))


def _link(node: Node) -> str:
    if not node.words().startswith("https://"):
        raise node.bad("a link to a public thread begins with https://")
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
"""The parts of a reply, each known by its first field: how it is made and read, and what it needs."""


def _part(node: Node) -> Part:
    kind = next((name for name in _PARTS if name in node.fields()), None)
    if kind is None:
        raise node.bad(f"a part of a reply has one of these fields: {', '.join(_PARTS)}")
    make, known, required = _PARTS[kind]
    return make(**node.object(known, required))


def _reply(node: Node) -> Reply:
    known: Mapping[str, Read] = {"parts": many(_part), "reason": Node.words, "error": Node.positive}
    if "parts" not in node.fields() and "error" not in node.fields():
        raise node.bad("a reply has `parts`, or an `error`")
    return Reply(**node.object(known))


def _script(node: Node) -> tuple[Reply, ...]:
    """Replies, and groups of them that are repeated: `$n` in a group is the number of the repetition."""
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
