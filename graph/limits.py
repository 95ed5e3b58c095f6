"""How long a task may go on, and what the tokens of its model cost."""

from typing import Any, ClassVar, Protocol, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain

_MOST = 5

MODEL_SECONDS = 300.0
"""Reasoning models can be silent for minutes."""
MODEL_TRIES = 5
"""The number of attempts in all when the provider fails."""


class CheckedModel(BaseModel):
    """A base class for settings: raises SetupError, naming the field, for an invalid value."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise SetupError(f"{cls.__name__}: {cls._unknown(error) or explain(error)}") from None

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1, and a number of turns that is True is a mistake."""
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            kinds = {annotation, *get_args(annotation)}
            if kinds & {int, float} and bool not in kinds:
                kind = "number" if float in kinds else "integer"
                raise PydanticCustomError("no_flag", "Input should be a valid {kind}", {"kind": kind})
        return value

    @classmethod
    def _unknown(cls, error: ValidationError) -> str | None:
        """The sentence for unknown field names, which lists the known ones."""
        names = [str(part["loc"][-1]) for part in error.errors() if part["type"] == "extra_forbidden"]
        if not names:
            return None
        quoted = ", ".join(repr(name[:40]) for name in names[:_MOST])
        return f"there is no {quoted}; there are {', '.join(cls.model_fields)}."


_PER = 1_000_000


class TokenCounts(Protocol):
    """Token counts: input, the part of the input read from the provider's cache, and output."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


class Prices(CheckedModel):
    """Prices per million tokens, in any currency; the limit `cost` is in the same currency.

    input: for input tokens. output: for output tokens. cached_input: for input tokens read from the
    provider's cache; defaults to `input`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost(self, used: TokenCounts) -> float:
        """The cost of `used`."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = used.input_tokens - used.cached_tokens
        total = fresh * self.input + used.cached_tokens * cached + used.output_tokens * self.output
        return total / _PER


class Limits(CheckedModel):
    """The limits of one task. Reaching one is an outcome with status `limit`, never an exception.

    turns: replies of the model since the message that began the task.
    tree_turns: replies of this task and of all delegates below it together; exact, even with delegates in
        parallel.
    tool_calls: work calls that run (calls of unknown tools or with invalid arguments do not). The next one is
        refused, and the task ends; so the model can still finish after the last one.
    calls_per_reply: calls of one reply that run; any further ones are answered "not run".
    tokens: input and output, as counted by the provider (else estimated). Checked between turns, and during a
        reply by its output so far.
    seconds: working time: model calls, tools and calls handed over to the driver. Waiting for people does not
        count. A running tool call is not interrupted; the remaining calls of the reply are refused.
    cost: of the tokens by `prices`, in their currency. The calls of the reply that reaches it are refused.
    prices: per million tokens, for `cost`; defaults to the model's prices in `genai-prices` (the extra
        `signoff[prices]`), in dollars.
    talk_turns: consecutive replies without any call; only a work call resets the count.
    depth: levels of delegates below this graph; a call that would go deeper is refused, and the task ends. In
        a delegate, the limit of the calling graph applies, too.
    children: delegate calls that are started; the next one is refused, and the task ends.
    repeats: the same work calls with the same results in a row, or a cycle of two or three of them; also the
        same thoughts without work in between. Halfway, the model is warned. A person's message resets the
        count.
    refusals: finishes that the review refuses in a row, with no work and no message of a person in between,
        whatever they claim. Refusing the same claim twice for the same reason always ends the task (or asks a
        person).

    `seconds`, `tokens` and `cost` also cut off a streaming reply; its complete calls are kept, but not run.
    None means no limit. Raises SetupError for an invalid value; a graph with a `cost` limit needs prices.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

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
