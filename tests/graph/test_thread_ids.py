"""What can be the id of a thread: one check, and the same words at every way in."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from signoff import Session, SetupError, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.commands import request_pause
from signoff.session.expiring import expire
from signoff.stats.records import rate
from signoff.storage.postgres import postgres_storage
from signoff.storage.sqlite import SqliteStorage
from signoff.workers import drive, pause, submit

GO: Any = {"messages": [("user", "go")]}
SENTENCE = "A thread id must be valid text, not empty and without NUL, not "

BAD: dict[str, Any] = {
    "empty": "",
    "NUL": "a\0b",
    "half a character": "a\ud800b",
    "the other half": "\udc00",
    "a number": 3,
    "true": True,
    "a list": ["a"],
    "bytes": b"a",
    "a mapping": {"a": 1},
    "none": None,
}


def named(thread_id: Any) -> Any:
    return {"configurable": {"thread_id": thread_id}}


async def streamed(graph: Graph, thread_id: Any) -> list[Any]:
    return [part async for part in graph.astream(GO, named(thread_id))]


Way = Callable[[Graph, Any], Any]
GRAPH: dict[str, Way] = {
    "invoke": lambda graph, thread_id: graph.invoke(GO, named(thread_id)),
    "stream": lambda graph, thread_id: list(graph.stream(GO, named(thread_id))),
    "batch": lambda graph, thread_id: graph.batch([GO], named(thread_id)),
    "ainvoke": lambda graph, thread_id: asyncio.run(graph.ainvoke(GO, named(thread_id))),
    "astream": lambda graph, thread_id: asyncio.run(streamed(graph, thread_id)),
    "abatch": lambda graph, thread_id: asyncio.run(graph.abatch([GO], named(thread_id))),
    "with_config": lambda graph, thread_id: graph.with_config(named(thread_id)).invoke(GO),
    "go on": lambda graph, thread_id: graph.invoke(None, named(thread_id)),
    "get_state": lambda graph, thread_id: graph.get_state(named(thread_id)),
    "aget_state": lambda graph, thread_id: asyncio.run(graph.aget_state(named(thread_id))),
    "history": lambda graph, thread_id: next(graph.get_state_history(named(thread_id)), None),
    "ahistory": lambda graph, thread_id: asyncio.run(anext(graph.aget_state_history(named(thread_id)), None)),
    "update_state": lambda graph, thread_id: graph.update_state(named(thread_id), GO, "nudge"),
}
OTHERS: dict[str, Way] = {
    "Session": Session,
    "fork": lambda graph, thread_id: Session(graph, "t").fork(None, thread_id),
    "expire": expire,
    "drive": drive,
    "request_pause": lambda graph, thread_id: request_pause(graph.store, thread_id),  # type: ignore[arg-type]
    "rate": lambda graph, thread_id: rate(graph.store, thread_id, 5),  # type: ignore[arg-type]
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def graph_on(**given: Any) -> Graph:
    return build_graph(ScriptedModel([call("finish_task", summary="x")]), **given)


# To fork to None is to have a new id chosen.
CASES = [(way, bad) for way in (*GRAPH, *OTHERS) for bad in BAD if (way, bad) != ("fork", "none")]


@pytest.mark.parametrize(("name", "what"), CASES)
@pytest.mark.sample(60)
def test_what_is_no_id_is_refused_in_one_sentence(name: str, what: str, storage: SqliteStorage) -> None:
    way, bad = (GRAPH | OTHERS)[name], BAD[what]
    with pytest.raises(SetupError) as refused:
        way(graph_on(storage=storage), bad)
    assert str(refused.value) == f"{SENTENCE}{bad!r}."
    assert storage.threads() == []


@pytest.mark.parametrize("bad", [BAD["empty"], BAD["a number"]])
@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["no saver", "another saver"])
def test_it_is_so_with_any_saver_and_without_one(saver: Any, bad: Any) -> None:
    with pytest.raises(SetupError, match=SENTENCE):
        graph_on(checkpointer=saver).invoke(GO, named(bad))


@pytest.mark.parametrize("config", [None, {}, named(None)])
def test_a_run_that_is_not_saved_needs_none(config: Any) -> None:
    assert graph_on().invoke(GO, config)["outcome"]["status"] == "success"


@pytest.mark.parametrize("good", ["a", " ", "a/b", "é 日本", "x" * 600, "\U0001f600"])
def test_any_other_text_is_an_id(good: str, storage: SqliteStorage) -> None:
    graph = graph_on(storage=storage)
    assert graph.invoke(GO, named(good))["outcome"]["thread_id"] == good
    assert graph.get_state(named(good)).values["outcome"]
    assert storage.threads() == [good]


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("bad", [Unprintable(), ["x" * 1_000] * 1_000, "x\0" * 1_000])
def test_the_sentence_stays_short(bad: Any) -> None:
    with pytest.raises(SetupError) as refused:
        graph_on().invoke(GO, named(bad))
    assert len(str(refused.value)) < 300


@pytest.mark.slow
@pytest.mark.parametrize("bad", [bad for bad in BAD.values() if bad is not None], ids=list(BAD)[:-1])
def test_workers_refuse_it_in_the_same_words(bad: Any, postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        ways: list[Callable[[], Any]] = [
            lambda: submit(storage, "do it", bad),
            lambda: submit(storage, None, bad),
            lambda: pause(storage, bad),
            lambda: graph_on(storage=storage).invoke(GO, named(bad)),
            lambda: storage.checkpointer.runner(bad).__enter__(),
        ]
        for way in ways:
            with pytest.raises(SetupError) as refused:
                way()
            assert str(refused.value) == f"{SENTENCE}{bad!r}."
        assert storage.threads() == []


@pytest.mark.parametrize("message_id", ["a\0b", "a\ud800b", "\udc00"])
def test_a_message_with_an_id_that_is_no_valid_text_gets_one_that_is(
    message_id: str, tmp_path: Path, postgres_url: str
) -> None:
    given = {"messages": [HumanMessage("go", id=message_id)]}
    opened = (sqlite_storage(tmp_path / "threads.sqlite"), postgres_storage(postgres_url))
    for storage in opened:
        with storage as kept:
            model = ScriptedModel([call("finish_task", summary="Done.")])
            found = build_graph(model, storage=kept).invoke(given, named("t"))
        assert found["outcome"]["status"] == "success"
        assert found["messages"][0].id == message_id.translate(dict.fromkeys(map(ord, "\0\ud800\udc00"), "�"))
