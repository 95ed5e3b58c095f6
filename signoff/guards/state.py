"""The channels of a guarded agent: those of the machine, under the names that it gives them."""

from typing import Annotated, Any, NotRequired, Self, TypeVar

from langchain.agents.middleware.types import AgentState, OmitFromInput, PrivateStateAttr
from langchain_core.messages import AnyMessage
from langgraph.channels import LastValue

from signoff.graph.messages import SNAPSHOT_EVERY, HistoryChannel
from signoff.graph.state import Decision, EndedTask, Ending, Extra, Phases, Spent, Verdicts
from signoff.guards.ledger import take_down
from signoff.guards.steps import GuardPosition

_T = TypeVar("_T")


class OwnValue(LastValue[_T]):
    """LangGraph's channel for a value, copied without its constructor: each branch of the agent's loop copies
    all channels, three times a turn."""

    __slots__ = ()

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new.key, new.typ, new.value = self.key, self.typ, self.value
        return new


class LedgerChannel(HistoryChannel):
    """The ledger of the current task, copied without its constructor, too; its lists are never changed."""

    def copy(self) -> Self:
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        new.key, new.typ, new.reducer, new.value = self.key, self.typ, self.reducer, self.value
        return new


_LEDGER = LedgerChannel(take_down, snapshot_frequency=SNAPSHOT_EVERY)


class GuardedState(AgentState[Any]):
    """What a thread with guards keeps beside its messages."""

    outcome: NotRequired[Annotated[dict[str, Any] | None, OwnValue, OmitFromInput]]
    ended: NotRequired[Annotated[EndedTask, OwnValue, OmitFromInput]]
    event: NotRequired[Annotated[str, OwnValue, PrivateStateAttr]]
    decision: NotRequired[Annotated[Decision, OwnValue, PrivateStateAttr]]
    task: NotRequired[Annotated[str, OwnValue, PrivateStateAttr]]
    ending: NotRequired[Annotated[Ending, OwnValue, PrivateStateAttr]]
    verdicts: NotRequired[Annotated[Verdicts, OwnValue, PrivateStateAttr]]
    phases: NotRequired[Annotated[Phases, OwnValue, PrivateStateAttr]]
    extra: NotRequired[Annotated[Extra, OwnValue, PrivateStateAttr]]
    stop: NotRequired[Annotated[str, OwnValue, PrivateStateAttr]]
    spent: NotRequired[Annotated[Spent, OwnValue, PrivateStateAttr]]
    machine: NotRequired[Annotated[int, OwnValue, PrivateStateAttr]]
    guards: NotRequired[Annotated[GuardPosition, OwnValue, PrivateStateAttr]]
    past: NotRequired[Annotated[list[AnyMessage], _LEDGER, PrivateStateAttr]]


OWN = frozenset(GuardedState.__annotations__)
"""The channels that Guards adds."""
