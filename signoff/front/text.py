"""Makes text safe to print in a terminal, and words safe for a shell."""

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable

from rich.text import Text

from signoff.front.unseen import UNSEEN

_UNSEEN = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSEEN)
_HIDES = re.compile(f"[{_UNSEEN}]")
_TO_LOOK_AT = re.compile(f"[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff{_UNSEEN}]")
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_VIRAMA = 9  # the combining class of the signs that join the letters around them


def plain(text: str) -> str:
    """Returns `text` with control characters as symbols (ESC as ␛), and tabs as spaces.

    Every character that is invisible or blank, or that reorders its neighbours, is replaced by its name. The
    output of a model or a tool must not move the cursor, change colours or set the title of the terminal, and
    must not look different from what it is. A few such characters stay where scripts and emoji need them.
    """
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return _TO_LOOK_AT.sub(lambda found: _visible(text, found.start()), text)


def escape_invisible(text: str) -> str:
    """Returns JSON `text` with invisible characters escaped, so that they can be seen and edited."""
    return _HIDES.sub(lambda found: found[0] if found[0].isascii() else json.dumps(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Returns `plain(text)` on one line, with white space collapsed."""
    return " ".join(plain(text).split())


def cut(text: str, width: int) -> str:
    """Returns `text`, truncated with an ellipsis to at most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def styled(text: str, style: str = "") -> Text:
    """Returns sanitised `text` in a style of rich. Markup in it is not interpreted."""
    return Text(plain(text), style=style)


def shell_command(words: Iterable[str]) -> str:
    """Returns the command line that a POSIX shell reads as these words; it is always printable."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable() and not _HIDES.search(word):
        return shlex.quote(word)
    escaped = re.sub(r"[^ -~]|['\\]", lambda found: _escaped(found[0]), word)
    return f"$'{escaped}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _visible(text: str, at: int) -> str:
    character = text[at]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    return character if _needed(text, at) else f"⟨U+{code:04X}⟩"


def _needed(text: str, at: int) -> bool:
    """Whether this character changes how its neighbours look, as their script or an emoji requires.

    Between letters that do not join, next to ASCII, at an end or in a row it could only hide something.
    """
    before, after = text[max(at - 1, 0) : at], text[at + 1 : at + 2]
    match text[at]:
        case "\u3000":
            return _is_wide(before) and _is_wide(after)
        case "\ufe0f":
            return _is_symbol(before) and not (after and _HIDES.match(after) and after != _JOINER)
        case "\u200c" | "\u200d" if before and after and unicodedata.combining(before) == _VIRAMA:
            return unicodedata.category(after) == "Lo" and not _HIDES.match(after)
        case "\u200c":
            return _is_arabic(before) and _is_arabic(after)
        case "\u200d":
            styled_before = before == _EMOJI_STYLE and _needed(text, at - 1)
            return (styled_before or _is_symbol(before)) and _is_symbol(after)
    return False


def _is_symbol(character: str) -> bool:
    """Whether this may be an emoji, or the skin colour of one."""
    return (
        bool(character)
        and (unicodedata.category(character) == "So" or "\U0001f3fb" <= character <= "\U0001f3ff")
        and not _HIDES.match(character)
    )


def _is_wide(character: str) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF" and not _HIDES.match(character)


def _is_arabic(character: str) -> bool:
    return bool(character) and unicodedata.bidirectional(character) == "AL" and character.isalpha()
