"""The workflows run commands that there are, on the versions of Python that the package is for."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github" / "workflows").iterdir()
}
SETTINGS = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()]


def test_every_make_target_of_a_workflow_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    steps = [step for file in WORKFLOWS.values() for job in file["jobs"].values() for step in job["steps"]]
    words = re.findall(r"\bmake ((?:[a-z-]+ ?)+)", " ; ".join(step.get("run", "") for step in steps))
    wanted = {word for group in words for word in group.split()}
    if not (ROOT / "mkdocs.yml").exists():
        wanted.discard("docs")
    assert {"test", "thorough", "lowest", "build", "coverage"} <= wanted
    assert wanted - targets == set()


def test_the_matrix_has_every_python_that_the_package_says_it_runs_on() -> None:
    matrix = WORKFLOWS["test.yml"]["jobs"]["portable"]["strategy"]["matrix"]
    classifier = "Programming Language :: Python :: 3."
    said = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(classifier)}
    assert said < set(matrix["python"])
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.name)
def test_what_the_host_reads_is_yaml(file: Path) -> None:
    assert yaml.safe_load(file.read_text("utf-8"))


def test_help_names_every_command_that_has_a_line() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert {"demo", "test", "thorough", "check", "fast", "coverage", "build", "clean-all"} <= set(named)
    assert all(len(line.split()) > 1 for line in done.stdout.splitlines()[1:])


def test_no_released_version_is_built_with_a_placeholder_for_its_address(tmp_path: Path) -> None:
    for name in ("setup.py", "README.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    (tmp_path / "pyproject.toml").write_text(
        re.sub(r'^version = ".*"', 'version = "9.0.0"', settings, flags=re.MULTILINE)
    )
    setup = tmp_path / "setup.py"
    setup.write_text(
        re.sub(r'^ADDRESS = ".*"', 'ADDRESS = "https://a.example/b"', setup.read_text(), flags=re.MULTILINE)
    )
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "write the project's address into ADDRESS" in done.stderr
