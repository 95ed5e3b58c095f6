"""Undoes what a file tool has written: records the previous content of a file, and restores it.

Only the part that differs is recorded, up to a limit. A file that has changed since is left alone.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

from langchain_core.tools import ToolException

from signoff.tools.workspace import Workspace

MOST_KEPT = 200_000
"""The maximum number of replaced characters that are kept with the call."""

MOST_BYTES = 4_000_000
"""The maximum size of a file, before and after, for which this is recorded."""


class FileBefore(TypedDict):
    """What a call has changed in a file, as the artifact of its result.

    after: the hash of the written file. A created file needs no more. For a changed file, the part that
    differs: at: where it begins; new: its current characters; old: its previous content, absent if it was too
    long to keep.
    """

    after: str
    at: NotRequired[int]
    new: NotRequired[int]
    old: NotRequired[str]


def recorded(
    run: Callable[..., str], workspace: Workspace, path: str, **args: Any
) -> tuple[str, FileBefore | None]:
    """The result of `run`, a call that writes the file at `path`, with the record for its undo; None if a
    file is too large."""
    try:
        before: str | None = _text(workspace.read(path, MOST_BYTES))
    except ToolException as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            # If it cannot be written either, the call itself reports it.
            return run(workspace, path, **args), None
        before = None
    said = run(workspace, path, **args)
    with suppress(ToolException):
        return said, _difference(before, workspace.read(path, MOST_BYTES))
    return said, None


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _difference(before: str | None, written: bytes) -> FileBefore:
    found, after = FileBefore(after=_hash(written)), _text(written)
    if before is None:
        return found
    last, now_last, most = len(before), len(after), min(len(before), len(after))
    at = _common(most, lambda a, b: before[a:b] == after[a:b])
    end = _common(most - at, lambda a, b: before[last - b : last - a] == after[now_last - b : now_last - a])
    old = before[at : last - end]
    found |= {"at": at, "new": now_last - end - at}
    return {**found, "old": old} if len(old) <= MOST_KEPT else found


def _common(most: int, same: Callable[[int, int], bool]) -> int:
    """How many characters two texts have in common from one end, at most `most`. same: whether they agree
    between two distances from that end."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def restore(workspace: Workspace, args: dict[str, Any], result: str, artifact: FileBefore | None) -> str:
    """Undoes the call with these arguments, and returns what it did.

    Raises ToolException, with the file unchanged, if it has changed since, or its previous content is
    unknown.
    """
    path = str(args["path"])
    name = workspace.relative(path)
    if artifact is None:
        raise ToolException(f"What was in {name} before is not recorded with this call.")
    data = workspace.read(path, MOST_BYTES)
    if _hash(data) != artifact["after"]:
        raise ToolException(f"{name} has changed since, and was left as it is.")
    if "at" not in artifact or "new" not in artifact:
        workspace.remove(path)
        return f"Removed {name}, which it had created."
    if "old" not in artifact:
        raise ToolException(
            f"What was in {name} before was more than {MOST_KEPT:,} characters, and is not kept."
        )
    text, at = _text(data), artifact["at"]
    restored = text[:at] + artifact["old"] + text[at + artifact["new"] :]
    workspace.write(path, restored.encode(errors="surrogateescape"))
    return f"Restored {name}."
