"""The weights of the embedded model: joined, verified, and put right when they are not."""

import hashlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from signoff.cli.model import app
from signoff.graph.errors import SetupError
from signoff.models.local import install as install_module
from signoff.models.local import weights as weights_module
from signoff.models.local.install import install_command, packages
from signoff.models.local.weights import (
    WeightsPart,
    WeightsSpec,
    WeightsState,
    cache_folder,
    ensure_weights,
    missing_packages,
    weights_state,
)

CONTENT = [b"first " * 1000, b"second " * 500, b"third"]
SPEC = WeightsSpec(
    file_name="tiny.gguf",
    parts=tuple(WeightsPart(f"tiny-part{n}", "1.0", f"tiny_part{n}/data/part{n}.bin") for n in range(1, 4)),
    size=sum(map(len, CONTENT)),
    sha256=hashlib.sha256(b"".join(CONTENT)).hexdigest(),
)


def add_package(site: Path, part: WeightsPart, content: bytes, version: str = "1.0") -> None:
    """An installed package as pip leaves it, whose code must never run."""
    info = site / f"{part.package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {version}\n")
    file = site / part.file
    file.parent.mkdir(parents=True)
    (file.parents[1] / "__init__.py").write_text("raise RuntimeError('imported')\n")
    file.write_bytes(content)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for part, content in zip(SPEC.parts, CONTENT, strict=True):
        add_package(folder, part, content)
    return folder


def ensured(site: Path, cache: Path) -> tuple[Path, list[str]]:
    stages: list[str] = []

    def note(stage: str, done: int, total: int) -> None:
        assert 0 <= done <= total == SPEC.size
        if stage not in stages:
            stages.append(stage)

    return ensure_weights(note, SPEC, cache, [str(site)]), stages


def test_parts_are_joined_in_order_once_and_then_only_looked_at(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path, stages = ensured(site, cache)
    assert path.read_bytes() == b"".join(CONTENT)
    assert stages == ["join"]
    assert weights_state(SPEC, cache) is WeightsState.VERIFIED
    assert ensured(site, cache) == (path, [])


def test_a_joined_file_serves_when_the_packages_are_gone(site: Path, tmp_path: Path) -> None:
    path, _ = ensured(site, tmp_path / "cache")
    assert ensured(tmp_path, tmp_path / "cache") == (path, [])


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def damaged(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    os.utime(path, ns=(1, 1))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def removed(path: Path) -> None:
    path.unlink()


def unstamped(path: Path) -> None:
    path.with_suffix(".verified.json").write_text('{"sha')


@pytest.mark.parametrize(
    ("harm", "stages"),
    [
        (touched, ["verify"]),
        (unstamped, ["verify"]),
        (damaged, ["verify", "join"]),
        (shortened, ["join"]),
        (removed, ["join"]),
    ],
)
def test_a_changed_file_is_verified_again_and_joined_again_when_it_is_wrong(
    site: Path, tmp_path: Path, harm: Any, stages: list[str]
) -> None:
    path, _ = ensured(site, tmp_path / "cache")
    harm(path)
    assert weights_state(SPEC, tmp_path / "cache") is not WeightsState.VERIFIED
    assert ensured(site, tmp_path / "cache") == (path, stages)
    assert path.read_bytes() == b"".join(CONTENT)


def test_a_half_joined_file_of_a_killed_process_is_replaced(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.half").write_bytes(b"half")
    ensured(site, cache)
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.lock", "tiny.verified.json"]


def test_two_that_start_at_once_join_once(site: Path, tmp_path: Path) -> None:
    found: list[tuple[Path, list[str]]] = []
    threads = [
        threading.Thread(target=lambda: found.append(ensured(site, tmp_path / "cache"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stages for _, stages in found) == [[], [], [], ["join"]]


def test_missing_packages_are_named_with_the_command_that_installs_them(site: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert missing_packages(SPEC, [str(empty)]) == ["tiny-part1", "tiny-part2", "tiny-part3"]
    with pytest.raises(SetupError, match=r"3 of 3 packages.*signoff model install"):
        ensured(empty, tmp_path / "cache")


def test_another_version_of_a_part_counts_as_missing(tmp_path: Path) -> None:
    add_package(tmp_path, SPEC.parts[0], CONTENT[0], version="2.0")
    assert "tiny-part1" in missing_packages(SPEC, [str(tmp_path)])


@pytest.mark.parametrize("content", [b"other", b"third!", b""])
def test_parts_that_do_not_make_the_official_file_are_refused_and_leave_nothing(
    site: Path, tmp_path: Path, content: bytes
) -> None:
    (site / SPEC.parts[2].file).write_bytes(content)
    with pytest.raises(SetupError, match="signoff model install --reinstall"):
        ensured(site, tmp_path / "cache")
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["tiny.lock"]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(site: Path, tmp_path: Path) -> None:
    huge = WeightsSpec(SPEC.file_name, SPEC.parts, size=10**18, sha256=SPEC.sha256)
    with pytest.raises(SetupError, match=r"needs 1000000000\.0 GB free in .*SIGNOFF_CACHE"):
        ensure_weights(spec=huge, folder=tmp_path / "cache", search_path=[str(site)])
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["tiny.lock"]


def test_a_cache_that_cannot_be_written_is_said_with_the_way_out(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.gguf").mkdir()  # a folder in the way of the file
    with pytest.raises(SetupError, match=r"cannot be stored in .*SIGNOFF_CACHE"):
        ensured(site, cache)


def test_the_cache_folder_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SIGNOFF_CACHE")
    assert cache_folder().name == "signoff"


def test_every_package_of_the_local_extra_is_pinned_by_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {part.package for part in weights_module.QWEN_CODER.parts} | {"xllamacpp"}
    assert set(packages()) == needed
    assert len(packages()) == len(needed)
    # Where there is no pip; and neither a program nor a Python of the current folder is started.
    project, programs = tmp_path / "project", tmp_path / "programs"
    for folder in (project, programs):
        folder.mkdir()
        (folder / "uv").touch(mode=0o755)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", os.pathsep.join((".", str(project), str(programs))))
    monkeypatch.setattr(install_module, "find_spec", lambda name: None)
    assert install_command()[0] == str(programs / "uv")
    assert sys.executable not in install_command()
    monkeypatch.setattr(install_module, "find_spec", lambda name: name)
    command = install_command()
    assert {"--require-hashes", "--no-deps"} < set(command)
    assert Path(command[0]) == Path(sys.executable).resolve()
    assert command != install_command(reinstall=True)


def test_info_tells_what_is_there_without_loading_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    answer = CliRunner().invoke(app, ["info", "--json"])
    known = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert (known["weights"], known["size"], known["ready"]) == ("absent", 0, False)
    assert "signoff model install" in known["next_step"]
    assert "Apache-2.0" in known["licence"]
    assert "anonymous" in known["origin"]
    assert "sha256" in CliRunner().invoke(app, ["info"]).stdout
