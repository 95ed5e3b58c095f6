"""How a reply stopped, by the provider's own words for it.

Only the words that say that a reply is not whole are listed, each beside the page that documents them; every
other word is an ordinary end, and decides nothing.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage

from signoff.graph.messages import marks

_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
_DETAILS = "incomplete_details"
_FIELDS = (*_KEYS, _DETAILS)


class StopReason(StrEnum):
    """How a reply stopped, as far as it matters: `stop` and `tool_calls` both read as `normal`.

    `length`: it was cut off, at a length, by a failure or by a lost connection. `filtered`: it was filtered
    or refused. `paused`: the provider's own tools take long; the reply goes on when it is sent back as it is.
    """

    NORMAL = "normal"
    LENGTH = "length"
    FILTERED = "filtered"
    PAUSED = "paused"


class _Words(NamedTuple):
    """A provider's words, separated by spaces. failed: the provider failed in the middle of the reply. open:
    the reply has not ended yet. full: the context has no room for the rest of it."""

    length: str = ""
    filtered: str = ""
    failed: str = ""
    paused: str = ""
    open: str = ""
    full: str = ""


_PROVIDERS = (
    # OpenAI, chat completions: https://platform.openai.com/docs/api-reference/chat/object
    # Groq: https://console.groq.com/docs/api-reference#chat-create
    # xAI: https://docs.x.ai/docs/api-reference#chat-completions
    # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
    # OpenRouter: https://openrouter.ai/docs/api-reference/overview#finish-reason
    _Words("length", "content_filter", "error insufficient_system_resource"),
    # OpenAI, responses (`status` and `incomplete_details`):
    # https://platform.openai.com/docs/api-reference/responses/object
    _Words("max_output_tokens incomplete", "content_filter", "failed cancelled", open="in_progress queued"),
    # Anthropic: https://docs.claude.com/en/api/handling-stop-reasons
    _Words("max_tokens", "refusal", paused="pause_turn", full="model_context_window_exceeded"),
    # Gemini: https://ai.google.dev/api/generate-content#FinishReason
    # Vertex AI: https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/GenerateContentResponse
    _Words(
        "MAX_TOKENS OTHER MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE UNEXPECTED_TOOL_CALL CONTINUATION "
        "TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE IMAGE_OTHER NO_IMAGE",
        "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_RECITATION "
        "IMAGE_PROHIBITED_CONTENT MODEL_ARMOR ESCALATION PUP_LIMITED_DISABLED",
        open="FINISH_REASON_UNSPECIFIED",
    ),
    # Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html
    _Words(
        "max_tokens malformed_model_output malformed_tool_use",
        "guardrail_intervened content_filtered",
        full="model_context_window_exceeded",
    ),
    # Ollama: https://github.com/ollama/ollama/blob/main/docs/api.md#generate-a-chat-completion
    _Words("length", failed="load unload"),
    # Mistral: https://docs.mistral.ai/api/#tag/chat
    _Words("length", failed="error", full="model_length"),
    # Z.ai: https://docs.z.ai/api-reference/llm/chat-completion
    _Words("length", "sensitive", "network_error", full="model_context_window_exceeded"),
    # Cohere: https://docs.cohere.com/reference/chat
    _Words("MAX_TOKENS ERROR_LIMIT", "ERROR_TOXIC", "ERROR TIMEOUT USER_CANCEL"),
    # watsonx: https://cloud.ibm.com/apidocs/watsonx-ai#text-chat
    _Words("length max_tokens token_limit time_limit", failed="cancelled error", open="not_finished null"),
    # vLLM: https://docs.vllm.ai/en/latest/api/vllm/v1/engine/
    _Words("length repetition", failed="abort error"),
)


def _bare(word: str) -> str:
    """A word without its writing: `MaxTokens`, `max-tokens` and `FINISH_REASON_MAX_TOKENS` are all
    `maxtokens`."""
    return word.casefold().replace("_", "").replace("-", "").removeprefix("finishreason")


_KINDS = {
    _bare(word): kind
    for words in _PROVIDERS
    for kind, text in words._asdict().items()
    for word in text.split()
}


def reason_in(metadata: Mapping[str, Any]) -> str:
    """The provider's finish reason, in lower case; empty if there is none, or the reply has not ended."""
    details = metadata.get(_DETAILS)
    reason = _word(details.get("reason")) if isinstance(details, Mapping) else ""
    # Another detail leaves the reply as incomplete as its status says.
    if _bare(reason) in _KINDS:
        return reason
    for key in _KEYS:
        if key in metadata and (reason := _word(metadata[key])):
            return reason
    return ""


def _word(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.name
    # An enum of a provider's package is printed as `FinishReason.SAFETY`.
    word = value.strip().lower().rsplit(".", 1)[-1] if isinstance(value, str) else ""
    return "" if _KINDS.get(_bare(word)) == "open" else word


def last_reason(metadata: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of the reason among the metadata of a reply's chunks, which LangChain would join to
    "lengthlength": the last one, or one that says that the reply is not whole."""
    ends = [said for said in metadata if reason_in(said)]
    cut = [said for said in ends if _stop_by(reason_in(said)) is not StopReason.NORMAL]
    return {key: value for said in (cut or ends)[-1:] for key, value in said.items() if key in _FIELDS}


def without_reason(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a reply without its finish reason."""
    return {key: value for key, value in metadata.items() if key not in _FIELDS}


def reason_of(message: AIMessage) -> str:
    """The provider's finish reason, in lower case; empty if it gives none."""
    return reason_in(message.response_metadata)


def broken_off(message: AIMessage) -> bool:
    """Whether the provider reports that it failed in the middle of the reply."""
    return _KINDS.get(_bare(reason_of(message))) == "failed"


def is_context_full(message: AIMessage) -> bool:
    """Whether the reply was cut since the prompt leaves no room for it in the model's context."""
    return _KINDS.get(_bare(reason_of(message))) == "full"


def stop_of(message: AIMessage) -> StopReason:
    """How the reply stopped. With anything but `normal` and `paused` its calls do not run, and no finish in
    it counts."""
    if marks(message).get("dropped"):
        return StopReason.LENGTH
    stop = _stop_by(reason_of(message))
    if stop is StopReason.NORMAL and (message.additional_kwargs.get("refusal") or _blocked(message)):
        return StopReason.FILTERED
    return stop


def _stop_by(reason: str) -> StopReason:
    kind = _KINDS.get(_bare(reason), StopReason.NORMAL)
    return StopReason.LENGTH if kind in ("failed", "full") else StopReason(kind)


def _blocked(message: AIMessage) -> bool:
    """Whether a block of the content is a refusal, or the prompt was blocked before there was a reply."""
    feedback = message.response_metadata.get("prompt_feedback")
    if isinstance(feedback, Mapping) and feedback.get("block_reason"):
        return True
    if isinstance(message.content, str):
        return False
    blocks = [part for part in message.content if isinstance(part, dict)]
    parts = [part.get("value") if part.get("type") == "non_standard" else part for part in blocks]
    return any(isinstance(part, Mapping) and part.get("type") == "refusal" for part in parts)
