"""Answers the arguments that `build_graph` does not have, by what to write instead: for a name that a user of
`create_agent` would write, for one of the policy, and for any other."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from signoff.graph.errors import SetupError
from signoff.graph.policy import LoopPolicy

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PAUSE = "pass it to a run: graph.invoke(…, {name}=[…])"
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "prompt": "write system_prompt=",
        "interrupt_on": "write approvals={…}, which takes the same rules",
        "interrupt_before": _PAUSE,
        "interrupt_after": _PAUSE,
        "subagents": "make each a tool, by delegate(name, graph, description=…), and pass it in tools=",
        "pre_model_hook": "write a middleware with before_model, and pass it in middleware=",
        "post_model_hook": "write a middleware with after_model, and pass it in middleware=",
        "debug": "pass it to a run: graph.invoke(…, debug=True)",
        "cache": (
            "a cache of nodes would skip effects; for the provider's cache of prompts pass "
            "AnthropicPromptCachingMiddleware() in middleware="
        ),
        "fallbacks": "pass LangChain's ModelFallbackMiddleware(…) in middleware=",
        "transformers": "leave it out; Session.events() and astream_events() have the events",
        "recursion_limit": "write limits=Limits(turns=…)",
    }
)


def answers_other_names(build: Callable[_P, _T]) -> Callable[_P, _T]:
    """`build`, which answers arguments that it does not have by what to write instead."""
    arguments = signature(build).parameters

    @wraps(build)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for name in kwargs.keys() - arguments.keys():
            raise SetupError(f"build_graph has no {name}=; {_what_to_write(name, arguments)}.")
        return build(*args, **kwargs)

    return checked


def _what_to_write(name: str, arguments: Iterable[str]) -> str:
    if name in LoopPolicy.model_fields:
        return f"write policy={{{name!r}: …}}"
    return OTHER_NAMES.get(name, f"it takes {', '.join(arguments)}").replace("{name}", name)
