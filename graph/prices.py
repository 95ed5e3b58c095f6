"""What the tokens of a model cost."""

from typing import Protocol

from pydantic import ConfigDict, Field

from signoff.graph.checked import Checked

_PER = 1_000_000


class TokenCounts(Protocol):
    """How many tokens were read, how many of these the provider had in its cache, and how many were written."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


class Prices(Checked):
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
