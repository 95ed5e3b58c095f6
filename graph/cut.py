"""Cutting: when the last turn alone is over the budget of the view, its largest results lose their middle."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from signoff.graph.ledger import CHARS, tokens
from signoff.graph.marks import nudge_kind
from signoff.tools.output import capped

SMALLEST = 400
"""Characters to which a result is cut at the most."""

Keep = Callable[[str], Callable[[str], str]]
"""For the name of a result: where its full text is kept, as `signoff.tools.output.capped` takes it."""

_TOOL = "tool"


class _Piece(NamedTuple):
    """A text in a message: all of its content, or that of one block."""

    at: int
    block: int | None
    text: str


def spare(messages: Sequence[BaseMessage]) -> int:
    """The tokens that cutting the results among `messages` can save, by estimate."""
    return sum(max(0, len(piece.text) - SMALLEST - CHARS) // CHARS for piece in _pieces(messages))


def cut(view: Sequence[BaseMessage], last: int, most: int, keep: Keep) -> list[BaseMessage]:
    """`view` in at most `most` tokens, as far as cutting the largest results from `last` on achieves that.

    The same view is always cut in the same way.
    """
    made = list(view)
    pieces = list(_pieces(made[last:]))
    over = tokens(made) - most
    if over <= 0 or not pieces:
        return made
    limit = _limit([len(piece.text) for piece in pieces], (over + len(pieces)) * CHARS)
    for piece in pieces:
        if len(piece.text) > limit:
            message = made[last + piece.at]
            name = message.name or message.type
            text = capped(piece.text, limit=limit, keep=keep(name))
            made[last + piece.at] = message.model_copy(update={"content": _with(message, piece, text)})
    return made


def _pieces(messages: Sequence[BaseMessage]) -> Iterator[_Piece]:
    """The texts of the results, and of what tools showed beside them."""
    for at, message in enumerate(messages):
        if not (isinstance(message, ToolMessage) or nudge_kind(message) == _TOOL):
            continue
        if isinstance(message.content, str):
            yield _Piece(at, None, message.content)
            continue
        for number, block in enumerate(message.content):
            text = block if isinstance(block, str) else block.get("text")
            if isinstance(text, str):
                yield _Piece(at, number, text)


def _with(message: BaseMessage, piece: _Piece, text: str) -> Any:
    if piece.block is None:
        return text
    blocks = list(message.content)
    block = blocks[piece.block]
    blocks[piece.block] = text if isinstance(block, str) else {**block, "text": text}
    return blocks


def _limit(sizes: Sequence[int], over: int) -> int:
    """The length to which all longer texts must be cut so that `over` characters go, but not below
    `SMALLEST`."""
    longest = sorted(sizes, reverse=True)
    for count, following in enumerate([*longest[1:], 0], start=1):
        level = (sum(longest[:count]) - over) // count
        if level >= following:
            return max(level, SMALLEST)
    return SMALLEST
