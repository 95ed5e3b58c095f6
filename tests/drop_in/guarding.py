"""What the tests of `Guards` share: an agent with guards before or after others, and how its task ended."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as chain
from langgraph.types import Command

from signoff import (
    outcome_of,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from tests.drop_in.playing import memory
from tests.support.guarded import tools

DONE = call("finish_task", summary="All of it.")
ASKS = call("ask_user", question="Which?")
LOOK = call("look", name="a")
ANSWER: Command[Any] = Command(resume="The red one.")
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
SINCE_1_5 = pytest.mark.skipif(not hasattr(chain, "AutoModeMiddleware"), reason="LangChain 1.4")
BETA = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


def around(first: bool, *others: Any, **rules: Any) -> list[Any]:
    return [Guards(**rules), *others] if first else [*others, Guards(**rules)]


def agent(
    script: Any,
    *others: Any,
    first: bool = True,
    saved: Mapping[str, Any] | None = None,
    more: Sequence[Any] = (),
    **rules: Any,
) -> Any:
    """An agent of a script, or of a function of the messages, with guards before or after the others."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    storage = memory() if saved is None else saved
    return create_agent(model, [*tools(), *more], middleware=around(first, *others, **rules), **storage)


def looks(seen: Sequence[Any]) -> Any:
    """A model that looks at something else each time."""
    return call("look", name=f"n{len(seen)}")


def used(state: Any) -> tuple[str, int]:
    outcome = outcome_of(state)
    return outcome.reason, outcome.turns


def killed(does: Callable[[], object]) -> None:
    """Does it in a process that ends itself with the code 9."""
    child = os.fork()
    if child == 0:
        try:
            does()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
