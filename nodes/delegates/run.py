"""Runs the calls of delegates: each has its own machine, in the thread of the machine that calls it.

The machine of a call is saved under a checkpoint namespace derived from the call itself. LangGraph would
number such machines in the order in which they start: after a crash, one could then continue with the history
of another. The call itself is not in the journal: the machine records its own calls there, and an interrupted
one continues where it stopped. A machine that has ended is not run again: its last checkpoint is its result.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from functools import partial
from threading import Semaphore
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command, Interrupt, StateSnapshot

from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.finish.again import GoingOn
from signoff.graph.history.replies import Call
from signoff.graph.history.task import READ, Task, current_task
from signoff.graph.inside.private import saver_of, within_namespace
from signoff.graph.inside.speed import lazy, listened, started, unheard, within_config
from signoff.graph.limits import Prices
from signoff.graph.machine import FIRST, Event, enters, has_command, unknown_state
from signoff.graph.outcome import current_outcome, failures_below, typed_outcome
from signoff.graph.state import Context
from signoff.nodes.delegates import results
from signoff.nodes.delegates.descent import LISTENS, Descent, namespace
from signoff.nodes.delegates.graphs import deps_of, graph_of
from signoff.nodes.delegates.ledger import RunLedger, bounds_below, enter
from signoff.nodes.model.advice import masked, secrets_of
from signoff.nodes.node import Dependencies, NodeContext, begin
from signoff.nodes.requests import Operation, Part, acarry_out, carry_out
from signoff.nodes.tool_calls.progress import ListeningControl
from signoff.tools.delegates import Delegate

# Writes that were not applied when a process was killed need a run in which nothing else happens.
_MOST_ENTRIES = 4


@dataclass(frozen=True)
class _Unheard(Operation):
    """A run with a configuration of `unheard`: it inherits nothing of what that leaves out."""

    config: RunnableConfig

    def do(self, scope: object) -> Any:
        with within_config(self.config):
            return super().do(scope)

    async def ado(self, scope: object) -> Any:
        with within_config(self.config):
            return await super().ado(scope)


@dataclass(frozen=True)
class ChildMachine:
    """The machine of one call. run, task: the node invocation and the task of the calling machine; edited:
    arguments that a person substituted for the model's. again: how it continues after its end."""

    call: Call
    reply_id: str
    run: NodeContext
    edited: Mapping[str, Any] | None = None
    again: GoingOn | None = None

    @property
    def tool(self) -> Delegate:
        return self.run.deps.toolbox.delegates[self.call.name]

    @lazy
    def graph(self) -> Any:
        return graph_of(self.tool)

    @lazy
    def deps(self) -> Dependencies:
        return deps_of(self.graph)

    @lazy
    def ns(self) -> str:
        return namespace(self.run.ns, self.call.name, self.reply_id, self.call.id)

    def config(self, descent: Descent | None = None, *, goes_on: bool = True) -> RunnableConfig:
        """The configuration of its runs."""
        given = self.run.config
        here = within_namespace(given.get("configurable", {}), self.ns, goes_on=goes_on)
        made: RunnableConfig = {**given, "configurable": {**here, **(descent.config if descent else {})}}
        made.pop("recursion_limit", None)
        if self.deps.name is None:
            # Else all graphs without a name of their own look the same to whoever traces the run.
            made["run_name"] = self.call.name
        return made

    def descent(self, task: Task, ledger: RunLedger | None, *, alone: bool) -> Descent:
        """What the calling machine passes down to it. alone: no other delegate of that machine runs."""
        run, above = self.run, self.run.descent
        return Descent(
            ns=self.ns,
            deeper=run.limits.depth - 1,
            policies=(*(above.policies if above else ()), run.deps.toolbox.approvals),
            bounds=bounds_below(task, run),
            root=above.root if above else task.id,
            ledger=ledger,
            alone=alone and (above is None or above.leaves_alone(run.ns)),
            listens=above.listens if above else bool(run.config.get("configurable", {}).get(LISTENS)),
        )

    def steps(self, task: Task, ledger: RunLedger | None, *, alone: bool) -> Part[ToolMessage]:
        """Runs it to its end, and returns the result of the call. Raises GraphInterrupt if it waits."""
        descent = self.descent(task, ledger, alone=alone)
        for _ in range(_MOST_ENTRIES):
            state = yield from self.look()
            if state is None:
                try:
                    _ = self.deps, self._prices
                except SetupError as error:
                    return results.unmade(self.call, error, self.run)
            again = self._again(state)
            if again is None and state is not None and (found := self.result(state.values)):
                return found
            given = again or self._input(state)
            config = self.config(descent, goes_on=state is not None)
            values = yield self._invoked(given, config)
            if found := self.result(values):
                return found
        raise ThreadError(
            f"The delegate {self.call.name!r} cannot continue from its current state; send a new message, or "
            "start another thread."
        )

    def enter(self, ledger: RunLedger) -> Part[None]:
        """Notes in the ledger of this run what it, and those below it that are to go on, have used before."""
        state = yield from self.look()
        if state is None:
            return
        task = self.task(state.values)
        enter(ledger, self.ns, task, self.deps.limits)
        reply = task.last
        for call in reply.calls if reply else ():
            if reply and reply.open(call) and call.name in self.deps.toolbox.delegates:
                yield from ChildMachine(call, reply.message.id or "", self.context).enter(ledger)

    def look(self) -> Part[StateSnapshot | None]:
        """Its saved state; None if nothing is saved. Raises ThreadError for a state that its graph no longer
        has."""
        saved = yield from saved_below(self.ns, self.run)
        if saved is None:
            return None
        if (name := unknown_state(saved, self.graph.nodes)) is not None:
            raise ThreadError(
                f"The delegate {self.call.name!r} is in the state {name!r}, which its graph does not "
                "have (any more); build it with its former graph to continue, or send a new message, "
                "which ends it. Nothing was changed."
            )
        config = self.config()
        del config["configurable"]["checkpoint_id"]
        state: StateSnapshot = yield Operation(
            partial(self.graph.get_state, config), partial(self.graph.aget_state, config)
        )
        # LangGraph does not show that a saved command is still to be applied.
        return state._replace(next=(str(FIRST),)) if has_command(saved) else state

    def result(self, values: Mapping[str, Any]) -> ToolMessage | None:
        """The result of the call from the state of the machine; None while its task is not over."""
        notes: dict[str, Any] = {} if self.edited is None else {"edited": True, "ran": dict(self.edited)}
        found = current_outcome(values)
        if found is None:
            return None
        outcome = typed_outcome(found, None)
        task = self.task(values)
        models = self.context.model.offers.values()
        cause = masked(outcome.error, secrets_of(*models)) if outcome.error else ""
        notes |= {"cause": cause, "below": failures_below(task)}
        return results.ended(self.call, outcome, self.used(task), self.run, **notes)

    @lazy
    def context(self) -> NodeContext:
        """The context in which its history and its journal are read, as when it ran."""
        above = self.run.descent.policies if self.run.descent is not None else ()
        descent = Descent(ns=self.ns, deeper=0, policies=(*above, self.run.deps.toolbox.approvals))
        # What an undo asks a person belongs to the node that undoes: the answer comes to its namespace.
        here = {**self.run.config.get("configurable", {}), **descent.config}
        read_in = begin(self.deps, {**self.run.config, "configurable": here}, self.users_context)
        read_in.ns = self.ns
        return read_in

    @lazy
    def users_context(self) -> Any:
        """The context of its runs: the user's, if its graph takes that type. Signoff's own context of the
        machine above would set this one's limits and its prompt, too."""
        form, users = self.deps.context_form, self.run.users_context
        return users if form is not None and users is not None and form.takes(users) else Context()

    def task(self, values: Mapping[str, Any]) -> Task:
        state: Any = values
        # Where the last node of the machine has left its reader, nearly all is read.
        found = current_task(self.context.reader(state), state)
        self.context.forget()
        return found

    def used(self, task: Task) -> results.UsedBelow:
        return results.used_by(task, self._prices)

    @property
    def _prices(self) -> Prices | None:
        """Its prices, where a limit of cost stands above it."""
        above = self.run.descent
        if not (self.run.limits.cost is not None or (above and above.costs)):
            return None
        return self.deps.limits.prices or (self.deps.priced("") if self.deps.priced else None)

    def _again(self, state: StateSnapshot | None) -> Command[Any] | None:
        """The input by which it continues after its end; None if it need not."""
        if self.again is None or state is None:
            return None
        mark = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.again.mark}|{self.ns}")
        return replace(self.again, mark=str(mark)).command(state.values, self.deps.texts)

    def _input(self, state: StateSnapshot | None) -> Any:
        """The input of its run: its task, or None if something is left to run."""
        if state is None:
            args = self.call.args if self.edited is None else self.edited
            mark = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.run.thread_id}|{self.ns}")
            return {"messages": [HumanMessage(str(args["task"]), id=str(mark))]}
        if state.tasks or state.next:
            return None
        return Command(goto=str(enters(Event.GO_ON)), update={"event": str(Event.GO_ON)})

    def _invoked(self, given: Any, config: RunnableConfig) -> Operation:
        # Its result is made of these, so that its saved state need not be read once more. Whoever listens by
        # a session is told of every channel, as of those of the machine at the top.
        all_of_it = isinstance(self.run.control, ListeningControl)
        given_back = dict.fromkeys([*self.graph.output_channels, *READ])
        output_keys = self.graph.stream_channels_asis if all_of_it else list(given_back)
        options: dict[str, Any] = {"context": self.users_context, "output_keys": output_keys}
        heard = listened(config)
        config = config if heard else unheard(config)
        run = partial(self.graph.invoke, given, config, **options)
        arun = partial(self.graph.ainvoke, given, config, **options)
        return Operation(run, arun) if heard else _Unheard(run, arun, config)


def saved_below(ns: str, run: NodeContext) -> Part[CheckpointTuple | None]:
    """A part of a node: the last checkpoint of the machine in this namespace of the thread."""
    saver = saver_of(run.config.get("configurable", {}))
    if not saver:
        return None
    place: RunnableConfig = {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": ns}}
    found: CheckpointTuple | None = yield Operation(
        partial(saver.get_tuple, place), partial(saver.aget_tuple, place)
    )
    return found


def is_begun(call: Call, reply_id: str, run: NodeContext) -> Part[bool]:
    """A part of a node: whether a delegate that this graph does not have has started on a call."""
    return (yield from saved_below(namespace(run.ns, call.name, reply_id, call.id), run)) is not None


@dataclass(frozen=True)
class Children:
    """Delegate calls that run in parallel; returns their results, in order.

    All run until each has ended or waits. Then their interrupts are raised as one GraphInterrupt. The usage
    of each in earlier runs is known to all before any of them continues.
    """

    children: Sequence[ChildMachine]
    task: Task
    ledger: RunLedger | None = None

    def _entered(self) -> Part[None]:
        if self.ledger is not None:
            for child in self.children:
                yield from child.enter(self.ledger)

    def steps(self, child: ChildMachine) -> Part[ToolMessage]:
        """Runs one of them."""
        return child.steps(self.task, self.ledger, alone=len(self.children) == 1)

    def do(self, run: NodeContext) -> list[ToolMessage]:
        carry_out(self._entered(), run)
        if len(self.children) == 1:
            return settled(self.children, [caught(partial(self._run, self.children[0]))])
        room = {c.tool.name: Semaphore(c.tool.at_once) for c in self.children if c.tool.at_once}
        futures = [started(partial(caught, partial(self._in_turn, child, room))) for child in self.children]
        try:
            wait(futures)
        except BaseException:
            # The thread of the run is let go of when this returns: nothing may write to it any more.
            run.control.request_drain("interrupted")
            wait(futures)
            raise
        return settled(self.children, [future.result() for future in futures])

    async def ado(self, run: NodeContext) -> list[ToolMessage]:
        await acarry_out(self._entered(), run)
        room = {c.tool.name: asyncio.Semaphore(c.tool.at_once) for c in self.children if c.tool.at_once}

        async def found(child: ChildMachine) -> ToolMessage:
            if child.tool.name not in room:
                return await acarry_out(self.steps(child), run)
            async with room[child.tool.name]:
                return await acarry_out(self.steps(child), run)

        results = await asyncio.gather(*map(found, self.children), return_exceptions=True)
        return settled(self.children, results)

    def _run(self, child: ChildMachine) -> ToolMessage:
        return carry_out(self.steps(child), child.run)

    def _in_turn(self, child: ChildMachine, room: Mapping[str, Semaphore]) -> ToolMessage:
        if child.tool.name not in room:
            return self._run(child)
        with room[child.tool.name]:
            return self._run(child)


def caught(work: Callable[[], ToolMessage]) -> ToolMessage | BaseException:
    try:
        return work()
    except BaseException as error:  # noqa: BLE001  it is handed to the waiting node
        return error


def settled(
    children: Sequence[ChildMachine], results: Sequence[ToolMessage | BaseException]
) -> list[ToolMessage]:
    """The results, or what they raise: an error first, then a pause of the run, then what they wait for."""
    raised = [found for found in results if isinstance(found, BaseException)]
    for error in sorted(raised, key=lambda one: isinstance(one, GraphBubbleUp)):
        if not isinstance(error, GraphInterrupt):
            raise error
    if raised:
        asked = [
            _with_path(interrupt, child)
            for child, found in zip(children, results, strict=True)
            if isinstance(found, GraphInterrupt)
            for interrupt in (found.args[0] if found.args else ())
        ]
        raise GraphInterrupt(asked)
    return [found for found in results if isinstance(found, ToolMessage)]


def _with_path(interrupt: Interrupt, child: ChildMachine) -> Interrupt:
    """A delegate's interrupt, with the path to the delegate from the top. A tool may ask by a value without a
    place for a path, or with something else there: it is wrapped as a question."""
    value, further = interrupt.value, ()
    if not isinstance(value, Mapping) or ("path" in value and not _is_path(value["path"])):
        value = {"type": "question", "question": _words_of(value), "options": [], "value": value}
    else:
        further = value.get("path", ())
    return replace(interrupt, value={**value, "path": [child.call.name, *further]})


def _is_path(path: Any) -> bool:
    """Whether this is the way to a delegate further below."""
    return isinstance(path, list | tuple) and all(isinstance(name, str) for name in path)


def _words_of(value: Any) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("question"), str):
        value = value["question"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
