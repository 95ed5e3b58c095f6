"""How much a model is shown, and which model writes the digest of what it is not shown any more."""

from typing import Literal

from langchain_core.language_models import BaseChatModel

from signoff.graph.errors import SetupError
from signoff.graph.replies import Controls
from signoff.nodes.guard import guarded

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
