"""The clients that the docs name, each with its provider: what it writes, what it takes, how it refuses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.support.providers import strict
from tests.support.providers.strict import Check
from tests.support.replies import whole
from tests.support.replies.providers import PROVIDERS, Provider
from tests.support.replies.wire import Event, WireReply
from tests.support.servers.fake_provider import Fault

Writer = Callable[[WireReply], Event]


def openai_refusal(words: str, code: str | None = None) -> Fault:
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": code}
    return Fault(400, {"error": error})


def mistral_refusal(words: str) -> Fault:
    return Fault(400, {"object": "error", "message": words, "type": "invalid_request_error", "code": "3051"})


def anthropic_refusal(words: str) -> Fault:
    return Fault(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})


def gemini_refusal(words: str) -> Fault:
    return Fault(400, {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}})


def bedrock_refusal(words: str) -> Fault:
    return Fault(400, {"message": words}, {"x-amzn-errortype": "ValidationException"})


def ollama_refusal(words: str) -> Fault:
    return Fault(400, {"error": words})


@dataclass(frozen=True)
class Client:
    """A client and the provider that it speaks to.

    row: its name in the docs. check: what the provider refuses. refusal: how it says so. full: how it says
    that a prompt does not fit; none for one that cuts it silently. whole: how it writes a reply that is not
    streamed; none for a client that streams always. ids: the form of those of its calls. thoughts: whether
    each reply of the model begins with some, veiled or not. pictures: where those of a tool's result are
    shown.
    """

    row: str
    provider: Provider
    check: Check
    full: Fault | None
    refusal: Callable[[str], Fault] = openai_refusal
    whole: Writer | None = whole.openai
    ids: str = "call_{:024}"
    thoughts: bool = False
    veiled: Literal["", "omitted", "redacted"] = ""
    pictures: Literal["result", "message", "text"] = "message"

    def reason(self, reply: WireReply) -> str:
        """The provider's word for the regular end of such a reply."""
        words = self.provider.runs
        return words[0] if reply.calls else words[min(1, len(words) - 1)]


def of(name: str, **options: Any) -> Provider:
    """A provider, with more options of its client."""
    (provider,) = [provider for provider in PROVIDERS if provider.name == name]
    return replace(provider, options={**provider.options, **options})


def like_openai(package: str, **options: Any) -> Provider:
    """Another provider that writes chat completions as OpenAI does."""
    return replace(of("OpenAI Chat"), name=package, package=package, options=options)


_LONG = "context_length_exceeded"
_OPENAI_FULL = openai_refusal(
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. "
    "Please reduce the length of the messages.",
    _LONG,
)
_STATELESS = of("OpenAI Responses", model="gpt-5", store=False, include=["reasoning.encrypted_content"])
_RESPONSES = Client(
    "OpenAI, Responses",
    _STATELESS,
    strict.responses,
    openai_refusal("Your input exceeds the context window of this model. Please adjust your input.", _LONG),
    whole=whole.responses,
    thoughts=True,
    pictures="result",
)
_ANTHROPIC = Client(
    "Anthropic",
    of("Anthropic"),
    strict.anthropic,
    anthropic_refusal("input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease "
                      "input length or `max_tokens` and try again"),
    anthropic_refusal,
    whole.anthropic,
    "toolu_{:022}",
    pictures="result",
)  # fmt: skip
_THINKING = replace(
    _ANTHROPIC,
    row="Anthropic, thinking",
    provider=of("Anthropic", thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=4096),
    thoughts=True,
)

CLIENTS = [
    Client("OpenAI, chat completions", of("OpenAI Chat", model="gpt-5-mini"), strict.chat_completions,
           _OPENAI_FULL),
    _RESPONSES,
    replace(_RESPONSES, row="OpenAI, Responses with `responses/v1`",
            provider=replace(_STATELESS, options={**_STATELESS.options, "output_version": "responses/v1"})),
    _ANTHROPIC,
    _THINKING,
    replace(_THINKING, row="Anthropic, thinking signed and empty", veiled="omitted"),
    replace(_THINKING, row="Anthropic, thinking redacted", veiled="redacted"),
    Client(
        "Google Gemini",
        of("Gemini", model="gemini-3-pro-preview"),
        strict.gemini,
        gemini_refusal("The input token count (1048577) exceeds the maximum number of tokens allowed "
                       "(1048576)."),
        gemini_refusal,
        whole.gemini,
        "{:08}",
        thoughts=True,
        pictures="result",
    ),
    Client(
        "Amazon Bedrock",
        of("Bedrock"),
        strict.bedrock,
        bedrock_refusal("Input is too long for requested model."),
        bedrock_refusal,
        whole.bedrock,
        "tooluse_{:020}",
        thoughts=True,
        pictures="result",
    ),
    Client(
        "Mistral",
        of("Mistral", model="mistral-large-latest"),
        strict.mistral,
        mistral_refusal("Prompt contains 70000 tokens and 0 draft tokens, too large for model with 32768 "
                        "maximum context length"),
        mistral_refusal,
        ids="{:09}",
    ),
    Client(
        "Ollama",
        of("Ollama", model="qwen3", reasoning=True),
        strict.everything,
        None,
        ollama_refusal,
        None,
        thoughts=True,
        pictures="result",
    ),
    Client(
        "Groq",
        like_openai("groq", model="meta-llama/llama-4-scout-17b-16e-instruct", base_url="{url}"),
        strict.chat_completions,
        openai_refusal("Please reduce the length of the messages or completion.", _LONG),
    ),
    Client(
        "xAI",
        like_openai("xai", model="grok-4", xai_api_base="{url}/v1"),
        strict.chat_completions,
        Fault(400, {"code": "400", "error": "This model's maximum prompt length is 131072 but the request "
                    "contains 137812 tokens."}),
        thoughts=True,
    ),
    Client(
        "DeepSeek",
        like_openai("deepseek", model="deepseek-chat", api_base="{url}/v1"),
        strict.text_only,
        openai_refusal("This model's maximum context length is 131072 tokens. However, you requested 132000 "
                       "tokens. Please reduce the length of the messages or completion."),
        thoughts=True,
        pictures="text",
    ),
    Client(
        "OpenRouter",
        like_openai("openrouter", model="anthropic/claude-sonnet-4.5", base_url="{url}/api/v1"),
        strict.chat_with_thoughts,
        Fault(400, {"error": {"code": 400, "message": "This endpoint's maximum context length is 200000 "
                              "tokens. However, you requested about 210000 tokens."}}),
    ),
    Client(
        "Fireworks",
        like_openai("fireworks", model="accounts/fireworks/models/kimi-k2", base_url="{url}/inference/v1"),
        strict.chat_with_thoughts,
        openai_refusal("The prompt is too long: 136000, model maximum context length: 131071"),
        thoughts=True,
    ),
    Client(
        "vLLM and llama.cpp, with a template that alternates",
        of("OpenAI Chat", model="devstral"),
        strict.alternating,
        openai_refusal("the request exceeds the available context size, try increasing it"),
    ),
]  # fmt: skip
