"""Paths as a model writes them, and what it is told about them."""

import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from langchain_core.tools import ToolException

from signoff.graph.foreign import valid_text
from signoff.tools.filesystem.looks import LINE_END, look

DEEPEST = 100
"""How many folders a path may lead through."""

_MOST_CHARACTERS = 4_000
_MOST_COMPARED = 10_000
_MOST_NAMED = 5
# Python gives bytes that are not UTF-8 as U+DC80 to U+DCFF.
_NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_REASONS = {
    errno.ENOENT: "There is no {path}; call list_files to see what is there.",
    errno.EISDIR: "{path} is a folder; pass the path of a file.",
    errno.ENOTDIR: "A part of {path} is not a folder; call list_files to see what is there.",
    errno.EEXIST: "A part of {path} is not a folder; call list_files to see what is there.",
    errno.ELOOP: "{path} goes through a link that changed or does not end; use the path of the real file.",
}


def one_line(path: str) -> str:
    """`path` as valid text on one line."""
    return str(LINE_END.sub(lambda end: end[0].encode("unicode_escape").decode(), valid_text(path)))


def quote_path(path: str) -> str:
    """`path` for a message: valid text, on one line and short."""
    text = one_line(path)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-80:]}"


def few(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def outside(path: str) -> ToolException:
    """The error for a path outside the workspace."""
    return ToolException(
        f"{quote_path(path)} is outside the workspace; use a path relative to the workspace, "
        "such as src/app.py."
    )


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns an OSError into a ToolException that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        reason = _REASONS.get(error.errno or 0, f"{{path}} cannot be used: {why}; choose another path.")
        raise ToolException(reason.format(path=quote_path(path))) from error


def steps(path: str, roots: tuple[str, ...]) -> list[str]:
    """The components of `path` below the workspace, with `..`, without `.` and empty ones.

    roots: the names of the workspace folder itself; an absolute path must begin with one. Raises
    ToolException for a path that cannot lie inside the workspace.
    """
    if not path.strip():
        raise ToolException("The path is empty; pass a path relative to the workspace, such as src/app.py.")
    if "\0" in path or _NO_BYTES.search(path):
        raise ToolException(f"{quote_path(path)} holds what a path cannot contain; remove it.")
    names = [name for name in _below(path, roots).split("/") if name not in ("", ".")]
    if len(path) > _MOST_CHARACTERS or len(names) > DEEPEST:
        raise ToolException(
            f"The path {quote_path(path)} is too long; use one of at most {_MOST_CHARACTERS:,} characters "
            f"and {DEEPEST} folders."
        )
    return names


def _below(path: str, roots: tuple[str, ...]) -> str:
    if not os.path.isabs(path) and path != "~" and not path.startswith("~/"):
        return path
    for root in roots:
        if path == root or path.startswith(root + "/"):
            return path[len(root) :]
    raise outside(path)


def alike(root: str, path: str) -> str | None:
    """The path below `root` that looks like the missing `path` and has the names of existing entries, as far
    as exactly one looks like a name: in another normal form, with another space, or with bytes that a listing
    shows as U+FFFD. None if there is no such name."""
    real = root
    for name in os.path.relpath(path, root).split(os.sep):
        exact = os.path.join(real, name)
        real = exact if os.path.lexists(exact) else os.path.join(real, _only_alike(real, name) or name)
    return real if real != path else None


def _only_alike(folder: str, name: str) -> str | None:
    wanted, names = look(name), list[str]()
    with suppress(OSError), os.scandir(folder) as entries:
        first = (entry.name for entry in islice(entries, _MOST_COMPARED))
        names = [each for each in first if look(one_line(each)) == wanted]
    return names[0] if len(names) == 1 else None


def spelled(path: str) -> str:
    """`path` as a model can write it in JSON, or a sentence if it cannot."""
    if valid_text(path) != path:
        return f"{quote_path(path)}, whose name is not UTF-8: rename it with a command"
    return json.dumps(path)
