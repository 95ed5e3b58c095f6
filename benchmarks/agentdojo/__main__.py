"""AgentDojo's tasks under faults: `python -m benchmarks.agentdojo`.

The tasks, their tools and environments, and the check of what came of them are those of the package
`agentdojo` (MIT licence), in an environment of its own, `.bench/agentdojo` (`--install`). The model plays the
calls that AgentDojo gives as the solution, so what is measured is the loop around it. `--record` keeps the
results and writes docs/benchmarks/agentdojo.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.loopbench.peers import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ENVIRONMENTS / "agentdojo"
PYTHON = ENVIRONMENT / "bin" / "python"
PACKAGES = (
    "agentdojo==0.1.35",
    "langchain==1.4.7",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "openai==3.54.0",
)
TASKS, SEED = 5, 1


def install() -> None:
    """Makes the environment anew, with this checkout in it. Raises CalledProcessError."""
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", "3.11", str(ENVIRONMENT)], check=True)
    given = ["--python", str(PYTHON), *PACKAGES, "-e", f"{ROOT}[langchain]"]
    subprocess.run([uv, "pip", "install", "--quiet", *given], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agentdojo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--install", action="store_true", help="make the environment first")
    parser.add_argument("--seed", type=int, default=SEED, help="draws the tasks and the places of the faults")
    parser.add_argument("--tasks", type=int, default=TASKS, help="how many of the 97 are drawn (default: 5)")
    parser.add_argument("--record", action="store_true", help="keep the results, and write the page")
    given = parser.parse_args()
    if given.tasks < 1:
        parser.error("--tasks takes a number above 0.")
    if given.install:
        install()
    if not PYTHON.exists():
        print("AgentDojo is not installed; run: python -m benchmarks.agentdojo --install")
        return 1
    words = [str(given.seed), str(given.tasks), *(["record"] if given.record else [])]
    played = subprocess.run([PYTHON, "-m", "benchmarks.agentdojo.play", *words], cwd=ROOT, env=_clean())
    return played.returncode


def _clean() -> dict[str, str]:
    """Keys of this machine are no business of the packages."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


if __name__ == "__main__":
    sys.exit(main())
