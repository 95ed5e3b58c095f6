"""Prices of models, from the public list of the package `genai-prices`."""

from functools import lru_cache
from typing import Any

from langchain_core.language_models import BaseChatModel

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.graph.limits import Prices

_NAMES = ("model_name", "model", "model_id")
_ADDRESSES = ("openai_api_base", "anthropic_api_url", "base_url", "endpoint")
_GIVE = "Limits(cost=…, prices=Prices(input=…, output=…)), per million tokens"


def prices_of(model: BaseChatModel) -> Prices:
    """The prices of this model, in dollars; if they depend on the length of the prompt, those for the
    longest, so that a limit holds.

    Raises SetupError, which says what to install or pass, if they are unknown.
    """
    inner = getattr(model, "model", None)
    if isinstance(inner, BaseChatModel):
        return prices_of(inner)
    return _listed(_text(model, _NAMES), _text(model, _ADDRESSES))


def _text(model: BaseChatModel, fields: tuple[str, ...]) -> str:
    found = (getattr(model, field, None) for field in fields)
    return next((value for value in found if isinstance(value, str) and value), "")


@lru_cache(maxsize=64)
def _listed(name: str, address: str) -> Prices:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        raise SetupError(
            f"A cost limit needs prices: pass {_GIVE}, or install those of known models: "
            f"{install_hint('prices')}"
        ) from None
    # An unknown address may be that of a proxy.
    for url in [address, None] if address else [None]:
        try:
            one = Usage(input_tokens=1, output_tokens=1)
            found = calc_price(one, model_ref=name, provider_api_url=url).model_price
        except (LookupError, ValueError):
            continue
        read, written = _most(found.input_mtok), _most(found.output_mtok)
        if read is not None and written is not None:
            return Prices(input=read, output=written, cached_input=_most(found.cache_read_mtok))
    raise SetupError(
        f"No price is known for the model {name!r:.80}, so its cost cannot be limited; pass {_GIVE}."
    )


def _most(price: Any) -> float | None:
    """A price per million tokens; of one in tiers the highest."""
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    every = [price] if tiers is None else [price.base, *(tier.price for tier in tiers)]
    return max(map(float, every))
