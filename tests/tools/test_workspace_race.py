"""A workspace stays closed and its files whole while something else changes them at the same time."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.tools.workspace import Workspace

SECRET = "the secret outside"


@contextmanager
def _repeated(action: Callable[[], object]) -> Iterator[None]:
    """Runs `action` again and again in a thread while the block runs."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def loop() -> None:
        try:
            while not ended.is_set():
                action()
        except BaseException as error:  # noqa: BLE001 - handed over to the test's own thread below
            failures.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert failures == []


def test_a_reader_never_sees_half_a_write(tmp_path: Path) -> None:
    texts = [b"a" * 300_000, b"b" * 300_000]
    workspace = Workspace(tmp_path)
    workspace.write("big.txt", texts[0])
    with _repeated(lambda: [workspace.write("big.txt", text) for text in texts]):
        seen = {workspace.read("big.txt") for _ in range(300)}
    assert seen <= set(texts)


def _swap_file(root: Path, outside: Path) -> None:
    """raced/data.txt is a file, a link to the secret, and a file again; it is never missing."""
    (root / "spare").symlink_to(outside / "secret.txt")
    os.replace(root / "spare", root / "raced" / "data.txt")
    (root / "spare").write_text("inside")
    os.replace(root / "spare", root / "raced" / "data.txt")


def _swap_folder(root: Path, outside: Path) -> None:
    """raced is a folder, then a link to the folder outside, then the folder again."""
    (root / "spare").symlink_to(outside)
    os.rename(root / "raced", root / "parked")
    _move(root / "spare", root / "raced")
    os.unlink(root / "raced")
    _move(root / "parked", root / "raced")


def _move(source: Path, target: Path) -> None:
    """Moves `source` to `target`, also when a write has just made a folder there."""
    while source.is_symlink() or source.exists():
        try:
            os.rename(source, target)
        except OSError:
            shutil.rmtree(target, ignore_errors=True)


@pytest.fixture
def close_race() -> Iterator[None]:
    """Lets threads take turns so often that comparing paths before opening them loses within the second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("close_race")
@pytest.mark.parametrize("swap", [_swap_file, _swap_folder])
@pytest.mark.parametrize("access", ["read", "write", "walk"])
@pytest.mark.sample(2)
def test_a_link_swapped_in_between_never_lets_anything_through(
    tmp_path: Path, swap: Callable[[Path, Path], None], access: str
) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    for folder, text in [(root / "raced", "inside"), (outside, SECRET)]:
        folder.mkdir(parents=True)
        (folder / "data.txt").write_text(text)
    (outside / "secret.txt").write_text(SECRET)
    workspace = Workspace(root)
    accesses: dict[str, Callable[[], object]] = {
        "read": lambda: workspace.read("raced/data.txt"),
        "write": lambda: workspace.write("raced/data.txt", b"written"),
        "walk": lambda: tuple(entry.path for entry in workspace.walk("raced")),
    }
    seen: list[object] = []
    refused = 0
    with _repeated(lambda: swap(root, outside)):
        # Both have to happen for the race to be a real one; a walk does not look at the file that is swapped.
        wanted = 0 if access == "walk" and swap is _swap_file else 1
        began = time.monotonic()
        while (waited := time.monotonic() - began) < 0.7 or (
            waited < 30 and not (seen and refused >= wanted)
        ):
            try:
                seen.append(accesses[access]())
            except ToolException:
                refused += 1
    assert {name: (outside / name).read_text() for name in os.listdir(outside)} == {
        "data.txt": SECRET,
        "secret.txt": SECRET,
    }
    assert set(seen) <= {b"inside", b"written", True, False, (), ("raced/data.txt",)}
    assert seen
    assert refused >= wanted
