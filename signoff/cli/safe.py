"""Makes text harmless for a terminal, and words safe for a shell."""

import re
import shlex
import unicodedata
from collections.abc import Iterable

from rich.text import Text

# They reorder or hide what is on the screen, so that it reads otherwise than it is.
_DECEIVING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF}
_KEPT = "\n"


def plain(text: str) -> str:
    """`text` with every control character shown as a symbol (ESC as ␛), tabs as spaces.

    What a model or a tool wrote must not move the cursor, change colours or set the title of the terminal.
    """
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    if text.isprintable():
        return text
    return "".join(character if character in _KEPT else _shown(character) for character in text)


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


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(character) == "Cs":
        return "\ufffd"
    if unicodedata.category(character) == "Cc" or code in _DECEIVING:
        return f"⟨U+{code:04X}⟩"
    return character
