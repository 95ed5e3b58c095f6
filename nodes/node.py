"""A node of the graph, and the context shared by all nodes.

A node function is a plain function, or a generator that yields requests (see `nodes/requests.py`), so that it
is written once and runs in sync and async graphs. `Node` runs it and checks the event that it reports.
`Dependencies` are the fixed parts of a graph; a `NodeContext` belongs to one invocation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.constants import END
from langgraph.store.base import BaseStore
from langgraph.types import Interrupt
from pydantic import TypeAdapter

from signoff.graph.errors import SetupError
from signoff.graph.foreign import Outputs
from signoff.graph.history.reader import Reader, read_messages
from signoff.graph.history.task import Task, current_task
from signoff.graph.inside.private import has_saver, is_answered, is_resumed, saver_of
from signoff.graph.inside.private import runtime as runtime_of
from signoff.graph.inside.speed import Arguments, lazy
from signoff.graph.limits import MODEL_SECONDS, Limits, Prices
from signoff.graph.machine import LAST, TRANSITIONS, Event, State, edges, next_state
from signoff.graph.messages import append_messages, lineage
from signoff.graph.prompt.prompt import SystemPrompt, in_blocks, is_text_alone
from signoff.graph.schemas.context import ContextForm
from signoff.graph.state import AgentState, Context
from signoff.graph.texts import Texts
from signoff.nodes.delegates.descent import DESCENT, Descent, place_of
from signoff.nodes.model.models import (
    AskedModel,
    BoundModels,
    ByName,
    Keeper,
    Streaming,
)
from signoff.nodes.requests import Part, acarry_out, carry_out
from signoff.nodes.tool_calls.inject import Injector
from signoff.tools.checks import OneCheck
from signoff.tools.toolbox import Toolbox

NO_BUDGET = 2**62
"""As `prompt_tokens`: this machine does not limit the prompt."""
PROBLEM = "__signoff_problem"
"""The key in a run's configuration of why a message is no answer to what waits. LangGraph saves no such
key."""
OnFailure = Literal["keep", "undo", "ask"]
_READINGS = 256
_NO_CONTEXT = Context()
_T = TypeVar("_T")


@dataclass(frozen=True)
class Dependencies:
    """The parts of one graph.

    own: the model that the graph was built with. by_name: the same under another name.
    required: every reply must be a call.
    prompt_tokens: the budget of the prompt.
    model_seconds: how long the model may be silent, before its reply and within it.
    streaming: when a reply is streamed.
    tool_seconds: how long one call may take.
    result_chars: a longer result is truncated in the middle; the full text is kept in the folder `outputs`.
    parallel: the maximum number of parallel reads; None for the default of sync tools and of coroutines.
    plain: the tools that can be called without LangChain's `invoke`; see `graph/inside/speed.py`.
    injector: fills in the injected arguments of tools (state, store, runtime).
    on_failure: what happens to the effects of a task that ends without success.
    ask_unknown: whether a person is asked about a call whose outcome a crash left unknown.
    checks: what must hold before a claim of "done" is accepted.
    answers: whether a message reports how a task ended. name: the name of the agent, set on that message.
    shape: makes an instance of a stored result. result_check: returns why a stored result does not fit
    `response_format`, and "" if it does; None without a format.
    priced: returns the prices of the model under a name, or of the graph's own; None if prices were given.
    context_form: the combined context schema, if the user has a context type. channels: the user's own
    channels of the state. any_channel: they are unknown, since a loop other than this graph's runs the tools.
    keeper: the model, if it stores something in the thread. middleware: LangChain's middleware, if the graph
    has any. readings: a cache of the last reader of each thread. It is removed while in use and checked
    against the messages, so it can never change a decision.
    """

    own: BoundModels
    by_name: ByName
    required: bool
    toolbox: Toolbox
    limits: Limits
    texts: Texts
    system_prompt: str | SystemMessage
    prompt_tokens: int
    tool_seconds: float | None
    result_chars: int
    ask_unknown: bool
    injector: Injector
    outputs: Path
    model_seconds: float | None = MODEL_SECONDS
    plain: Mapping[str, Arguments] = field(default_factory=dict)
    checks: Sequence[OneCheck] = ()
    streaming: Streaming = "always"
    keeper: Keeper | None = None
    answers: bool = True
    name: str | None = None
    shape: TypeAdapter[Any] | None = None
    result_check: Callable[[Any], str] | None = None
    parallel: int | None = None
    priced: Callable[[str], Prices] | None = None
    context_form: type[ContextForm] | None = None
    channels: Mapping[str, BaseChannel[Any, Any, Any]] = field(default_factory=dict)
    any_channel: bool = False
    middleware: "Middleware | None" = None
    on_failure: OnFailure = "keep"
    readings: dict[object, Reader] = field(default_factory=dict)

    @lazy
    def whole_prompt(self) -> SystemPrompt:
        """The system prompt of every run whose context names none."""
        return self.prompt_with(self.system_prompt)

    def prompt_with(self, system_prompt: str | SystemMessage) -> SystemPrompt:
        """`system_prompt`, followed by the rules that every model gets."""
        rounds = self.texts.rounds.format() if self.toolbox.rounds else ""
        rules = [part for part in (self.texts.system.format(), rounds) if part]
        if isinstance(system_prompt, SystemMessage) and is_text_alone(system_prompt):
            system_prompt = system_prompt.text
        if isinstance(system_prompt, str):
            return "\n\n".join([*([system_prompt] if system_prompt else []), *rules])
        return in_blocks(system_prompt, "\n\n".join(rules))


@dataclass
class NodeContext:
    """One invocation of a node."""

    deps: Dependencies
    config: RunnableConfig
    _held: Reader | None = field(default=None, init=False)
    _read: AgentState | None = field(default=None, init=False)

    @lazy
    def _configurable(self) -> Mapping[str, Any]:
        return self.config.get("configurable", {})

    @lazy
    def thread_id(self) -> str | None:
        found = self._configurable.get("thread_id")
        return None if found is None else str(found)

    @lazy
    def descent(self) -> Descent | None:
        """The machines above this one; None if no other machine has called it."""
        found: Descent | None = self._configurable.get(DESCENT)
        return found

    @lazy
    def ns(self) -> str:
        """The namespace of this machine among the checkpoints of its thread."""
        return place_of(self._configurable)

    @lazy
    def outputs(self) -> Outputs:
        """Where full texts are kept for this thread."""
        return Outputs.of(self.deps.outputs, saver_of(self._configurable), self.thread_id)

    @property
    def can_ask(self) -> bool:
        """Whether the run can pause: an interrupt needs a checkpointer, which only the run's own config
        names (a server brings its own)."""
        return has_saver(self._configurable)

    @property
    def interrupt_id(self) -> str:
        """The id of the `interrupt` that this invocation raises or answers."""
        return Interrupt.from_ns(None, str(self._configurable.get("checkpoint_ns", ""))).id

    @property
    def problem(self) -> dict[str, str]:
        """What the payload of a wait says of the message that came and is no answer to it."""
        problem = self._configurable.get(PROBLEM)
        return {"problem": str(problem)} if problem else {}

    @lazy
    def runtime(self) -> Any:
        """LangGraph's runtime of this run: context, store, stream writer; None outside a graph."""
        return runtime_of(self.config)

    @property
    def answered(self) -> bool:
        """Whether this invocation of the node may receive an answer to its `interrupt`."""
        return is_answered(self._configurable)

    @property
    def goes_on(self) -> bool:
        """Whether this is the first node of a resumed run, whose process may have been killed in this very
        node. LangGraph counts steps from the start of a run; new input is a step."""
        return is_resumed(self.config)

    @property
    def control(self) -> Any:
        """LangGraph's control of the run, by which it is asked to stop; None when it has none."""
        return getattr(self.runtime, "control", None)

    @property
    def draining(self) -> bool:
        """Whether this run was asked to stop at the next step boundary."""
        return self.control is not None and bool(self.control.drain_requested)

    @property
    def store(self) -> BaseStore | None:
        return getattr(self.runtime, "store", None)

    @lazy
    def given(self) -> Any:
        """The context as the run was given it."""
        return getattr(self.runtime, "context", None)

    @lazy
    def context(self) -> Context:
        given = self.given
        if isinstance(given, Context):
            return given
        if isinstance(given, Mapping):
            # It comes from the graph around this one: its other fields are ignored. A graph's own context is
            # validated.
            given = {key: value for key, value in given.items() if key in Context.model_fields}
            return Context.model_validate(given) if given else _NO_CONTEXT
        # The user's own type, or that of the graph around this one, without Signoff's fields.
        return _NO_CONTEXT

    @lazy
    def users_context(self) -> Any:
        """The context as user code receives it: an instance of the user's type, if there is one."""
        form = self.deps.context_form
        return self.given if form is None else form.users_part(self.given)

    @property
    def users_runtime(self) -> Any:
        """LangGraph's runtime with the context as user code receives it."""
        found, context = self.runtime, self.users_context
        return found if getattr(found, "context", None) is context else found.override(context=context)

    @lazy
    def _bound_models(self) -> BoundModels:
        name = (self.context.model or "").strip()
        return self.deps.by_name(name) if name else self.deps.own

    @property
    def model(self) -> AskedModel:
        """The graph's model, under the name in the run's context. Raises SetupError if it has no name that
        can be changed."""
        return self._bound_models.asked

    @property
    def summariser(self) -> BaseChatModel | None:
        """The model that writes this run's summaries. Raises as `model`."""
        return self._bound_models.summariser

    @property
    def continues(self) -> bool:
        """Whether the summariser is the model itself, called on its current prompt. Raises as `model`."""
        return self._bound_models.continues

    @lazy
    def limits(self) -> Limits:
        """The graph's limits, overridden by the run's context. Raises SetupError for a limit of cost without
        known prices."""
        if self.context is _NO_CONTEXT and self.descent is None:
            return self.deps.limits
        if self.descent is not None and (made := self.descent.limits_of.get(id(self.deps))):
            return made
        found = self._limits()
        if self.descent is not None:
            self.descent.limits_of[id(self.deps)] = found
        return found

    def _limits(self) -> Limits:
        named = self.context.model_fields_set & Limits.model_fields.keys()
        given = {name: getattr(self.context, name) for name in named}
        update = {name: value for name, value in given.items() if value is not None}
        limits = Limits(**{**dict(self.deps.limits), **update}) if update else self.deps.limits
        if self.descent is not None:
            limits = self.descent.within(limits)
        name = (self.context.model or "").strip()
        costs = limits.cost is not None or (self.descent is not None and self.descent.costs)
        if not costs or self.deps.priced is None or (limits.prices is not None and not name):
            return limits
        return limits.model_copy(update={"prices": self.deps.priced(name)})

    @property
    def model_seconds(self) -> float | None:
        """How long the model may be silent."""
        return self.context.model_seconds or self.deps.model_seconds

    @property
    def system_prompt(self) -> SystemPrompt:
        prompt = self.context.system_prompt
        return self.deps.whole_prompt if prompt is None else self.deps.prompt_with(prompt)

    @property
    def own_prompt(self) -> str | SystemMessage:
        """The user's part of the system prompt."""
        prompt = self.context.system_prompt
        return self.deps.system_prompt if prompt is None else prompt

    def reader(self, state: AgentState) -> Reader:
        """A reader of all messages of the thread, which reads only the new ones if the cached reader is still
        valid."""
        before = self._held
        if before is not None and self._read is state:
            return before
        if before is None:
            # Removed while this node uses it: a second runner of the thread gets its own reader.
            before = self.deps.readings.pop(self._place(lineage(state.get("messages", ()))), None)
        self._held, self._read = read_messages(state, self.deps.toolbox, before), state
        return self._held

    def give_back(self) -> None:
        """Caches the reader for the next node of the thread."""
        if self._held is not None:
            readings = self.deps.readings
            if len(readings) >= _READINGS:
                readings.pop(next(iter(readings), None), None)
            readings[self._place(self._held.lineage)] = self._held

    def _place(self, history: object) -> object:
        """The cache key of the reader: the thread, or the growing history of a run without one. Two calls of
        a delegate share the thread and the graph."""
        if self.thread_id and self.descent is not None:
            return self.thread_id, self.descent.ns
        return self.thread_id or history

    def forget_task(self, state: AgentState) -> None:
        """Drops the cached task, which the next message invalidates."""
        self.reader(state).task = None

    def forget(self) -> None:
        """Drops the cached reader of a thread that has ended."""
        self._held = None

    def task(self, state: AgentState) -> Task:
        """The current task of the thread."""
        return current_task(self.reader(state), state, can_ask=self.can_ask)


@dataclass(frozen=True)
class Report:
    """What a node reports: one event, and its update of the state.

    Only the last state reports no event, if the run ends in it.
    """

    event: Event | None
    update: dict[str, Any] = field(default_factory=dict)


Steps = Part[Report]
Work = Callable[[AgentState, NodeContext], Report | Steps]


class WrongWay(SetupError):
    """A middleware implements only the async method in a sync run, or the reverse."""


class Middleware(Protocol):
    """The interface to LangChain's middleware, in a graph that has some: see `nodes/middleware/`.

    wraps_models, wraps_tools: whether there is anything around the calls of models and of tools.
    """

    @property
    def wraps_models(self) -> bool: ...

    @property
    def wraps_tools(self) -> bool: ...

    def works(self, works: Mapping[State, Work]) -> Mapping[State, Work]:
        """The work of each state, with the hooks that belong to it."""

    def model_call(self, call: Any, state: AgentState, run: NodeContext) -> Part[Any]:
        """A part of `call_llm`: the reply to `call`, and what to write beside it."""

    def spent_on(self, dropped: Any, state: AgentState) -> Any:
        """The usage beside the kept replies, when the call that gave these replies has failed."""

    def tool_call(self, job: Any) -> Any:
        """What the tool of `job` returns, in a sync run."""

    async def atool_call(self, job: Any) -> Any:
        """`tool_call`, for an event loop."""

    def last_word(self, state: AgentState, run: NodeContext) -> Part[tuple[dict[str, Any], str]]:
        """A part of `review`, before a finish is accepted: the writes of the hooks, and why the model must
        continue; empty if it need not."""


class Node(Runnable[AgentState, dict[str, Any]]):
    """A state of the machine as a LangGraph node.

    LangGraph runs a plain function in another thread in an async run; this class avoids that.
    """

    def __init__(self, state: State, deps: Dependencies, work: Work, in_tree: Work | None = None) -> None:
        """in_tree: its work in a graph that has delegates or is one."""
        self.state = state
        self.deps = deps
        self.work = work
        self._in_tree = in_tree or work
        self.name = str(state)

    def invoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = begin(self.deps, config or {})
        work = self._work_of(run)(input, run)
        report = work if isinstance(work, Report) else carry_out(work, run)
        run.give_back()
        return self._checked(report, input)

    async def ainvoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = begin(self.deps, config or {})
        work = self._work_of(run)(input, run)
        report = work if isinstance(work, Report) else await acarry_out(work, run)
        run.give_back()
        return self._checked(report, input)

    def _work_of(self, run: NodeContext) -> Work:
        alone = run.descent is None and not self.deps.toolbox.delegates
        return self.work if alone else self._in_tree

    def _checked(self, report: Report, state: AgentState) -> dict[str, Any]:
        if report.event is not None or self.state is not LAST:
            next_state(self.state, report.event)
        update = {"event": str(report.event or "ended"), **report.update}
        if self.deps.keeper is not None and not update.keys().isdisjoint(("messages", "task")):
            update |= keep_model_state(self.deps.keeper, state, update)
        return update


def begin(deps: Dependencies, config: RunnableConfig, given: Any = None) -> NodeContext:
    """The context of an invocation, with the policies that apply to it. given: what its run was given as
    context, where the configuration is that of another machine."""
    run, policy = NodeContext(deps, config), deps.toolbox.approvals
    if given is not None:
        run.given = given
    descent = run.descent
    above = descent.policies if descent is not None else ()
    if not policy.by_context and not above:
        return run
    if descent is not None and not policy.by_context and (made := descent.made.get(id(deps))):
        run.deps = made
        return run
    if descent is None or policy.by_context:
        policy = policy.within(run.users_context)
    box = replace(deps.toolbox, approvals=policy.below(above) if above else policy)
    run.deps = replace(deps, toolbox=box)
    if descent is not None and not deps.toolbox.approvals.by_context:
        descent.made[id(deps)] = run.deps
    return run


def keep_model_state(keeper: Keeper, state: AgentState, update: Mapping[str, Any]) -> dict[str, Any]:
    """What the model stores in the thread, if this step changes it."""
    before, task = state.get("acting"), update.get("task", state.get("task", ""))
    messages = append_messages(state.get("messages"), [update.get("messages", [])])
    found = keeper._keep(before, messages, task)
    return {} if found == before else {"acting": found}


class Reported(TypedDict):
    """The channel that a branch reads."""

    event: NotRequired[str]


class Branch(Runnable[Any, str]):
    """Looks the reported event up in the table and names the edge to take."""

    def __init__(self, state: State) -> None:
        self.state = state
        # Without an input type, LangGraph reads all channels for each branch, including the whole history.
        self.__annotations__ = {"input": Reported}
        self.state = state
        self.name = f"after {state}"
        drawn = edges()[state]
        self.labels = {str(event): drawn[next_state(state, event)] for event in TRANSITIONS[state]}

    def __call__(self, input: Reported) -> str:
        return self.labels[input["event"]] if self.state is not LAST else self.labels.get(input["event"], END)

    def invoke(self, input: Reported, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        return self(input)

    async def ainvoke(self, input: Reported, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        return self(input)
