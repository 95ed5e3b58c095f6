"""A reply that was cut anywhere: which of its calls may run, and whether its finish counts (law 7).

Each client reads each example from a server on loopback once. What it made of the events is then cut after
each of them, with and without the word that ends the reply. Arguments come one character at a time: they are
cut after each character.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from pydantic import ValidationError

from signoff import standard_controls
from signoff.graph.history.received import as_received, received
from signoff.graph.history.replies import read_reply
from signoff.graph.messages import marks
from signoff.tools.toolbox import make_toolbox
from tests.support.replies.providers import PROVIDERS, Provider, reader, recorded_streams
from tests.support.replies.wire import WireReply

pytestmark = pytest.mark.slow
CONTROLS = make_toolbox([], standard_controls())
Calls = list[tuple[str, bool]]
"""The calls of a reply in order: the name, and whether it may run or, for a finish, whether it counts."""

PAY = ("pay", '{"to": "ada", "amount": 1000}')
ODD = ("pay", r'{"to": "\u00e9\n\"}{ 𝒜ñ", "amount": 1e3, "tags": ["{", {}]}')
FINISH = ("finish_task", '{"summary": "Paid."}')
EXAMPLES = {
    "a call": WireReply(calls=(PAY,)),
    "two calls": WireReply(calls=(PAY, ("pay", '{"to": "bob"}')), size=7),
    "escapes, braces and letters of another plane": WireReply(calls=(ODD,)),
    "a call without arguments": WireReply(calls=(("look", ""),)),
    "an empty object before another call": WireReply(calls=(("look", "{}"), PAY)),
    "text, a call and a finish": WireReply("I pay.", (PAY, FINISH), size=7),
    "text alone": WireReply("I will pay."),
}
USAGES: Sequence[Any] = ("each", "last", "none")
RUN = ["", "{}", "null", '{"to": "ada"}', ' {"to":\n"ada"} ', '{"to": "a\nb"}', r'"{\"to\": \"ada\"}"']
NOT_RUN = ["[1]", '"ada"', "1", "true", "{}{}", '{"a": 1}}', '{"n": NaN}', '{"n": Infinity}', '{"n": 1e999}']
NOT_RUN += ['{"n": 99999999999999999999}', "{'to': 1}", "{to: 1}", '{"to": 1,}', r'{"a": "\x"}', "{" * 200]
every_provider, every_provider_of_text = (
    pytest.mark.parametrize("provider", providers, ids=lambda provider: provider.name)
    for providers in (PROVIDERS, [provider for provider in PROVIDERS if provider.calls != "objects"])
)


def may_run(chunks: Sequence[AIMessageChunk]) -> Calls | None:
    """What the product makes of a streamed reply, by its chunks alone and beside what LangChain has made of
    them; None for one that was dropped."""
    own, others = (allowed(reply) for reply in (received(chunks), as_received(merged(chunks), [chunks])))
    assert own == others
    return own


def merged(chunks: Sequence[AIMessageChunk]) -> AIMessage:
    message = message_chunk_to_message(add_ai_message_chunks(chunks[0], *chunks[1:]))
    assert isinstance(message, AIMessage)
    return message


def allowed(reply: AIMessage) -> Calls | None:
    calls = [(call.name, call.problem is None) for call in read_reply(reply, CONTROLS).calls]
    if not marks(reply).get("dropped"):
        return calls
    assert not any(runs for _, runs in calls)
    return None


def is_whole(arguments: str) -> bool:
    """Whether a text is one JSON object, or no text at all."""
    try:
        return not arguments or isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def begun(chunks: Sequence[AIMessageChunk]) -> list[tuple[str, str]]:
    """Name and argument text, so far, of each call that these chunks have begun."""
    calls: dict[Any, tuple[str, str]] = {}
    for part in (part for chunk in chunks for part in chunk.tool_call_chunks):
        key = part["id"] if part["index"] is None else part["index"]
        name, text = calls.get(key, ("", ""))
        calls[key] = (name + (part["name"] or ""), text + (part["args"] or ""))
    return list(calls.values())


def expected(chunks: Sequence[AIMessageChunk], *, normal: bool) -> Calls:
    """What may run of a reply that has ended, by its text and its last word alone."""
    return [(name, normal and is_whole(text)) for name, text in begun(chunks)]


def check_cuts(provider: Provider, chunks: list[AIMessageChunk], *, normal: bool) -> None:
    """Cuts the reply after each chunk, and says what may run of that. LangChain closes every stream with an
    empty chunk, also one that broke off."""
    end = next(at for at, chunk in enumerate(chunks) if chunk.response_metadata.get(provider.metadata))
    last = AIMessageChunk(content="", chunk_position="last")
    for at in range(1, end):
        ended = expected(chunks[:at], normal=True)
        assert may_run([*chunks[:at], last]) == (ended if provider.named_last else None)
    for at in range(end, len(chunks)):
        assert may_run(chunks[: at + 1]) == expected(chunks, normal=normal)
    for at in range(end):
        broken = [*chunks[:at], *chunks[end:]]
        assert may_run(broken) == expected(broken, normal=normal), begun(broken)


@every_provider
def test_a_reply_cut_after_any_event_or_character(provider: Provider) -> None:
    """Also where a usage comes with each event: it is no end."""
    paid = EXAMPLES["text, a call and a finish"]
    replies = [
        replace(example, usage=usage, reason=provider.runs[0])
        for example, usage in zip(EXAMPLES.values(), cycle(USAGES))
    ]
    with reader(provider) as read:
        for reply in [*replies, replace(paid, reason=provider.does_not_run[0])]:
            check_cuts(provider, read(provider.events(reply)), normal=reply.reason in provider.runs)
        for about, events in recorded_streams(provider):
            check_cuts(provider, read(events), normal=about["reason"] in provider.runs)


@every_provider_of_text
def test_arguments_run_only_as_one_strict_object(provider: Provider) -> None:
    texts = {**dict.fromkeys(RUN, True), **dict.fromkeys(NOT_RUN, False)}
    if provider.calls == "texts":
        texts |= {text[:at]: is_whole(text[:at]) for _, text in (PAY, ODD) for at in range(len(text))}
    with reader(provider) as read:
        for text, runs in texts.items():
            reply = WireReply(calls=(("pay", text),), reason=provider.runs[0], size=7)
            # A package that cannot build the reply raises.
            with suppress(ValidationError):
                assert may_run(read(provider.events(reply))) == [("pay", runs)], text


@every_provider
def test_a_word_means_what_its_provider_documents_in_any_case(provider: Provider) -> None:
    with reader(provider) as read:
        for word in [*provider.runs, *provider.does_not_run]:
            chunks = read(provider.events(replace(EXAMPLES["text, a call and a finish"], reason=word)))
            right = expected(chunks, normal=word in provider.runs)
            for spelling in (str, str.upper, str.lower):
                assert may_run(respelled(chunks, spelling)) == right, word
            assert allowed(received([merged(chunks)])) == right, f"{word}, not streamed"


# The words of providers whose clients are not here, and odd ones.
OTHERS: dict[str, tuple[str, bool]] = {
    "OpenRouter": ("error", False),
    "vLLM": ("abort repetition", False),
    "Z.ai": ("sensitive network_error", False),
    "Cohere": ("MAX_TOKENS ERROR_LIMIT ERROR_TOXIC ERROR TIMEOUT USER_CANCEL", False),
    "watsonx": ("token_limit time_limit cancelled", False),
    "Vertex": ("FinishReason.MAX_TOKENS FINISH_REASON_SAFETY", False),
    "whoever ends well": ("COMPLETE eos_token STOP FinishReason.STOP something", True),
}


@pytest.mark.parametrize(("words", "runs"), OTHERS.values(), ids=OTHERS)
def test_so_do_the_words_of_others(words: str, runs: bool) -> None:
    for word in words.split():
        reply = AIMessage(
            "",
            tool_calls=[{"name": "pay", "args": {}, "id": "a"}],
            response_metadata={"finish_reason": word},
        )
        assert allowed(received([reply])) == [("pay", runs)], word


def test_a_prompt_that_gemini_blocks_is_no_dropped_reply() -> None:
    """It has no reason of a finish then."""
    (gemini,) = [provider for provider in PROVIDERS if provider.name == "Gemini"]
    with reader(gemini) as read:
        chunks = read([{"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}])
    assert may_run(chunks) == []


def respelled(chunks: Sequence[AIMessageChunk], spelling: Callable[[str], str]) -> list[AIMessageChunk]:
    """The reply with its last word spelled in another way."""
    copies = [chunk.model_copy(deep=True) for chunk in chunks]
    for metadata in [copy.response_metadata for copy in copies]:
        for key in {provider.metadata for provider in PROVIDERS} & {key for key in metadata if metadata[key]}:
            metadata[key] = spelling(metadata[key])
        if details := metadata.get("incomplete_details"):
            details["reason"] = spelling(details["reason"])
    return copies
