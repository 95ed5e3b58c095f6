"""The examples run, and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRINTED = {
    "quickstart.py": "success - 19 + 23 is 42.\n",
    "resume.py": "Which colour?\nThe door is blue.\n",
    "approval.py": "{'to': 'ada', 'amount': 500}\n[('ada', 50)]\n",
}


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED[name], "")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(PRINTED)


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    code = (ROOT / "examples" / "quickstart.py").read_text().split("\n\n", 1)[1]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code in blocks
