"""What people said in the summarised part of a thread: it stands beside the summary, word for word.

It is read from the history, so that it does not depend on who wrote the summary, or on how often it was
written anew. Only where people's words alone take more than half of the prompt are the oldest shortened, each
with a mark.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping

from signoff.graph.history.reader import CHARS, PersonsWords, Reader
from signoff.graph.outcome import shown_call
from signoff.graph.texts import Texts

_HALF = 0.5
_LEAST_PART = 0.05
_SHORTEST = 200
"""Words are not cut below this many characters; they are left out as a whole."""


def words_before(reader: Reader, end: int) -> list[PersonsWords]:
    """What people said by the messages before `end`."""
    return reader.words[: bisect_left(reader.words, (end,))]


def size_before(reader: Reader, end: int) -> int:
    """The characters of these words."""
    count = bisect_left(reader.words, (end,))
    return reader.words[count - 1].upto if count else 0


def room_for_words(reader: Reader, end: int, budget: int) -> int:
    """The characters that people's words before `end` may take in a prompt of `budget` tokens: what the later
    ones, which it shows in their place, leave of its half."""
    later = size_before(reader, len(reader.messages)) - size_before(reader, end)
    return max(int(budget * _HALF) * CHARS - later, int(budget * _LEAST_PART) * CHARS)


def shortened_words(reader: Reader, end: int, room: int, texts: Texts) -> dict[int, str]:
    """What people said before `end`, by place, in about `room` characters: the oldest are shortened."""
    over = size_before(reader, end) - room
    shown = dict[int, str]()
    for words in words_before(reader, end):
        text = words.text
        if over > 0:
            text = _cut(text, max(_SHORTEST, len(text) - over), texts)
            over -= len(words.text) - len(text)
        shown[words.place] = text
    return shown


def _cut(text: str, most: int, texts: Texts) -> str:
    """`text` without its middle, in at most `most` characters; the same if it is short."""
    if len(text) <= most:
        return text
    kept = max(most - len(_mark(len(text), text, texts)), 0)
    return f"{text[: kept - kept // 2]}{_mark(len(text) - kept, text, texts)}{text[len(text) - kept // 2 :]}"


def _mark(left_out: int, text: str, texts: Texts) -> str:
    return texts.words["cut"].format(count=f"{left_out:,}", all=f"{len(text):,}")


def lines_of_words(
    reader: Reader, shown: Mapping[int, str], own: Collection[int], room: int, texts: Texts
) -> list[str]:
    """The words in `shown`, one entry each, but for those at the places `own`, which the prompt shows as
    messages. Of very many the oldest are left out, and counted: each entry takes more than its words."""
    lines, left, size = list[str](), 0, 0
    room += room // 4 - sum(len(shown[place]) for place in own)
    for words in reversed(words_before(reader, max(shown, default=-1) + 1)):
        if words.place in own:
            continue
        line = _entry(words, shown[words.place], reader, texts) if room > 0 else ""
        room -= len(line) + 1
        if room > 0:
            lines.append(line)
        else:
            left, size = left + 1, size + len(words.text)
    older = [texts.words["older"].format(count=f"{left:,}", all=f"{size:,}")] if left else []
    return [*older, *reversed(lines)]


def _entry(words: PersonsWords, text: str, reader: Reader, texts: Texts) -> str:
    if not words.call_id:
        return texts.words["said"].format(words=text)
    last = bisect_left(reader.index.replies, words.place) - 1
    replies = (reader.replies[number] for number in range(last, -1, -1))
    call = next((call for reply in replies for call in reply.calls if call.id == words.call_id), None)
    return texts.words["to_call"].format(call=shown_call(call) if call else words.call_id, words=text)
