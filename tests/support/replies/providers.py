"""The providers whose replies are tried: the client of each, its words, and where they stand."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from tests.support.replies import wire
from tests.support.replies.wire import Event, WireReply
from tests.support.servers.fake_provider import Fault


@dataclass(frozen=True)
class Provider:
    """A provider: its client, its events, and its words for the end of a reply, separated by spaces.

    package: as `init_chat_model` names it. options: of the client; `{url}` is the server's address.
    metadata: where the client puts the word. calls: whether arguments are
    sent as text in pieces, as a whole text, or as an object, whose text is the client's own. named_last: the
    client names the provider in the last event alone, so a stream without that event is anybody's.
    """

    name: str
    package: str
    events: Callable[[WireReply], Iterator[Event]]
    options: dict[str, Any]
    metadata: str
    normal: str
    abnormal: str
    encode: Callable[[Event], bytes] = wire.sse
    content_type: str = "text/event-stream"
    calls: Literal["pieces", "texts", "objects"] = "pieces"
    named_last: bool = False

    @property
    def runs(self) -> list[str]:
        return self.normal.split()

    @property
    def does_not_run(self) -> list[str]:
        return self.abnormal.split()

    def client(self, url: str) -> BaseChatModel:
        options: dict[str, Any] = {"model": "m", "max_retries": 0, "api_key": "none", **self.options}
        for name, value in options.items():
            options[name] = value.format(url=url) if isinstance(value, str) else value
        model: BaseChatModel = init_chat_model(model_provider=self.package, **options)
        return model

    def answer(self, events: Iterable[Event]) -> Fault:
        """The answer of a server that then ends the connection."""
        return Fault(200, b"".join(map(self.encode, events)), content_type=self.content_type)


# It streams only models that it knows, and sends a key as it is only over HTTPS.
_BEDROCK = {
    "model": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "region_name": "us-east-1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
    "api_key": None,
    "endpoint_url": "{url}",
}
PROVIDERS = [
    Provider(
        "OpenAI Chat",
        "openai",
        wire.openai_events,
        {"base_url": "{url}/v1"},
        # https://platform.openai.com/docs/api-reference/chat-streaming, with DeepSeek's word
        metadata="finish_reason",
        normal="tool_calls stop function_call",
        abnormal="length content_filter insufficient_system_resource",
    ),
    Provider(
        "OpenAI Responses",
        "openai",
        wire.responses_events,
        {"base_url": "{url}/v1", "use_responses_api": True},
        # openai/types/responses/response.py
        metadata="status",
        normal="completed",
        abnormal="incomplete:max_output_tokens incomplete:max_messages incomplete:steered "
        "incomplete:content_filter completed:refusal",
        encode=wire.named_sse,
    ),
    Provider(
        "Anthropic",
        "anthropic",
        wire.anthropic_events,
        {"base_url": "{url}"},
        # https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
        metadata="stop_reason",
        normal="tool_use end_turn stop_sequence",
        abnormal="max_tokens model_context_window_exceeded refusal",
        encode=wire.named_sse,
    ),
    Provider(
        "Gemini",
        "google_genai",
        wire.gemini_events,
        {"base_url": "{url}", "max_retries": 1},
        # https://ai.google.dev/api/generate-content#FinishReason; google/genai/types.py
        metadata="finish_reason",
        normal="STOP",
        abnormal="MAX_TOKENS CONTINUATION SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT "
        "SPII IMAGE_SAFETY IMAGE_RECITATION IMAGE_PROHIBITED_CONTENT ESCALATION "
        "PUP_LIMITED_DISABLED MODEL_ARMOR OTHER MALFORMED_FUNCTION_CALL "
        "MALFORMED_RESPONSE UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS "
        "MISSING_THOUGHT_SIGNATURE IMAGE_OTHER NO_IMAGE",
        calls="objects",
    ),
    Provider(
        "Bedrock",
        "bedrock_converse",
        wire.bedrock_events,
        _BEDROCK,
        # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html
        metadata="stopReason",
        normal="tool_use end_turn stop_sequence",
        abnormal="max_tokens model_context_window_exceeded guardrail_intervened content_filtered "
        "malformed_model_output malformed_tool_use",
        encode=wire.frame,
        content_type="application/vnd.amazon.eventstream",
    ),
    Provider(
        "Ollama",
        "ollama",
        wire.ollama_events,
        {"base_url": "{url}"},
        # https://docs.ollama.com/api/chat; ollama/ollama llm/server.go, DoneReason
        metadata="done_reason",
        normal="stop",
        abnormal="length",
        encode=wire.line,
        content_type="application/x-ndjson",
        calls="objects",
        named_last=True,
    ),
    Provider(
        "Mistral",
        "mistralai",
        wire.mistral_events,
        {"endpoint": "{url}/v1", "max_retries": 1},
        # https://docs.mistral.ai/api, ChatCompletionChoice.finish_reason
        metadata="finish_reason",
        normal="tool_calls stop",
        abnormal="length model_length error",
        calls="texts",
    ),
]
