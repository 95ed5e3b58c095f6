"""What to do about an error of a model's provider, in one sentence."""

from langchain_core.exceptions import ContextOverflowError

from signoff.tools.output import valid_text

_BY_WORDS = (
    (("context length", "context_length", "context size", "maximum context", "too many tokens", "too long"),
     "The prompt is larger than the model's context: shorten the task or its files, or use a model with a "
     "larger context."),
    (("support tool", "support function", "tools are not supported", "tool choice requires", "tool use is"),
     "The model or its server does not support tool calling: use one that does."),
)  # fmt: skip
_BY_STATUS = {
    401: "The API key is missing or wrong: set OPENAI_API_KEY.",
    403: "The API key may not use this model: check the key's rights or choose another model.",
    404: "There is no such model or address: check --model and --base-url.",
    429: "The provider's rate limit or quota is used up: wait, or check the account.",
}
_BY_CLASS = {
    "APIConnectionError": "The provider cannot be reached: check the network and --base-url.",
    "APITimeoutError": "The provider did not answer in time: try again.",
    "ConnectError": "The provider cannot be reached: check the network and the base URL.",
}


def advise(error: Exception) -> str:
    """The provider's message and what to do about it, then how the thread goes on."""
    said = " ".join(valid_text(str(error)).split())[:500] or type(error).__name__
    return f"{type(error).__name__}: {said.rstrip('.')}. {_what_to_do(error)}"


def _what_to_do(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    if isinstance(error, ContextOverflowError):
        return _BY_WORDS[0][1]
    if status in (None, 400, 413, 422, 500):
        said = str(error).lower()
        for words, advice in _BY_WORDS:
            if status is not None and any(word in said for word in words):
                return advice
    for name in (kind.__name__ for kind in type(error).__mro__):
        if name in _BY_CLASS:
            return _BY_CLASS[name]
    return _BY_STATUS.get(status or 0, "Nothing is lost: when the cause is gone, retry the thread.")
