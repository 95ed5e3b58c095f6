"""A guarded agent with the reliability of a Signoff graph: one runner per thread, every step saved, no
recursion limit.

LangChain's compiled agent saves in the background, lets two runs of a thread overwrite each other, and counts
super-steps. `guarded(agent)` is the same agent without these three problems.
"""

import inspect
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Durability

from signoff.graph.compiled.going_on import GoOn, Instruction, continuation, instruction_of, turn_limit
from signoff.graph.compiled.graph import add_result, in_thread, runner, storage_errors, thread_to_hold
from signoff.graph.compiled.holds import Hold, holding
from signoff.graph.compiled.inputs import (
    Entry,
    beside_saved,
    check_is_no_other,
    check_says_something,
    what_is_left,
    with_answers,
)
from signoff.graph.errors import JournalWarning, MiddlewareWarning, SetupError, quote_id, unknown_thread
from signoff.graph.kinds import Kind, kind_of
from signoff.graph.machine import ENTRIES
from signoff.graph.outcome import RunResult
from signoff.guards.steps import NO_JOURNAL, TOLD_OF_NO_JOURNAL, TOO_LONG
from signoff.nodes.requests import Operation, Part, acarry_out, carry_out

_NO_STEP_LIMIT = 2**31 - 1


class GuardedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A LangChain agent with guards, which holds its thread during a run.

    It takes `go_on()` as a graph from `build_graph` does. A second concurrent run of a thread raises
    ThreadBusy.
    """

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """LangGraph's own; `outcome_of` of its result has an instance of the guards' `response_format`."""
        return self._typed(super().invoke(input, config, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self._typed(await super().ainvoke(input, config, **kwargs))

    def _typed(self, values: Any) -> Any:
        """The values of a run, with the type of its result."""
        if not isinstance(values, dict):
            return values
        found = RunResult[Any](values)
        found.shape = self._guards.shape
        add_result(found, has_result=self._guards._deps.result_check is not None)
        return found

    @property
    def _guards(self) -> Any:
        """The `Guards` of the agent."""
        from signoff.guards.middleware import Guards  # it needs langchain

        hooks = (getattr(node.runnable, "func", None) for node in self.builder.nodes.values())
        owners = (getattr(hook, "__self__", None) for hook in hooks)
        return next(owner for owner in owners if isinstance(owner, Guards))

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        with self._hold(config) as hold, storage_errors():
            config = holding(config, hold)
            given = carry_out(self._entered(input, config, kwargs.get("context")), None)
            options = self._saved(kwargs)
            try:
                yield from super().stream(given, config, **options)
            except ContextOverflowError as error:
                ending = self._ending(config, error)
                for entry in (None, Command(goto=self._first)):
                    yield from super().stream(entry, ending, **options)
                    if carry_out(self._has_ended(ending), None):
                        return
                raise

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        with storage_errors():
            async with in_thread(self._hold(config)) as hold:
                config = holding(config, hold)
                given = await acarry_out(self._entered(input, config, kwargs.get("context")), None)
                options = self._saved(kwargs)
                stream: Any = super().astream(given, config, **options)
                try:
                    async with aclosing(stream):
                        async for item in stream:
                            yield item
                except ContextOverflowError as error:
                    ending = self._ending(config, error)
                    for entry in (None, Command(goto=self._first)):
                        stream = super().astream(entry, ending, **options)
                        async with aclosing(stream):
                            async for item in stream:
                                yield item
                        if await acarry_out(self._has_ended(ending), None):
                            return
                    raise

    def _hold(self, config: RunnableConfig | None) -> AbstractContextManager[Hold | None]:
        thread_id = thread_to_hold(self.checkpointer, self.config, config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return nullcontext()
        return runner(self.checkpointer, thread_id)

    def _ending(self, config: RunnableConfig | None, error: ContextOverflowError) -> RunnableConfig:
        """The configuration with which the same model call ends its task: no middleware has made the prompt
        fit. Raises the error where nothing is saved from which a run could go on."""
        if not isinstance(self.checkpointer, BaseCheckpointSaver):
            raise error
        given = config or {}
        # It goes on from the newest checkpoint, wherever the run began.
        merged = merge_configs(self.config, config).get("configurable", {})
        named = {**merged, "checkpoint_id": None, TOO_LONG: error}
        return {**given, "configurable": named}

    def _has_ended(self, config: RunnableConfig) -> Part[bool]:
        """Whether the task has. A failed model call counts as done to LangGraph where something was written
        in it, as deepagents writes a file of what it summarises; then nothing calls the model again."""
        saver: Any = self.checkpointer
        saved = yield Operation(partial(saver.get_tuple, config), partial(saver.aget_tuple, config))
        return not saved.checkpoint["channel_values"]["guards"]["at"]

    @property
    def _first(self) -> str:
        return next(end for start, end in self.builder.edges if start == START)

    def _saved(self, options: dict[str, Any]) -> dict[str, Any]:
        found: Durability | None = options.get("durability")
        return {**options, "durability": found or ("sync" if self.checkpointer else None)}

    def _entered(self, given: Any, config: RunnableConfig | None, context: Any) -> Entry:
        """Converts an input for the machine's own graph to one for this agent, which enters where every input
        does."""
        if not isinstance(given, Command):
            return given
        if (instruction := instruction_of(given)) is not None:
            given = yield from self._instructed(instruction, config, context)
            if given is None:
                return None
        check_says_something(given)
        enters = isinstance(given.update, Mapping) and given.update.get("event") in ENTRIES
        thread_id, saver = thread_to_hold(self.checkpointer, self.config, config), self.checkpointer
        if thread_id is not None and isinstance(saver, BaseCheckpointSaver):
            named = merge_configs(self.config, config).get("configurable", {}).get("checkpoint_id")
            at = {"checkpoint_id": named} if named and not enters else {}
            place: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **at}}
            if enters or at or given.resume is not None:
                saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
                if at:
                    yield from check_is_no_other(given, saved, saver, place)
                elif beside_saved(given := with_answers(given, saved, place), saved) is None:
                    return None
        if not enters:
            return given
        return Command(goto=self._first, update=given.update)

    def _instructed(self, instruction: Instruction, config: RunnableConfig | None, context: Any) -> Entry:
        """The command that goes on with the thread; None where LangGraph runs what is left, if anything."""
        if not isinstance(instruction, GoOn):
            raise SetupError("A guarded agent takes go_on(), and no undo() or stop().")
        thread_id = thread_to_hold(self.checkpointer, self.config, config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            raise SetupError("go_on() needs a thread: a checkpointer of the agent, and a thread_id.")
        place: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        state = yield Operation(partial(self.get_state, place), partial(self.aget_state, place))
        if state.created_at is None:
            raise unknown_thread(thread_id)
        if state.interrupts or START in state.next:
            return None
        deps = self._guards._deps
        turns = turn_limit(context, deps.limits.turns)
        return continuation(instruction, state.values, what_is_left(state), turns, deps.texts)


def guarded(agent: Any) -> GuardedGraph:
    """An agent from `create_agent` or `create_deep_agent` with `Guards`, run like the machine's own graph.

    One runner holds a thread, each step is saved before the next one begins, and no recursion limit ends a
    run before a limit of the guards. `agent` itself is not changed.

    Warns of a sub-agent that a tool of it calls and that has no guards.

    Raises SetupError for anything that is not such an agent, has no guards, or has a channel with one of
    their names. Warns (JournalWarning) about tools with effects beside a checkpointer without a store.
    """
    if not isinstance(agent, CompiledStateGraph) or "guards" not in agent.builder.channels:
        raise SetupError(
            f"guarded() takes an agent with guards, and this is {quote_id(type(agent).__name__)}; write "
            "guarded(create_agent(model, tools, middleware=[Guards()]))."
        )
    from signoff.guards.state import check_channels, taken  # first, Guards reports a missing langchain

    check_channels(taken(agent.builder.channels))
    if names := sorted({each.name for each in _sub_agents(agent) if "guards" not in each.builder.channels}):
        warnings.warn(
            f"Nothing guards the sub-agents {', '.join(names)}: a call that was cut off may run there. Give "
            "each middleware=[Guards()]; name one 'general-purpose' to replace that of deepagents.",
            MiddlewareWarning,
            stacklevel=2,
        )
    held = agent.copy()
    held.__class__ = GuardedGraph
    assert isinstance(held, GuardedGraph), "the class was set in the line above"
    return held.with_config(recursion_limit=_NO_STEP_LIMIT, configurable=_told_of_no_journal(agent))


def _sub_agents(agent: Any) -> Iterator[Any]:
    """The agents of LangChain that the tools of `agent` call, as far as their code names them: deepagents'
    tool `task` has them in a dict."""
    tools = getattr(getattr(agent.nodes.get("tools"), "bound", None), "tools_by_name", {}).values()
    functions = (getattr(tool, way, None) for tool in tools for way in ("func", "coroutine"))
    for names in map(inspect.getclosurevars, filter(inspect.isfunction, functions)):
        for value in (*names.nonlocals.values(), *names.globals.values()):
            for each in value.values() if isinstance(value, dict) else (value,):
                if isinstance(each, CompiledStateGraph) and "model" in each.nodes:
                    yield each


def _told_of_no_journal(agent: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, Any]:
    """The note that a person was told that there is no journal, which is said at most once."""
    if not agent.checkpointer or agent.store is not None:
        return {}
    nodes = [node.runnable for node in agent.builder.nodes.values()]
    tools = [tool for node in nodes if isinstance(node, ToolNode) for tool in node.tools_by_name.values()]
    effects = [tool.name for tool in tools if kind_of(tool) not in (Kind.READ, Kind.CONTROL)]
    if not effects:
        return {}
    warnings.warn(NO_JOURNAL.format(name=", ".join(effects)), JournalWarning, stacklevel=3)
    return {TOLD_OF_NO_JOURNAL: True}
