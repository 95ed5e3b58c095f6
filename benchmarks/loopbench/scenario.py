"""A scenario: what the model says, what happens from outside, and what is right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Finish, Reply

Feature = Literal[
    "finish_call",
    "structured",
    "turn_limit",
    "call_limit",
    "gate",
    "approval",
    "edit",
    "durable_wait",
    "crash",
    "one_runner",
    "ask",
    "deadline",
    "stop",
    "children",
    "child_limit",
    "tree_limit",
    "child_wait",
    "child_durable",
    "recursion",
]
FEATURES: Mapping[str, str] = {
    "finish_call": "the model ends the work by a call, beside which other calls can stand",
    "structured": "a final answer of a given shape, validated",
    "turn_limit": "a limit on the calls of the model",
    "call_limit": "a limit on the calls of tools",
    "gate": "a check of the final answer that can send the model back to work",
    "approval": "a person approves a call before it runs",
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
}


@dataclass(frozen=True)
class Kill:
    """Where the process gets SIGKILL: before or after the effect of the nth run of `tool` in this step, or
    when the nth request of this step reaches the model."""

    tool: str = ""
    nth: int = 1
    when: Literal["before", "after", "request"] = "after"


@dataclass(frozen=True)
class Step:
    """Something that happens from outside.

    do: `say` a message, `decide` on the calls that wait, `answer` a question, `resume` what was cut short,
    `expire` (time passes beyond every deadline). decisions: each call that waits gets the first one whose
    `when` its arguments fit. fresh: in a new process. times: again, up to so often, while it waits.
    at_once: in so many processes at the same time. stop: the run is asked to stop while this tool runs.
    """

    do: Literal["say", "decide", "answer", "resume", "expire"]
    text: str = ""
    decisions: tuple[Mapping[str, Any], ...] = ()
    kill: Kill | None = None
    fresh: bool = False
    times: int = 1
    at_once: int = 1
    stop: str = ""


def send(text: str = "Do the work.", **more: Any) -> Step:
    return Step("say", text, **more)


def approve(**more: Any) -> Step:
    return Step("decide", decisions=({"type": "approve"},), **more)


def decide(*decisions: Mapping[str, Any], **more: Any) -> Step:
    return Step("decide", decisions=decisions, **more)


def reject(why: str) -> dict[str, Any]:
    return {"type": "reject", "message": why}


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
    finish: Literal["any", "call", "structured"] = "any"
    approve: tuple[str, ...] = ()
    turns: int | None = None
    tool_calls: int | None = None
    gate: Literal["", "never", "after_write"] = ""
    asks: bool = False
    helpers: tuple[str, ...] = ()
    helper_turns: int | None = None
    tree_turns: int | None = None
    recursive: bool = False


@dataclass(frozen=True)
class Verdict:
    """ok: whether it was right. why: what happened."""

    ok: bool
    why: str


_DONE = Reply((Finish("All is done."),))


@dataclass(frozen=True)
class Role:
    """What the model says to a sub-agent, which is known by its `task`.

    script, then: as in a scenario. cornered: what it says to a request that lets it call nothing.
    """

    task: str
    script: tuple[Reply, ...]
    then: Reply = _DONE
    cornered: Reply | None = None


@dataclass(frozen=True)
class Scenario:
    """One question to an agent loop.

    right: what is right, and why. script: the model's replies in order, `then` every one after them.
    by_history: the reply follows from how many replies the model is shown, as a real one would answer; else
    from how often it was called. needs: features that a framework must claim for the scenario to count.
    unruly: what a request may forbid the provider to reply, and the script's first reply is: words alone
    (`talk`), or arguments that do not fit (`shape`). A framework that forbids it does not lose by it.
    roles: of the sub-agents. thread: where somebody tells of this pain in public.
    """

    name: str
    question: str
    right: str
    judge: Callable[[Observed], Verdict]
    script: tuple[Reply, ...]
    setup: Setup = field(default_factory=Setup)
    steps: tuple[Step, ...] = (Step("say", "Do the work."),)
    needs: tuple[Feature, ...] = ()
    then: Reply = _DONE
    by_history: bool = False
    unruly: Literal["", "talk", "shape"] = ""
    roles: tuple[Role, ...] = ()
    thread: str = ""

    def reply(self, number: int, who: str = "", *, cornered: bool = False) -> Reply:
        """The reply with this number, the first being 0, to the agent or to the sub-agent with this task."""
        for role in self.roles:
            if role.task == who:
                said = role.script[number] if number < len(role.script) else role.then
                return role.cornered if cornered and role.cornered else said
        return self.script[number] if number < len(self.script) else self.then

    def who(self, told: str) -> str:
        """The task of the sub-agent that was told this before it said anything; empty for the agent."""
        return next((role.task for role in self.roles if role.task in told), "")


def verdict(seen: Observed, *problems: str | Literal[False]) -> Verdict:
    """Right when there is no problem. What never ends by itself is wrong in every scenario."""
    found = [problem for problem in (_endless(seen), *problems) if problem]
    told = seen.told()
    return Verdict(not found, f"{'; '.join(found)} ({told})" if found else told)


def _endless(seen: Observed) -> str | Literal[False]:
    if seen.last.status == "hung":
        return "it hung"
    return seen.capped and "it did not end by itself"


def variant(scenario: Scenario, **changes: Any) -> Scenario:
    """The same scenario with something else."""
    return replace(scenario, **changes)
