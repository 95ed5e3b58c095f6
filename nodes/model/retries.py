"""Retries of transient provider errors: how many, and with which delays. Providers' packages have retries of
their own, which are invisible and cannot be interrupted; they are turned off in the graph's copy of the
model.
"""

import inspect
import random
from functools import cached_property
from types import FunctionType
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel
from pydantic import ConfigDict, Field

from signoff.graph import clock
from signoff.graph.foreign import gets_past
from signoff.graph.inside.private import share_private
from signoff.graph.limits import MODEL_TRIES, CheckedModel
from signoff.nodes.model.advice import may_pass, retry_after
from signoff.nodes.model.stream import Silent

_SPREAD = 0.1
_MOST_DOUBLED = 60


class ModelRetries(CheckedModel):
    """How often a model call is retried after a transient error of its provider: a rate limit (429), a
    timeout (408), a conflict (409), a server error (5xx), a connection that fails or drops.

    tries: the total number of attempts; 1 for no retry. first_wait: seconds before the second attempt, plus a
    random time up to the same length; doubled before each further one.
    longest_wait: the maximum wait. A provider's `Retry-After` is respected; if it is longer, the call is not
        retried.

    Raises SetupError for an invalid value.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    tries: int = Field(default=MODEL_TRIES, ge=1)
    first_wait: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    longest_wait: float = Field(default=60.0, gt=0, allow_inf_nan=False)

    def next_wait(self, tries: int, error: BaseException, until: float | None) -> float | None:
        """Seconds to wait before the next attempt; None if there is none.

        tries: the attempts so far, the last of which has ended with this error. until: the latest start of an
        attempt, by the monotonic clock.
        """
        if tries >= self.tries or not is_retried(error):
            return None
        seconds = retry_after(error)
        # With jitter: else all calls that were rejected together would come back together.
        if seconds is None:
            growing = self.first_wait * 2.0 ** min(tries - 1, _MOST_DOUBLED)
            seconds = min(growing + random.uniform(0, self.first_wait), self.longest_wait)
        else:
            seconds *= random.uniform(1, 1 + _SPREAD)
        is_too_late = until is not None and clock.monotonic() + seconds >= until
        return None if is_too_late or seconds > self.longest_wait * (1 + _SPREAD) else seconds


def is_retried(error: BaseException) -> bool:
    """Whether to retry after an error: after a transient one.

    A model that was silent for too long has already been retried.
    """
    if not isinstance(error, Exception) or isinstance(error, Silent) or gets_past(error):
        return False
    return may_pass(error)


def without_own_retries(model: BaseChatModel) -> BaseChatModel:
    """A copy of `model`, or of the model that it wraps, without the retries of its package; `model` itself if
    its package has no such setting."""
    inner = getattr(model, "model", None)
    if isinstance(inner, BaseChatModel):
        quiet = without_own_retries(inner)
        return model if quiet is inner else model.model_copy(update={"model": quiet})
    if "max_retries" not in type(model).model_fields:
        return model
    twin = model.model_copy()
    share_private(twin, model)
    # Google's package counts attempts, and takes 0 for the default.
    none = 1 if any(kind.__module__.startswith("langchain_google_") for kind in type(model).__mro__) else 0
    twin.__dict__["max_retries"] = none
    for name, value in list(twin.__dict__.items()):
        if isinstance(value, dict) and "max_retries" in value and _is_cached(model, name):
            twin.__dict__[name] = {**value, "max_retries": none}
        elif _is_client(value):
            twin.__dict__[name] = value.with_options(max_retries=0)
    for name, root in (("client", "root_client"), ("async_client", "root_async_client")):
        _follow(twin, name, root, getattr(model, root, None))
    return twin


def _is_client(value: Any) -> bool:
    """Whether it is a client of OpenAI's or Anthropic's package, of which a copy uses the same connections. A
    copy would not have what tracing has put into this one object."""
    if not isinstance(getattr(value, "max_retries", None), int) or not hasattr(value, "with_options"):
        return False
    return not any(isinstance(getattr(type(value), name, None), FunctionType) for name in vars(value))


def _is_cached(model: BaseChatModel, name: str) -> bool:
    return isinstance(inspect.getattr_static(type(model), name, None), cached_property)


def _follow(twin: Any, name: str, root: str, old: Any) -> None:
    """ChatOpenAI keeps a part of its client beside it. old: the client of the user's model."""
    part, old_part = (_completions(client) for client in (twin.__dict__.get(root), old))
    # One that was replaced, or that tracing has changed, stays.
    if part is not None and twin.__dict__.get(name) is old_part and "create" not in vars(old_part):
        twin.__dict__[name] = part


def _completions(client: Any) -> Any:
    return getattr(getattr(client, "chat", None), "completions", None)
