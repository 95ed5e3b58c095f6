"""Compaction: when the prompt is over its budget, its oldest whole turns go into the summary.

When the last turn alone is over the budget, its largest results are truncated in the middle.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.foreign import capped
from signoff.graph.history.reader import CHARS, Reader
from signoff.graph.history.replies import Reply
from signoff.graph.messages import is_reply, marks, nudge_kind, persons_words
from signoff.graph.prompt.prompt import (
    SystemPrompt,
    beyond,
    compacted,
    contract,
    front,
    own_messages,
    shortened,
    turns_size,
)
from signoff.graph.prompt.words import room_for_words, size_before
from signoff.graph.state import AgentState, Contract, HistorySummary
from signoff.graph.texts import Texts

SMALLEST = 400
"""A result is never cut below this many characters."""

Keep = Callable[[str], Callable[[str], str]]
"""Takes the name of a result, and returns the `keep` of `signoff.graph.foreign.capped`."""


class _Piece(NamedTuple):
    """A text in a message: all of its content, or that of one block."""

    at: int
    block: int | None
    text: str


def spare(messages: Sequence[BaseMessage], most: int) -> int:
    """The estimated tokens that truncating the results among `messages` can save in a prompt of `most`."""
    return sum(max(0, len(piece.text) - SMALLEST - CHARS) // CHARS for piece in _pieces(messages, most))


def truncate(prompt: Sequence[BaseMessage], last: int, most: int, keep: Keep) -> list[BaseMessage]:
    """`prompt` within `most` tokens, as far as truncating the largest results from `last` on achieves that.

    The same prompt is always truncated in the same way.
    """
    made = list(prompt)
    pieces = list(_pieces(made[last:], most))
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


def _pieces(messages: Sequence[BaseMessage], most: int) -> Iterator[_Piece]:
    """The texts of the results, and of what tools displayed beside them; one with a person's words only if it
    alone takes more than half of a prompt of `most` tokens."""
    for at, message in enumerate(messages):
        if not (isinstance(message, ToolMessage) or nudge_kind(message) == _TOOL):
            continue
        # What else a result says that was not run is short.
        is_said = persons_words(message) or not {"not_run", "unknown"}.isdisjoint(marks(message))
        if is_said and len(message.text) <= most // 2 * CHARS:
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
    """The length to which all longer texts must be truncated to save `over` characters, but at least
    `SMALLEST`."""
    longest = sorted(sizes, reverse=True)
    for count, following in enumerate([*longest[1:], 0], start=1):
        level = (sum(longest[:count]) - over) // count
        if level >= following:
            return max(level, SMALLEST)
    return SMALLEST


KEEP_TURNS = 2
"""The number of most recent turns that are kept whole, unless they alone are over the budget; the very last
one is always kept."""

PIECE = 120
"""Characters of one text or result in a line of the summary."""

_KEPT_PART = 0.1
_SUMMARY_PART = 0.2
_LEAST_PART = 0.05
_CONTRACT_PART = 0.1
_TOOL = "tool"
_NOTE = re.compile(r"- \((\d+) older lines are not listed\)")


@dataclass(frozen=True)
class Compaction:
    """Turns to summarise, oldest first, each with the messages between it and the next.

    before: the summary so far. upto: the last message of the turns. room: the maximum characters of the new
    summary. most: the maximum characters of a summary that a model writes. words: those of people's words
    beside it. budget: the tokens of the prompt.
    """

    turns: Sequence[tuple[Reply, Sequence[BaseMessage]]]
    reader: Reader
    before: HistorySummary | None
    upto: str
    contract: Contract
    room: int
    most: int
    words: int
    budget: int

    def turn_lines(self, piece: int = PIECE) -> list[str]:
        """The turns, one line each, with texts and results truncated to `piece` characters."""
        return [line for turn in self.turns for line in _lines_of_turn(turn, self.reader, piece)]

    def by_lines(self) -> HistorySummary:
        """The summary extended by one line per turn."""
        text, lines = summary_parts(self.before)
        text = text[: self.room]
        return self._summary(text, bounded([*lines, *self.turn_lines()], self.room - len(text)))

    def by_text(self, text: str) -> HistorySummary:
        """`text` as the summary, which replaces the summary so far and the turns."""
        return self._summary(text, [])

    def _summary(self, text: str, lines: list[str]) -> HistorySummary:
        kept = own_messages(self.reader, self.reader.index.places[self.upto] + 1)
        made = HistorySummary(
            upto=self.upto, lines=lines, contract=self.contract, kept=kept, words=self.words
        )
        return HistorySummary(**made, text=text) if text else made


@dataclass(frozen=True)
class _Sizes:
    """The tokens of the prompt for each place up to which it could be summarised.

    These places are `ends`; the first is where the prompt begins now. Each is a reply before which no call is
    open, at the latest the last reply.
    """

    state: AgentState
    reader: Reader
    budget: int
    system_prompt: SystemPrompt
    texts: Texts

    @cached_property
    def start(self) -> int:
        return compacted(self.state, self.reader)[1]

    @cached_property
    def starts(self) -> Sequence[int]:
        """Where the turns of the prompt begin."""
        places = self.reader.index.replies
        return places[bisect_left(places, self.start) :]

    @cached_property
    def ends(self) -> list[int]:
        found = [self.start]
        replies = self.reader.replies[len(self.reader.replies) - len(self.starts) :]
        for reply, following in zip(replies, self.starts[1:], strict=False):
            if any(reply.open(call) for call in reply.calls):
                break
            found.append(following)
        return found

    @cached_property
    def least(self) -> int:
        """The size of the last turn with its results truncated as far as possible."""
        last = self.starts[-1] if self.starts else len(self.reader.messages)
        return self.turns(last) - spare(self.reader.messages[last:], self.budget)

    def turns(self, end: int) -> int:
        """The size of the turns that are not summarised."""
        return turns_size(self.reader, end, self.texts)

    def fixed(self, end: int, held: Contract) -> int:
        """The size of everything but the turns and the text of the summary."""
        kept, room = own_messages(self.reader, end), room_for_words(self.reader, end, self.budget)
        empty = HistorySummary(upto="", lines=[_omission(10**6)], contract=held, kept=kept, words=room)
        shown = front(empty, end, self.reader, self.system_prompt, self.texts)
        return tokens(shown) + beyond(self.reader, self.budget)

    def free(self, count: int) -> int:
        """The size left for the text of the summary when this many turns are summarised."""
        end = self.ends[count]
        # If only the last turn is left, its results are truncated to make room for the summary.
        staying = self.turns(end) if len(self.starts) > count + 1 else self.least
        return self.budget - self.fixed(end, self.contract(end)) - staying

    def contract(self, end: int) -> Contract:
        most = int(self.budget * _CONTRACT_PART)
        return contract(self.reader, end, most, self.state.get("phases"))


def compact(
    state: AgentState, reader: Reader, budget: int, system_prompt: SystemPrompt, texts: Texts
) -> Compaction | None:
    """The turns to summarise when the prompt is over its budget; None when nothing can be summarised.

    Enough turns are summarised that the remaining ones take at most a tenth of the free space. So the prefix
    of the prompt stays the same for many turns, and the provider's prompt cache hits; the remaining turns are
    paid in full once more. Turns with open calls, the last turns and people's words are never summarised. If
    there are no turns to summarise, the summary itself is shortened.
    """
    sizes = _Sizes(state, reader, budget, system_prompt, texts)
    before, start = compacted(state, reader)
    count = _enough(sizes, before, reader)
    while (free := sizes.free(count)) < 0 and count < len(sizes.ends) - 1:
        count += 1
    end = sizes.ends[count]
    if end == 0:
        return None
    # Keep a little room even if nothing fits: a task that forgets all its work would never end.
    room = int(min(budget * _SUMMARY_PART, free) if free >= 0 else budget * _LEAST_PART) * CHARS
    return Compaction(
        turns=_turns(reader, sizes.starts[: count + 1], start),
        reader=reader,
        before=before,
        upto=reader.messages[end - 1].id or "",
        contract=sizes.contract(end),
        room=room,
        most=room * 2 // 3,
        words=room_for_words(reader, end, budget),
        budget=budget,
    )


def _enough(sizes: _Sizes, before: HistorySummary | None, reader: Reader) -> int:
    """The number of turns to summarise."""
    base = sizes.fixed(0, sizes.contract(sizes.ends[-1]))
    text, lines = summary_parts(before)
    used = sum(len(line) + 1 for line in (text, *lines))
    turns = _turns(reader, sizes.starts[: len(sizes.ends)], sizes.start)
    for count, end in enumerate(sizes.ends[1:], start=1):
        used += sum(len(line) + 1 for line in _lines_of_turn(turns[count - 1], reader, PIECE))
        fixed = base + min(size_before(reader, end) // CHARS, sizes.budget // 2)
        fixed += min(used // CHARS, int(sizes.budget * _SUMMARY_PART))
        staying, free = sizes.turns(end), sizes.budget - fixed
        left = len(sizes.starts) - count
        if staying <= (free * _KEPT_PART if left > KEEP_TURNS else free):
            return count
    return len(sizes.ends) - 1


def with_undone(summary: HistorySummary, calls: Sequence[str]) -> HistorySummary:
    """The summary with a line for each of these calls, which were undone after it was written."""
    lines = [f"- undone, and does not hold any more: {shortened(call, PIECE)}" for call in calls]
    return HistorySummary(**{**summary, "lines": [*summary["lines"], *lines]})


def summary_parts(summary: HistorySummary | None) -> tuple[str, list[str]]:
    """The text and the lines of a summary; empty when there is none."""
    return (summary.get("text", ""), summary["lines"]) if summary else ("", [])


def _turns(reader: Reader, starts: Sequence[int], start: int) -> list[tuple[Reply, Sequence[BaseMessage]]]:
    """The turns that begin at `starts`, except the last, each with all messages before the next one; the
    first also with the messages before it."""
    first = bisect_left(reader.index.replies, start)
    begins = [start, *starts[1:]]
    return [
        (reader.replies[first + at], reader.messages[begin:end])
        for at, (begin, end) in enumerate(pairwise(begins))
    ]


def _lines_of_turn(turn: tuple[Reply, Sequence[BaseMessage]], reader: Reader, piece: int) -> Iterator[str]:
    """A line for a turn, and one for each message of another agent or a tool. People's words stand beside."""
    reply, messages = turn
    for message in messages:
        if is_reply(message):
            yield _line(reply, piece)
        elif message.id in reader.index.reported:
            yield f"- another agent: {shortened(message.text, piece)}"
        elif "accepted" in marks(message):
            yield f'- "{shortened(message.text, piece)}"'
        elif nudge_kind(message) == _TOOL:
            yield f"- a tool showed: {shortened(message.text, piece)}"


def _line(reply: Reply, piece: int) -> str:
    parts = [f'"{shortened(reply.text, piece)}"'] if reply.text else []
    for call in reply.calls:
        found = reply.result(call)
        status = found.status if found else "no result"
        args = shortened(str(dict(call.args)), piece)
        undone = "; ".join(marks(found).get("undone", {}).values()) if found else ""
        note = f" [undone since: {shortened(undone, piece)}]" if undone else ""
        said = shortened(found.text if found else "", piece)
        parts.append(f"{call.name}({args}) -> {status}: {said}{note}")
    return "- " + ("; ".join(parts) or "(empty reply)")


def bounded(lines: Sequence[str], room: int) -> list[str]:
    """The newest lines that fit into `room` characters, with the number of older ones that are not listed."""
    older = sum(int(found[1]) for line in lines if (found := _NOTE.fullmatch(line)))
    listed = [line for line in lines if not _NOTE.fullmatch(line)]
    if not older and sum(len(line) + 1 for line in listed) <= room:
        return listed
    kept = 0
    for line in reversed(listed):
        room -= len(line) + 1
        if room < 0:
            break
        kept += 1
    return [_omission(older + len(listed) - kept), *listed[len(listed) - kept :]]


def _omission(count: int) -> str:
    return f"- ({count} older lines are not listed)"
