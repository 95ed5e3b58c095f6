"""Paths as a model writes them, and what it is told about them."""

import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from langchain_core.tools import ToolException

from signoff.graph.foreign import valid_text
from signoff.graph.foreign_files import NotRegular
from signoff.tools.filesystem.looks import look

DEEPEST = 100
"""How many folders a path may lead through."""

_MOST_CHARACTERS = 4_000
_MOST_COMPARED = 10_000
_MOST_NAMED = 5
_SEPARATORS = re.compile("[" + re.escape("/" + os.sep) + "]+")
_LINE_ENDS = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_REASONS = {
    errno.ENOENT: "There is no {path}; call list_files to see what is there.",
    errno.EISDIR: "{path} is a folder; pass the path of a file.",
    errno.ENOTDIR: "A part of {path} is not a folder; call list_files to see what is there.",
    errno.EEXIST: "A part of {path} is not a folder; call list_files to see what is there.",
    errno.ELOOP: "{path} goes through a link that changed or does not end; use the path of the real file.",
    errno.EACCES: "{path} may not be accessed: permission denied; choose another file.",
    errno.EPERM: "{path} may not be accessed: permission denied; choose another file.",
    errno.EROFS: "{path} is on a read-only file system; write somewhere else.",
    errno.ENAMETOOLONG: "The path {path} is too long; use a shorter one.",
    errno.ENOSPC: "{path} could not be written: the disk is full.",
}


def one_line(path: str) -> str:
    """`path` as valid text on one line."""
    return _LINE_ENDS.sub(lambda end: end[0].encode("unicode_escape").decode(), valid_text(path))


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
    except NotRegular as error:
        what = "a folder; pass the path of a file"
        if not os.path.isdir(error.filename):
            what = "not a regular file (a device, a pipe or the like); choose another"
        raise ToolException(f"{quote_path(path)} is {what}.") from error
    except OSError as error:
        reason = _REASONS.get(
            error.errno or 0, "{path} cannot be used: " + (error.strerror or "failed") + "."
        )
        raise ToolException(reason.format(path=quote_path(path))) from error


def steps(path: str, roots: tuple[str, ...]) -> list[str]:
    """The components of `path` below the workspace, with `..`, without `.` and empty ones.

    roots: the names of the workspace folder itself; an absolute path must begin with one. Raises
    ToolException for a path that cannot lie inside the workspace.
    """
    if not path.strip():
        raise ToolException("The path is empty; pass a path relative to the workspace, such as src/app.py.")
    if "\0" in path or re.search("[\ud800-\udfff]", path):
        raise ToolException(
            f"{quote_path(path)} contains characters that a path cannot contain; remove them."
        )
    names = [name for name in _SEPARATORS.split(_below(path, roots)) if name not in ("", ".")]
    if len(path) > _MOST_CHARACTERS or len(names) > DEEPEST:
        raise ToolException(
            f"The path {quote_path(path)} is too long; use one of at most {_MOST_CHARACTERS:,} characters "
            f"and {DEEPEST} folders."
        )
    return names


def _below(path: str, roots: tuple[str, ...]) -> str:
    absolute = os.path.isabs(path) or os.path.splitdrive(path)[0]
    if not absolute and path != "~" and not path.startswith("~/"):
        return path
    for root in roots:
        if path == root or path.startswith(root.rstrip(os.sep) + os.sep):
            return path[len(root) :]
    raise outside(path)


def alike(root: str, path: str) -> str | None:
    """The path below `root` that looks like the missing `path` and has the names of existing entries, as far
    as exactly one looks like a name: in another normal form, with another space, or with bytes that a listing
    shows as U+FFFD. None if there is no such name."""
    real, names = root, os.path.relpath(path, root).split(os.sep)
    for name in names:
        if not os.path.lexists(os.path.join(real, name)):
            name = _only_alike(real, name) or name
        real = os.path.join(real, name)
    return real if real != path else None


def _only_alike(folder: str, name: str) -> str | None:
    wanted = look(name)
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry in islice(entries, _MOST_COMPARED))
            matches = [each for each in names if look(one_line(each)) == wanted]
    except OSError:
        return None
    return matches[0] if len(matches) == 1 else None


def spelled(path: str) -> str:
    """`path` as a model can write it in JSON, or a sentence if it cannot."""
    if valid_text(path) != path:
        return f"{quote_path(path)}, whose name is not UTF-8: rename it with a command"
    return json.dumps(path)
