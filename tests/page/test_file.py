"""Where the page goes: whole into the file, or one sentence that says why not."""

import os
from pathlib import Path

import pytest

from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("page"))
    bench.model(steps('call("finish_task", summary="All done.")'))
    bench.run()
    return bench


def is_page(text: str) -> bool:
    return text.startswith("<!doctype html>\n<html") and text.endswith("</html>\n") and "All done." in text


def test_a_file_is_written_and_named_and_replaces_what_is_there(bench: Bench, tmp_path: Path) -> None:
    file, other, link = (tmp_path / name for name in ("run.html", "other.html", "link.html"))
    other.write_text("old " * 100_000)
    link.symlink_to(other)
    for path in (file, link):
        done = bench("show", "t1", "--html", str(path))
        assert (done.exit_code, done.stderr) == (0, "")
        assert (str(path) in done.stdout, done.stdout.count("\n")) == (True, 1)
    assert is_page(file.read_text("utf-8"))
    assert file.read_bytes() == other.read_bytes()
    assert link.is_symlink()


def test_a_dash_prints_the_page_and_nothing_else(bench: Bench) -> None:
    done = bench("show", "t1", "--html", "-")
    assert (done.exit_code, done.stderr, is_page(done.stdout)) == (0, "", True)


# A path, and what is named of it; in the folder are a folder and a pipe.
REFUSED = {
    "a folder": ("{at}/folder", "folder"),
    "a pipe": ("{at}/pipe", "pipe"),
    "NUL": ("{at}/a\0b", "null"),
    "nothing": ("", "--html"),
}


def test_what_cannot_be_written(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "old").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    for path, named in REFUSED.values():
        one_sentence(bench("show", "t1", f"--html={path.format(at=tmp_path)}"), named)
    one_sentence(bench("show", "t2", "--html", str(tmp_path / "x")), "'t2'")
    refused = bench("show", "t1", "--json", "--html", str(tmp_path / "x"))
    assert (refused.exit_code, "--html" in refused.stderr, "--json" in refused.stderr) == (2, True, True)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    one_sentence(bench("show", "t1", "--html", str(tmp_path / "old")), "No space left")
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(tmp_path.rglob("*")) == before
