"""What a text looks like: characters that a reader, or a model, takes for each other."""

import unicodedata

import regex  # type: ignore[import-untyped]  # the package has no types

LINE_END = regex.compile(r"\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""What ends a line to some reader, as in `str.splitlines`."""

# The full width forms, and what else is taken for these signs.
_ALIKE: dict[int, str] = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {0x2026: "..."}
_ALIKE |= dict.fromkeys(map(ord, "`\u00b4\u02bc\u02ca\u02cb\u2018\u2019\u201a\u201b\u2032\u2035\uff40"), "'")
_ALIKE |= dict.fromkeys(map(ord, "\u02ba\u05f4\u201c\u201d\u201e\u201f\u2033\u2036"), '"')
_ALIKE |= dict.fromkeys(map(ord, "\u05be\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63"), "-")
# The last three are blanks of Braille and of Hangul.
_SPACE = regex.compile(r"[\p{Zs}\u2800\u3164\uffa0]")
_UNSEEN = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}]")


def look(text: str) -> str:
    """`text` as it looks: composed, every kind of space, quote, dash and line end as the plain one, without
    invisible characters."""
    seen = _UNSEEN.sub("", _SPACE.sub(" ", LINE_END.sub("\n", text)))
    return unicodedata.normalize("NFC", seen).translate(_ALIKE)


def odd_characters(text: str, other: str) -> list[str]:
    """The names of characters in `text` and not in `other` that a reader takes for plainer ones, or does not
    see alone."""
    odd = {each for each in {*text} - {*other} if look(each) != each or unicodedata.combining(each)}
    return [f"U+{ord(each):04X} {unicodedata.name(each, '')}".strip() for each in sorted(odd)]
