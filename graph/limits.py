"""How long a task may go on."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """The limits of one task. Reaching one is an outcome with status `limit`, never an exception.

    turns: replies of the model, counted from the message that began the task.
    talk_turns: replies without any call, in a row; only a work call starts the count anew.
    calls_per_reply: calls of one reply that are run; the ones above it are answered "not run".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns: int = Field(default=30, ge=1)
    talk_turns: int = Field(default=5, ge=1)
    calls_per_reply: int = Field(default=32, ge=1)

    @property
    def remind_at(self) -> int:
        """The number of turns after which the model is reminded, once, that the limit is near: with the
        last sixth of them left."""
        return max(1, self.turns - max(1, self.turns // 6))
