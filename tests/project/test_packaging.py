"""What is installed: one package called signoff, with all of its folders and data."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("graph", "nodes", "tools")
SETTINGS: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS: dict[str, Any] = SETTINGS["tool"]["setuptools"]


def contents() -> set[str]:
    """Every file that belongs into the package, as its path when installed."""
    found = set()
    for top in ("signoff", *FOLDERS):
        for path in (REPOSITORY / top).rglob("*"):
            linked = path.resolve() != path.absolute()
            if path.is_file() and not linked and "__pycache__" not in path.parts:
                inside = path.relative_to(REPOSITORY)
                found.add((inside if top == "signoff" else "signoff" / inside).as_posix())
    return found


CONTENTS = contents()


def test_every_folder_with_python_in_it_is_listed_as_a_package() -> None:
    folders = {Path(name).parent for name in CONTENTS if name.endswith(".py")}
    assert set(SETUPTOOLS["packages"]) == {".".join(folder.parts) for folder in folders}


def test_every_package_has_its_init_file() -> None:
    assert [p for p in SETUPTOOLS["packages"] if p.replace(".", "/") + "/__init__.py" not in CONTENTS] == []


def test_every_data_file_is_listed() -> None:
    patterns: dict[str, list[str]] = SETUPTOOLS["package-data"]
    listed = {
        path.relative_to(REPOSITORY).as_posix()
        for package, few in patterns.items()
        for pattern in few
        for path in (REPOSITORY / package.replace(".", "/")).glob(pattern)
    }
    data = {name for name in CONTENTS if not name.endswith(".py")}
    assert data
    assert data - listed == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_package_links_to_its_folder_by_a_relative_path(folder: str) -> None:
    link = REPOSITORY / "signoff" / folder
    assert link.is_symlink()
    assert os.readlink(link) == f"../{folder}"
    assert SETUPTOOLS["package-dir"][f"signoff.{folder}"] == folder


# A real build: sdist, the wheel from that sdist, and its installation in a new environment.


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the tools to build, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    run(found, "-m", "pip", "install", "--quiet", *SETTINGS["build-system"]["requires"], cwd=folder)
    return found


@pytest.fixture(scope="module")
def sdist(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy, since building writes into the folder.
    copy = tmp_path_factory.mktemp("source") / "signoff"
    unwanted = ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    copytree(REPOSITORY, copy, symlinks=True, ignore=unwanted)
    run(python, "-c", "from setuptools.build_meta import build_sdist; build_sdist('dist')", cwd=copy)
    (found,) = (copy / "dist").iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(python: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    run(python, "-c", "from setuptools.build_meta import build_wheel; build_wheel('dist')", cwd=source)
    (found,) = (source / "dist").iterdir()
    return found


@pytest.mark.slow
def test_the_wheel_built_from_the_sdist_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == CONTENTS


@pytest.mark.slow
def test_the_installed_wheel_is_one_importable_package(python: Path, wheel: Path, tmp_path: Path) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel), cwd=tmp_path)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    installed = Path(run(python, "-c", where, cwd=tmp_path).strip())
    assert not {path.stem for path in installed.iterdir()} & {*FOLDERS, "tests", "benchmarks", "examples"}
    # The dependencies are those of the running environment; the package itself is only linked from there.
    program = (
        "import signoff, signoff.graph.machine as m, signoff.cli.diagram as d; print(m.__file__, d.__file__)"
    )
    files = run(python, "-c", program, cwd=tmp_path, PYTHONPATH=sysconfig.get_path("purelib"))
    assert files.split() == [
        str(installed / "signoff/graph/machine.py"),
        str(installed / "signoff/cli/diagram.py"),
    ]
    assert sys.prefix not in files


@pytest.mark.slow
def test_a_page_is_made_with_the_templates_of_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = """if True:
        from signoff.page import Run, page
        from signoff.session.status import Condition, ThreadStatus
        import signoff.front.record.run as module
        print(module.__file__)
        print(page(Run(ThreadStatus("t1", Condition.STOPPED), ())))
    """
    path = os.pathsep.join([str(tmp_path), sysconfig.get_path("purelib")])
    file, page = run(sys.executable, "-S", "-c", program, cwd=tmp_path, PYTHONPATH=path).split("\n", 1)
    assert Path(file) == tmp_path / "signoff/front/record/run.py"
    assert [part in page for part in ("<!doctype html>", "t1", ":root {", "<svg")] == [True] * 4
