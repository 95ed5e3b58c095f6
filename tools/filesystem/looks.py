"""What a text looks like: characters that a reader, or a model, takes for each other."""

import unicodedata
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, pairwise

import regex  # type: ignore[import-untyped]  # the package has no types

_PLAIN = {"'": "\u2018\u2019\u201a\u201b\u2032\u02bc", '"': "\u201c\u201d\u201e\u201f\u2033"}
_PLAIN |= {"-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"}
_ALIKE = {ord(each): plain for plain, characters in _PLAIN.items() for each in characters}
# The second of these is a blank of Braille.
_SPACE = regex.compile(r"[\p{Zs}\u2800]")
_UNSEEN = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}]")
# The second and third parts of a Korean syllable: not combining characters, but composed with the first.
_JAMO = {chr(code) for code in range(0x1161, 0x1200)}
_MOST_NAMED = 10


def look(text: str) -> str:
    """`text` as it looks: composed, every kind of space, quote and dash as the plain one, without invisible
    characters. Its line ends stay."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _SPACE.sub(" ", _UNSEEN.sub("", text.translate(_ALIKE))))


def differences(line: str, wanted: str) -> list[tuple[str, str]]:
    """The pairs of characters in which `wanted` differs from the part of `line` that looks the same; none if
    there is no such part."""
    here, there = _pieces(line), _pieces(wanted)
    looks = [_look_of(piece) for piece in here]
    at = "".join(looks).find(look(wanted))
    if at < 0:
        return []
    start = bisect_right(list(accumulate(map(len, looks), initial=0)), at) - 1
    pairs = zip(here[start : start + len(there)], there, strict=False)
    return [(has, wants) for has, wants in pairs if has != wants and _look_of(has) == _look_of(wants)]


# A long line has few different characters.
_look_of_one = lru_cache(10_000)(look)


def _look_of(piece: str) -> str:
    return _look_of_one(piece) if len(piece) < 10 else look(piece)


def _pieces(line: str) -> list[str]:
    """The characters of `line`, each with its combining and invisible characters."""
    if line.isascii():
        return list(line)
    starts: list[int] = []
    is_seen = True
    for index, character in enumerate(line):
        is_shown = bool(_look_of_one(character))
        joins = unicodedata.combining(character) or character in _JAMO or not is_shown
        if not starts or (is_seen and not joins):
            starts.append(index)
            is_seen = is_shown
        is_seen = is_seen or is_shown
    return [line[start:end] for start, end in pairwise((*starts, len(line)))]


def character_names(piece: str) -> str:
    names = [f"U+{ord(each):04X} {unicodedata.name(each, '')}".strip() for each in piece[:_MOST_NAMED]]
    return " ".join([*names, f"and {len(piece) - _MOST_NAMED:,} more"] if len(piece) > _MOST_NAMED else names)
