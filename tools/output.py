"""What a tool may return: valid text of bounded length, with the full text kept beside."""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from langchain_core.tools import ToolException
from pydantic import ValidationError

from signoff.tools.raised import gets_past

LIMIT = 20_000
"""Characters of one tool result that a model is shown by default."""

_UNSAFE = re.compile("[\ud800-\udfff\x00]")
_MOST = 2**63
# What a text says of itself that has lost its middle already.
_INCOMPLETE = re.compile(r"\[\.\.\. [\d,]+ (?:characters|bytes?)(?: of output)? left out")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def valid_text(text: str) -> str:
    """`text` with every lone surrogate and NUL replaced by U+FFFD.

    Encoders and databases refuse these characters, and a result has to be saved and sent.
    """
    return _UNSAFE.sub("\ufffd", text)


def words(value: Any) -> str:
    """`str(value)` as valid text; the name of its type when that raises."""
    try:
        return valid_text(str(value))
    except BaseException as error:
        # A `__str__` of a tool's own making may raise anything.
        if gets_past(error):
            raise
        return f"<{type(value).__name__}>"


def counted(number: int, noun: str) -> str:
    """`number` and `noun` in words: "1 line", "2 lines"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def valid_values(value: Any) -> Any:
    """A JSON-like value with every text in it made valid; the very same value when all are."""
    if isinstance(value, str):
        return valid_text(value) if _UNSAFE.search(value) else value
    if isinstance(value, Mapping):
        return {valid_values(key): valid_values(part) for key, part in value.items()}
    if isinstance(value, list):
        return [valid_values(part) for part in value]
    return value


def is_plain(value: Any, depth: int = 20) -> bool:
    """Whether this is a JSON-like value that can be stored as it is: valid texts, integers of 64 bits, and at
    most `depth` values inside each other."""
    kind = type(value)
    if kind is str:
        return _UNSAFE.search(value) is None
    if kind is int:
        return bool(-_MOST <= value < _MOST)
    # Loops, since this is asked of every reply, and a generator for each level costs more than the rest.
    if kind is dict and depth:
        for key, part in value.items():
            if type(key) is not str or not is_plain(key) or not is_plain(part, depth - 1):
                return False
        return True
    if kind is list and depth:
        for part in value:  # noqa: SIM110  as above
            if not is_plain(part, depth - 1):
                return False
        return True
    return value is None or kind in (bool, float)


def capped(text: str, *, limit: int = LIMIT, keep: Callable[[str], str] | None) -> str:
    """`text` as valid text of at most about `limit` characters.

    Longer text loses its middle. The sentence that stands there says how many characters were
    left out and where the full text is: `keep` stores it and returns the place. A `keep` that fails
    (OSError, ToolException) costs the copy, never the result.
    """
    text = valid_text(text)
    if len(text) <= limit:
        return text
    where = _where(text, keep)
    room = max(limit - len(_gap(len(text), where)), 0)
    head = text[: room - room // 2]
    tail = text[len(text) - room // 2 :]
    return head + _gap(len(text) - room, where) + tail


def _where(text: str, keep: Callable[[str], str] | None) -> str:
    if keep is None:
        return "the full text was not kept"
    try:
        place = valid_text(keep(text))
        return f"{'what was kept of it' if _INCOMPLETE.search(text) else 'the full text'} is in {place}"
    except (OSError, ToolException) as error:
        return f"the full text could not be kept: {valid_text(str(error))}"


def _gap(count: int, where: str) -> str:
    return f"\n[... {count} characters left out; {where} ...]\n"


def kept_name(name: str, text: str) -> str:
    """The file name under which `text` is kept: the same text under the same `name` is kept once."""
    label = _NOT_IN_NAMES.sub("_", name)[:60] or "output"
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"{label}-{digest}.txt"


def kept_in(folder: str | os.PathLike[str], name: str) -> Callable[[str], str]:
    """A `keep` for `capped` that writes into `folder` (made when missing) and returns the file's path.

    For a folder that nobody else can change. Inside a workspace use `Workspace.keep`, which does not
    follow links. Raises OSError when the file cannot be written.
    """

    def keep(text: str) -> str:
        target = Path(folder).resolve() / kept_name(name, text)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".signoff-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(valid_text(text).encode())
            os.replace(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
        return str(target)

    return keep


def explain(error: ValidationError) -> str:
    """A pydantic error as one sentence for the model: which argument, what is wrong."""
    parts = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()]
    return "; ".join(parts) + "."
