"""Resolves a path that a model wrote to a place that is certainly inside the workspace.

Checking the path and then opening it would leave a gap in which it can be replaced by a link. So the path is
walked one component at a time, each opened relative to the folder before it and never through a link; a link
is read and its target walked in the same way, beneath the same root.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from langchain_core.tools import ToolException

from signoff.graph.foreign import valid_text

RACE_FREE = hasattr(os, "O_NOFOLLOW") and {os.open, os.mkdir, os.readlink, os.rename, os.stat} <= (
    os.supports_dir_fd
)
"""Whether this platform can open files relative to a folder; if not (Windows), real paths are compared."""

FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)

_MOST_LINKS = 20
_MOST_CHARACTERS = 4_000
_SEPARATORS = re.compile("[" + re.escape("/" + os.sep) + "]+")
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


@dataclass(frozen=True)
class Place:
    """A name in an opened folder, not a link as far as is known.

    folder: its file descriptor; None where the platform cannot open relative to a folder, and `name` is then
    a full path.
    """

    folder: int | None
    name: str


def quote_path(path: str) -> str:
    """Returns `path` for a message: valid text, on one line and short."""
    text = valid_text(path).replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= 200 else f"{text[:100]}...{text[-80:]}"


def outside(path: str) -> ToolException:
    """Returns the error for a path outside the workspace."""
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
        reason = _REASONS.get(
            error.errno or 0, "{path} cannot be used: " + (error.strerror or "failed") + "."
        )
        raise ToolException(reason.format(path=quote_path(path))) from error


def steps(path: str, roots: tuple[str, ...]) -> list[str]:
    """Returns the components of `path` below the workspace, with `..`, without `.` and empty ones.

    roots: the names of the workspace folder itself; an absolute path must begin with one. Raises
    ToolException for a path that cannot lie inside the workspace.
    """
    if not path.strip():
        raise ToolException("The path is empty; pass a path relative to the workspace, such as src/app.py.")
    if valid_text(path) != path:
        raise ToolException(
            f"{quote_path(path)} contains characters that a path cannot contain; remove them."
        )
    if len(path) > _MOST_CHARACTERS:
        raise ToolException(f"The path {quote_path(path)} is too long; use a shorter one.")
    return [step for step in _SEPARATORS.split(_below(path, roots)) if step not in ("", ".")]


def _below(path: str, roots: tuple[str, ...]) -> str:
    absolute = os.path.isabs(path) or os.path.splitdrive(path)[0]
    if not absolute and path != "~" and not path.startswith("~/"):
        return path
    for root in roots:
        if path == root or path.startswith(root.rstrip(os.sep) + os.sep):
            return path[len(root) :]
    raise outside(path)


@contextmanager
def beneath(
    roots: tuple[str, ...],
    path: str,
    *,
    create: bool = False,
    check: Callable[[str], None] = lambda real: None,
) -> Iterator[Place]:
    """Yields the place of `path`, with every link on the way resolved inside the workspace.

    roots: the first is the real path of the workspace folder. create: make missing parents. check: called
    with the real path below the workspace before anything is created; may raise ToolException. An OSError,
    also one raised in the `with` block, becomes a ToolException.
    """
    todo = steps(path, roots)
    with explained(path):
        if not RACE_FREE:
            yield _compared(roots[0], path, todo, create, check)
            return
        opened = [_root(roots[0])]
        try:
            yield _walked(opened, roots, path, todo, create, check)
        finally:
            for folder in opened:
                os.close(folder)


def _root(path: str) -> int:
    try:
        return os.open(path, FOLDER_FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolException("The workspace folder no longer exists; ask the user to restore it.") from None


def _walked(
    opened: list[int],
    roots: tuple[str, ...],
    path: str,
    todo: list[str],
    create: bool,
    check: Callable[[str], None],
) -> Place:
    """Walks `todo` from the root in `opened`, the list of the folders that are open."""
    todo = todo[::-1]
    # The names of the opened folders, none of which is a link: together they form the real path.
    names: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            if len(opened) == 1:
                raise outside(path)
            os.close(opened.pop())
            names.pop()
            continue
        target = _link_target(opened[-1], name)
        if target is None:
            check("/".join([*names, name]))
            if not todo:
                return Place(opened[-1], name)
            opened.append(_folder(opened[-1], name, create))
            names.append(name)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if os.path.isabs(target):
            target = _target_below(target, roots, path)
            names.clear()
            while len(opened) > 1:
                os.close(opened.pop())
        todo.extend(reversed([step for step in target.split("/") if step not in ("", ".")]))
    check("/".join(names) or ".")
    return Place(opened[-1], ".")


def _target_below(target: str, roots: tuple[str, ...], path: str) -> str:
    try:
        return _below(target, roots)
    except ToolException:
        raise outside(path) from None


def _link_target(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        # EINVAL: not a link. ENOENT: it does not exist; opening it then fails or creates it.
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _folder(parent: int, name: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    return os.open(name, FOLDER_FLAGS, dir_fd=parent)


def _compared(root: str, path: str, todo: list[str], create: bool, check: Callable[[str], None]) -> Place:
    real = os.path.realpath(os.path.join(root, *todo))
    if real != root and not real.startswith(root.rstrip(os.sep) + os.sep):
        raise outside(path)
    check(os.path.relpath(real, root).replace(os.sep, "/"))
    if create:
        os.makedirs(os.path.dirname(real), exist_ok=True)
    return Place(None, real)
