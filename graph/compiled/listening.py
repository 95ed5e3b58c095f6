"""How a run by `invoke` or `stream` hears what somebody asks of it elsewhere: to pause, or to end its task.

A session reads such a request between the steps that it drives. A run that no session drives reads it here,
from the store, at most a few times a second.
"""

from dataclasses import dataclass, field

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp

from signoff.graph import clock
from signoff.graph.foreign import pause_place, paused_place

_EVERY_SECONDS = 0.2
STOP = "stop"
"""The word of a request to end the task; any other asks for a pause."""


@dataclass
class RunRequest:
    """What is asked of one run. word: the request; empty while there is none."""

    store: BaseStore
    place: RunnableConfig
    control: RunControl = field(default_factory=RunControl)
    word: str = ""
    _next: float = field(default_factory=clock.monotonic)

    @property
    def thread_id(self) -> str:
        name: str = self.place["configurable"]["thread_id"]
        return name

    def is_due(self) -> bool:
        """Whether it is time to look for a request."""
        return not self.word and clock.monotonic() >= self._next

    @property
    def looking(self) -> list[Op]:
        """The operation that reads the request."""
        return [GetOp(*pause_place(self.thread_id))]

    @property
    def dropping(self) -> list[Op]:
        """The operation that takes the request away."""
        return [PutOp(*pause_place(self.thread_id), None)]

    def heard(self, found: object) -> bool:
        """Whether a request was found; then the run ends at its next step boundary."""
        self._next = clock.monotonic() + _EVERY_SECONDS
        if not isinstance(found, Item):
            return False
        self.word = str(found.value.get("by", "request"))
        self.control.request_drain(self.word)
        return True

    def marking(self, newest: CheckpointTuple | None) -> list[Op]:
        """The operation that records that a person paused the thread where it stands."""
        at = "" if newest is None else newest.checkpoint["id"]
        return [PutOp(*paused_place(self.thread_id), {"checkpoint": at})]
