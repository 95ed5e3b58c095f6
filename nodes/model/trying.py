"""The attempts of one model call, the waits between them, and the events that report them."""

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import RunnableConfig

from signoff.graph.inside.speed import listened
from signoff.nodes.model.advice import in_short, refuses_stream
from signoff.nodes.model.models import AskedModel
from signoff.nodes.model.stream import CallBounds
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part

RETRYING = "signoff_retrying"
"""The name of the event that reports a wait: for `on_custom_event` of a callback handler and of
`astream_events`, and under `type` in `stream_mode="custom"`."""
_LOOK = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True)
class NextTry:
    """A model call has failed, and is retried in `seconds`.

    why: in a few words, such as `rate limit`. tries: attempts so far, of at most `most`. dropped: a part of
    the reply has arrived, and may have been shown; it does not count.
    """

    seconds: float
    why: str
    tries: int
    most: int
    dropped: bool = False


@dataclass(frozen=True)
class Backoff:
    """Waits before the next attempt, and reports the wait. Returns False if the run is asked to stop or pause
    meanwhile."""

    told: NextTry

    def do(self, run: NodeContext) -> bool:
        event = _event(run, self.told)
        if _can_report(run.config):
            dispatch_custom_event(RETRYING, event, config=run.config)
        for seconds in self._pieces(run):
            time.sleep(seconds)
        return not run.draining

    async def ado(self, run: NodeContext) -> bool:
        event = _event(run, self.told)
        if _can_report(run.config):
            await adispatch_custom_event(RETRYING, event, config=run.config)
        for seconds in self._pieces(run):
            await asyncio.sleep(seconds)
        return not run.draining

    def _pieces(self, run: NodeContext) -> Iterator[float]:
        """The wait in pieces of seconds, after each of which a stop or a pause ends it."""
        end = time.monotonic() + self.told.seconds
        while (left := end - time.monotonic()) > 0 and not run.draining:
            # Without a control nobody can ask for anything.
            yield left if run.control is None else min(left, _LOOK)


def _event(run: NodeContext, next_try: NextTry) -> dict[str, Any]:
    event = asdict(next_try)
    if writer := getattr(run.runtime, "stream_writer", None):
        writer({"type": RETRYING, **event})
    return event


def _can_report(config: RunnableConfig) -> bool:
    """Whether a callback can be notified: LangChain needs the id of a run for that."""
    manager = config.get("callbacks")
    return listened(config) and getattr(manager, "parent_run_id", None) is not None


class WaitEnded(Exception):
    """The run is asked to stop or pause while it waits to retry a call."""


@dataclass
class Tries:
    """The result of the attempts of one call. again: the number of retries. waited: seconds. model: the name
    of the model that a middleware has put in place of the graph's. heard: whether a part of its last reply
    arrived. unstreamed: the provider has refused to stream."""

    again: int = 0
    waited: float = 0.0
    model: str = ""
    heard: bool = False
    unstreamed: bool = False

    def marks(self) -> dict[str, Any]:
        """The reply's marks about its attempts; empty for nearly every reply."""
        noted: dict[str, Any] = {"model": self.model} if self.model else {}
        if self.again:
            noted |= {"retries": self.again, "held": round(self.waited, 3)}
        return {**noted, "unstreamed": True} if self.unstreamed else noted

    def stays_without_streaming(self, error: Exception) -> bool:
        """Whether the provider has refused to stream by this error: then the same is asked once more without
        it, and the run stays without, which a warning says."""
        if self.unstreamed or not refuses_stream(error):
            return False
        self.unstreamed = True
        warnings.warn(
            f"The provider refuses to stream ({type(error).__name__}), so the run goes on without it; pass "
            'policy={"streaming": "never"} to build_graph, or disable_streaming=True to the model, to save '
            "that request.",
            stacklevel=2,
        )
        return True


Ask = Callable[[CallBounds], Part[_T]]


def try_model(model: AskedModel, watch: CallBounds, tries: Tries, ask: Ask[_T]) -> Part[_T]:
    """The result of `ask`, which is tried as often as the retries of the model allow.

    ask: gets new bounds for each attempt. tries: records the attempts. Raises the last error, or WaitEnded.
    """
    attempt = 0
    while True:
        attempt += 1
        bounds = watch.renewed()
        try:
            return (yield from ask(bounds))
        except Exception as error:
            tries.heard, policy = bounds.heard, model.retries
            seconds = policy.next_wait(attempt, error, watch.until) if policy else None
            if policy is None or seconds is None:
                raise
            tries.again += 1
            tries.waited += seconds
            if not (yield Backoff(NextTry(seconds, in_short(error), attempt, policy.tries, tries.heard))):
                raise WaitEnded from error
