"""Where the messages of a thread stand and how many tokens each takes, noted while the thread grows.

So the view and its size cost as much as what is new, not as much as the whole thread.
"""

from array import array
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.shapes import normal

__all__ = ["CHARS", "Ledger", "tokens"]

CHARS = 4
"""Characters of a token, by estimate."""


# Characters of a call beside its arguments, as `tokens` counts them.
_AROUND = 120


class Ledger:
    """`sums[i]` are the tokens of the first `i` messages; `replies` the positions of the model's replies;
    `places` the position of each message by its id; `systems` the texts of the system messages, which take
    no place of their own in a view."""

    __slots__ = ("places", "replies", "sums", "systems")

    def __init__(self) -> None:
        # An array takes a quarter of the memory of a list of numbers.
        self.sums = array("q", [0])
        self.replies = array("q")
        self.places: dict[str, int] = {}
        self.systems: list[str] = []

    def upto(self, messages: Sequence[BaseMessage]) -> "Ledger":
        """The ledger with all of `messages`, of which the first ones may be noted already."""
        for position in range(len(self.sums) - 1, len(messages)):
            message = messages[position]
            self.places[message.id or ""] = position
            if isinstance(message, SystemMessage):
                self.systems.append(message.text)
            elif isinstance(message, AIMessage):
                self.replies.append(position)
            self.sums.append(self.sums[-1] + _tokens(message))
        return self


def _tokens(message: BaseMessage) -> int:
    if isinstance(message, SystemMessage):
        return 0
    if not isinstance(message, AIMessage):
        return tokens([message])
    shown = normal(message)
    bad = [call["args"] or "" for call in shown.invalid_tool_calls]
    return tokens([shown]) + sum(_AROUND + len(args) for args in bad) // CHARS
