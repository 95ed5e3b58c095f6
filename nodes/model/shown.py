"""Shows a model the results of tools in the form that its client takes.

The history keeps a picture or a document as the tool returned it, since a thread may go on with another
model. A provider's tool message may not hold it: OpenAI's chat completions take only text there, most others
no recordings. What a provider does not take it refuses at every later call, so the thread would be lost. Such
a block becomes a text that describes it, or follows the results in the user's role. Where a provider may have
refused the prompt nevertheless, it is asked once more with text alone.
"""

from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.blocks import NOTHING, block_text, media_of, text_block
from signoff.graph.foreign import gets_past
from signoff.graph.messages import nudge, nudge_kind
from signoff.graph.prompt.prompt import CACHE_MARK
from signoff.nodes.model.advice import may_refuse_content

_TOOL = "tool"
_OPENAI = "langchain_openai"
# What a client takes of a result, by its own code and its provider's documentation. Clients that are not
# known are shown everything.
_TAKEN = {
    "langchain_anthropic": {"image", "pdf", "address"},
    "langchain_aws": {"image", "pdf"},
    "langchain_google_genai": {"image", "pdf"},
    "langchain_fireworks": {"image", "address"},
    "langchain_groq": {"image", "address"},
    "langchain_mistralai": {"image", "address"},
    "langchain_ollama": {"image"},
    "langchain_openrouter": {"image", "address"},
    _OPENAI: {"image", "pdf", "address"},
}
# Chat completions: only in the user's role.
_CHAT = {"langchain_fireworks", "langchain_groq", "langchain_mistralai", "langchain_openrouter", _OPENAI}


def shown_to(model: Any, prompt: list[Any]) -> list[Any]:
    """The prompt as this model's client takes it; nearly always it is that already."""
    contents = [message.content for message in prompt if type(message) is ToolMessage]
    if all(type(content) is str and content and not content.isspace() for content in contents):
        return prompt
    packages = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    package = next((name for name in packages if name in _TAKEN), "")
    after = package in _CHAT and not getattr(model, "use_responses_api", False)
    sees = (getattr(model, "profile", None) or {}).get("image_inputs", True)
    return _shown(prompt, _TAKEN.get(package) if sees or not after else set(), after=after)


def shown_after(error: Exception, prompt: list[Any]) -> list[Any] | None:
    """The prompt with nothing but text from tools; None if what else is in it cannot be the reason of
    `error`."""
    made = [] if gets_past(error) or not may_refuse_content(error) else _shown(prompt, set(), users=True)
    return made if made and made != prompt else None


def _shown(
    prompt: list[Any], taken: set[str] | None, *, after: bool = False, users: bool = False
) -> list[Any]:
    """after: what is taken follows the results. users: also what tools say in the user's role."""
    made, moved = list[Any](), list[Any]()
    for message in [*prompt, None]:
        is_result = isinstance(message, ToolMessage)
        if moved and not is_result:
            # All results of a reply must follow it at once.
            made.append(nudge(_TOOL, "").model_copy(update={"content": moved}))
            moved = []
        if is_result or (users and message is not None and nudge_kind(message) == _TOOL):
            message = _with_content(message, taken, moved if after else None)
        made.append(message)
    return made[:-1]


def _with_content(message: Any, taken: set[str] | None, moved: list[Any] | None) -> Any:
    content: Any = message.content
    if isinstance(content, list) and content and taken is not None:
        parts = [_part(block, taken, moved) for block in content]
        content = [part for part in parts if part.get("type") != "text" or part.get("text")]
        if all(part.keys() == {"type", "text"} for part in content):
            content = "\n".join(part["text"] for part in content)
    if not content or (isinstance(content, str) and content.isspace()):
        content = "[]" if message.content == [] else NOTHING
    return message if content is message.content else message.model_copy(update={"content": content})


def _part(block: Any, taken: set[str], moved: list[Any] | None) -> dict[str, Any]:
    media = media_of(block)
    if isinstance(block, dict) and (block.get("type") == "text" or (taken and media is None)):
        # Text, or a form of the provider's own.
        return block
    mark = {key: block[key] for key in block if key == CACHE_MARK} if isinstance(block, dict) else {}
    if media is None or media.sort not in taken:
        return {**text_block(block_text(block)), **mark}
    if moved is None:
        return {**media.standard(), **mark}
    moved += [text_block(media.words), media.standard()]
    return text_block(f"{media.words} It follows the results.")
