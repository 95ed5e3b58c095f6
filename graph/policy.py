"""How a loop goes about its work: what nearly every program leaves as it is."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, InstanceOf, PlainValidator

from signoff.graph.foreign import LIMIT
from signoff.graph.limits import MODEL_SECONDS, CheckedModel
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.nodes.model.models import Streaming, SummaryWriter, check_writer
from signoff.nodes.model.retries import ModelRetries

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LoopPolicy(CheckedModel):
    """The `policy` of a graph.

    talk: how to treat a reply without a tool call. "balanced": two reminders, then a call is required
        (`tool_choice`), then a control call, then the limit `talk_turns`. "strict": a call is required from
        the start. "natural": the reply goes to the user like a question, which makes a dialogue; without a
        checkpointer, the same as "balanced".
    streaming: "always" streams each reply, so that the inner guard can cut it short and stop the provider.
        "auto" streams when something consumes the chunks (`stream_mode="messages"`, `astream_events`, a
        session's tokens, a callback with `on_llm_new_token`); otherwise the reply comes whole, which saves
        the CPU time of a stream, and only time limits can cut it short. "never": no reply is streamed.
    model_seconds: how long the model may be silent, before the first chunk of its reply and between two
        chunks (before the whole reply, if it does not stream); None for no limit. After that the call is
        cancelled (in sync code: abandoned in its thread), and the task ends as `model_error`; a call that
        has returned nothing yet is retried once first. The context's `model_seconds` takes precedence. A
        reply of more than 2,000,000 characters (text, reasoning and arguments) is cut off, and the task ends
        as `model_error`, too.
    model_retries: how often, and after which delays, a model call is retried after a transient error (a rate
        limit, a server error, a dropped connection); None for never. The graph uses a copy of the model in
        which the client's own retries are off. See docs/how-to/models.md.
    tool_seconds: how long one call may take before its result is "timed out"; None for no limit, in which
        case a call that runs alone uses the run's own thread. A tool's `metadata["seconds"]` takes
        precedence.
    result_chars: a longer result loses its middle; the full text is kept in a file that the result names.
    prompt_tokens: the token budget of the prompt; above it, old turns are summarised. Default: 80 % of the
        context size in the model's profile, at most 200,000; else 100,000. The estimate is corrected by the
        provider's own count.
    compaction: who writes the summary that replaces old turns. "lines": one line per turn, exact and free.
        "model": the model, in one extra call on its current prompt, which the provider's cache serves. The
        call counts in the outcome's usage but not as a turn, and no tool call in it runs. Or pass another
        chat model, which is called without tools. If the summary fails, is refused, truncated or too long,
        calls a tool, or takes longer than 60 seconds, lines are used instead. Default: "model" when
        the model's profile has a context size and `prompt_tokens` is at least 16,000; else "lines", since a
        small prompt is summarised every few turns (and a script for `ScriptedModel`, which has no profile,
        has no step for it).
    parallel: the maximum number of read calls that run in parallel. Default: 8 for sync tools, which take a
        thread each, and no limit for coroutines.
    unknown_outcomes: how to handle a call that had started when its process was killed: "tell" the model that
        its outcome is unknown, or "ask" a person whether to run it again.
    on_failure: what happens to the effects of a task that ends without success. "keep": they stay. "undo":
        they are undone, newest first, by the `metadata["undo"]` of their tools; approvals apply to these
        calls, too. "ask": the same, once a person has agreed. `outcome.undo` lists what was undone and what
        was not. To undo on request: `Session.undo()`, `signoff undo`. See docs/how-to/undo.md.
    texts: every text that the model reads, `Texts(…)`.

    Raises SetupError for an unknown name and an invalid value.
    """

    # A text or a bool is no number here: it would be a mistake elsewhere.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True
    )

    talk: Literal["strict", "balanced", "natural"] = "balanced"
    streaming: Streaming = "always"
    model_seconds: _Seconds | None = MODEL_SECONDS
    model_retries: InstanceOf[ModelRetries] | None = ModelRetries()
    tool_seconds: _Seconds | None = 120.0
    result_chars: int = Field(default=LIMIT, ge=1)
    prompt_tokens: int | None = Field(default=None, ge=1)
    compaction: Annotated[SummaryWriter, PlainValidator(check_writer)] = None
    parallel: int | None = Field(default=None, ge=1)
    unknown_outcomes: Literal["tell", "ask"] = "tell"
    on_failure: Literal["keep", "undo", "ask"] = "keep"
    # Not as a default, which pydantic copies.
    texts: InstanceOf[Texts] = Field(default_factory=lambda: DEFAULT_TEXTS)
