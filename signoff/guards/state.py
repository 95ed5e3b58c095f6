"""The channels of a guarded agent: those of the machine, under the names that it gives them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NotRequired, Self, TypeVar

from langchain.agents.middleware.types import AgentState, OmitFromInput, PrivateStateAttr
from langchain_core.messages import AnyMessage
from langgraph.channels import LastValue, UntrackedValue

from signoff.graph.errors import SetupError
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
    # Whether a hook has run in this run; of no later run, so it is not saved.
    begun: NotRequired[Annotated[bool, UntrackedValue, PrivateStateAttr]]
    past: NotRequired[Annotated[list[AnyMessage], _LEDGER, PrivateStateAttr]]


OWN = frozenset(GuardedState.__annotations__)
"""The channels of an agent with guards."""

ADDED = OWN - AgentState.__annotations__.keys()
"""Those of them that Guards adds."""


def check_channels(names: Iterable[str]) -> None:
    """Raises SetupError where there are names: of channels that Guards has, and that are not its own."""
    if found := sorted(names):
        raise SetupError(
            f"Guards keeps channels named {', '.join(map(repr, found))}, and the state of this agent has its "
            "own of these names; rename them in your state_schema, or in the middleware that brings them. "
            "A thread that build_graph has run is not taken up: begin another one."
        )


def taken(channels: Mapping[str, Any]) -> set[str]:
    """Which of the channels that Guards adds are of another make in an agent."""
    own = (OwnValue, LedgerChannel, UntrackedValue)
    return {name for name in ADDED & channels.keys() if not isinstance(channels[name], own)}


def filled(state: Mapping[str, Any]) -> set[str]:
    """Those in which there is something, though no hook has written yet. The ledger begins empty."""
    return {name for name in ADDED & state.keys() if name != "past" or state[name]}
