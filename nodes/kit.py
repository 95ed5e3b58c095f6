"""What the nodes work with: the parts of a graph that never change, and the facts of one invocation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.store.base import BaseStore
from langgraph.types import Interrupt

from signoff.graph.history.reader import Reader, read_messages
from signoff.graph.history.task import Task, current_task
from signoff.graph.limits import Limits
from signoff.graph.messages import lineage
from signoff.graph.private import has_saver, is_answered, is_resumed, saver_of
from signoff.graph.private import runtime as runtime_of
from signoff.graph.rules import Offer
from signoff.graph.speed.lazy import lazy
from signoff.graph.state import AgentState, Context
from signoff.graph.texts import Texts
from signoff.nodes.model.models import ByName, Keeper, Models
from signoff.nodes.tool_calls.inject import Injector
from signoff.nodes.tool_calls.outputs import Outputs
from signoff.tools.checks import OneCheck
from signoff.tools.toolbox import Toolbox

MODEL_SECONDS = 300.0
"""Models that think before they speak are silent for minutes."""
REPLY_CHARS = 2_000_000
"""About four times the longest reply that a model of today can give."""
_READINGS = 256
_NO_CONTEXT = Context()


@dataclass(frozen=True)
class Kit:
    """The parts of one graph.

    models: the model with the tools of each offer; by_name: the same under another name. required: every
    reply must be a call.
    view_tokens: the budget of the view. model_seconds: how long the model may be silent, before its reply and
    within it. reply_chars: a longer reply is an error. tool_seconds: how long one call may take.
    ask_unknown: whether a person is asked about a call whose outcome a crash left unknown.
    plain: the names of the tools that can be called without LangChain's `invoke`.
    injector: fills in what a tool asks for beside its arguments (state, store, runtime).
    result_chars: a longer result is cut, the full text kept in the folder `outputs`.
    digester: the model that writes digests, within `digest_seconds`; None for digests by lines.
    checks: what must hold before a claim of "done" is accepted. finish_alone: a finish beside a work call is
    refused. evidence: a finish may cite calls. keeper: the model, when it keeps something in the thread.
    readings: the last reading of each thread, to save time. It is taken out while it is used and checked
        against the messages, so it can never change a decision.
    """

    models: Mapping[Offer, Runnable[Any, Any]]
    by_name: ByName
    required: bool
    toolbox: Toolbox
    limits: Limits
    texts: Texts
    system_prompt: str
    view_tokens: int
    tool_seconds: float | None
    result_chars: int
    ask_unknown: bool
    injector: Injector
    outputs: Path
    digester: BaseChatModel | None
    digest_seconds: float
    model_seconds: float | None = MODEL_SECONDS
    reply_chars: int = REPLY_CHARS
    plain: frozenset[str] = frozenset()
    checks: Sequence[OneCheck] = ()
    finish_alone: bool = False
    evidence: bool = False
    keeper: Keeper | None = None
    readings: dict[object, Reader] = field(default_factory=dict)

    @lazy
    def own(self) -> Models:
        """The models that the graph was built with."""
        return Models(self.models, self.digester)

    @lazy
    def whole_prompt(self) -> str:
        """The system prompt of every run whose context names none."""
        return self.prompt_with(self.system_prompt)

    def prompt_with(self, system_prompt: str) -> str:
        """`system_prompt`, and what every model is told beside it."""
        rounds = self.texts.rounds.format() if self.toolbox.rounds else ""
        return "\n\n".join(part for part in (system_prompt, self.texts.system.format(), rounds) if part)


@dataclass
class Run:
    """One invocation of a node."""

    kit: Kit
    config: RunnableConfig
    _held: Reader | None = field(default=None, init=False)
    _read: AgentState | None = field(default=None, init=False)

    @property
    def _configurable(self) -> Mapping[str, Any]:
        return self.config.get("configurable", {})

    @property
    def thread_id(self) -> str | None:
        found = self._configurable.get("thread_id")
        return None if found is None else str(found)

    @lazy
    def outputs(self) -> Outputs:
        """Where full texts are kept for this thread."""
        saver = saver_of(self._configurable)
        database = getattr(saver, "file", None) or getattr(getattr(saver, "database", None), "address", None)
        owner = f"{database or type(saver).__name__}\0{self.thread_id}" if saver and self.thread_id else ""
        return Outputs(self.kit.outputs, owner)

    @property
    def can_ask(self) -> bool:
        """Whether the run can pause: an interrupt needs a checkpointer, which only the run's own config
        names (a server brings its own)."""
        return has_saver(self._configurable)

    @property
    def interrupt_id(self) -> str:
        """The id of the `interrupt` that this invocation of the node makes, or answers."""
        return Interrupt.from_ns(None, str(self._configurable.get("checkpoint_ns", ""))).id

    @lazy
    def runtime(self) -> Any:
        """LangGraph's runtime of this run: context, store, stream writer; None outside of a graph."""
        return runtime_of(self.config)

    @property
    def answered(self) -> bool:
        """Whether this invocation of the node may bring an answer to an `interrupt` in it."""
        return is_answered(self._configurable)

    @property
    def goes_on(self) -> bool:
        """Whether this is the first node of a run that goes on where another one stopped: perhaps its process
        was killed in this very node. LangGraph counts steps from where a run begins; new input is one."""
        return is_resumed(self.config)

    @property
    def control(self) -> Any:
        """LangGraph's control of the run, by which it is asked to stop; None when it has none."""
        return getattr(self.runtime, "control", None)

    @property
    def draining(self) -> bool:
        """Whether somebody has asked this run to stop at the next step boundary."""
        return self.control is not None and bool(self.control.drain_requested)

    @property
    def store(self) -> BaseStore | None:
        return getattr(self.runtime, "store", None)

    @lazy
    def context(self) -> Context:
        given = getattr(self.runtime, "context", None)
        if isinstance(given, Context):
            return given
        if isinstance(given, Mapping):
            # Of the graph around this one: what it knows beside is not for here. A graph's own is checked.
            given = {key: value for key, value in given.items() if key in Context.model_fields}
        return Context.model_validate(given) if given else _NO_CONTEXT

    @lazy
    def _named(self) -> Models:
        name = (self.context.model or "").strip()
        return self.kit.by_name(name) if name else self.kit.own

    @property
    def models(self) -> Mapping[Offer, Runnable[Any, Any]]:
        """The model with the tools of each offer: the graph's own, or the one that the run's context names.
        Raises SetupError when the model has no name to change."""
        return self._named.offers

    @property
    def digester(self) -> BaseChatModel | None:
        """The model that writes this run's digests. Raises as `models`."""
        return self._named.digester

    @lazy
    def limits(self) -> Limits:
        """The graph's limits, with what the run's context sets in their place. Raises SetupError for a limit
        of cost where there are no prices."""
        if self.context is _NO_CONTEXT:
            return self.kit.limits
        named = self.context.model_fields_set & Limits.model_fields.keys()
        given = {name: getattr(self.context, name) for name in named}
        update = {name: value for name, value in given.items() if value is not None}
        return Limits(**{**dict(self.kit.limits), **update}) if update else self.kit.limits

    @property
    def model_seconds(self) -> float | None:
        """How long the model may be silent."""
        return self.context.model_seconds or self.kit.model_seconds

    @property
    def system_prompt(self) -> str:
        prompt = self.context.system_prompt
        return self.kit.whole_prompt if prompt is None else self.kit.prompt_with(prompt)

    def reader(self, state: AgentState) -> Reader:
        """All messages of the thread, read; only the new ones, when the last reading still holds."""
        before = self._held
        if before is not None and self._read is state:
            return before
        if before is None:
            # Taken out while this node uses it: a second runner of the thread reads for itself.
            before = self.kit.readings.pop(self._place(lineage(state.get("messages", ()))), None)
        self._held, self._read = read_messages(state, self.kit.toolbox, before), state
        return self._held

    def give_back(self) -> None:
        """Keeps the reading for the next node of the thread."""
        if self._held is not None:
            readings = self.kit.readings
            if len(readings) >= _READINGS:
                readings.pop(next(iter(readings), None), None)
            readings[self._place(self._held.lineage)] = self._held

    def _place(self, history: object) -> object:
        """Where the reading is kept: by the thread, or by the growing history of a run without one."""
        return self.thread_id or history

    def forget(self) -> None:
        """Drops the reading of a thread that has ended."""
        self._held = None

    def task(self, state: AgentState) -> Task:
        """The current task of the thread."""
        return current_task(self.reader(state), state, can_ask=self.can_ask)
