"""Where the page goes: whole into the file, or one sentence that says why not."""

import os
from pathlib import Path

import pytest

from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.model(steps(DONE))
    bench.run()
    return bench


def is_page(text: str) -> bool:
    return text.startswith("<!doctype html>\n<html") and text.endswith("</html>\n") and "All done." in text


def test_a_file_is_written_and_named(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    done = bench("show", "t1", "--html", str(file))
    assert (done.exit_code, done.stderr) == (0, "")
    assert (str(file) in done.stdout, done.stdout.count("\n")) == (True, 1)
    assert is_page(file.read_text("utf-8"))
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_the_same_thread_is_the_same_page(bench: Bench, tmp_path: Path) -> None:
    for name in ("a", "b"):
        bench("show", "t1", "--html", str(tmp_path / name))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_that_is_there_is_replaced(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text("old " * 100_000)
    assert bench("show", "t1", "--html", str(file)).exit_code == 0
    assert is_page(file.read_text("utf-8"))


def test_a_link_stays_a_link(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "run.html", tmp_path / "there" / "real.html"
    link.symlink_to(file)
    for _ in ("dangling", "to a file"):
        assert bench("show", "t1", "--html", str(link)).exit_code == 0
        assert link.is_symlink()
        assert is_page(file.read_text("utf-8"))


def test_a_dash_prints_the_page_and_nothing_else(bench: Bench) -> None:
    done = bench("show", "t1", "--html", "-")
    assert (done.exit_code, done.stderr, is_page(done.stdout)) == (0, "", True)


def test_html_beside_json_is_refused(bench: Bench, tmp_path: Path) -> None:
    refused = bench("show", "t1", "--json", "--html", str(tmp_path / "x"))
    assert refused.exit_code == 2
    assert "--html" in refused.stderr
    assert "--json" in refused.stderr
    assert not (tmp_path / "x").exists()


def folder(tmp_path: Path) -> str:
    (tmp_path / "folder").mkdir()
    return str(tmp_path / "folder")


def loop(tmp_path: Path) -> str:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    return str(tmp_path / "a")


def link_to_folder(tmp_path: Path) -> str:
    (tmp_path / "link").symlink_to(tmp_path)
    return str(tmp_path / "link")


def pipe(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


def under_a_file(tmp_path: Path) -> str:
    (tmp_path / "file").touch()
    return str(tmp_path / "file" / "x.html")


REFUSED = {
    "a folder": (folder, ["folder"]),
    "a link to a folder": (link_to_folder, ["folder"]),
    "a loop of links": (loop, ["links"]),
    "a folder that is not there": (lambda at: str(at / "none" / "x.html"), ["No such file or directory"]),
    "a file in a file": (under_a_file, ["Not a directory"]),
    "a pipe": (pipe, ["pipe"]),
    "a device": (lambda _: "/dev/null", ["/dev/null"]),
    "the kernel's files": (lambda _: "/proc/x.html", ["/proc/x.html"]),
    "a name that is too long": (lambda at: str(at / ("x" * 5_000)), ["File name too long"]),
    "NUL": (lambda at: f"{at}/a\0b", ["null"]),
    "nothing": (lambda _: "", ["--html"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written(bench: Bench, tmp_path: Path, case: str) -> None:
    make, parts = REFUSED[case]
    file = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    one_sentence(bench("show", "t1", f"--html={file}"), *parts)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_leaves_the_old_page(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.html"
    file.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    before = sorted(tmp_path.rglob("*"))
    one_sentence(bench("show", "t1", "--html", str(file)), "No space left")
    assert file.read_text() == "old"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_thread_that_does_not_exist(bench: Bench, tmp_path: Path) -> None:
    one_sentence(bench("show", "t2", "--html", str(tmp_path / "x")), "'t2'")
    assert not (tmp_path / "x").exists()
