"""Folding: when the view is over its budget, its oldest whole turns become one line each."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

from signoff.graph.history import Reader
from signoff.graph.marks import is_genuine
from signoff.graph.replies import Reply
from signoff.graph.state import AgentState, Digest
from signoff.graph.view import folded

KEEP_TURNS = 2
# Fold down to this part of the budget, so that the prefix of the view stays the same for many turns and the
# provider's prompt cache holds.
FOLD_TO = 0.6
_DIGEST_PART = 0.2
_PIECE = 120


def quick_size(state: AgentState, reader: Reader) -> int | None:
    """The tokens of the view by the provider's own count of the last reply, plus an estimate of what came
    after it. None when the provider did not count the view as it is now."""
    last = reader.replies[-1].message if reader.replies else None
    counted = last.usage_metadata if last else None
    if last is None or not counted or not counted["input_tokens"]:
        return None
    if (digest := state.get("digest")) and digest["made_after"] == last.id:
        return None
    newer = []
    for message in reversed(reader.messages):
        if message is last:
            break
        newer.append(message)
    return counted["total_tokens"] + count_tokens_approximately(newer)


def fold(state: AgentState, reader: Reader, size: int, budget: int) -> Digest | None:
    """The new digest when a view of `size` tokens is over `budget` and old turns can be folded; else None.

    The last turns, turns with open calls and the task's own messages are never folded.
    """
    excess = size - budget
    if excess <= 0:
        return None
    messages, old = state["messages"], state.get("digest")
    start = folded(messages, old["upto"] if old else None)
    begins = [i for i, message in enumerate(messages) if isinstance(message, AIMessage) and i >= start]
    skipped = sum(isinstance(message, AIMessage) for message in messages[:start])
    to_free = excess + budget * (1 - FOLD_TO)
    own = {message.id for message in reader.section.messages}
    lines = list(old["lines"]) if old else []
    end = start
    for turn, following in enumerate(begins[1 : len(begins) - KEEP_TURNS + 1]):
        reply = reader.replies[skipped + turn]
        if to_free <= 0 or any(reply.open(call) for call in reply.calls):
            break
        gone = messages[end:following]
        lines += [*_said(gone, own, reader.spoken), _line(reply)]
        to_free -= count_tokens_approximately([message for message in gone if message.id not in own])
        end = following
    if end == start:
        return None
    return Digest(
        upto=messages[end - 1].id or "",
        made_after=reader.replies[-1].message.id or "",
        lines=_bounded(lines, int(budget * _DIGEST_PART * 4)),
    )


def _said(gone: Sequence[BaseMessage], own: set[str | None], spoken: set[str]) -> list[str]:
    """One line for each of the user's messages that the view does not keep by itself."""
    return [
        f"- user: {_short(message.text)}"
        for message in gone
        if is_genuine(message) and message.id not in own and message.id not in spoken
    ]


def _line(reply: Reply) -> str:
    parts = [f'"{_short(reply.text)}"'] if reply.text else []
    for call in reply.calls:
        found = reply.results.get(call.index)
        status = found.status if found else "no result"
        parts.append(
            f"{call.name}({_short(str(dict(call.args)))}) -> {status}: {_short(found.text if found else '')}"
        )
    return "- " + ("; ".join(parts) or "(empty reply)")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _PIECE else flat[: _PIECE - 1] + "…"


def _bounded(lines: list[str], room: int) -> list[str]:
    """The newest lines that fit into `room` characters, and a note on how many older ones are not listed."""
    kept: list[str] = []
    dropped = 0
    for line in reversed(lines):
        if line.startswith("- ("):
            dropped += int(line.split()[1].lstrip("("))
        elif dropped or (room := room - len(line)) < 0:
            dropped += 1
        else:
            kept.append(line)
    if dropped:
        kept.append(f"- ({dropped} older lines are not listed)")
    return kept[::-1]
