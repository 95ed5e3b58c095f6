"""Waits until the checkpoint that holds a reply is saved, before the first effect of that reply.

LangGraph saves in the background (`durability="async"`, its default), so a tool may start before the reply
that calls it is saved. If the process were killed in the tool, the reply would be lost, and the model would
make the same call again, under an id that the journal does not know. The checkpoints of the graphs around the
agent are waited for, too: without them, the agent's own would never be found again.
"""

import asyncio
import time
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from signoff.graph.inside.private import durability_of, saver_of
from signoff.nodes.requests import Operation, Part

SECONDS = 10.0
"""How long an effect waits at most."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05
_KNOWN_SAVERS = ("langgraph.checkpoint.", "signoff.storage.")


def reply_is_saved(config: RunnableConfig) -> Part[bool]:
    """Waits until the reply whose call runs with this configuration is saved; whether it is, or nothing is
    saved at all."""
    configurable: Mapping[str, Any] = config.get("configurable", {})
    saver, durability = saver_of(configurable), durability_of(configurable)
    places: Mapping[str, str] = configurable.get("checkpoint_map") or {}
    if not saver or durability == "exit":
        return not saver
    if durability == "sync" and len(places) == 1:
        # LangGraph has waited for it before it began this step.
        return True
    ends = time.monotonic() + SECONDS
    for ns, checkpoint_id in places.items():
        thread = {"thread_id": str(configurable["thread_id"]), "checkpoint_ns": ns}
        place: RunnableConfig = {"configurable": {**thread, "checkpoint_id": checkpoint_id}}
        if not (yield from _is_saved(_without_history(saver), place, ends)):
            return False
    return True


def _is_saved(saver: Any, place: RunnableConfig, ends: float) -> Part[bool]:
    """Whether the saver has a checkpoint before the time `ends`."""
    look, pause = Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place)), _FIRST_PAUSE
    while (yield look) is None:
        if time.monotonic() > ends:
            return False
        yield Operation(partial(time.sleep, pause), partial(asyncio.sleep, pause))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


class _NoHistory:
    """Stands in for a saver's serializer and loads nothing."""

    def loads_typed(self, data: object) -> Any:
        return empty_checkpoint()


def _without_history(saver: Any) -> Any:
    """A copy of the saver that reads no history, which would take most of the time; made as by LangGraph's
    `with_allowlist`. The saver itself if its reads are not LangGraph's or ours: it might keep what it reads.
    """
    reads = (type(saver).get_tuple, type(saver).aget_tuple)
    if not all(read.__module__.startswith(_KNOWN_SAVERS) for read in reads):
        return saver
    reader = copy(saver)
    reader.serde = _NoHistory()
    return reader
