"""What people said in the summarised part of a thread: it stands beside the summary, word for word.

It is read from the history, so that it does not depend on who wrote the summary, or on how often it was
written anew. Only where people's words alone take more than half of the prompt are the oldest shortened, each
with a mark.
"""

from bisect import bisect_left
from collections.abc import Collection

from signoff.graph.finish.lines import shown_call
from signoff.graph.history.reader import CHARS, PersonsWords, Reader
from signoff.graph.texts import Texts

_SHORTEST = 200
"""Words are not shortened below this many characters; they are left out as a whole."""

_MARK = 80
"""The characters for the mark in shortened words."""


def words_before(reader: Reader, end: int) -> list[PersonsWords]:
    """What people said by the messages before `end`."""
    words = reader.index.words(reader.messages)
    return words[: bisect_left(words, (end,))]


def size_before(reader: Reader, end: int) -> int:
    """The characters of these words."""
    return sum(len(words.text) for words in words_before(reader, end))


def room_for_words(reader: Reader, end: int, budget: int) -> int:
    """The characters that people's words before `end` may take in a prompt of `budget` tokens: what the later
    ones, which it shows in their place, leave of its half."""
    later = size_before(reader, len(reader.messages)) - size_before(reader, end)
    return max(budget // 2 * CHARS - later, budget // 20 * CHARS)


def shortened_words(reader: Reader, end: int, room: int, texts: Texts) -> dict[int, str]:
    """Those of the words before `end` that must be shortened to take at most `room` characters, the oldest
    first: each by its place, without its middle."""
    over, shorter = size_before(reader, end) - room, dict[int, str]()
    for words in words_before(reader, end):
        text, size = words.text, len(words.text)
        kept = max(size - over, _SHORTEST) - _MARK
        if over > 0 and kept + _MARK < size:
            mark = texts.words["cut"].format(count=f"{size - kept:,}", all=f"{size:,}")
            shorter[words.place] = f"{text[: kept - kept // 2]}{mark}{text[size - kept // 2 :]}"
            over -= size - len(shorter[words.place])
    return shorter


def lines_of_words(reader: Reader, end: int, room: int, texts: Texts, kept: Collection[int]) -> list[str]:
    """The words before `end`, but for those at the places `kept`, one entry each. Where they are many, the
    oldest are without the call that they answer; of very many the oldest are left out, and counted."""
    lines, said, shorter = list[str](), words_before(reader, end), shortened_words(reader, end, room, texts)
    said, room = [words for words in said if words.place not in kept], room + room // 4
    bare = [texts.words["said"].format(words=shorter.get(words.place, words.text)) for words in said]
    older_size = sum(len(line) + 1 for line in bare)
    for words, line in zip(reversed(said), reversed(bare), strict=True):
        older_size -= len(line) + 1
        whole = _entry(words, shorter.get(words.place, words.text), reader, texts)
        line = whole if older_size + len(whole) < room else line
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    older = said[: len(said) - len(lines)]
    size = sum(len(words.text) for words in older)
    lines += [texts.words["older"].format(count=f"{len(older):,}", all=f"{size:,}")] if older else []
    return lines[::-1]


def _entry(words: PersonsWords, text: str, reader: Reader, texts: Texts) -> str:
    if not words.call_id:
        return texts.words["said"].format(words=text)
    last = bisect_left(reader.index.replies, words.place) - 1
    replies = (reader.replies[number] for number in range(last, -1, -1))
    call = next((call for reply in replies for call in reply.calls if call.id == words.call_id), None)
    return texts.words["to_call"].format(call=shown_call(call) if call else words.call_id, words=text)
