"""The examples run, and print what they say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.prepared import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PRINTED = {
    "quickstart.py": "19 + 23 is 42.\n",
    "resume.py": "Which colour?\nThe door is blue.\n",
    "approval.py": "{'to': 'ada', 'amount': 500}\n[('ada', 50)]\n",
    "driver.py": """I look at what is here.
$ echo hello > note.txt; ls *.txt
note.txt
There is a note.
Shall I read it? yes
$ cat note.txt
hello
success - The note says hello.
""",
    "tagged.py": """error - NameError: name 'is_prime' is not defined - Debugging
success - 1060 - Checking
success - The primes below 100 sum up to 1060.

Approach: brute force
""",
    "rounds.py": """think(Look all prices up, then add them.)
price(apples) price(cherries) price(pears)
think(There are no cherries; I take plums in their place.)
price(plums)
finish_task(A kilo of each costs 3 + 5 + 4 = 12.)
success
""",
    "within.py": "Graz, 2.5 hours\nplanner: Graz it is.\n",
    "engine.py": "invoice-7 ended\ninvoice-7 ended\npaid [50]\n",
    "pause.py": "Paused\n1 of 3 turns\nsuccess after 3\n",
    "fork.py": """Both doors are blue.
One door is blue, one is red.
['The front door is blue.', 'The back door is blue.']
['The front door is blue.', 'The back door is red.']
""",
}


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, tmp_path: Path) -> None:
    words = ["-W", "error", str(ROOT / "examples" / name)]
    if name == "quickstart.py":
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    else:
        done = run_python(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED[name], "")


def test_every_example_is_run() -> None:
    # `tests/benchmarks/test_demo.py` runs the check of the demo, `tests/session/test_web.py` the server.
    found = {path.name for path in (ROOT / "examples").glob("*.py")} - {"demo_check.py", "web.py"}
    assert found == set(PRINTED)


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    code = (ROOT / "examples" / "quickstart.py").read_text().split("\n\n", 1)[1]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code in blocks


def test_the_bug_is_found_by_a_test_in_the_terminal_and_fixed(tmp_path: Path) -> None:
    sample, database = tmp_path / "bugfix", str(tmp_path / "threads.sqlite")
    shutil.copytree(ROOT / "examples" / "bugfix", sample, ignore=shutil.ignore_patterns("__pycache__"))
    # As from a shell in which no environment is active.
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}

    def signoff(*words: str) -> dict[str, Any]:
        command = ["-m", "signoff.cli", *words, "--json", "--database", database]
        done = run_python(*command, cwd=sample, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    task = ("Run the tests and fix the bug", "--model", "scripted:script.py", "--workspace", "project")
    ended = signoff("run", *task)
    assert "(100 - discount)" in (sample / "project" / "prices.py").read_text()
    (told,) = signoff("show", ended["thread_id"])["tasks"]
    calls = [event for turn in told["turns"] for event in turn["events"] if event["kind"] == "call"]
    assert [entry["name"] for entry in calls] == [
        "run_shell",
        "read_file",
        "read_file",
        "edit_file",
        "run_shell",
    ]
    for part in ("assert 1200 == 800", "1 failed, 1 passed", "[exit code 1; "):
        assert part in calls[0]["result"]
    for part in ("2 passed", "[exit code 0; "):
        assert part in calls[-1]["result"]
