"""What the embedded model has read of its prompt, kept between runs: what is kept, for whom, and how much."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from signoff.models.local.install import server_version
from signoff.models.local.prefix import (
    SWITCH,
    drop,
    file_name_of,
    half_name,
    is_on,
    make_folder,
    prefix_folder,
    take,
    trim,
    used,
)
from signoff.models.local.server import progress_in
from signoff.models.local.weights import missing_packages, weights_path

MADE_BY = {"weights": "abc", "server": "1.0", "context": 8192, "template": "def"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    make_folder()
    return prefix_folder()


def write(folder: Path, name: str, size: int = 10, age: float = 0) -> str:
    (folder / name).write_bytes(bytes(size))
    moment = time.time() - age
    os.utime(folder / name, (moment, moment))
    return name


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("value", "on"), [("", True), ("on", True), ("off", False), ("OFF ", False), ("0", False), ("no", False)]
)
def test_it_can_be_switched_off(value: str, on: bool) -> None:
    assert is_on({SWITCH: value}) is on
    assert is_on({}) is True


@pytest.mark.parametrize("changed", MADE_BY)
def test_another_model_server_context_or_template_has_another_file(changed: str) -> None:
    assert file_name_of("system", MADE_BY) == file_name_of("system", dict(reversed(MADE_BY.items())))
    assert file_name_of("system", MADE_BY) != file_name_of("system", {**MADE_BY, changed: "other"})
    assert file_name_of("system", MADE_BY) != file_name_of("system.", MADE_BY)


def test_the_folder_is_the_users_own_and_beside_the_weights(folder: Path) -> None:
    assert folder.parent == weights_path().parent
    assert folder.stat().st_mode & 0o077 == 0


def test_a_file_counts_when_it_is_whole(folder: Path) -> None:
    """Two processes that write the same one have each a name of their own until then."""
    name = file_name_of("system", MADE_BY)
    first, second = half_name(name), half_name(name)
    assert len({first, second, name}) == 3
    write(folder, first)
    assert name not in names(folder)
    take(first, name)
    write(folder, second, size=20)
    take(second, name)
    assert names(folder) == {name}
    assert (folder / name).stat().st_size == 20
    drop(name)
    drop(name)
    assert names(folder) == set()


@pytest.mark.parametrize(
    ("most", "left"),
    [(100, {"a", "b", "c"}), (25, {"b", "c"}), (15, {"c"}), (0, {"c"})],
)
def test_the_files_used_longest_ago_go_first_and_the_new_one_stays(
    folder: Path, most: int, left: set[str]
) -> None:
    # "a" is the oldest by its making, and so by its use.
    for age, name in enumerate("cba"):
        write(folder, f"{name}.slot", age=age * 60)
    write(folder, "weights.gguf", size=1000, age=9999)
    trim(folder, "c.slot", most)
    assert names(folder) == {*(f"{name}.slot" for name in left), "weights.gguf"}


def test_loading_a_file_counts_as_a_use(folder: Path) -> None:
    write(folder, "a.slot", age=100)
    write(folder, "b.slot", age=50)
    used("a.slot")
    write(folder, "c.slot")
    trim(folder, "c.slot", 25)
    assert names(folder) == {"a.slot", "c.slot"}


def test_what_a_killed_process_left_half_written_goes_and_what_is_being_written_stays(folder: Path) -> None:
    write(folder, "a.slot.1-ff.half", age=2 * 3600)
    write(folder, "b.slot.2-ff.half", age=10)
    trim(folder, "c.slot")
    assert names(folder) == {"b.slot.2-ff.half"}


@pytest.mark.parametrize(
    ("chunk", "found"),
    [
        ({"prompt_progress": {"total": 10, "cache": 2, "processed": 4, "time_ms": 1}}, (4, 10)),
        ({"prompt_progress": None}, None),
        ({"choices": []}, None),
    ],
)
def test_progress_is_found_in_a_piece_of_the_stream(chunk: dict[str, Any], found: object) -> None:
    assert progress_in(chunk) == found


PROGRAM = """
import sys, time
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, SystemMessage
from signoff.models.local import WORKED_EXAMPLES, local_model

class Told(BaseCallbackHandler):
    told = []
    def on_custom_event(self, name, data, **_):
        self.told.append(f"{name}:{data['done']}/{data['total']}")

with local_model(max_tokens=8) as model:
    model.start()
    begun = time.monotonic()
    system = WORKED_EXAMPLES[: int(sys.argv[2])]
    messages = [SystemMessage(system), HumanMessage(sys.argv[1])]
    for chunk in model.stream(messages, {"callbacks": [Told()]}):
        if chunk.text:
            print(time.monotonic() - begun, *Told.told)
            break
"""


def first_token(task: str, length: int = 1_000_000, *, env: dict[str, str]) -> tuple[float, list[str]]:
    """Seconds to the first token in a process of its own, and what was told of reading. length: the most
    characters of the system message."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, task, str(length)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, *told = done.stdout.split()
    return float(seconds), told


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    server_version() is None or bool(missing_packages()) or not weights_path().is_file(),
    reason="the extra signoff[local] is not installed",
)
def test_the_second_run_waits_a_tenth_for_its_first_token(tmp_path: Path) -> None:
    weights = weights_path()
    for file in (weights, weights.with_suffix(".verified.json")):
        (tmp_path / file.name).symlink_to(file)
    cache = {"SIGNOFF_CACHE": str(tmp_path)}
    first, told = first_token("Change the title in a.txt.", env=cache)
    assert told[0].startswith("signoff_reading:")
    assert len(told) > 3, "it is told while it reads"
    (kept,) = (tmp_path / "prompts").iterdir()
    assert kept.suffix == ".slot"
    again, _ = first_token("Which files are there?", env=cache)
    assert again <= first / 10
    kept.unlink()
    # From here on only a part of the system message is read, to save time.
    first_token("Which files are there?", 1200, env={**cache, SWITCH: "off"})
    assert list((tmp_path / "prompts").iterdir()) == []
    first_token("Which files are there?", 1200, env=cache)
    (kept,) = (tmp_path / "prompts").iterdir()
    kept.write_bytes(b"damaged")
    mended, _ = first_token("Which files are there?", 1200, env=cache)
    assert mended > again
    assert kept.stat().st_size > 1_000_000
