"""The state of a thread: the append-only history and a few JSON-like values.

What belongs to one task carries `task`, the id of the message that began it; a value of another task reads as
empty. Everything here survives a restart, and nothing else decides where the machine goes.
"""

from typing import Annotated, Any, ClassVar, NotRequired

from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from signoff.graph.limits import CheckedModel
from signoff.graph.messages import SNAPSHOT_EVERY, HistoryChannel, append_messages, latest


class Decision(TypedDict):
    """Which rule fired last, the event it reported and why, for a person to read."""

    rule: str
    event: str
    why: str


class Ending(TypedDict):
    """How a task ends, passed to `finish` by the node that decided it.

    claim: of a finish that was accepted, or that needed a person. verified, checks: see `Outcome`; without
    them only the claim is known. result: the return value of a finishing tool. retries, seconds_retrying: of
    a model call that failed for good.
    """

    task: str
    status: str
    reason: str
    claim: NotRequired[dict[str, Any]]
    error: NotRequired[str]
    verified: NotRequired[str]
    checks: NotRequired[list[dict[str, Any]]]
    result: NotRequired[Any]
    retries: NotRequired[int]
    seconds_retrying: NotRequired[float]


class PendingConfirmation(TypedDict):
    """The finish that a person is asked about: its call by `hash`, what is wrong with it (empty if nothing),
    whether the claim is verified, the checks that ran, and how many seconds they took."""

    hash: str
    problem: str
    verified: str
    seconds: float
    checks: list[dict[str, Any]]


class RefusedFinish(TypedDict):
    """Why a finish was refused. kind: a key of `Texts.refusals`, or `sent_back` for a person's decision. why:
    free text, which no code ever interprets."""

    kind: str
    why: str


class Verdicts(TypedDict):
    """The verdict of `review`, or of a person, on each finish of one task, by `Reply.key`: see `verdicts_of`.

    asked: set while a person is asked about one of them.
    """

    task: str
    calls: dict[str, str | RefusedFinish]
    asked: NotRequired[PendingConfirmation]


class Phase(TypedDict):
    """A part of a task that the model reported as done, and what comes next; `turn` is the reply's number."""

    percentage: float
    summary: str
    next_phase: str
    turn: int


class Phases(TypedDict):
    """The phases of one task, oldest first."""

    task: str
    done: list[Phase]


class EndedTask(TypedDict):
    """The last task that ended, and the last message of the history at that moment."""

    task: str
    message: str


class Extra(TypedDict):
    """Turns granted to one task on top of its limit."""

    task: str
    turns: int


class CallDecision(TypedDict):
    """A person's decision on one call, bound to the tool and its arguments by `hash`.

    `attempt` is how often the call had been started by then: a decision to run it covers one start. `by` is
    who decided, if the answer named them.
    """

    type: str
    hash: str
    attempt: int
    args: dict[str, Any] | None
    message: str
    by: NotRequired[str]


class Decisions(TypedDict):
    """The decisions of one task by call id, and why the last answer could not be read.

    `asked` are the calls that a person is being asked about, by call id, each with the hash of what was
    shown: an answer applies to exactly these.
    """

    task: str
    calls: dict[str, CallDecision]
    problem: str
    asked: dict[str, str]


class UndoStep(TypedDict):
    """The result of undoing one effect.

    effect: identifies it by the machine, the reply and the call that made it. path: the delegates that lead
    there. call: the call in one line. said: what its undo returned. why: why it was not undone; None if it
    was. result: the message of the thread that reports it.
    """

    effect: str
    path: list[str]
    call: str
    why: str | None
    said: str
    result: str


class UndoDecision(TypedDict):
    """A person's decision on undoing one effect, and who decided."""

    type: str
    message: str
    by: NotRequired[str]


class Undoing(TypedDict):
    """The progress of undoing one task's effects.

    ask: whether a person must approve every undo, not only those that the approval policy names. decisions:
    by effect. problem: why the last answer could not be read. over: nothing is left to do. left_off: it was
    stopped on request, so the remaining effects are not undone.
    """

    task: str
    ask: bool
    decisions: dict[str, UndoDecision]
    problem: str
    done: list[UndoStep]
    over: bool
    left_off: NotRequired[bool]


class TooLong(TypedDict):
    """A prompt that did not fit into the model's context: `after` is the last message at that time, `budget`
    the maximum prompt tokens from then on."""

    task: str
    after: str
    budget: int


class Contract(TypedDict):
    """What still binds the model from the summarised part of one task; see `graph/prompt/prompt.py`."""

    task: str
    approach: str
    status: str
    issues: str
    refused: list[str]
    phases: list[str]


class HistorySummary(TypedDict):
    """The summary of the history up to the message `upto`. It is stored in the channel `digest`.

    `text` was written by a model; `lines` cover what came after that, one line per turn. `kept` are the ids
    of the messages that a prompt shows before the summary: those of the task in which it was written. `words`
    is the room for all that people said before, in characters; the words themselves are in the history.
    """

    upto: str
    lines: list[str]
    text: NotRequired[str]
    contract: Contract
    kept: list[str]
    words: int


class Evidence(TypedDict):
    """The result of the last execution. of: the tool; status: `ok` or `error`; text: its result, truncated in
    the middle if it is long (the messages have all of it)."""

    of: str
    call_id: str
    status: str
    text: str


class Acting(TypedDict):
    """The instructions of an agent that acts by code, and the state of its task: see `signoff.models.tagged`.

    It is derived from the messages at every step, except for the constitution, which a graph built without
    one reads from here. failing: the last execution failed or timed out.
    """

    task: str
    constitution: str
    approach: str | None
    status: str | None
    failing: bool
    evidence: Evidence | None


class Spent(TypedDict):
    """The usage of one task's model calls that are not turns, in tokens and seconds: summaries, and replies
    that a middleware discarded."""

    task: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    estimated: bool
    seconds: float
    cached_tokens: NotRequired[int]


class BoundAbove(TypedDict):
    """A limit of a machine above this one. others: the usage of all other machines below that one, including
    calls under way."""

    others: float
    limit: float


class GrantedCalls(TypedDict):
    """The number of work calls of one reply that may run."""

    reply: str
    calls: int


class TreeBudget(TypedDict):
    """What one task has last read from the ledger of its tree; see `nodes/delegates/ledger.py`.

    above: for each limit by name, the limit of the machine above that leaves the least. lost: the cost of
    replies lost in a crash; counted: how much of it existed when the task was last extended.
    """

    task: str
    above: dict[str, BoundAbove]
    lost: NotRequired[dict[str, float]]
    counted: NotRequired[dict[str, float]]
    granted: NotRequired[GrantedCalls]


class HookMarks(TypedDict):
    """Which middleware hooks have run in one task. begun: `before_agent`. heard: the id of the reply on which
    `after_model` ran; why: a sentence, if one of them ended the task there."""

    task: str
    begun: NotRequired[bool]
    heard: NotRequired[str]
    why: NotRequired[str]


MIDDLEWARE = "middleware"
"""The channel of these marks, in graphs that have middleware."""


class Input(TypedDict):
    """The input of `graph.invoke`."""

    messages: Annotated[list[AnyMessage], HistoryChannel(append_messages, snapshot_frequency=SNAPSHOT_EVERY)]


class Output(Input):
    """The output of `graph.invoke`; `outcome` is None while the task runs or waits."""

    outcome: dict[str, Any] | None


class AgentState(Output):
    """All channels of a thread."""

    event: NotRequired[str]
    decision: NotRequired[Decision]
    task: NotRequired[str]
    ending: NotRequired[Ending]
    verdicts: NotRequired[Verdicts]
    phases: NotRequired[Phases]
    ended: NotRequired[EndedTask]
    extra: NotRequired[Extra]
    approvals: NotRequired[Decisions]
    stop: NotRequired[str]
    digest: NotRequired[Annotated[HistorySummary, DeltaChannel(latest, snapshot_frequency=SNAPSHOT_EVERY)]]
    spent: NotRequired[Spent]
    too_long: NotRequired[TooLong]
    machine: NotRequired[int]
    acting: NotRequired[Acting]
    undo: NotRequired[Undoing | None]
    gone_on: NotRequired[list[str]]
    tree: NotRequired[TreeBudget]


class Context(CheckedModel):
    """Settings for one run, beside those of `build_graph`. They are not stored with the thread.

    Raises SetupError for an invalid value or an unknown name.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    system_prompt: str | None = Field(
        default=None,
        description="The system prompt of this run, in place of the one the graph was built with.",
        json_schema_extra={"langgraph_nodes": ["call_llm"], "langgraph_type": "prompt"},
    )
    model: str | None = Field(
        default=None,
        max_length=200,
        description="The name of this run's model, in place of the one the graph was built with: of the same "
        "provider, at the same address.",
        json_schema_extra={"langgraph_nodes": ["call_llm"]},
    )
    model_seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="The model may be silent for at most this many seconds, before its reply and within it.",
        json_schema_extra={"langgraph_nodes": ["call_llm"]},
    )
    turns: int | None = Field(default=None, ge=1, description="At most this many turns of the model.")
    tree_turns: int | None = Field(
        default=None,
        ge=1,
        description="At most this many turns of this graph and all its delegates together.",
    )
    tool_calls: int | None = Field(default=None, ge=1, description="At most this many tool calls.")
    calls_per_reply: int | None = Field(
        default=None, ge=1, description="At most this many tool calls of one reply are run."
    )
    tokens: int | None = Field(default=None, ge=1, description="At most this many tokens, input and output.")
    seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="At most this many seconds of work; waiting for people is free.",
    )
    cost: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="At most this cost, by the graph's prices, else by those of genai-prices, in dollars.",
    )
    depth: int | None = Field(
        default=None, ge=1, description="At most this many levels of delegates below this graph."
    )
    children: int | None = Field(
        default=None, ge=1, description="At most this many calls of delegates are started."
    )
    talk_turns: int | None = Field(
        default=None, ge=1, description="At most this many replies without a tool call in a row."
    )
    repeats: int | None = Field(
        default=None, ge=2, description="At most this many identical results in a row."
    )
    refusals: int | None = Field(
        default=None, ge=1, description="At most this many refused finishes in a row, without work."
    )
