"""The hooks of middleware around a model call and around a task, in LangChain's order.

`before_agent` runs once per task, before its first model call, and `before_model` before each call: both
after `decide` has chosen the model, so that their writes are saved before the call. `after_model` runs on the
saved reply, when it is routed, so that a pause in it never repeats the model call. `after_agent` runs in the
review of a finish without other objections, or when a limit or an error ends the task.
"""

import asyncio
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from langchain_core.messages import AIMessage

from signoff.graph.errors import MiddlewareWarning
from signoff.graph.foreign import gets_past, unanswered, words
from signoff.graph.history.task import Task
from signoff.graph.machine import Event, State
from signoff.graph.messages import marks, not_run
from signoff.graph.state import MIDDLEWARE, AgentState, Ending, HookMarks
from signoff.nodes.middleware.changes import PLACES, Changes
from signoff.nodes.middleware.given import Given, either, has
from signoff.nodes.model.messages import named_calls
from signoff.nodes.node import NodeContext, Report, Steps, Work, WrongWay
from signoff.nodes.requests import Part

HOOKS = ("before_agent", "before_model", "after_model", "after_agent")
_MOST_TOLD = 4_000
_GIVEN = ("runtime", "config")
_JUMPS = "__can_jump_to__"


@dataclass(frozen=True)
class Hook:
    """One hook of one middleware.

    whose: the middleware. name: without the `a` of the async form. sync, in_loop: the two forms, if present.
    jumps: where it declares that it may jump.
    """

    whose: str
    name: str
    sync: Callable[..., Any] | None
    in_loop: Callable[..., Any] | None
    jumps: frozenset[str]

    @classmethod
    def of(cls, one: Given, name: str, *, last: bool) -> "Hook":
        """last: whether it is the last of its kind to run: LangChain then follows a jump of `after_model`,
        declared or not."""
        sync, in_loop = (getattr(one, way) if has(one, way) else None for way in (name, f"a{name}"))
        # Where `hook_config` records it.
        declared = next((found for way in (sync, in_loop) if (found := getattr(way, _JUMPS, None))), ())
        free = last and name == "after_model"
        return cls(one.name, name, sync, in_loop, frozenset(PLACES if free else declared))

    def __str__(self) -> str:
        return f"{self.name} of the middleware {self.whose}"

    def arguments(self, way: Callable[..., Any], run: NodeContext) -> dict[str, Any]:
        """The arguments that it requests beside the state."""
        every = {"runtime": run.users_runtime, "config": run.config}
        return {name: every[name] for name in _GIVEN if name in signature(way).parameters}


def hooks_of(given: Sequence[Given]) -> Mapping[str, tuple[Hook, ...]]:
    """The hooks by name, each in the order of execution."""
    found = dict[str, tuple[Hook, ...]]()
    for name in HOOKS:
        ordered = [one for one in given if either(one, name)]
        if name.startswith("after"):
            ordered.reverse()
        found[name] = tuple(Hook.of(one, name, last=one is ordered[-1]) for one in ordered)
    return found


@dataclass(frozen=True)
class Ask:
    """Runs a hook; returns its result."""

    hook: Hook
    state: AgentState

    def do(self, run: NodeContext) -> Any:
        way = self.hook.sync
        if way is None:
            raise WrongWay(
                f"The middleware {self.hook.whose} has only a{self.hook.name}, which a sync run cannot "
                f"await; run the graph with `ainvoke` or `astream`, or add {self.hook.name}."
            )
        return way(_copied(self.state), **self.hook.arguments(way, run))

    async def ado(self, run: NodeContext) -> Any:
        if (way := self.hook.in_loop) is not None:
            return await way(_copied(self.state), **self.hook.arguments(way, run))
        assert self.hook.sync is not None, "a hook has one of the two"
        # It may block, and a server forbids blocking in its event loop.
        given = self.hook.arguments(self.hook.sync, run)
        return await asyncio.to_thread(self.hook.sync, _copied(self.state), **given)


def _copied(state: AgentState) -> dict[str, Any]:
    """A copy of the state for foreign code, so that the history itself is never changed in place."""
    return {**state, "messages": list(state["messages"])}


@dataclass(frozen=True)
class Jump:
    """Where a hook jumps to, which hook, and why: `failed` when it raised, or returned something invalid."""

    to: str
    hook: Hook
    why: str = ""

    @property
    def ends(self) -> bool:
        return self.to in ("end", "failed")

    @property
    def error(self) -> str:
        """One sentence, with what to do."""
        if self.to == "failed":
            return f"{self.hook} failed: {self.why} Fix it, then go on; everything so far is saved."
        return (
            f"{self.hook} ended the task before a finish was accepted. Go on, and the thread continues from "
            "here."
        )


def run_hooks(hooks: Sequence[Hook], changes: Changes) -> Part[Jump | None]:
    """A part of a node: runs hooks in order, until one jumps."""
    for hook in hooks:
        try:
            to = changes.take((yield Ask(hook, changes.state)))
        except (asyncio.CancelledError, GeneratorExit, WrongWay):
            raise
        except BaseException as raised:
            error = unanswered(raised, can_ask=changes.run.can_ask)
            # Whatever a hook raises is an outcome, except an interrupt.
            if gets_past(error):
                raise
            return Jump("failed", hook, f"{type(error).__name__}: {words(error)}.")
        if to and to not in hook.jumps:
            warnings.warn(
                f"{hook} jumps to {to!r} without declaring it; add @hook_config(can_jump_to=[{to!r}]) above "
                "it. The jump was ignored.",
                MiddlewareWarning,
                stacklevel=2,
            )
        elif to:
            return Jump(to, hook)
    return None


def _ended(jump: Jump, task: Task) -> Ending:
    return Ending(task=task.id, status="error", reason="middleware", error=jump.error)


def _steps(work: Report | Steps) -> Steps:
    """The work of a node, as a part of another one."""
    return (yield from work) if isinstance(work, Generator) else work


class Hooks:
    """The hooks of a graph, each in the state to which it belongs."""

    def __init__(self, hooks: Mapping[str, tuple[Hook, ...]]) -> None:
        self._hooks = hooks

    def works(self, works: Mapping[State, Work], begin: Callable[[], Any]) -> Mapping[State, Work]:
        """The work of each state with its hooks. begin: called before a model call, to check the run."""

        def decide(state: AgentState, run: NodeContext) -> Steps:
            return (yield from self._decide(works[State.DECIDE], begin(), state, run))

        def route_tools(state: AgentState, run: NodeContext) -> Steps:
            return (yield from self._route(works[State.ROUTE_TOOLS], state, run))

        def finish(state: AgentState, run: NodeContext) -> Steps:
            return (yield from self._finish(works[State.FINISH], state, run))

        more: dict[State, Work] = {State.DECIDE: decide}
        if self._hooks["after_model"]:
            more[State.ROUTE_TOOLS] = route_tools
        if self._hooks["after_agent"]:
            more[State.FINISH] = finish
        return {**works, **more}

    def _decide(self, work: Work, begin: Any, state: AgentState, run: NodeContext) -> Steps:
        task = run.task(state)
        if (why := _ended_after(state, task)) is not None:
            ending = Ending(task=task.id, status="error", reason="middleware", error=why)
            return Report(Event.FAILED, {"ending": ending})
        changes = Changes(state, run)
        if self._is_unheard(state, task):
            # The process was killed before the reply was routed, and the thread was entered again.
            jump = yield from self._hear(changes, task, run)
            if jump is not None and jump.ends:
                return Report(Event.FAILED, {**changes.update(), "ending": _ended(jump, task)})
        report = yield from _steps(work(_again(changes), run))
        if report.event is Event.THINK:
            yield begin
            report = yield from self._before(work, report, changes, task, run)
        return changes.beside(report)

    def _before(self, work: Work, report: Report, changes: Changes, task: Task, run: NodeContext) -> Steps:
        """The hooks before a model call; `report` says that it is next."""
        said = len(changes.messages)
        if self._hooks["before_agent"] and not _marks_of(changes.state, task).get("begun"):
            jump = yield from run_hooks(self._hooks["before_agent"], changes)
            if jump is not None and jump.ends:
                # It runs again when the task is retried: a retry must not bypass it.
                return Report(Event.FAILED, {"ending": _ended(jump, task)})
            changes.note(HookMarks(**_marks_of(changes.state, task), begun=True))
        jump = yield from run_hooks(self._hooks["before_model"], changes)
        if jump is not None and jump.ends:
            return Report(Event.FAILED, {"ending": _ended(jump, task)})
        if len(changes.messages) == said:
            return report
        if (last := run.task(changes.state).last) is not None:
            # The reply was written by a hook, not by the model.
            changes.note(_marks_with_reply(changes.state, task, last.message))
        # They may contain calls to run first. Summarising happens after the model call.
        return (yield from _steps(work(_again(changes), run)))

    def _route(self, work: Work, state: AgentState, run: NodeContext) -> Steps:
        task, changes = run.task(state), Changes(state, run)
        if not self._is_unheard(state, task):
            return (yield from _steps(work(state, run)))
        jump = yield from self._hear(changes, task, run)
        if jump is not None and jump.to != "tools":
            return Report(Event.SETTLED, changes.update())
        return changes.beside((yield from _steps(work(changes.state, run))))

    def _is_unheard(self, state: AgentState, task: Task) -> bool:
        """Whether the last reply came from the model, and `after_model` has not run on it."""
        last = task.last
        if not self._hooks["after_model"] or last is None or "shown" not in marks(last.message):
            return False
        return _marks_of(state, task).get("heard") != last.message.id

    def _hear(self, changes: Changes, task: Task, run: NodeContext) -> Part[Jump | None]:
        """`after_model` on the last reply of the task, and the effect of a jump."""
        assert task.last is not None, "there is a reply"
        if renamed := named_calls(task.last, task.call_ids):
            changes.put([renamed])
        jump = yield from run_hooks(self._hooks["after_model"], changes)
        last = run.task(changes.state).last
        heard = _marks_with_reply(changes.state, task, (last or task.last).message)
        if jump is not None and jump.ends:
            heard["why"] = jump.error
        changes.note(heard)
        if jump is not None and jump.to == "model":
            changes.put(_set_aside(changes, jump, run))
        return jump

    def last_word(self, state: AgentState, run: NodeContext) -> Part[tuple[dict[str, Any], str]]:
        """A part of `review`: `after_agent`, before a finish is accepted. A failure is reported as a warning,
        and does not prevent the finish."""
        changes = Changes(state, run)
        jump = yield from run_hooks(self._hooks["after_agent"], changes)
        if jump is None or jump.to != "model":
            _tell(jump, "the finish is judged without it")
            return changes.update(), ""
        said = [one for one in changes.messages.values() if marks(one).get("nudge")]
        reason = "\n".join(one.text for one in said)[:_MOST_TOLD] or f"{jump.hook} sent it back."
        for one in said:
            # The model reads them as the reason.
            del changes.messages[one.id or ""]
        return changes.update(), reason

    def _finish(self, work: Work, state: AgentState, run: NodeContext) -> Steps:
        task, ending = run.task(state), state.get("ending")
        if task.ended or ending is None or ending["task"] != task.id or _has_had_its_word(ending, task):
            return (yield from _steps(work(state, run)))
        changes = Changes(state, run)
        jump = yield from run_hooks(self._hooks["after_agent"], changes)
        _tell(jump, f"the task has ended ({ending['reason']})")
        report = yield from _steps(work(changes.state, run))
        return changes.beside(report)


def _has_had_its_word(ending: Ending, task: Task) -> bool:
    """Whether the review that ended the task has already run `after_agent`."""
    last = next(iter([*task.refused.values()][-1:]), None)
    sent_back = last is not None and last["kind"] == MIDDLEWARE
    return ending["status"] == "success" or (ending["reason"] == "review_deadlock" and sent_back)


def _again(changes: Changes) -> AgentState:
    """The state for a second look by `decide`, without the check for a full prompt, which was already
    done."""
    return {**changes.state, "event": Event.READY} if changes.messages else changes.state


def _ended_after(state: AgentState, task: Task) -> str | None:
    """Why the task ends after its last reply, if `after_model` ended it and it was not retried since."""
    noted, last = _marks_of(state, task), task.last
    if last is None or task.ended or task.resumed >= task.turns or noted.get("heard") != last.message.id:
        return None
    return noted.get("why")


def _marks_of(state: Mapping[str, Any], task: Task) -> HookMarks:
    """The marks of this task."""
    found: HookMarks | None = state.get(MIDDLEWARE)
    return found if found is not None and found["task"] == task.id else HookMarks(task=task.id)


def _marks_with_reply(state: Mapping[str, Any], task: Task, reply: AIMessage) -> HookMarks:
    """The marks with another reply, so without the reason by which an earlier one ended."""
    noted = HookMarks(task=task.id, heard=reply.id or "")
    if _marks_of(state, task).get("begun"):
        noted["begun"] = True
    return noted


def _set_aside(changes: Changes, jump: Jump, run: NodeContext) -> list[Any]:
    """The answers to the calls of a reply after which a hook jumped back to the model."""
    last = run.task(changes.state).last
    assert last is not None, "there is a reply to route"
    text = run.deps.texts.results["middleware"]
    return [
        not_run(
            call.id, call.name, text.format(name=call.name, by=jump.hook), MIDDLEWARE, reply=last.message.id
        ).model_copy(update={"id": f"{last.message.id}-aside-{call.index}"})
        for call in last.calls
        if last.open(call)
    ]


def _tell(jump: Jump | None, so: str) -> None:
    if jump is not None and jump.to != "end":
        done = f"failed ({jump.why})" if jump.to == "failed" else f"jumps to {jump.to!r}"
        warnings.warn(f"{jump.hook} {done}; {so}.", MiddlewareWarning, stacklevel=2)
