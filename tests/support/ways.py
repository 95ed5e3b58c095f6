"""Every way to run a graph, each a function of the graph, its input and its configuration."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from signoff import Graph, Session

Way = Callable[[Any, Any, Any], Any]
"""Returns the values at the end of the run, or those of the state where the way returns something else."""


def _by_stream(graph: Any, given: Any, config: Any) -> Any:
    return _values([*graph.stream(given, config, stream_mode="values")])


def _by_astream(graph: Any, given: Any, config: Any) -> Any:
    async def chunks() -> list[Any]:
        return [item async for item in graph.astream(given, config, stream_mode="values")]

    return _values(asyncio.run(chunks()))


def _values(chunks: list[Any]) -> Any:
    """All channels of the last chunks: LangGraph tells of interrupts in a chunk of their own."""
    values = dict(chunks[-1])
    return {**chunks[-2], **values} if "messages" not in values and len(chunks) > 1 else values


def _by_astream_events(graph: Any, given: Any, config: Any) -> Any:
    async def events() -> list[Any]:
        return [event async for event in graph.astream_events(given, config, version="v2")]

    return asyncio.run(events())[-1]["data"]["output"]


def _thread(config: Any) -> str:
    return str(config["configurable"]["thread_id"])


def _by_run(graph: Graph, given: Any, config: Any) -> Any:
    Session(graph, _thread(config)).run(given)
    return graph.get_state(config).values


def _by_arun(graph: Graph, given: Any, config: Any) -> Any:
    asyncio.run(Session(graph, _thread(config)).arun(given))
    return graph.get_state(config).values


def _by_events(graph: Graph, given: Any, config: Any) -> Any:
    assert [*Session(graph, _thread(config)).events(given)][-1].type == "decided"
    return graph.get_state(config).values


def _by_aevents(graph: Graph, given: Any, config: Any) -> Any:
    async def events() -> list[Any]:
        return [event async for event in Session(graph, _thread(config)).aevents(given)]

    assert asyncio.run(events())[-1].type == "decided"
    return graph.get_state(config).values


GRAPH_WAYS: Mapping[str, Way] = {
    "invoke": lambda graph, given, config: graph.invoke(given, config),
    "ainvoke": lambda graph, given, config: asyncio.run(graph.ainvoke(given, config)),
    "stream": _by_stream,
    "astream": _by_astream,
    "astream_events": _by_astream_events,
    "batch": lambda graph, given, config: graph.batch([given], config)[0],
}
SESSION_WAYS: Mapping[str, Way] = {
    "Session.run": _by_run,
    "Session.arun": _by_arun,
    "Session.events": _by_events,
    "Session.aevents": _by_aevents,
}
WAYS: Mapping[str, Way] = {**GRAPH_WAYS, **SESSION_WAYS}
