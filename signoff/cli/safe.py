"""Makes text harmless for a terminal, and words safe for a shell."""

import re
import shlex
import unicodedata
from collections.abc import Iterable

from rich.text import Text

# They reorder what is on the screen, or take no room on it, so that it reads otherwise than it is.
_DECEIVING = {
    *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
}
# They also join the letters of some scripts, and the parts of an emoji.
_JOINERS = {0x200C, 0x200D}
_TO_LOOK_AT = re.compile(r"[^ -~\n]")


def plain(text: str) -> str:
    """`text` with every control character shown as a symbol (ESC as ␛), tabs as spaces, and with every
    character made visible that hides, or that reorders what stands around it.

    What a model or a tool wrote must not move the cursor, change colours or set the title of the terminal.
    """
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    if text.isprintable():
        return text
    return _TO_LOOK_AT.sub(lambda found: _seen(text, found.start()), text)


def one_line(text: str) -> str:
    """`plain(text)` on one line, white space joined."""
    return " ".join(plain(text).split())


def cut(text: str, width: int) -> str:
    """`text`, at most `width` characters of it, the end cut off with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def styled(text: str, style: str = "") -> Text:
    """`text` made harmless, in a style of rich. Markup in it stays what it is: text."""
    return Text(plain(text), style=style)


def shell_command(words: Iterable[str]) -> str:
    """The command line that a POSIX shell reads as these words; printable, whatever they hold."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = re.sub(r"[^ -~]|['\\]", lambda found: _escaped(found[0]), word)
    return f"$'{escaped}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _seen(text: str, at: int) -> str:
    return _named(text[at]) if _joins_nothing(text, at) else _shown(text[at])


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(character) == "Cs":
        return "\ufffd"
    if unicodedata.category(character) == "Cc" or code in _DECEIVING:
        return _named(character)
    return character


def _named(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _joins_nothing(text: str, at: int) -> bool:
    """Whether a joiner stands where it can only hide: beside ASCII, or at an end."""
    if ord(text[at]) not in _JOINERS:
        return False
    beside = text[max(0, at - 1) : at + 2]
    return len(beside) < 3 or beside[0].isascii() or beside[2].isascii()
