"""How long a task may go on, and what the tokens of its model cost."""

from typing import Any, Protocol, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain

_MOST = 5

MODEL_SECONDS = 300.0
"""Models that think before they speak are silent for minutes."""
MODEL_TRIES = 5
"""How often a model is asked in all, when its provider fails."""


class CheckedModel(BaseModel):
    """A model of settings: raises SetupError, naming the field, for a value that does not fit."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise SetupError(f"{cls.__name__}: {cls._unknown(error) or explain(error)}") from None

    @classmethod
    def _unknown(cls, error: ValidationError) -> str | None:
        """The sentence for unknown field names: it lists the known ones."""
        names = [str(part["loc"][-1]) for part in error.errors() if part["type"] == "extra_forbidden"]
        if not names:
            return None
        quoted = ", ".join(repr(name[:40]) for name in names[:_MOST])
        return f"there is no {quoted}; there are {', '.join(cls.model_fields)}."


_PER = 1_000_000


class TokenCounts(Protocol):
    """Tokens: those read, those of them that the provider had in its cache, and those written."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


class Prices(CheckedModel):
    """Prices per million tokens, in any one currency; the limit `cost` is in the same.

    input: of a token that the model reads. output: of one that it writes. cached_input: of one that the
    provider had in its cache; as `input` when it is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost(self, used: TokenCounts) -> float:
        """What `used` costs."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = used.input_tokens - used.cached_tokens
        total = fresh * self.input + used.cached_tokens * cached + used.output_tokens * self.output
        return total / _PER


class Limits(CheckedModel):
    """The limits of one task. Reaching one is an outcome with status `limit`, never an exception.

    turns: replies of the model, counted from the message that began the task.
    tree_turns: replies of this task and of all delegates below it together; exact, however many run beside
        each other.
    tool_calls: work calls that run, so none of an unknown tool or with arguments that do not fit. One more is
        refused, and the task ends; so the model can still finish when the last one has run.
    calls_per_reply: calls of one reply that are run; the ones above it are answered "not run".
    tokens: read and written, as the provider counts them (estimated where it does not), judged between turns;
        and while a reply comes in, by what it has written.
    seconds: of working time: model calls, tools and calls that are handed over. Waiting for people does not
        count. A tool's call that runs is not broken off; the calls of the reply that are left are refused.
    cost: of the tokens by `prices`, in their currency. The calls of a reply that reaches it are refused.
    prices: per million tokens, for `cost`; without them those of the model in `genai-prices` (the extra
        `signoff[prices]`), in dollars.
    talk_turns: replies without any call, in a row; only a work call starts the count again.
    depth: levels of delegates below this graph; a call of one that would stand deeper is refused, and the
        task ends. In a delegate the bound of the graph that called it holds, too.
    children: calls of delegates that are begun; one more is refused, and the task ends.
    repeats: the same work calls with the same results, in a row, or a cycle of two or three of them; the
        same thoughts without work between them. Half way there the model is told. A person's word starts
        the count again.
    refusals: finishes that the review refuses, in a row, with no work and no word of a person between them,
        whatever they claim. The same claim refused twice for the same reason ends it (or goes to a person)
        in any case.

    `seconds`, `tokens` and `cost` close a reply that is coming in; what was complete is kept, and not run.
    None means no limit. Raises SetupError for a value that does not fit; a graph with a limit of `cost`, and
    no prices for it, cannot be built.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns: int = Field(default=30, ge=1)
    tree_turns: int | None = Field(default=None, ge=1)
    tool_calls: int | None = Field(default=None, ge=1)
    calls_per_reply: int = Field(default=32, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    prices: Prices | None = None
    depth: int = Field(default=5, ge=1)
    children: int | None = Field(default=None, ge=1)
    talk_turns: int = Field(default=5, ge=1)
    repeats: int | None = Field(default=5, ge=2)
    refusals: int | None = Field(default=5, ge=1)


def is_whole(name: str) -> bool:
    """Whether the limit of this name is a whole number."""
    annotation = Limits.model_fields[name].annotation
    return int in (annotation, *get_args(annotation))
