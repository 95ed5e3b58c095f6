"""The embedded model's prompt cache: the processed prefix of the prompt, stored between runs.

Processing the system prompt and the tools takes longer than answering. So the first run saves the server's
state for them in a file, which later runs load. A file contains nothing of a task: only the part of the
prompt before the first message. Its name is a hash of everything that it depends on, so that another model,
server, template or prompt has another file. SIGNOFF_PROMPT_CACHE=off saves and loads nothing.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from signoff.models.local.weights import cache_folder

SWITCH = "SIGNOFF_PROMPT_CACHE"
MOST_BYTES = 512 * 1024 * 1024
"""The size of all files together: about 18,000 tokens of 28 KB each. The file used last is always kept."""
_SUFFIX = ".slot"
_HALF = ".half"
_LEFT_BEHIND_SECONDS = 3600.0
_OFF = ("off", "0", "no", "false", "none")


def is_on(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the cache is enabled."""
    return env.get(SWITCH, "").strip().lower() not in _OFF


def prefix_folder() -> Path:
    """Returns the folder of the files, next to the weights."""
    return cache_folder() / "prompts"


def file_name_of(prefix: str, made_by: Mapping[str, object]) -> str:
    """Returns the file name for `prefix` with this model, server and context."""
    key = json.dumps({**made_by, "prefix": prefix}, sort_keys=True)
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:32] + _SUFFIX


def half_name(name: str) -> str:
    """Returns a temporary name that only this process writes; the complete file is renamed to `name`."""
    return f"{name}.{os.getpid()}-{secrets.token_hex(4)}{_HALF}"


def make_folder() -> None:
    """Creates the folder. The prompt is private: only the user may read what is stored of it."""
    prefix_folder().mkdir(parents=True, exist_ok=True, mode=0o700)


def take(half: str, name: str) -> None:
    """Renames a complete file to the one that is loaded, and removes the least recently used files."""
    folder = prefix_folder()
    (folder / half).replace(folder / name)
    trim(folder, name)


def used(name: str) -> None:
    """Marks a file as the most recently used."""
    with suppress(OSError):
        os.utime(prefix_folder() / name)


def drop(name: str) -> None:
    """Removes a file that cannot be loaded or is incomplete."""
    with suppress(OSError):
        (prefix_folder() / name).unlink(missing_ok=True)


def trim(folder: Path, kept: str, most: int = MOST_BYTES) -> None:
    """Removes files beyond the size limit, and incomplete files of killed processes."""
    files: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with suppress(OSError):
            status = path.stat()
            if path.name.endswith(_HALF):
                if time.time() - status.st_mtime > _LEFT_BEHIND_SECONDS:
                    path.unlink(missing_ok=True)
            elif path.name.endswith(_SUFFIX):
                files.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(files, key=lambda file: (file[2].name != kept, -file[0])):
        total += size
        if total > most and path.name != kept:
            with suppress(OSError):
                path.unlink(missing_ok=True)
