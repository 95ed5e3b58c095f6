"""Installs what `make demo` needs, with one progress bar, and removes what `make clean-all` is to remove.

`python install.py UV` and `python install.py UV --remove`. It runs before anything is installed, so it needs
Python alone.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SYNC = ("sync", "--locked", "--inexact", "--no-default-groups", "--group", "demo", "--no-progress")
WEIGHTS = "qwen2.5-coder-1.5b-instruct-q4_k_m"
_DOWNLOADING = re.compile(r"^Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_DOWNLOADED = re.compile(r"^ Downloaded (\S+)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_MB, _GB = 1e6, 1e9
_WIDTH = 40
_KEPT = 12


def main(uv: str) -> int:
    folder = cache_folder(os.environ)
    total = sum(local_packages().values())
    print(
        f"Installing the core and the embedded model: at most {total / _GB:.1f} GB to download, once.\n"
        f"  packages    {ROOT / '.venv'}, linked from uv's cache: {cache_of(uv)}\n"
        f"  the model   {folder} ({total / _GB:.1f} GB more, joined from its packages at first use)\n"
        "  `make clean` removes the first, `make clean-all` the model and its packages from both caches.",
        flush=True,
    )
    begun, tail, bar = time.monotonic(), [], Bar(total)
    with subprocess.Popen(
        [uv, *SYNC], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            bar.read(line)
            tail = [*tail[1 - _KEPT :], line]
    if process.returncode:
        bar.end("failed")
        print("".join(tail), end="", file=sys.stderr)
        return process.returncode
    bar.end(f"{bar.done / _MB:,.0f} MB downloaded in {time.monotonic() - begun:.0f} s")
    return 0


class Bar:
    """One line that grows in a terminal; elsewhere only its end is written."""

    def __init__(self, total: float) -> None:
        self.total, self.done = total, 0.0
        self.live = sys.stdout.isatty()
        self._coming: dict[str, float] = {}
        self._draw("")

    def read(self, line: str) -> None:
        """A line that uv has written: it names what it begins to fetch, with the size, and what it has."""
        if found := _DOWNLOADING.match(line):
            self._coming[found[1]] = float(found[2]) * _UNITS[found[3]]
        elif found := _DOWNLOADED.match(line):
            self.done += self._coming.pop(found[1], 0.0)
        self._draw(f"{self.done / _MB:,.0f} MB")

    def end(self, said: str) -> None:
        self._draw(said, whole=said != "failed")
        if self.live:
            print(flush=True)
        else:
            print(f"Installed: {said}", flush=True)

    def _draw(self, said: str, whole: bool = False) -> None:
        if self.live:
            full = _WIDTH if whole else int(_WIDTH * min(self.done / self.total, 1))
            print(f"\r\033[K{'━' * full}{'╌' * (_WIDTH - full)} {said}", end="", flush=True)


def local_packages() -> dict[str, int]:
    """The packages of the embedded model, each with the bytes of its file; of several files the largest."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    known: dict[str, Mapping[str, Any]] = {package["name"]: package for package in lock}
    names = [each["name"] for each in known["signoff"]["optional-dependencies"]["local"]]
    return {name: max(wheel["size"] for wheel in known[name]["wheels"]) for name in names}


def cache_of(uv: str) -> str:
    return subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()


def cache_folder(env: Mapping[str, str], system: str = sys.platform) -> Path:
    """Where Signoff keeps the model; the same as in `signoff.models.local.weights`."""
    if given := env.get("SIGNOFF_CACHE"):
        return Path(given).expanduser()
    if system == "darwin":
        return Path.home() / "Library" / "Caches" / "signoff"
    given = env.get("XDG_CACHE_HOME", "").strip()
    return (Path(given) if given else Path.home() / ".cache") / "signoff"


def removed(uv: str) -> Iterator[str]:
    """Removes the model from both caches; says what, line by line. Other files there are left alone."""
    for file in sorted(cache_folder(os.environ).glob(f"{WEIGHTS}.*")):
        yield f"removed {file} ({file.stat().st_size / _MB:,.0f} MB)"
        file.unlink()
    if not shutil.which(uv):
        yield "uv is not here, so its cache stays as it is; `uv cache clean` empties it."
        return
    clean = subprocess.run(
        [uv, "cache", "clean", *local_packages()], capture_output=True, text=True, check=False
    )
    yield (clean.stderr or clean.stdout).strip().splitlines()[-1]


if __name__ == "__main__":
    if "--remove" in sys.argv:
        for said in removed(sys.argv[1]):
            print(said)
    else:
        sys.exit(main(sys.argv[1]))
