"""Chooses the model of a run: OpenAI-compatible, of another provider, embedded, or scripted."""

import importlib.util
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel

from signoff.graph.errors import SetupError
from signoff.models.scripted import ScriptedModel
from signoff.nodes.model.providers import EMBEDDED, SCRIPTED, check_name, model_by_name, provider_name

if TYPE_CHECKING:
    # The package of the embedded model is slow to import.
    from signoff.models.local.weights import Progress

_NO_MODEL = (
    "There is no model: name one with --model (with OPENAI_API_KEY set, or --base-url for a "
    "server that needs none), or install the embedded one with `python -m signoff.models.local install`."
)


@dataclass(frozen=True)
class Chosen:
    """A model, ready to use. `prompt` belongs at the end of the system prompt; close `resource` after use."""

    model: BaseChatModel
    prompt: str
    resource: AbstractContextManager[Any]


def choose_model(
    name: str, base_url: str | None, env: Mapping[str, str], on_progress: "Progress | None" = None
) -> Chosen:
    """Returns the model called `name`.

    name: `local` for the embedded model, `scripted:FILE.py`, `provider:model` for a provider that LangChain
    knows, or the model's name on an OpenAI-compatible server. The last form covers every name with another
    word before a colon, and every name when there is a base_url. base_url: the address of that server; None
    for OpenAI's own. env: where the key is looked up. on_progress: called with the loading progress of the
    embedded model, which is then loaded here; None leaves loading to the first call. Raises SetupError when a
    key, a package or a file is missing.
    """
    if name == EMBEDDED:
        return _embedded(on_progress)
    if name.startswith(SCRIPTED):
        return Chosen(_scripted(Path(name.removeprefix(SCRIPTED))), "", nullcontext())
    if _is_of_a_provider(name, base_url):
        return Chosen(model_by_name(name, env), "", nullcontext())
    return Chosen(_remote(name, base_url, env.get("OPENAI_API_KEY")), "", nullcontext())


def check_model(name: str, base_url: str | None, env: Mapping[str, str]) -> None:
    """Raises SetupError when `choose_model` would fail; quick, because it loads nothing."""
    if name == EMBEDDED:
        from signoff.models.local.install import is_installed

        if not is_installed():
            raise SetupError(_NO_MODEL)
    elif name.startswith(SCRIPTED):
        _script_file(Path(name.removeprefix(SCRIPTED)))
    elif _is_of_a_provider(name, base_url):
        check_name(name)
    else:
        _key_for(name, base_url, env.get("OPENAI_API_KEY"))


def _is_of_a_provider(name: str, base_url: str | None) -> bool:
    return base_url is None and provider_name(name) is not None


def _embedded(on_progress: "Progress | None") -> Chosen:
    # Slow to import, and not needed for any other model.
    from signoff.models.local import WORKED_EXAMPLES, local_model

    model = local_model(on_progress=on_progress)
    return Chosen(model, WORKED_EXAMPLES, model)


def _remote(name: str, base_url: str | None, key: str | None) -> BaseChatModel:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(model=name, base_url=base_url, api_key=SecretStr(_key_for(name, base_url, key)))


def _key_for(name: str, base_url: str | None, key: str | None) -> str:
    if base_url is not None and (
        urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).netloc
    ):
        raise SetupError(
            f"The base URL {base_url!r} is not a web address; write it like http://127.0.0.1:8000/v1."
        )
    if key:
        return key
    if base_url is None:
        raise SetupError(
            f"The model {name!r} needs a key: set OPENAI_API_KEY, or pass --base-url for a server that needs "
            "none."
        )
    return "not-needed"


def _script_file(file: Path) -> Path:
    if not file.is_file():
        raise SetupError(f"There is no file {file} with a scripted model; check the path after {SCRIPTED!r}.")
    return file


def _scripted(file: Path) -> BaseChatModel:
    """Returns the model that the file defines: `model`, a chat model, or `script`, for a ScriptedModel."""
    spec = importlib.util.spec_from_file_location("signoff_scripted_model", _script_file(file))
    if spec is None or spec.loader is None:
        raise SetupError(f"{file} is not a Python file; name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SetupError(f"{file} could not be run ({type(error).__name__}: {error}); fix it.") from error
    model = getattr(module, "model", None)
    if isinstance(model, BaseChatModel):
        return model
    if hasattr(module, "script"):
        return ScriptedModel(module.script)
    raise SetupError(f"{file} defines neither `model` (a chat model) nor `script`; add one of them.")
