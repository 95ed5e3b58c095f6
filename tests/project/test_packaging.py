"""What is built and installed: one package called signoff with all its files, and links that work."""

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any
from zipfile import ZipFile

import pytest
from markdown_it import MarkdownIt

from tests.support.sources import REPOSITORY

FOLDERS = ("graph", "nodes", "tools")
SETTINGS: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS: dict[str, Any] = SETTINGS["tool"]["setuptools"]
EXTRAS = ["", *SETTINGS["project"]["optional-dependencies"]]
built_for_real = pytest.mark.thorough


def contents() -> set[str]:
    """Every file that belongs into the package, as its path when installed."""
    files = set()
    for top in ("signoff", *FOLDERS):
        for path in (REPOSITORY / top).rglob("*"):
            linked = path.resolve() != path.absolute()
            if path.is_file() and not linked and "__pycache__" not in path.parts:
                inside = path.relative_to(REPOSITORY)
                files.add((inside if top == "signoff" else "signoff" / inside).as_posix())
    return files


CONTENTS = contents()


def test_every_folder_with_python_in_it_is_listed_as_a_package() -> None:
    folders = {Path(name).parent for name in CONTENTS if name.endswith(".py")}
    assert set(SETUPTOOLS["packages"]) == {".".join(folder.parts) for folder in folders}


# The placeholder that a release replaces.
ADDRESS: str = runpy.run_path(str(REPOSITORY / "setup.py"))["ADDRESS"]


def test_no_released_version_is_built_with_a_placeholder_for_its_address(tmp_path: Path) -> None:
    setup = (REPOSITORY / "setup.py").read_text("utf-8").replace(ADDRESS, "https://a.example/b")
    (tmp_path / "setup.py").write_text(setup)
    settings = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    version = SETTINGS["project"]["version"]
    (tmp_path / "pyproject.toml").write_text(settings.replace(f'version = "{version}"', 'version = "9.0.0"'))
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "ADDRESS" in done.stderr


# Built for real, as for a package index.


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=REPOSITORY / ".tools" / "bin")
    assert found, "`make` installs uv"
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    # From a copy, since building writes into the folder.
    copy = tmp_path_factory.mktemp("source") / "signoff"
    unwanted = ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    copytree(REPOSITORY, copy, symlinks=True, ignore=unwanted)
    for name in (".ci", ".github"):
        copytree(REPOSITORY / name, copy / name)
    path = f"{Path(uv()).parent}{os.pathsep}{os.environ['PATH']}"
    said = run(sys.executable, "-m", "build", "--installer", "uv", cwd=copy, PATH=path)
    assert "Warning" not in said
    sdist, wheel = sorted((copy / "dist").iterdir(), key=lambda file: file.suffix)
    return sdist, wheel


@built_for_real
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with ZipFile(built[1]) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == CONTENTS


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return BytesParser().parsebytes(archive.read(name))


@built_for_real
def test_links_and_pictures_of_the_long_description_work_outside_the_repository(
    built: tuple[Path, Path],
) -> None:
    described = metadata(built[1])
    assert described["License-Expression"] == "MIT"
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(str(described.get_payload()))
    targets = [
        part.partition('"')[0].split()[0]
        for attribute in ("href", "src", "srcset")
        for part in html.split(f' {attribute}="')[1:]
    ]
    outside = [target for target in targets if not target.startswith("#")]
    assert [target for target in outside if not target.startswith("https://")] == []
    own = [target for target in outside if target.startswith(ADDRESS)]
    # …/blob/TAG/PATH or …/raw/TAG/PATH
    paths = [target.removeprefix(ADDRESS).split("/", 3)[3].partition("#")[0] for target in own]
    assert len(paths) > 5
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


@built_for_real
@pytest.mark.timeout(900)
def test_the_tests_in_the_sdist_are_all_found_and_run_on_its_own_source(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(built[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    where = "import signoff.graph.rules as rules; print(rules.__file__)"
    assert run(sys.executable, "-c", where, cwd=unpacked).strip() == str(
        unpacked / "signoff" / "graph" / "rules.py"
    )
    pytest_there = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    collected = run(*pytest_there, "--collect-only", "-m", "not thorough", "tests", cwd=unpacked)
    assert "error" not in collected.splitlines()[-1]
    few = ("tests/graph/test_rules.py", "tests/project/test_house.py")
    assert " passed" in run(*pytest_there, *few, cwd=unpacked).splitlines()[-1]


@built_for_real
@pytest.mark.parametrize(("kind", "extra"), [("sdist", "web"), *(("wheel", extra) for extra in EXTRAS)])
def test_each_extra_installs_into_an_empty_environment(
    kind: str, extra: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    place = tmp_path / "environment"
    run(uv(), "venv", "--quiet", "--python", sys.executable, str(place), cwd=tmp_path)
    file = built[0 if kind == "sdist" else 1]
    what = f"signoff[{extra}] @ {file.as_uri()}" if extra else str(file)
    # Linked from uv's cache, since the weights of `local` are a gigabyte.
    install = (uv(), "pip", "install", "--quiet", "--link-mode", "symlink", "--python", str(place))
    run(*install, what, cwd=tmp_path)
    assert "Usage: signoff" in run(place / "bin" / "signoff", "--help", cwd=tmp_path, NO_COLOR="1")
    (packages,) = (place / "lib").glob("python*/site-packages")
    assert not {path.stem for path in packages.iterdir()} & {*FOLDERS, "tests", "benchmarks", "examples"}
    hint = "from signoff.graph.inside.installing import install_hint as f; print(f('web'))"
    told = run(place / "bin" / "python", "-c", hint, cwd=tmp_path).strip()
    assert told.endswith(f'"signoff[web] @ {file.as_uri()}"')
