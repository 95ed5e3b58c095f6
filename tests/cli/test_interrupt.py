"""^C while the command line is still importing: it ends at once, without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

SIGINT_AT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            print("pressed", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

from signoff.cli import main
sys.meta_path.insert(0, Interrupts())
sys.argv = ["signoff", *ARGS]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="another kind of signal")
@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("typer", ["threads"]),
        ("signoff.cli.app", ["threads"]),
        ("langchain_core.messages", ["run", "x", "-m", "scripted:{script}", "--tools", "files"]),
        ("langgraph.pregel", ["run", "x", "-m", "scripted:{script}", "--tools", "files"]),
        ("signoff.storage.sqlite", ["run", "x", "-m", "scripted:{script}", "--tools", "files"]),
    ],
)
@pytest.mark.sample(2)
def test_it_ends_without_a_traceback(module: str, args: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from signoff.models import call\nscript = [call('finish_task', summary='x')]\n")
    words = [*(word.format(script=script) for word in args), "-d", str(tmp_path / "t.sqlite")]
    code = SIGINT_AT.replace("MODULE", repr(module)).replace("ARGS", repr(words))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("pressed")
    assert "Traceback" not in done.stderr
    assert done.returncode in (-2, 4, 130)
