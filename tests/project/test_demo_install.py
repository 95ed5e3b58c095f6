"""What `make demo` installs, says of it, and `make clean-all` takes away again."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from signoff.models.local.install import packages
from signoff.models.local.weights import QWEN_CODER, cache_folder, weights_path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "demo" / "install.py"
# As uv 0.13 writes it.
SAID = """\
Resolved 210 packages in 24ms
   Building signoff @ file:///home/ada/signoff
Downloading xllamacpp (32.0MiB)
Downloading openai (512.0KiB)
 Downloaded openai
 Downloaded xllamacpp
      Built signoff @ file:///home/ada/signoff
Prepared 84 packages in 23.76s
 + xllamacpp==1
"""


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEMO = loaded()


def test_the_group_of_the_demo_is_the_embedded_model_and_no_more() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["dependency-groups"]["demo"] == ["signoff[local]"]
    assert set(DEMO.local_packages()) == set(packages())


def test_the_size_that_is_told_is_that_of_the_files() -> None:
    sizes = DEMO.local_packages()
    weights = sum(size for name, size in sizes.items() if name != "xllamacpp")
    # The weights hardly get smaller when they are packed.
    assert 0.9 < weights / QWEN_CODER.size < 1.05


def test_the_bar_counts_what_uv_has_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    bar = DEMO.Bar(100.0)
    for line in SAID.splitlines(keepends=True):
        bar.read(line)
    assert bar.done == 32.5 * 2**20
    bar.end("34 MB")
    assert capsys.readouterr().out == "Installed: 34 MB\n", "no control codes outside a terminal"


@pytest.mark.parametrize("variable", ["SIGNOFF_CACHE", "XDG_CACHE_HOME", None])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no make")
def test_the_folder_that_is_named_is_where_the_model_is_kept(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SIGNOFF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
    assert DEMO.cache_folder(os.environ) == cache_folder()


@pytest.mark.slow
def test_the_model_is_removed_and_nothing_beside_it(tmp_path: Path) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=ROOT / ".tools" / "bin")
    assert uv, "`make` installs uv"
    weights = weights_path(folder=tmp_path)
    own = [weights, *(weights.with_suffix(f".{end}") for end in ("half", "lock", "verified.json"))]
    for file in [*own, tmp_path / "notes.txt"]:
        file.write_text("x")
    (tmp_path / "outputs").mkdir()
    env = {**os.environ, "SIGNOFF_CACHE": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "uv")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), uv, "--remove"], env=env, capture_output=True, text=True, check=True
    )
    assert [file for file in own if file.exists()] == []
    assert {"notes.txt", "outputs"} <= {file.name for file in tmp_path.iterdir()}
    assert done.stdout.count("removed ") == len(own)
