"""Long results are bounded and say where the whole text is, which goes when its thread has long ended."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from signoff import Session, Storage, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.text import count_noun, valid_text
from signoff.tools import workspace_tools
from tests.support.plays import ASK, FINISH, GO, results

HOUR, DAY = 3_600.0, 86_400.0
BIG = call("big")


def big() -> str:
    """Much."""
    return "abcdefghij" * 1_000


@dataclass
class Threads:
    """Threads in a database, each of which begins with a long result, and their texts below `cache`."""

    storage: Storage
    cache: Path
    texts: dict[str, Path] = field(default_factory=dict)

    def session(self, name: str, steps: Sequence[Any], tools: Sequence[BaseTool] = ()) -> Session[Any]:
        options: Any = {"storage": self.storage, "policy": {"result_chars": 1_000}}
        return Session(build_graph(ScriptedModel([*steps]), [big, *tools], **options), name)

    def begin(self, name: str, *steps: Any) -> Path:
        session = self.session(name, [BIG, *steps])
        session.run("go")
        kept = re.findall(rf"{self.cache}\S+", results(session.status().values)[0])
        self.texts[name] = Path(kept[0])
        return self.texts[name]

    def ends(self, name: str, ago: float) -> None:
        """A thread that has ended some time ago."""
        self.begin(name, FINISH)
        moment = time.time() - ago
        for path in self.texts[name].parent.iterdir():
            os.utime(path, (moment, moment))

    @property
    def gone(self) -> set[str]:
        """Those whose text is no longer there, but one line that says so."""
        return {name for name, path in self.texts.items() if path.stat().st_size < 300}


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield Threads(storage, cache)


def test_texts_go_by_age_after_the_end_of_their_thread(threads: Threads) -> None:
    threads.begin("waits", ASK)
    os.utime(threads.texts["waits"], (0, 0))
    for name, days in {"new": 0, "younger": 29, "older": 31, "oldest": 3_000}.items():
        threads.ends(name, days * DAY)
    assert threads.gone == {"older"}, "the end of another thread clears"
    threads.ends("now", 0)
    assert threads.gone == {"older", "oldest"}


def test_texts_go_by_size_those_that_ended_first_before(threads: Threads) -> None:
    threads.begin("waits", ASK)
    for name, hours in {"first": 9, "second": 8, "third": 7, "new": 0}.items():
        threads.ends(name, hours * HOUR)
    for path in threads.texts.values():
        end = path.stat().st_mtime
        os.truncate(path, 200_000_000)
        os.utime(path, (end, end))
    threads.ends("now", 0)
    assert threads.gone == {"first", "second"}


def test_a_thread_that_goes_on_keeps_its_texts(threads: Threads) -> None:
    threads.ends("t", 40 * DAY)
    session = threads.session("t", [ASK, FINISH])
    session.run("more")
    threads.ends("clears", 0)
    assert threads.gone == set()
    session.resume("so")
    threads.ends("t", 40 * DAY)
    threads.ends("clears too", 0)
    assert threads.gone == {"t"}


def test_a_copy_that_cannot_be_kept_costs_the_copy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    graph = build_graph(ScriptedModel([BIG, FINISH]), [big], policy={"result_chars": 1_000})
    result = results(graph.invoke(GO))[0]
    assert (result[:3], result[-3:], len(result) <= 1_000) == ("abc", "hij", True)


def test_they_are_read_by_their_thread_alone_and_never_written(threads: Threads, tmp_path: Path) -> None:
    work, path = tmp_path / "work", threads.begin("t", FINISH)
    work.mkdir()
    (work / "a.py").touch()
    (path.parent / "out").symlink_to(work)
    other = threads.begin("u", FINISH)
    text = path.read_text()

    def statuses(thread: str, *calls: Any) -> list[str]:
        session = threads.session(thread, [reply(*calls), FINISH], workspace_tools(work))
        session.run("more")
        messages = session.status().values["messages"]
        return [str(m.status) for m in messages if isinstance(m, ToolMessage)][-1 - len(calls) : -1]

    reads = [
        call("read_file", path=str(path), end_line=1),
        call("search_files", path=str(path.parent), pattern="abc"),
        call("list_files", path=str(path.parent)),
    ]
    others = [
        call("read_file", path=f"{path.parent}/../{other.parent.name}/{other.name}"),
        call("read_file", path=f"{path.parent}/out/a.py"),
        call("list_files", path=str(path.parent.parent)),
        call("write_file", path=str(path), content="x"),
    ]
    assert statuses("t", *reads, *others) == ["success"] * 3 + ["error"] * 4
    assert statuses("u", *reads) == ["error"] * 3
    assert path.read_text() == text


def test_text_becomes_valid() -> None:
    assert valid_text("plain \U0001f600 \x1b[31m") == "plain \U0001f600 \x1b[31m"
    assert valid_text("a\ud800b\udfffc\0") == "a\ufffdb\ufffdc\ufffd"


def test_counts_in_words() -> None:
    words = [count_noun(number, "line") for number in (0, 1, 2, 1234)]
    assert words == ["0 lines", "1 line", "2 lines", "1,234 lines"]
