"""The workflows run commands that there are, on the versions of Python that the package is for."""

import re
import tomllib
from typing import Any

import yaml

from tests.support.sources import REPOSITORY

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
GITHUB = REPOSITORY / ".github"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text("utf-8")) for path in (GITHUB / "workflows").iterdir()}


def test_every_make_target_of_a_workflow_is_in_the_makefile() -> None:
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    steps = [step for file in WORKFLOWS.values() for job in file["jobs"].values() for step in job["steps"]]
    words = re.findall(r"\bmake ((?:[a-z-]+ ?)+)", " ; ".join(step.get("run", "") for step in steps))
    wanted = {word for group in words for word in group.split()}
    assert {"test", "thorough", "versions", "build", "coverage"} <= wanted
    assert wanted - targets == set()


def test_the_matrix_has_every_python_that_the_package_says_it_runs_on() -> None:
    matrix = WORKFLOWS["test.yml"]["jobs"]["portable"]["strategy"]["matrix"]
    classifier = "Programming Language :: Python :: 3."
    said = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(classifier)}
    assert said < set(matrix["python"])
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_what_the_host_reads_is_yaml() -> None:
    for file in (REPOSITORY / ".pre-commit-config.yaml", *(GITHUB / "ISSUE_TEMPLATE").iterdir()):
        assert yaml.safe_load(file.read_text("utf-8"))
