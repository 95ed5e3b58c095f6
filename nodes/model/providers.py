"""Models by name: `"anthropic:claude-…"`, as LangChain's `init_chat_model` takes it.

The part before the first colon is a provider only if LangChain knows it: `qwen2.5:7b` and `ft:gpt-…` are
names of models. The package `langchain` is an extra; so the providers, their packages and their keys are
listed here, and mistakes are reported without importing any of them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

EMBEDDED = "local"
"""The name of the embedded model."""

READING = "signoff_reading"
"""The name of the event with which a model reports how much of its prompt it has read: for `on_custom_event`
of a callback handler. Its data are `done` and `total`, in tokens. The embedded model sends it."""

SCRIPTED = "scripted:"
"""The prefix for the path of a Python file with a model or a script, for tests and demos."""


@dataclass(frozen=True)
class Provider:
    """package: LangChain's package for it. keys: the variables of the environment of which one must hold its
    key; empty where it needs none, or takes other things than a key."""

    package: str
    keys: tuple[str, ...] = ()


_AWS = Provider("langchain-aws")

PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider("langchain-anthropic", ("ANTHROPIC_API_KEY",)),
    "anthropic_bedrock": _AWS,
    "azure_ai": Provider("langchain-azure-ai"),
    "azure_openai": Provider("langchain-openai"),
    "baseten": Provider("langchain-baseten"),
    "bedrock": _AWS,
    "bedrock_converse": _AWS,
    "bedrock_mantle_anthropic": _AWS,
    "bedrock_mantle_openai": _AWS,
    "cohere": Provider("langchain-cohere"),
    "deepseek": Provider("langchain-deepseek", ("DEEPSEEK_API_KEY",)),
    "fireworks": Provider("langchain-fireworks"),
    "google_anthropic_vertex": Provider("langchain-google-vertexai"),
    "google_genai": Provider("langchain-google-genai", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "google_vertexai": Provider("langchain-google-vertexai"),
    "groq": Provider("langchain-groq", ("GROQ_API_KEY",)),
    "huggingface": Provider("langchain-huggingface"),
    "ibm": Provider("langchain-ibm"),
    "langsmith": Provider("langchain-openai"),
    "litellm": Provider("langchain-litellm"),
    "meta": Provider("langchain-meta"),
    "mistralai": Provider("langchain-mistralai", ("MISTRAL_API_KEY",)),
    "nvidia": Provider("langchain-nvidia-ai-endpoints"),
    "ollama": Provider("langchain-ollama"),
    "openai": Provider("langchain-openai", ("OPENAI_API_KEY",)),
    "openrouter": Provider("langchain-openrouter", ("OPENROUTER_API_KEY",)),
    "perplexity": Provider("langchain-perplexity"),
    "together": Provider("langchain-together", ("TOGETHER_API_KEY",)),
    "upstage": Provider("langchain-upstage"),
    "xai": Provider("langchain-xai", ("XAI_API_KEY",)),
}
"""The providers that LangChain knows by name."""


class ModelName(NamedTuple):
    """A name of the form `provider:model`."""

    provider: str
    model: str


def provider_name(name: str) -> ModelName | None:
    """`name` taken apart; None where the part before the colon is not a provider that LangChain knows."""
    before, colon, after = name.partition(":")
    found = before.strip().lower().replace("-", "_")
    return ModelName(found, after.strip()) if colon and found in PROVIDERS else None


def check_name(name: str) -> None:
    """Raises SetupError when `model_by_name` could not make this model for want of a package; quick, and
    imports no provider."""
    found = _split_name(name)
    package = PROVIDERS[found.provider].package
    if missing := [each for each in ("langchain", package) if find_spec(each.replace("-", "_")) is None]:
        extra = "langchain" if "langchain" in missing else ""
        others = [each for each in missing if each != "langchain"]
        raise SetupError(
            f"The model {name!r} needs what is not installed ({', '.join(missing)}): "
            f"{install_hint(extra, *others)}"
        )


def model_by_name(name: str, env: Mapping[str, str] = os.environ) -> "BaseChatModel":
    """The model `provider:model`, by LangChain's `init_chat_model`.

    Raises SetupError, in one sentence, when the provider's package or its key is missing, and for a name that
    is not of this form.
    """
    check_name(name)
    found = _split_name(name)
    # Slow to import, and not needed for a model object or for looking up names.
    from langchain.chat_models import init_chat_model

    from signoff.nodes.model.advice import secrets_of

    try:
        model = init_chat_model(found.model, model_provider=found.provider)
    except Exception as error:
        # Each package raises its own errors.
        raise _without_key(name, found) if _lacks_key(found, env) else _cannot(name, error) from error
    if _lacks_key(found, env) and not any(secrets_of(model)):
        raise _without_key(name, found)
    return model


def _split_name(name: str) -> ModelName:
    found = provider_name(name)
    if found is None:
        before, colon, after = name[:80].partition(":")
        meant = next(iter(get_close_matches(before.strip().lower(), PROVIDERS)), "") if colon else ""
        bare = re.split(r"[:/]", name[:80])[-1].strip()
        example = f"{meant}:{after}" if meant else f"openai:{bare[:40] or 'gpt-…'}"
        raise SetupError(
            f"model= is {name[:80]!r}; write 'provider:model' with a provider that LangChain knows, such as "
            f"{example!r}, or pass a chat model."
        )
    if not found.model:
        raise SetupError(f"model= is {name!r}, which names no model: write it as '{found.provider}:model'.")
    return found


def _lacks_key(found: ModelName, env: Mapping[str, str]) -> bool:
    keys = PROVIDERS[found.provider].keys
    return bool(keys) and not any(env.get(key) for key in keys)


def _without_key(name: str, found: ModelName) -> SetupError:
    keys = " or ".join(PROVIDERS[found.provider].keys)
    return SetupError(f"The model {name!r} needs a key: set {keys}.")


def _cannot(name: str, error: Exception) -> SetupError:
    said = str(error)
    if isinstance(error, ValidationError):
        said = "; ".join(str(part["msg"]) for part in error.errors())
    sentence = " ".join(said.split())[:300].rstrip(".")
    return SetupError(f"The model {name!r} cannot be made ({sentence}).")
