"""Builds the prompt: system prompt, the task's own messages, summary, contract, recent turns.

Every call in it is answered, right after the reply that made it. The contract lists, in a few lines, what
still binds the model from the summarised part of a task. It is a pure function of the history and changes
only when more turns are summarised, so that the prefix of the prompt stays the same in between; anything
newer is in the turns that the prompt shows whole.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.blocks import text_block
from signoff.graph.history.reader import CHARS, PromptHead, Reader
from signoff.graph.history.reasons import StopReason
from signoff.graph.history.replies import Call, Reply, with_call_words
from signoff.graph.history.task import open_phases
from signoff.graph.messages import is_answer, is_genuine, is_line, line, marks, nudge, nudge_kind, slim
from signoff.graph.outcome import issues_of
from signoff.graph.prompt.roles import extend_in_turn, fixed_line
from signoff.graph.prompt.words import lines_of_words, shortened_words
from signoff.graph.state import AgentState, Contract, HistorySummary, Phases
from signoff.graph.texts import Texts

CACHE_MARK = "cache_control"


@dataclass(frozen=True)
class PromptBlocks:
    """A system prompt in content blocks. mark: the cache mark for whichever block comes last, since a mark
    covers everything before it."""

    message: SystemMessage
    mark: Any = None


SystemPrompt = str | PromptBlocks


def is_text_alone(prompt: SystemMessage) -> bool:
    """Whether the message has nothing but text."""
    return isinstance(prompt.content, str) and not prompt.additional_kwargs and prompt.name is None


def in_blocks(prompt: SystemMessage, rules: str) -> PromptBlocks:
    """`prompt`, followed by the rules of the loop as a separate block. The last block of all takes the mark
    of the prompt's last block."""
    given = [prompt.content] if isinstance(prompt.content, str) else prompt.content
    blocks = [text_block(one) if isinstance(one, str) else dict(one) for one in given if one]
    own = blocks[-1].pop(CACHE_MARK, None) if blocks else None
    blocks += [text_block(rules)] if rules else []
    return PromptBlocks(prompt.model_copy(update={"content": blocks}), own)


def marked(message: BaseMessage, mark: Any) -> BaseMessage:
    """A copy of `message` with a cache mark on its last block; `message` itself if there is none to mark."""
    given = message.content
    blocks = [text_block(given)] if isinstance(given, str) else list(given)
    if not blocks or not (blocks[-1] if isinstance(blocks[-1], str) else blocks[-1].get("text", " ")):
        # Anthropic rejects a mark on an empty text.
        return message
    last = blocks[-1]
    blocks[-1] = {**(text_block(last) if isinstance(last, str) else last), CACHE_MARK: mark}
    return message.model_copy(update={"content": blocks})


_SHORTEST = 100
_REFUSALS = 3
_PHASES = 3
_NUDGES = ("refused", "sent_back")


def contract(reader: Reader, end: int, most: int, phases: Phases | None = None) -> Contract:
    """The contract for the current task's part before the message at `end`, in at most about `most` tokens.

    Approach and status come from the last thought that names them, the issues from the last finish; of
    refusals, and of the `phases` reported in this part, it keeps the last few.
    """
    section, starts = reader.section, reader.index.replies
    places = starts[len(starts) - len(section.replies) :]
    replies = [reply for reply, at in zip(section.replies, places, strict=True) if at < end]
    approach, status = _thought(replies)
    begun = reader.index.places.get(section.id, 0)
    refused = list(dict.fromkeys([*_results(replies), *_reminders(reader.messages[begun:end])]))
    reported = open_phases(phases, section.id, len(replies))
    piece = max(_SHORTEST, most * CHARS // (3 + _REFUSALS + _PHASES))
    return Contract(
        task=section.id,
        approach=shortened(approach, piece),
        status=shortened(status, piece),
        issues=shortened("; ".join(_issues(replies)), piece),
        refused=[shortened(text, piece) for text in refused[-_REFUSALS:]],
        phases=[shortened(text, piece) for text in reported[-_PHASES:]],
    )


def contract_text(found: Contract, texts: Texts) -> str:
    """The contract as the model reads it; empty if nothing binds."""
    parts = [("approach", found["approach"]), ("status", found["status"]), ("issues", found["issues"])]
    parts += [("refused", text) for text in found["refused"]]
    parts += [("phase", text) for text in found["phases"]]
    lines = [texts.contract_lines[key].format(text=text) for key, text in parts if text]
    return texts.contract.format(lines="\n".join(lines)) if lines else ""


def shortened(text: str, most: int) -> str:
    """`text` on one line of at most `most` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: max(most - 1, 0)] + "…"


def _thought(replies: Sequence[Reply]) -> tuple[str, str]:
    """The last approach and the last status that a thought names."""
    found = {"approach": "", "status": ""}
    for reply in reversed(replies):
        for call in reversed(reply.calls):
            if call.effect == "continue" and call.problem is None:
                found |= {key: _text_or_empty(call.args.get(key)) for key in found if not found[key]}
        if all(found.values()):
            break
    return found["approach"], found["status"]


def _text_or_empty(value: object) -> str:
    return "" if value is None else str(value)


def _issues(replies: Sequence[Reply]) -> list[str]:
    calls = (call for reply in reversed(replies) for call in reply.calls)
    return issues_of(next((call.args for call in calls if call.effect == "finish"), {}))


def _results(replies: Sequence[Reply]) -> Iterator[str]:
    """The results of finishes that did not count."""
    for reply in replies:
        for call in reply.calls:
            result = reply.result(call)
            if call.effect == "finish" and reply.failed(call) and reply.was_run(call) and result:
                yield result.text


def _reminders(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """The reminders about such finishes, if an imported history had already answered them."""
    return (message.text for message in messages if nudge_kind(message) in _NUDGES)


SUMMARY_MARK = "digest"
"""The mark of the message in which a prompt shows the summary and the contract."""

_RAW_SHOWN = 500
_LOOK_BACK = 8


def build_prompt(
    state: AgentState, reader: Reader, system_prompt: SystemPrompt, texts: Texts
) -> list[BaseMessage]:
    """The prompt: system prompt, the task's own messages, summary and contract, and all later turns whole.

    The history itself never changes; only the prompt is summarised and repaired.
    """
    summary, start = compacted(state, reader)
    head, _ = _head(summary, start, reader, system_prompt, texts)
    kept = _head_from(start, reader, texts)
    prompt = [*head, *kept.messages]
    extend_in_turn(prompt, _repaired(kept.upto, reader.replies[kept.replies :], reader, texts), texts)
    return prompt


def prompt_size(state: AgentState, reader: Reader, system_prompt: SystemPrompt, texts: Texts) -> int:
    """The estimated tokens of the prompt; takes time in proportion to the new, unsummarised messages."""
    summary, start = compacted(state, reader)
    _, size = _head(summary, start, reader, system_prompt, texts)
    return size + turns_size(reader, start, texts)


def turns_size(reader: Reader, start: int, texts: Texts) -> int:
    """The estimated tokens of the messages from `start` on, as a prompt shows them."""
    sums, waiting = reader.sums, [one for calls in reader.open_calls.values() for one in calls]
    pending = tokens([_pending(reply, call, texts) for reply, call in waiting]) if waiting else 0
    return sums[-1] - sums[start] + pending


def beyond(reader: Reader, budget: int) -> int:
    """The provider's token count beyond our estimate of the same prompt: tools, another tokenizer.

    Taken from the last reply with a count; 0 if there is none. An estimated count is ignored, and a count
    that leaves less than half of the budget is not trusted: nothing would be left to summarise.
    """
    for reply in reversed(reader.replies[-_LOOK_BACK:]):
        usage, notes = reply.message.usage_metadata, marks(reply.message)
        if usage and usage["input_tokens"] and "shown" in notes and not notes.get("estimated"):
            return max(0, min(usage["input_tokens"] - int(notes["shown"]), budget // 2))
    return 0


def compacted(state: AgentState, reader: Reader) -> tuple[HistorySummary | None, int]:
    """The summary and how many messages from the start it covers.

    None and 0 when there is none, or when the last message that it covers was removed from the history.
    """
    summary = state.get("digest")
    place = reader.index.places.get(summary["upto"]) if summary else None
    return (None, 0) if place is None else (summary, place + 1)


def front(
    summary: HistorySummary | None, start: int, reader: Reader, system_prompt: SystemPrompt, texts: Texts
) -> list[BaseMessage]:
    """The messages before the turns: the system prompt with the history's system messages appended in order,
    the messages that the summary of the first `start` keeps, and the summary with what else people said."""
    system = system_message(reader, system_prompt)
    if summary is None:
        return [system]
    places, room = reader.index.places, summary["words"]
    own = [places[id] for id in summary["kept"] if id in places]
    shorter = shortened_words(reader, start, room, texts)
    kept = [reader.messages[place] for place in own]
    for number, place in enumerate(own):
        if place in shorter:
            kept[number] = kept[number].model_copy(update={"content": shorter[place]})
    lines = lines_of_words(reader, start, room, texts, own)
    shown = [system]
    extend_in_turn(shown, kept, texts)
    # What is kept was sent without the summary.
    between = [fixed_line(texts)] if kept else []
    return [*shown, *between, summary_message(summary, reader.section.id, texts, lines)]


def own_messages(reader: Reader, start: int) -> list[str]:
    """The ids of the current task's own messages that are among the first `start` of the history."""
    ids = [message.id or "" for message in reader.section.messages]
    return [id for id in ids if reader.index.places[id] < start]


def system_message(reader: Reader, system_prompt: SystemPrompt) -> BaseMessage:
    systems = reader.index.systems
    if isinstance(system_prompt, str):
        return _system_message("\n\n".join(part for part in [system_prompt, *systems] if part))
    message = system_prompt.message
    blocks = [*message.content, *(text_block(text) for text in systems if text)]
    whole = message.model_copy(update={"content": blocks})
    return marked(whole, system_prompt.mark) if system_prompt.mark else whole


@lru_cache(maxsize=32)
def _system_message(text: str) -> SystemMessage:
    """The system message, cached and shared by all runs of a graph."""
    return slim(SystemMessage(content=text))


def summary_message(
    summary: HistorySummary, task: str, texts: Texts, words: Sequence[str] = ()
) -> HumanMessage:
    """The summary, its contract and people's words, which stay the same in later tasks, so that the
    provider's prompt cache hits."""
    parts = [part for part in (summary.get("text"), *summary["lines"]) if part]
    found = summary["contract"]
    bound = contract_text(found, texts)
    said = texts.words["all"].format(lines="\n".join(words)) if words else ""
    text = "\n\n".join(filter(None, (texts.history_summary.format(lines="\n".join(parts)), bound, said)))
    now = found["task"] == task
    notes = {"approach": found["approach"], "status": found["status"]} if bound and now else {}
    return nudge(SUMMARY_MARK, text, **notes)


def _head(
    summary: HistorySummary | None, start: int, reader: Reader, system_prompt: SystemPrompt, texts: Texts
) -> tuple[list[BaseMessage], int]:
    """The messages before the turns, and their tokens."""
    counts = (start, len(reader.section.messages), len(reader.index.systems), system_prompt)
    of = (summary, texts, reader.section)
    if reader.head is None or reader.head[0] != counts or not all(map(is_, reader.head[1], of)):
        shown = front(summary, start, reader, system_prompt, texts)
        reader.head = counts, of, (shown, tokens(shown))
    found: tuple[list[BaseMessage], int] = reader.head[2]
    return found


def _head_from(start: int, reader: Reader, texts: Texts) -> PromptHead:
    """The turns from `start` on that have all their results, so that no later message changes them."""
    kept = reader.shown
    if kept.start != start:
        kept = reader.shown = PromptHead(start, start, bisect_left(reader.index.replies, start))
    places, upto = reader.index.replies, kept.replies
    while upto < len(reader.replies) and not any(result is None for result in reader.replies[upto].found):
        upto += 1
    end = places[upto] if upto < len(places) else len(reader.messages)
    turns = reader.replies[kept.replies : upto]
    extend_in_turn(kept.messages, _repaired(kept.upto, turns, reader, texts, end), texts)
    kept.upto, kept.replies = end, upto
    return kept


def _repaired(
    start: int, turns: Sequence[Reply], reader: Reader, texts: Texts, end: int | None = None
) -> Iterator[BaseMessage]:
    """The messages from `start` to `end`; `turns` are the replies among them. Each result is placed directly
    after its call; a user's answer to a question appears only as that result. Omitted are results without a
    call. An answer of this thread, and an empty reply, becomes a line of the assistant: the answer's words
    after an accepted finish, else the fixed sentence, never a provider's error or advice to the program."""
    replies = iter(turns)
    for message in reader.messages[start:end]:
        if is_answer(message):
            if message.id in reader.index.reported:
                yield message
            else:
                yield line(message.text) if "accepted" in marks(message) else fixed_line(texts)
        elif isinstance(message, AIMessage):
            reply = next(replies)
            # A reply that the provider paused continues only if it is sent back unchanged.
            if reply.calls or reply.text or reply.stop is StopReason.PAUSED:
                yield from _turn(reply, texts)
            else:
                yield fixed_line(texts)
        elif isinstance(message, (SystemMessage, ToolMessage, FunctionMessage)):
            continue
        elif not (is_genuine(message) and message.id in reader.spoken):
            yield message


def _turn(reply: Reply, texts: Texts) -> Iterator[BaseMessage]:
    yield _sendable(reply)
    for call in reply.calls:
        found, own = reply.result(call) or _pending(reply, call, texts), reply.provider_id(call)
        if undone := marks(found).get("undone"):
            found = _with_note(found, texts.results["undone"].format(calls="; ".join(undone.values())))
        yield found if call.id == own else found.model_copy(update={"tool_call_id": own})


def _with_note(found: ToolMessage, note: str) -> ToolMessage:
    """The result with a note after it."""
    content = found.content
    more = f"{content}\n{note}" if isinstance(content, str) else [*content, text_block(note)]
    return found.model_copy(update={"content": more})


def _pending(reply: Reply, call: Call, texts: Texts) -> ToolMessage:
    text, call_id = texts.results["pending"].format(), reply.provider_id(call)
    return ToolMessage(content=text, tool_call_id=call_id, name=call.provider_name, status="error")


def _sendable(reply: Reply) -> AIMessage:
    """The reply with calls that have valid JSON, valid names and ids: some servers reject a whole request for
    one that has not."""
    if reply.plain:
        return reply.message
    fresh = {call.index: {"id": reply.provider_id(call), "name": call.provider_name} for call in reply.calls}
    # Some clients send a call from its block in the content.
    message = with_call_words(reply.message, fresh)
    raw = {bad["id"]: bad["args"] or "" for bad in reply.message.invalid_tool_calls}
    calls = [
        ToolCall(
            name=call.provider_name,
            id=reply.provider_id(call),
            args={"unreadable": raw[call.id][:_RAW_SHOWN]} if call.id in raw else dict(call.args),
        )
        for call in reply.calls
    ]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})


def last_turn(prompt: Sequence[BaseMessage]) -> int:
    """The index where the last turn of a prompt begins; its length if there is none."""
    places = range(len(prompt) - 1, -1, -1)
    replies = (at for at in places if isinstance(prompt[at], AIMessage) and not is_line(prompt[at]))
    return next(replies, len(prompt))
