"""Validates the middleware of a graph, and lists what is rejected, with Signoff's own alternative."""

import inspect
import reprlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from langchain.agents.middleware import AgentMiddleware

from signoff.graph.errors import SetupError

Given = AgentMiddleware[Any, Any, Any]

_WHOLE = (
    "the history stays whole, and the machine decides by it; write policy={'prompt_tokens': …}, with "
    "'compaction': 'model' (or a chat model) for a summary by a model"
)
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "signoff.guards.middleware": "its rules are those of the graph itself; leave it out",
        "langchain.agents.middleware.human_in_the_loop": (
            "a person's decision belongs to one call, and is kept with it; write approvals={…}, which takes "
            "the same rules"
        ),
        "langchain.agents.middleware.model_call_limit": (
            "a limit holds over pauses and restarts, and is an outcome; write limits=Limits(turns=…)"
        ),
        "langchain.agents.middleware.tool_call_limit": (
            "a limit holds over pauses and restarts, and is an outcome; write limits=Limits(tool_calls=…)"
        ),
        "langchain.agents.middleware.summarization": _WHOLE,
        "deepagents.middleware.summarization": _WHOLE,
        "deepagents.middleware.patch_tool_calls": (
            "a Signoff graph already answers every call; leave it out"
        ),
    }
)
"""Middleware that conflicts with the machine, by the module that defines it, and what to write instead."""


def why_refused(kind: type) -> str | None:
    """Why middleware of this class or a subclass is rejected; None if it is not."""
    return next((REFUSED[one.__module__] for one in kind.__mro__ if one.__module__ in REFUSED), None)


def checked(given: Sequence[Any]) -> tuple[Given, ...]:
    """The validated middleware. Raises SetupError for anything else, for middleware that conflicts with the
    machine, and for a duplicate name."""
    names = set[str]()
    for one in given:
        if inspect.isclass(one):
            raise SetupError(f"middleware= holds the class {one.__name__}; write {one.__name__}(…).")
        if not isinstance(one, AgentMiddleware):
            raise SetupError(
                f"middleware= holds {reprlib.repr(one)}, which is not a middleware; pass instances of "
                "LangChain's AgentMiddleware."
            )
        if why := why_refused(type(one)):
            raise SetupError(f"middleware= holds {one.name}, which a Signoff graph does not take: {why}.")
        if one.name in names:
            raise SetupError(
                f"Two middleware are named {one.name!r}; remove one of them, or set another `name` for one."
            )
        names.add(one.name)
    return tuple(given)


def has(one: Given, hook: str) -> bool:
    """Whether this middleware overrides the hook with exactly this name, sync or (with `a`) async."""
    return getattr(type(one), hook) is not getattr(AgentMiddleware, hook)


def either(one: Given, hook: str) -> bool:
    """Whether it has the hook in its sync or its async form."""
    return has(one, hook) or has(one, f"a{hook}")
