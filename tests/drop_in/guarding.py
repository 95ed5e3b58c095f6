"""The ways to run an agent by the rules with `Guards`: by itself, guarded, and behind a cache."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as chain
from langgraph.types import Command

from signoff import ModelRetries, build_graph, outcome_of
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.playing import around, memory, scripted
from tests.support.guarded import tools
from tests.support.plays import TEXTS

DONE = call("finish_task", summary="All of it.")
ASKS = call("ask_user", question="Which?")
LOOK = call("look", name="a")
ANSWER: Command[Any] = Command(resume="The red one.")
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
SINCE_1_5 = pytest.mark.skipif(not hasattr(chain, "AutoModeMiddleware"), reason="LangChain 1.4")
BETA = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
Saved = Mapping[str, Any] | None


def agent(
    script: Any,
    *others: Any,
    first: bool = True,
    saved: Saved = None,
    more: Sequence[Any] = (),
    create: Callable[..., Any] = create_agent,
    **rules: Any,
) -> Any:
    """An agent of a script, or of a function of the messages, with guards before or after the others."""
    guards = Guards(policy={"texts": TEXTS}, **rules)
    within = [guards, *others] if first else [*others, guards]
    storage = memory() if saved is None else saved
    return create(scripted(script), [*tools(), *more], middleware=within, **storage)


def machine(
    script: Any,
    *others: Any,
    saved: Saved = None,
    more: Sequence[Any] = (),
    retries: bool = False,
    **options: Any,
) -> Any:
    """The same by `build_graph`. retries: whether a failed model call is tried again."""
    again = ModelRetries(tries=9, first_wait=0.001) if retries else None
    policy = {"texts": TEXTS, "model_retries": again}
    storage = memory() if saved is None else saved
    return build_graph(
        scripted(script), [*tools(), *more], middleware=others, policy=policy, **storage, **options
    )


def behind_a_cache(script: Any, *others: Any, **rules: Any) -> Any:
    """A middleware before the guards gives the replies, the last one for ever; the model is never asked."""
    kept = ScriptedModel([*script, *script[-1:] * 9])
    answers = around(lambda request, handler: kept.invoke(request.messages), "cache")
    return agent([], answers, *others, first=False, **rules)


FACES: Mapping[str, Callable[..., Any]] = {
    "Guards": agent,
    "guarded": lambda script, *others, **rules: guarded(agent(script, *others, **rules)),
    "Guards behind a cache": behind_a_cache,
}
EVERY_FACE = pytest.mark.parametrize("face", FACES.values(), ids=FACES)


def looks(seen: Sequence[Any]) -> Any:
    """A model that looks at something else each time."""
    return call("look", name=f"n{len(seen)}")


def used(state: Any) -> tuple[str, int]:
    outcome = outcome_of(state)
    return outcome.reason, outcome.turns
