"""The models of a graph: with the tools of each tool choice, under another name, and for summaries.

A run may name another model of the same provider; it is made once for each name, by a copy of the one given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from signoff.graph.errors import SetupError
from signoff.graph.foreign import words
from signoff.graph.history.replies import Controls
from signoff.graph.rules import ToolChoice
from signoff.graph.state import Acting
from signoff.nodes.model.guard import guarded
from signoff.tools.toolbox import Toolbox, provider_name

_VIEW_PART = 0.8
_VIEW_TOKENS = 100_000
_ROOMY = 16_000

Digests = Literal["model", "lines"] | BaseChatModel | None
"""Who writes digests; see `build_graph`."""


def view_budget(model: BaseChatModel) -> int:
    """The tokens of a view: 80 % of the context that the model's profile names, else 100,000."""
    size = _context(model)
    return int(size * _VIEW_PART) if size else _VIEW_TOKENS


def digester(
    model: BaseChatModel, digest: Digests, view_tokens: int, controls: Controls
) -> BaseChatModel | None:
    """The model that writes digests, without tools; None for digests by lines.

    By default the lines serve where nothing is known of the model's context, and where it is so small that
    turns are folded every few turns: a call for each digest would cost more than it gives.

    Raises SetupError for anything that `digest` cannot be.
    """
    if digest is None:
        digest = "model" if _context(model) and view_tokens >= _ROOMY else "lines"
    if digest == "lines":
        return None
    if isinstance(digest, BaseChatModel):
        return guarded(_plain(digest), controls)
    if digest != "model":
        raise SetupError(f"digest is {digest!r}; give 'model', 'lines' or a chat model.")
    return guarded(_plain(model), controls)


def _plain(model: BaseChatModel) -> BaseChatModel:
    """The model that `model` wraps, if it does (`TaggedText`): a digest is text, in no protocol."""
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, BaseChatModel) else model


def _context(model: BaseChatModel) -> int:
    return (getattr(model, "profile", None) or {}).get("max_input_tokens") or 0


# LangChain's word for "some tool" that every provider's package knows (OpenAI's own word is "required").
_SOME_TOOL = "any"
# Providers' packages call the field by one of these.
_NAME_FIELDS = ("model_name", "model")
_MOST_NAMES = 8
_MOST_PICKED = 64


@dataclass(frozen=True)
class BoundModels:
    """A model as a graph uses it. offers: with the tools of each offer. digester: see `Kit`."""

    offers: Mapping[ToolChoice, Runnable[Any, Any]]
    digester: BaseChatModel | None


@runtime_checkable
class Keeper(Protocol):
    """A model that keeps something in the thread: what it goes by, and where its work stands."""

    def kept(self, before: Acting | None, messages: Sequence[BaseMessage], task: str) -> Acting:
        """What is kept when the history is `messages`; `before`: what was."""

    def in_thread(self, before: Acting | None, messages: Sequence[BaseMessage]) -> Runnable[Any, Any]:
        """The model as it goes on in the thread that kept `before`."""


ByName = Callable[[str], BoundModels]


def by_name(model: BaseChatModel, box: Toolbox, digest: Digests, view_tokens: int) -> ByName:
    """Gives `model` under another name, as its own provider knows it; the last few are kept.

    What it gives raises SetupError for a model that has no name to change.
    """

    @lru_cache(maxsize=_MOST_NAMES)
    def under(name: str) -> BoundModels:
        other = renamed(model, name)
        return BoundModels(bound(other, box), digester(other, digest, view_tokens, box))

    return under


def renamed(model: BaseChatModel, name: str) -> BaseChatModel:
    """A copy of `model`, or of the model that it wraps, that asks the same provider for the model `name`.

    Raises SetupError for a model whose name is fixed: it says so by `one_name`, has no field for it, or is a
    deployment, which is what its provider goes by.
    """
    inner = getattr(model, "model", None)
    if isinstance(inner, BaseChatModel):
        return model.model_copy(update={"model": renamed(inner, name)})
    fields = [field for field in _NAME_FIELDS if isinstance(getattr(model, field, None), str)]
    fixed = getattr(model, "one_name", False) or getattr(model, "deployment_name", None)
    if fixed or not fields:
        raise SetupError(
            f"This run names the model {name[:80]!r}, but {type(model).__name__} has no name that can be "
            "changed; leave `model` out of the context, or build the graph with another model."
        )
    return model.model_copy(update={fields[0]: name})


class Bound(dict[ToolChoice, Runnable[Any, Any]]):
    """The model for each offer, made when it is first asked for: most runs need one of them only."""

    def __init__(self, model: BaseChatModel, box: Toolbox) -> None:
        super().__init__()
        self._model, self._box = model, box
        self._every, self._controls = box.every, [control.tool for control in box.controls.values()]
        self._picked: dict[tuple[str, ...], Bound] = {}

    def __missing__(self, offer: ToolChoice) -> Runnable[Any, Any]:
        tools: Sequence[BaseTool | dict[str, Any]] = (
            self._controls if offer in (ToolChoice.CONTROLS, ToolChoice.OPTIONAL_CONTROLS) else self._every
        )
        required = offer in (ToolChoice.REQUIRED, ToolChoice.CONTROLS)
        self[offer] = made = (_required if required else _free)(self._model, tools)
        return made

    def picked(self, names: tuple[str, ...]) -> "Bound":
        """The model for each offer, of the working tools with only these. What was picked before is the same
        again, so that a provider's cache of it holds."""
        if names not in self._picked:
            while len(self._picked) >= _MOST_PICKED:
                self._picked.pop(next(iter(self._picked)), None)
            self._picked[names] = Bound(self._model, self._box.with_only(names))
        return self._picked[names]


def bound(model: BaseChatModel, box: Toolbox) -> Mapping[ToolChoice, Runnable[Any, Any]]:
    """The model for each offer. Raises SetupError for a model without tool calling."""
    offers = Bound(guarded(model, box), box)
    try:
        offers[ToolChoice.ALL]
    except NotImplementedError:
        raise SetupError(
            f"{type(model).__name__} cannot call tools (it has no bind_tools); use a model with tool calling."
        ) from None
    except (TypeError, ValueError, KeyError) as error:
        if not box.provided:
            raise
        raise SetupError(
            f"{type(model).__name__} does not take what tools= names of a provider "
            f"({', '.join(box.provided)}): {words(error)}"
        ) from error
    return offers


def picked(models: Mapping[ToolChoice, Runnable[Any, Any]], names: tuple[str, ...] | None) -> Any:
    """The model for each offer with only these of the working tools; None: with all."""
    assert isinstance(models, Bound), "a graph that runs has bound models"
    return models if names is None else models.picked(names)


def keeper_of(models: Mapping[ToolChoice, Runnable[Any, Any]]) -> Keeper | None:
    """The model, if it keeps something of its own in the thread (a `TaggedText` does)."""
    found: Any = models[ToolChoice.ALL]
    return found if isinstance(found, Keeper) else None


Pick = Callable[[Mapping[str, Any], Any], Iterable[Any] | None]
"""Picks the working tools of a model call by the state and the context; None: all of them."""


def picked_names(pick: Pick, state: Mapping[str, Any], context: Any, box: Toolbox) -> tuple[str, ...] | None:
    """The names of the tools that `pick` gives, in the order of the graph; None for all.

    Raises SetupError when it fails, or picks what the graph does not have: that is no outcome of the task.
    """
    try:
        found = pick(state, context)
        names = None if found is None else {_name_of(one) for one in found}
    except Exception as error:
        raise SetupError(
            f"select_tools= failed ({type(error).__name__}: {words(error)}); put it right."
        ) from error
    known = (*box.tools, *box.provided)
    if names is None:
        return None
    if unknown := sorted(names - {*known, *box.controls}):
        raise SetupError(
            f"select_tools= picked {', '.join(unknown)}, which this graph does not have; its tools are: "
            f"{', '.join(known)}."
        )
    return tuple(name for name in known if name in names)


def _name_of(picked: Any) -> str:
    if isinstance(picked, Mapping):
        return provider_name(picked)
    return picked if isinstance(picked, str) else getattr(picked, "name", None) or picked.__name__


def _free(model: BaseChatModel, tools: Sequence[BaseTool | dict[str, Any]]) -> Runnable[Any, Any]:
    return model.bind_tools(tools)


def _required(model: BaseChatModel, tools: Sequence[BaseTool | dict[str, Any]]) -> Runnable[Any, Any]:
    """With one of `tools` required, where the model's package can say so; else with just these."""
    try:
        return model.bind_tools(tools, tool_choice=_SOME_TOOL)
    except NotImplementedError:
        raise
    except (TypeError, ValueError):
        return model.bind_tools(tools)
