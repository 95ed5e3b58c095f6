"""Files that `python -m benchmarks.loopbench` cannot use: refused in a sentence, before it measures."""

from pathlib import Path

import pytest

from tests.support.prepared import run_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("option", "file", "told"),
    [
        ("--read", "gone.json", "holds no results"),
        ("--read", "empty.json", "holds no results"),
        ("--read", "list.json", "holds no results"),
        ("--read", "other.json", "holds no results"),
        ("--json", "gone/results.json", "Nothing can be written"),
        ("--svg", "gone/results.svg", "Nothing can be written"),
        ("--json", ".", "Nothing can be written"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, option: str, file: str, told: str) -> None:
    for name, text in {"empty": "", "list": "[]", "other": "{}"}.items():
        (tmp_path / f"{name}.json").write_text(text)
    done = run_python("-m", "benchmarks.loopbench", option, tmp_path / file, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    # The box around an error breaks a line wherever it is full.
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
