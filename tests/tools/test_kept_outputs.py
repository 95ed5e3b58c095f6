"""Full texts below the cache folder: whose they are, how long they are kept, and what is left of them."""

import os
import re
import time
from pathlib import Path

import pytest
from langchain_core.messages import ToolMessage

from signoff import Session, build_graph, sqlite_storage
from signoff.graph import foreign as outputs
from signoff.graph.foreign import Outputs, clear
from signoff.models import ScriptedModel, call

DAY = 86_400.0
TEXT = "x" * 1_000


def old(text: Outputs, days: float) -> None:
    """The thread has ended so many days ago."""
    moment = time.time() - days * DAY
    os.utime(text.own / ".ended", (moment, moment))


def kept(folder: Path, name: str, *, ended: float | None, size: int = 1_000) -> Path:
    own = Outputs(folder, name)
    path = Path(own.keep(name)("x" * size))
    if ended is not None:
        own.ended()
        old(own, ended)
    return path


def is_gone(path: Path) -> bool:
    return path.read_text().startswith("This text is no longer kept: ")


@pytest.mark.parametrize(
    ("ended", "gone"), [(None, False), (0, False), (29, False), (31, True), (3_000, True)]
)
def test_they_go_by_age_after_the_end_of_their_thread(
    ended: float | None, gone: bool, tmp_path: Path
) -> None:
    path = kept(tmp_path, "a", ended=ended)
    os.utime(path, (0, 0))
    clear(tmp_path)
    assert is_gone(path) == gone


def test_they_go_by_size_those_that_ended_first_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_BYTES", 2_500)
    ends = {"open": None, "first": 9.0, "second": 8.0, "third": 7.0, "now": 0.0}
    paths = {name: kept(tmp_path, name, ended=ended) for name, ended in ends.items()}
    clear(tmp_path)
    assert [name for name, path in paths.items() if is_gone(path)] == ["first", "second"]
    before = {path: path.read_text() for path in paths.values()}
    clear(tmp_path, time.time() + DAY)
    assert {path: path.read_text() for path in paths.values()} == before, "a line that is left stays as it is"


def test_what_is_no_threads_is_left_alone(tmp_path: Path) -> None:
    for name in ("loose.txt", "folder/loose.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TEXT)
    clear(tmp_path, time.time() + 1_000 * DAY)
    assert [path.read_text() for path in sorted(tmp_path.rglob("*.txt"))] == [TEXT, TEXT]


def test_the_thread_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a whole life: a task, its end, another task on the same thread, and a thread of the same name
    in another database."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def big() -> str:
        """Much."""
        return "y" * 3_000

    ask, done = call("ask_user", question="?"), call("finish_task", summary="x")
    paths = []
    with sqlite_storage(tmp_path / "a.sqlite") as storage, sqlite_storage(tmp_path / "b.sqlite") as other:
        ended, waits = ScriptedModel([call("big"), done, ask, done]), ScriptedModel([call("big"), ask])
        for model, place in ((ended, storage), (waits, other)):
            graph = build_graph(model, [big], storage=place, policy={"result_chars": 1_000})
            Session(graph, "t").run("go")
            messages = graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
            text = next(message.text for message in messages if isinstance(message, ToolMessage))
            found = re.search(r"full text is in (\S+)", text)
            assert found
            paths.append(Path(found[1]))
        folder = paths[0].parent.parent
        assert paths[0].parent != paths[1].parent
        clear(folder, time.time() + 100 * DAY)
        assert [is_gone(path) for path in paths] == [True, False]
        paths[0].write_text(TEXT)
        session = Session(build_graph(ended, [big], storage=storage), "t")
        session.run("more")
        clear(folder, time.time() + 100 * DAY)
        assert not is_gone(paths[0]), "the thread has gone on"
        session.resume("so")
        clear(folder, time.time() + 100 * DAY)
        assert is_gone(paths[0])
