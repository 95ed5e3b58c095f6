"""What is said about errors of all providers, and what is never said."""

from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff.nodes.model.advice import advise, is_too_long, secrets_of


def model_with(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url="http://127.0.0.1:9/v1", api_key=SecretStr("the key"), **options)


class Refusal(Exception):
    """An error as packages of other providers raise it."""

    def __init__(self, said: str, **attributes: Any) -> None:
        super().__init__(said)
        vars(self).update(attributes)


TOO_LONG = [
    Refusal("prompt is too long: 208310 tokens > 200000 maximum", status_code=400),
    Refusal("input length and `max_tokens` exceed context limit: 1 + 2 > 3, context_length", status_code=400),
    Refusal("The input token count (9) exceeds the maximum number of tokens allowed (8).", code=400),
    Refusal("Prompt contains 9 tokens, too large for model with 8 maximum context length", status_code=400),
    Refusal("Input is too long for requested model.", response={"ResponseMetadata": {"HTTPStatusCode": 400}}),
    Refusal("the request exceeds the available context size. try increasing the context size", code=400),
    Refusal("`inputs` tokens + `max_new_tokens` must be <= 4096", status_code=422),
    Refusal(
        "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000", status_code=429
    ),
    Refusal("This model's maximum prompt length is 131072 but the request contains 537812", status_code=400),
    Refusal("Your input exceeds the context window of this model."),
    Refusal("no", code="context_length_exceeded"),
    Refusal("Request Entity Too Large", status_code=413),
    Refusal("input length and `max_tokens` exceed context limit: 1 + 2 > 3", status_code=400),
    Refusal("no", status_code=400, body={"error": {"code": "context_length_exceeded"}}),
    Refusal("no", status_code=400, body={"error": {"type": "exceed_context_size_error"}}),
    Refusal("context_length_exceeded: no"),
    Refusal("ResponseError(code='context_length_exceeded', message='no')"),
    Refusal("Your request exceeded model token limit: 8 (requested: 9)", status_code=400),
    Refusal("<400> InternalError: Range of input length should be [1, 129024]", status_code=400),
    Refusal("Prompt exceeds max length", status_code=400),
    Refusal("no", status_code=400, body={"error": {"code": "1261"}}),
    Refusal("invalid params, context window exceeds limit (2013)", status_code=400),
    Refusal("prompt token count of 9 exceeds the limit of 8", status_code=400),
    Refusal("The decoder prompt (length 9) is longer than the maximum model length of 8.", status_code=400),
    Refusal("The input (9 tokens) is longer than the model's context length (8 tokens).", status_code=400),
    Refusal("Input Tokens Exceeded: Number of input tokens exceeds maximum length", status_code=400),
    Refusal("prompt too long; exceeded max context length by 4 tokens", status_code=-1),
    Refusal("length of prompt_tokens (9) must be less than max_seq_len (8)", status_code=400),
]
NOT_TOO_LONG = [
    Refusal("Invalid 'tools[0].function.description': string too long.", status_code=400),
    Refusal("It took too long.", status_code=504),
    Refusal("The context length of your patience", status_code=401),
    Refusal("the tool result is too long ago", status_code=400),
    Refusal("Too many tokens, please wait before trying again.", status_code=429),
    Refusal("Range of max_tokens should be [1, 8192]", status_code=400),
    Refusal("max_tokens is too large: 9. This model supports at most 8 completion tokens", status_code=400),
]
NO_TOOLS = [
    Refusal("registry.ollama.ai/library/gemma:2b does not support tools", status_code=400),
    Refusal("No endpoints found that support tool use.", status_code=404),
    Refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', status_code=400),
    Refusal("tools param requires --jinja flag", status_code=500),
    Refusal("`tool calling` is not supported with this model", status_code=400),
    Refusal("Function calling is not enabled for models/x", code=400),
    Refusal("Unsupported parameter: 'tools'", status_code=400),
    Refusal("This model doesn't support tool use.", response={"ResponseMetadata": {"HTTPStatusCode": 400}}),
]
OTHER = [
    (Refusal("Invalid schema for function 'write': 'format' is not supported", status_code=400), "setting"),
    (Refusal("Your credit balance is too low to access the API.", status_code=400), "does not help"),
    (
        Refusal('Error response 400 while fetching http://m: {"message": "No."}', status_code=400),
        "(400): No.",
    ),
    (Refusal("Overloaded", status_code=529), "too much to do"),
    (Refusal("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "Find the cause"),
    (ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "SSL_CERT_FILE"),
    (TimeoutError("late"), "in time"),
    (KeyError("choices"), "base URL"),
    (Exception(), "no message"),
]


def test_every_providers_words_for_a_prompt_that_is_too_long() -> None:
    assert [str(error) for error in TOO_LONG if not is_too_long(error)] == []
    assert [str(error) for error in NOT_TOO_LONG if is_too_long(error)] == []


@pytest.mark.parametrize("error", NO_TOOLS, ids=str)
def test_every_providers_words_for_a_model_without_tools(error: Exception) -> None:
    assert "does not support tool calling: use one that does" in advise(error)


@pytest.mark.parametrize(("error", "advice"), OTHER, ids=lambda part: str(part)[:40])
def test_other_errors(error: Exception, advice: str) -> None:
    assert advice in advise(error)


SECRETS = {
    "Incorrect API key provided: sk-proj-abc***wxyz.": "provided: [hidden]",
    "Authorization: Bearer abc.def-ghi": "Bearer [hidden]",
    "x-api-key: 12345": "x-api-key: [hidden]",
    '{"api_key": "12345"}': '"api_key": "[hidden]"',
    "no route to https://ada:secret@host/v1": "https://[hidden]@host/v1",
    "GET /v1/models?key=12345&a=b": "?key=[hidden]&a=b",
    "key AIzaSyA1234567890abcdef": "key [hidden]",
    "The key to it is a task-list-of-things": "The key to it is a task-list-of-things",
}


@pytest.mark.parametrize(("said", "shown"), SECRETS.items())
def test_what_looks_like_a_key_is_hidden(said: str, shown: str) -> None:
    assert shown in advise(ValueError(said))


def test_the_keys_of_a_model_are_found_in_its_fields_and_headers() -> None:
    headers = {"X-Api-Key": "from-a-header", "User-Agent": "an agent", "Authorization": "Basic from-basic"}
    model = model_with(default_headers=headers)
    assert secrets_of(model.bind_tools([]), model_with()) == {
        "the key",
        "from-a-header",
        "Basic",
        "from-basic",
    }
