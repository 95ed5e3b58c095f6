"""The channels of a guarded agent: those of the machine, under the same names."""

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
    """LangGraph's channel for a value, with a copy that skips the constructor: each branch of the agent's
    loop copies all channels, three times per turn."""

    __slots__ = ()

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new.key, new.typ, new.value = self.key, self.typ, self.value
        return new


class LedgerChannel(HistoryChannel):
    """The channel of the current task's ledger, with the same cheap copy; its lists never change."""

    def copy(self) -> Self:
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        new.key, new.typ, new.reducer, new.value = self.key, self.typ, self.reducer, self.value
        return new


_LEDGER = LedgerChannel(take_down, snapshot_frequency=SNAPSHOT_EVERY)


class GuardedState(AgentState[Any]):
    """The channels of a thread with guards, beside its messages."""

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
    gone_on: NotRequired[Annotated[list[str], OwnValue, PrivateStateAttr]]
    guards: NotRequired[Annotated[GuardPosition, OwnValue, PrivateStateAttr]]
    # Whether a hook has run in this run; irrelevant for later runs, so it is not saved.
    begun: NotRequired[Annotated[bool, UntrackedValue, PrivateStateAttr]]
    past: NotRequired[Annotated[list[AnyMessage], _LEDGER, PrivateStateAttr]]


OWN = frozenset(GuardedState.__annotations__)
"""The channels of an agent with guards."""

ADDED = OWN - AgentState.__annotations__.keys()
"""The channels among them that Guards adds."""


def check_channels(names: Iterable[str]) -> None:
    """Raises SetupError if any names are given: channels of the agent that clash with those of Guards."""
    if found := sorted(names):
        raise SetupError(
            f"Guards keeps channels named {', '.join(map(repr, found))}, and the state of this agent has its "
            "own of these names; rename them in your state_schema, or in the middleware that brings them. "
            "A thread that build_graph has run cannot be continued: start another one."
        )


def taken(channels: Mapping[str, Any]) -> set[str]:
    """The names of the channels of Guards that an agent defines differently."""
    own = (OwnValue, LedgerChannel, UntrackedValue)
    return {name for name in ADDED & channels.keys() if not isinstance(channels[name], own)}


def filled(state: Mapping[str, Any]) -> set[str]:
    """The channels with a value, though no hook has written yet. The ledger starts empty."""
    return {name for name in ADDED & state.keys() if name != "past" or state[name]}
