"""Handles the wrappers of a model: LangChain's `bind`, `with_config`, `with_retry`, `with_fallbacks`,
`configurable_fields` and `configurable_alternatives`.

A graph removes the wrappers, so that tools and the inner guard go to the models inside; then it applies again
what the model itself does not handle. Most models have none, so LangChain's slow modules for wrappers are
imported only for a model that may have some.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from pydantic import ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain
from signoff.nodes.model.retries import ModelRetries, Passing, passing

if TYPE_CHECKING:
    from langchain_core.runnables.base import RunnableBindingBase
    from langchain_core.runnables.configurable import DynamicRunnable
    from langchain_core.runnables.fallbacks import RunnableWithFallbacks

Model = Any
"""A chat model, or something that behaves like one; see `check_model`."""

_TOOLS = ("tools", "tool_choice", "functions")


@dataclass(frozen=True)
class Unwrapped:
    """A model without its wrappers.

    bindings: what `bind` and `with_config` bound to it, the outermost first. retries, passes: what its
    `with_retry` says; None for the graph's own. fails: the errors after which the next model is asked.
    """

    model: Model
    bindings: "tuple[RunnableBindingBase[Any, Any], ...]" = ()
    retries: ModelRetries | None = None
    passes: Passing | None = None
    fails: tuple[type[BaseException], ...] = (Exception,)

    def wrap(self, model: Runnable[Any, Any]) -> Runnable[Any, Any]:
        """`model`, derived from this one, with its bindings applied again."""
        for binding in reversed(self.bindings):
            model = RunnableBinding(
                bound=model,
                kwargs=binding.kwargs,
                config=binding.config,
                config_factories=binding.config_factories,
            )
        return model


def unwrapped(given: Sequence[Model], config: RunnableConfig | None = None) -> list[Unwrapped]:
    """The models of a graph without their wrappers, in the order in which they are tried.

    config: the run's config, which may configure a model; None for the defaults. Raises SetupError for
    wrappers that cannot work here.
    """
    return [found for model in given for found in _inside(model, config)]


def configured_by(given: Sequence[Model]) -> tuple[str, ...]:
    """The keys of a run's `configurable` by which these models are configured; none for most."""
    if not any(map(_is_dynamic, given)):
        return ()
    return tuple(spec.id for model in given if _is_dynamic(model) for spec in model.config_specs)


def _is_dynamic(model: Model) -> bool:
    if isinstance(model, BaseChatModel):
        return False
    from langchain_core.runnables.base import RunnableBindingBase
    from langchain_core.runnables.configurable import DynamicRunnable
    from langchain_core.runnables.fallbacks import RunnableWithFallbacks

    match model:
        case DynamicRunnable():
            return True
        case RunnableBindingBase():
            return _is_dynamic(model.bound)
        case RunnableWithFallbacks():
            return any(map(_is_dynamic, model.runnables))
    return False


def _inside(model: Model, config: RunnableConfig | None) -> Iterator[Unwrapped]:
    if isinstance(model, BaseChatModel):
        yield Unwrapped(model)
        return
    from langchain_core.runnables.base import RunnableBindingBase
    from langchain_core.runnables.configurable import DynamicRunnable
    from langchain_core.runnables.fallbacks import RunnableWithFallbacks
    from langchain_core.runnables.retry import RunnableRetry

    match model:
        case RunnableWithFallbacks():
            yield from _fallbacks(model, config)
        case DynamicRunnable():
            yield from _inside(_prepared(model, config), config)
        case RunnableRetry():
            policy, passes = ModelRetries.of(model), passing(model)
            for found in _bound(model, config):
                yield replace(found, retries=policy, passes=passes)
        case RunnableBindingBase():
            yield from _bound(model, config)
        case _:
            yield Unwrapped(model)


def _bound(model: "RunnableBindingBase[Any, Any]", config: RunnableConfig | None) -> Iterator[Unwrapped]:
    if bound := [name for name in _TOOLS if name in model.kwargs]:
        raise SetupError(
            f"model= already has {' and '.join(bound)} bound to it; pass the model without them, and "
            "the tools in tools=: the graph binds them, together with its own."
        )
    for found in _inside(model.bound, config):
        yield replace(found, bindings=(model, *found.bindings))


def _fallbacks(
    model: "RunnableWithFallbacks[Any, Any]", config: RunnableConfig | None
) -> Iterator[Unwrapped]:
    if model.exception_key is not None:
        raise SetupError("model= has fallbacks with an exception_key, which is for inputs that are dicts.")
    for runnable in model.runnables:
        for found in _inside(runnable, config):
            yield replace(found, fails=model.exceptions_to_handle)


def _prepared(model: "DynamicRunnable[Any, Any]", config: RunnableConfig | None) -> Model:
    try:
        return model.prepare(config)[0]
    except ValidationError as error:
        raise SetupError(f"The model cannot be configured by this run's config: {explain(error)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"The model cannot be configured by this run's config: {error}.") from error
