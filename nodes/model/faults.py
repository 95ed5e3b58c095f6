"""What providers call the faults that the machine answers by itself: their own words and codes.

Each row stands below the pages that document it. The patterns are searched for, in any case, in the words of
an error and in its codes, each of which stands in brackets: a `code`, a `type` or a `status` of its body, its
`param` after that word, or the name of an exception.
"""

import re


def _one_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


def _code(pattern: str) -> re.Pattern[str]:
    return _one_of(rf"\[(?:{pattern})\]")


FULL_CONTEXT = _one_of(
    # OpenAI, Azure, DeepSeek, OpenRouter: https://platform.openai.com/docs/guides/error-codes
    r"context.?length|context.?window|request (?:is )?too large|exceed the configured limit",
    # Anthropic: https://docs.claude.com/en/api/errors
    # https://docs.claude.com/en/docs/build-with-claude/context-windows
    r"exceed context limit|request exceeds the maximum size|request_too_large",
    # Bedrock: https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html
    # Its throttling says "Too many tokens, please wait before trying again."
    r"input is too long|too many (?:input )?tokens(?!.{0,20} please wait)|input tokens exceed",
    r"expected maxLength: \d+, actual",
    # Groq, Cerebras: https://console.groq.com/docs/errors, https://inference-docs.cerebras.ai/support/error
    r"reduce the length of the (?:messages|prompt|input)",
    # Gemini, Vertex AI: https://ai.google.dev/gemini-api/docs/troubleshooting
    # xAI: https://docs.x.ai/docs/key-information/debugging, Mistral: https://docs.mistral.ai/api
    r"token count|maximum prompt length|maximum context",
    # Moonshot (Kimi): https://platform.moonshot.ai/docs/api/chat
    r"exceeded model token limit|input token length too long",
    # DashScope (Qwen): https://www.alibabacloud.com/help/en/model-studio/error-code
    # Volcengine Ark: https://www.volcengine.com/docs/82379/1299023
    r"range of input length should be|(?:input|prompt|message|sequence).{0,20}length.{0,20} exceeds?",
    r"exceed max message tokens",
    # Z.ai (GLM): https://docs.z.ai/api-reference/api-code
    r"prompt exceeds max(?:imum)? length|\[1261\]",
    # Qianfan: https://cloud.baidu.com/doc/qianfan-api, GitHub: https://docs.github.com/en/rest/models/inference
    r"prompt.?tokens.?too.?long|prompt token.{0,40} exceeds? the limit|tokens_limit_reached",
    # vLLM: https://docs.vllm.ai/en/latest/usage/troubleshooting, SGLang: https://docs.sglang.ai
    # TGI: https://huggingface.co/docs/text-generation-inference/basic_tutorials/launcher
    # https://github.com/huggingface/text-generation-inference/issues/695
    r"maximum model length|(?:prompt|inputs?) (?:is|are) too long|max_new_tokens|less than max_seq_len",
    # TensorRT-LLM: https://github.com/NVIDIA/TensorRT-LLM/issues/9277
    r"must have less than \d+ tokens|should not exceed max_num_tokens|maximum supported sequence length",
    # llama.cpp: https://github.com/ggml-org/llama.cpp/tree/master/tools/server
    # Ollama: https://github.com/ollama/ollama/blob/main/docs/faq.mdx
    r"context.?size|prompt too long",
)
"""The prompt does not fit into the model's context."""

EMPTY_STREAM = _one_of(
    # langchain-core, and `nodes/call_llm.py`. langchain-mistralai passes over an error that comes first.
    r"^no generations? (?:chunks were returned|found in stream)",
    r"^(?:v2 |the model's )?stream (?:finished|ended) without (?:producing a message|a reply)",
)
"""A stream has come to its end, and nothing was in it."""

TEMPORARY = {
    "an empty answer": EMPTY_STREAM,
    # OpenAI: https://platform.openai.com/docs/guides/error-codes
    # https://platform.openai.com/docs/api-reference/responses/object (`error.code`)
    # Anthropic: https://docs.claude.com/en/api/errors
    # Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ResponseStream.html
    # Gemini, Vertex AI: https://ai.google.dev/gemini-api/docs/troubleshooting
    # Moonshot (Kimi): https://platform.moonshot.ai/docs/api/chat
    # DashScope (Qwen): https://www.alibabacloud.com/help/en/model-studio/error-code
    # Z.ai (GLM), by number: https://docs.z.ai/api-reference/api-code
    # Groq, Mistral: https://console.groq.com/docs/errors, https://docs.mistral.ai/api
    # Ollama's client gives -1 to an error in a stream, which has 500 before one.
    "rate limit": _code(r"rate_limit\w*|throttling[\w.]*|resource_exhausted|limit_requests|130[23]|429"),
    "the provider is overloaded": _code(
        r"\w*overloaded\w*|slow_down|over_capacity|(?:service_?)?unavailable\w*|model(?:notready|serving)\w*"
        r"|1305|503|529"
    ),
    "no answer in time": _code(r"[\w.]*timeout\w*|deadline_exceeded|1234|504"),
    "a fault of the provider": _code(
        r"api_error|(?:internal_?)?server_?\w+|internal(?:error[\w.]*)?|systemerror|modelstreamerror\w*|1230|-1|50[02]"
    ),
}
"""In a few words, what a provider says of a fault that passes, and by which codes."""

REFUSED_CALL = _one_of(
    # Groq: https://console.groq.com/docs/tool-use
    r"\[(?:tool_use|output_parse)_failed\]|tool call validation failed",
    r"tool choice is required, but model did not call",
    # Bedrock (Nova): https://docs.aws.amazon.com/nova/latest/userguide/prompting-tool-troubleshooting.html
    # Cerebras: https://inference-docs.cerebras.ai/capabilities/tool-use
    # Ollama: https://github.com/ollama/ollama/issues/12064
    r"invalid sequence as part of ToolUse|failed to generate tool_?calls?|error parsing tool call",
)
"""The model's call is one that the provider does not hand on, or a required one is missing."""

NO_STREAM = _one_of(
    # OpenAI: https://help.openai.com/en/articles/10910291-api-organization-verification
    # Bedrock: https://docs.aws.amazon.com/bedrock/latest/userguide/security_iam_id-based-policy-examples.html
    # https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html
    r"verified to stream|'stream(?:_options)?'|bedrock:InvokeModelWithResponseStream|streaming mode",
    # OpenAI-compatible servers: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning
    r"(?<!non-)\bstream(?:ing)?\b.{0,40}\b(?:not |un-?)(?:yet )?(?:support|availab|allow|enabl|permit)",
    r"(?<!non-)\bstreaming (?:is|has been) disabled|no endpoints found that support stream",
    r"(?:not|n't|un|cannot) ?(?:support|allow|enabl|permit)\w*[^.;]{0,30}\bstream(?:ing|ed)?\b",
    r"\bstream\b.{0,20}\b(?:must be .{0,10}false|cannot be .{0,3}true)|only supports? non-stream",
    r"\[param stream(?:_options)?\]",
)
"""The model, or the account, may not stream."""
