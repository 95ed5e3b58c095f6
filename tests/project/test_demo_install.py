"""What `make demo` installs, says of it, and `make clean-all` takes away again."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "demo" / "install.py"
DEMO = runpy.run_path(str(SCRIPT))


@pytest.mark.slow
def test_the_model_is_removed_and_nothing_beside_it(tmp_path: Path) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=REPOSITORY / ".tools" / "bin")
    assert uv, "`make` installs uv"
    env = {**os.environ, "SIGNOFF_CACHE": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "uv")}
    own = [tmp_path / f"{DEMO['WEIGHTS']}.{end}" for end in ("gguf", "half", "lock", "verified.json")]
    for file in [*own, tmp_path / "notes.txt"]:
        file.write_text("x")
    (tmp_path / "outputs").mkdir()
    command = [sys.executable, str(SCRIPT), uv, "--remove"]
    subprocess.run(command, env=env, capture_output=True, check=True)
    assert [file for file in own if file.exists()] == []
    assert {"notes.txt", "outputs"} <= {file.name for file in tmp_path.iterdir()}
    assert DEMO["cache_folder"](env) == tmp_path
