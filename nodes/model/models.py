"""The models of a graph: with the tools of each tool choice, under another name, and for summaries.

A run may name another model of the same provider; each name gets one copy of the given model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from signoff.graph.errors import SetupError
from signoff.graph.foreign import words
from signoff.graph.history.replies import Controls
from signoff.graph.rules import ToolChoice
from signoff.graph.state import Acting
from signoff.nodes.model.guard import guarded, without_streaming
from signoff.nodes.model.retries import ModelRetries, without_own_retries
from signoff.tools.functions import check_shown
from signoff.tools.toolbox import Toolbox

_PROMPT_PART = 0.8
_PROMPT_TOKENS = 100_000
_MOST_PROMPT_TOKENS = 200_000
_ROOMY = 16_000

Model = Any
"""A chat model, or something that behaves like one; see `check_model`."""
SummaryWriter = Literal["model", "lines"] | BaseChatModel | None
"""Who writes summaries; see `build_graph`."""
Streaming = Literal["always", "auto", "never"]
"""When a reply is streamed; see `build_graph`."""


def refuse_wrapped(model: Model) -> None:
    """Raises SetupError for another runnable, such as a chat model with `bind` or `with_retry`: the tools and
    the inner guard go into the model itself."""
    if isinstance(model, Runnable) and not isinstance(model, BaseChatModel):
        raise SetupError(
            f"{type(model).__name__} is not a chat model; pass the chat model itself, with its options in "
            'its constructor (temperature=0), policy={"model_retries": …} in place of with_retry, '
            'ModelFallbackMiddleware in place of with_fallbacks, and context={"model": …} to choose another '
            "model for one run."
        )


def prompt_budget(model: Model) -> int:
    """The tokens of a prompt: 80 % of the context that the model's profile names, but not above 200,000,
    since all of it is paid in each turn; else 100,000."""
    size = context_of(model)
    return min(int(size * _PROMPT_PART), _MOST_PROMPT_TOKENS) if size else _PROMPT_TOKENS


def check_writer(compaction: Any) -> Any:
    """Raises SetupError for anything that `compaction` cannot be."""
    if compaction is None or compaction in ("model", "lines") or isinstance(compaction, BaseChatModel):
        return compaction
    refuse_wrapped(compaction)
    raise SetupError(f"compaction is {compaction!r:.80}; pass 'model', 'lines' or a chat model.")


def summariser(
    model: Model,
    compaction: SummaryWriter,
    prompt_tokens: int,
    controls: Controls,
    streaming: Streaming = "always",
) -> BaseChatModel | None:
    """The model that writes summaries, without tools; None for summaries by lines.

    By default lines are used when the model's context size is unknown, or so small that turns are summarised
    every few turns: a call for each summary would cost more than it is worth.
    """
    if compaction is None:
        compaction = "model" if context_of(model) and prompt_tokens >= _ROOMY else "lines"
    if compaction == "lines":
        return None
    writer: BaseChatModel = _plain(model if compaction == "model" else compaction)
    # A summary is not shown while it streams.
    return guarded(writer if streaming == "always" else without_streaming(writer), controls)


def _plain(model: Model) -> Model:
    """The model that `model` wraps, if it does (`TaggedText`): a summary is text, in no protocol."""
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, BaseChatModel) else model


def continues(model: Model, writer: BaseChatModel | None, compaction: SummaryWriter) -> bool:
    """Whether the model writes the summary itself, in one more call on the prompt that it has: not for
    another model, nor for one that speaks a protocol of text."""
    return writer is not None and not isinstance(compaction, BaseChatModel) and _plain(model) is model


def context_of(model: Model) -> int:
    """The tokens of the context that the model's profile names; 0 where it names none."""
    return (getattr(model, "profile", None) or {}).get("max_input_tokens") or 0


# LangChain's value for "some tool", which every provider's package accepts (OpenAI's own is "required").
_SOME_TOOL = "any"
_CHOICE = "tool_choice"
# Providers' packages call the field by one of these.
_NAME_FIELDS = ("model_name", "model")
_MOST_NAMES = 8


@dataclass(frozen=True)
class AskedModel:
    """The model that a graph asks, or one that a middleware has put in its place.

    model: as it was given. offers: with the tools of each offer. name: as its provider knows it; empty where
    it has none. retries: how often it is asked again; None for never. streaming: when its reply is streamed.
    """

    model: Model
    offers: "Bound"
    name: str = ""
    retries: ModelRetries | None = None
    streaming: Streaming = "always"

    def offering(self, tools: Sequence[Any], options: Mapping[str, Any]) -> "AskedModel":
        """The same model with these working tools, and options of `bind_tools`."""
        return replace(self, offers=self.offers.offering(tools, options))

    def replaced(self, model: Model, box: Toolbox) -> "AskedModel":
        """Another model in the place of this one. Raises SetupError for a wrapped model, and for one without
        tool calling."""
        refuse_wrapped(model)
        offers = bound(model, box, quiet=self.retries is not None, streaming=self.streaming)
        return replace(self, model=model, offers=offers, name=_name_of(model))


@dataclass(frozen=True)
class BoundModels:
    """The models as a graph uses them. asked: replies. summariser: writes summaries; None for summaries by
    lines. continues: the summariser is the one that is asked, and writes them on its current prompt, with its
    tools."""

    asked: AskedModel
    summariser: BaseChatModel | None
    continues: bool = False


@runtime_checkable
class Keeper(Protocol):
    """A model that stores something in the thread: its instructions, and the state of its work."""

    def _keep(self, before: Acting | None, messages: Sequence[BaseMessage], task: str) -> Acting:
        """What is kept when the history is `messages`; `before`: what was."""

    def _in_thread(self, before: Acting | None, messages: Sequence[BaseMessage]) -> Runnable[Any, Any]:
        """The model bound to the thread that stored `before`."""


ByName = Callable[[str], BoundModels]


@dataclass(frozen=True)
class ModelSet:
    """The model that a graph was built with, and how it is prepared.

    retries: None for no second try. streaming: when a reply is streamed.
    """

    given: Model
    box: Toolbox
    compaction: SummaryWriter
    prompt_tokens: int
    retries: ModelRetries | None
    streaming: Streaming = "always"

    def bound(self, name: str = "") -> BoundModels:
        """The model, under another name if one is given.

        Raises SetupError for a model without tool calling, and for one that has no name to change.
        """
        model = renamed(self.given, name) if name else self.given
        offers = bound(model, self.box, quiet=self.retries is not None, streaming=self.streaming)
        asked = AskedModel(model, offers, _name_of(model), self.retries, self.streaming)
        writer = summariser(model, self.compaction, self.prompt_tokens, self.box, self.streaming)
        return BoundModels(asked, writer, continues(model, writer, self.compaction))

    def by_name(self) -> ByName:
        """Returns a function that gives the model under another name of its provider; it caches the last
        few.

        The function raises SetupError for a model without a name that can be changed.
        """

        return lru_cache(maxsize=_MOST_NAMES)(self.bound)


def _name_of(model: Model) -> str:
    found = (getattr(model, name, None) for name in _NAME_FIELDS)
    return next((name for name in found if isinstance(name, str)), "")


def renamed(model: Model, name: str) -> Model:
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


_OPENAI = "api.openai.com"
_GOOGLE = "langchain_google_genai"


def one_of(model: Model, names: Sequence[str]) -> Any:
    """The `tool_choice` by which a call of one of these tools is required; None for a provider that cannot
    choose among several, as far as is known here. Servers that only speak OpenAI's protocol mostly cannot."""
    made_by = type(model).__module__.split(".")[0]
    if made_by == _GOOGLE:
        return list(names)
    client = getattr(model, "root_client", None) or getattr(model, "root_async_client", None)
    if made_by != "langchain_openai" or getattr(getattr(client, "base_url", None), "host", "") != _OPENAI:
        return None
    if getattr(model, "use_responses_api", None):
        tools = [{"type": "function", "name": name} for name in names]
        return {"type": "allowed_tools", "mode": "required", "tools": tools}
    allowed = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}


class Bound(dict[ToolChoice, Runnable[Any, Any]]):
    """The model for each choice of tools, made when it is first asked for: most runs need one only. Each has
    the same tools.

    tools, options: in place of the working tools of `box`, and for `bind_tools`.
    """

    def __init__(
        self,
        model: Model,
        box: Toolbox,
        tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._model, self._box, self._tools, self._options = model, box, tools, options
        self._controls = [control.tool for control in box.controls.values()]
        self._every = box.every if tools is None else [*tools, *self._controls]

    def __missing__(self, offer: ToolChoice) -> Runnable[Any, Any]:
        # Never with fewer tools: a provider's cached prompt begins with them.
        choice: Any = None if offer is ToolChoice.ALL else _SOME_TOOL
        if offer is ToolChoice.CONTROLS:
            choice = one_of(self._model, [tool.name for tool in self._controls])
            if choice is None:
                return self.setdefault(offer, self[ToolChoice.REQUIRED])
        self[offer] = _with_tools(self._model, self._every, self._options, choice)
        return self[offer]

    @cached_property
    def unstreamed(self) -> "Bound":
        """The same model with the same tools, which never streams."""
        return Bound(without_streaming(self._model), self._box, self._tools, self._options)

    def offering(self, tools: Sequence[Any], options: Mapping[str, Any]) -> "Bound":
        """The same model with these working tools; the control tools stay."""
        return Bound(self._model, self._box, tools, options)


def bound(model: Model, box: Toolbox, *, quiet: bool, streaming: Streaming = "always") -> Bound:
    """The model for each offer. quiet: without the retries of its own package. streaming: "never" turns
    streaming off in the model. Raises SetupError for a model without tool calling."""
    own = without_own_retries(model) if quiet and isinstance(model, BaseChatModel) else model
    if streaming == "never":
        own = without_streaming(own)
    offers = Bound(guarded(own, box), box)
    try:
        offers[ToolChoice.ALL]
    except NotImplementedError:
        raise SetupError(
            f"{type(model).__name__} cannot call tools (it has no bind_tools); use a model with tool calling."
        ) from None
    except Exception as error:
        check_shown(box.tools, error)
        if not box.provided or not isinstance(error, TypeError | ValueError | KeyError):
            raise
        raise SetupError(
            f"{type(model).__name__} does not take what tools= names of a provider "
            f"({', '.join(box.provided)}): {words(error)}"
        ) from error
    return offers


def keeper_of(models: Bound) -> Keeper | None:
    """The model, if it stores something in the thread (a `TaggedText` does)."""
    found: Any = models[ToolChoice.ALL]
    return found if isinstance(found, Keeper) else None


def _with_tools(
    model: Model, tools: Sequence[Any], options: Mapping[str, Any], choice: Any = None
) -> Runnable[Any, Any]:
    """The model with these tools, and with this `tool_choice` where its package can say so."""
    chosen = options if choice is None else {**options, _CHOICE: choice}
    try:
        made: Runnable[Any, Any] = model.bind_tools(tools, **chosen)
    except (TypeError, ValueError):
        if choice is None:
            raise
        return _with_tools(model, tools, {key: options[key] for key in options if key != _CHOICE})
    return made
