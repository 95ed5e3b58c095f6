"""What `make demo` installs, says of it, and `make clean-all` takes away again."""

import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.sources import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "demo" / "install.py"
DEMO = runpy.run_path(str(SCRIPT))


@pytest.mark.thorough
def test_the_group_of_the_demo_is_the_embedded_model_and_no_more() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert settings["dependency-groups"]["demo"] == ["signoff[local]"]
    local = settings["project"]["optional-dependencies"]["local"]
    assert len(DEMO["local_packages"]()) == len(local)
    assert all(line.startswith(tuple(DEMO["local_packages"]())) for line in local)


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
