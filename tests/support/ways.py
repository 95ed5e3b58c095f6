"""Every way to run a graph, each a function of the graph, its input and its configuration."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from signoff import Session

Way = Callable[[Any, Any, Any], Any]
"""Returns the values at the end of the run, or those of the state where the way returns something else."""


def _all(items: AsyncIterator[Any]) -> list[Any]:
    async def collect() -> list[Any]:
        return [item async for item in items]

    return asyncio.run(collect())


def _by_stream(graph: Any, given: Any, config: Any) -> Any:
    return _values([*graph.stream(given, config, stream_mode="values")])


def _by_astream(graph: Any, given: Any, config: Any) -> Any:
    return _values(_all(graph.astream(given, config, stream_mode="values")))


def _values(chunks: list[Any]) -> Any:
    """All channels of the last chunks: LangGraph tells of interrupts in a chunk of their own."""
    values = dict(chunks[-1])
    return {**chunks[-2], **values} if "messages" not in values and len(chunks) > 1 else values


def _by_astream_events(graph: Any, given: Any, config: Any) -> Any:
    return _all(graph.astream_events(given, config, version="v2"))[-1]["data"]["output"]


def _of_session(run: Callable[[Session, Any], Any]) -> Way:
    def way(graph: Any, given: Any, config: Any) -> Any:
        run(Session(graph, config["configurable"]["thread_id"]), given)
        return graph.get_state(config).values

    return way


def _by_events(session: Session, given: Any) -> None:
    assert [*session.events(given)][-1].type == "decided"


def _by_aevents(session: Session, given: Any) -> None:
    assert _all(session.aevents(given))[-1].type == "decided"


GRAPH_WAYS: Mapping[str, Way] = {
    "invoke": lambda graph, given, config: graph.invoke(given, config),
    "ainvoke": lambda graph, given, config: asyncio.run(graph.ainvoke(given, config)),
    "stream": _by_stream,
    "astream": _by_astream,
    "astream_events": _by_astream_events,
    "batch": lambda graph, given, config: graph.batch([given], config)[0],
}
SESSION_WAYS: Mapping[str, Way] = {
    "Session.run": _of_session(Session.run),
    "Session.arun": _of_session(lambda session, given: asyncio.run(session.arun(given))),
    "Session.events": _of_session(_by_events),
    "Session.aevents": _of_session(_by_aevents),
}
WAYS: Mapping[str, Way] = {**GRAPH_WAYS, **SESSION_WAYS}
