"""The replies of the fuzz: sound ones in which something is wrong, each a strategy of Hypothesis."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

NAMES = (
    "finish_task", "ask_user", "think", "act", "look", "pay", "Finish_Task", "", "no such tool", "ü" * 90,
)  # fmt: skip
WORDS = (
    "", " ", "done", "I will patch it now…", "finish_task", "<think>hm</think>", "<think>", "</think>x",
    "\ud800", "\udfff\ud800", "a\x00b", "\u202e", "{", '{"summary": "x"}', "null", "[FINALIZE]",
    "x" * 20_000, "0", "\r\n",
)  # fmt: skip
REASONS = (
    "stop", "tool_calls", "length", "max_tokens", "content_filter", "refusal", "SAFETY", "error",
    "pause_turn", "incomplete", "cancelled", "FinishReason.STOP", "", "end_turn", "\ud800",
)  # fmt: skip
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {"summary": "Done."}, {"summary": ""}, {"summary": "x", "completion_percentage": 50},
    {"summary": "x", "requires_user_confirmation": True}, {"summary": ["x"]}, {"summary": "\ud800"},
    {"summary": "x", "outcome": "blocked", "pending_issues": "one"}, {"question": "Which?"},
    {"question": "Which?", "options": [1, None, "\ud800"]}, {"question": ""}, {"thought": "hm"},
    {"what": "x"}, {"what": 2**70}, {"what": float("nan")}, {"what": object}, {"what": b"\xff"},
    {"what": {1, 2}},
)  # fmt: skip


def _hashable(value: Any) -> bool:
    return not isinstance(value, set)


@lru_cache
def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def one(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A dictionary with one of these keys."""
    return st.one_of([st.fixed_dictionaries({name: values}) for name, values in parts.items()])


words = st.sampled_from(WORDS) | st.text(st.characters(), max_size=4)
odd = st.sampled_from(
    (None, 0, -1, 2**70, -(2**70), 1.5, float("nan"), float("inf"), True, b"\xff", (1, 2), {3}, 1j, Ellipsis,
     datetime.date(2026, 1, 1))
)  # fmt: skip
deep = st.sampled_from((70, 300, 5_000)).map(_nested)
junk = (
    odd
    | words
    | deep
    | st.lists(odd | words, max_size=2)
    | st.dictionaries(words | odd.filter(_hashable), odd | words, max_size=2)
)
arguments = st.sampled_from(ARGUMENTS) | st.dictionaries(
    st.sampled_from(("what", "summary", "question", "\ud800")), junk, max_size=1
)
raw = words | st.sampled_from(
    (
        '{"summary": "Done."}',
        '{"summary": "Fix',
        '"{}"',
        "[1]",
        '{"what": "\\ud800"}',
        '{"a": NaN}',
        "[" * 5_000,
    )
)
ids = st.sampled_from(("call_0", "call_0", "call_1", "", "\ud800", "x" * 3_000, None))
names = st.sampled_from(NAMES) | words
kinds = st.sampled_from(
    ("text", "tool_use", "tool_call", "function_call", "invalid_tool_call", "tool_call_chunk", "refusal",
     "thinking", "reasoning", "image_url", "non_standard", "", 7, None)
)  # fmt: skip
blocks = st.builds(
    lambda kind, *more: {"type": kind, "text": "x", **{k: v for part in more for k, v in part.items()}},
    kinds,
    one(name=names | odd, text=words | odd, thinking=junk, value=junk, index=odd),
    one(id=ids | odd, call_id=ids | odd),
    one(
        input=arguments | raw | junk,
        args=arguments | raw | junk,
        arguments=raw | junk,
        partial_json=raw | junk,
    ),
)
contents = words | st.lists(words | blocks, max_size=2) | st.lists(junk, max_size=2)
functions = st.fixed_dictionaries({"name": names | odd, "arguments": raw | junk})
called = st.fixed_dictionaries({"id": ids | odd, "function": functions | junk})
extras = one(
    tool_calls=st.lists(called | junk, max_size=2) | junk,
    function_call=functions | junk, refusal=words | junk, reasoning_content=words | junk, signoff=junk,
    x=junk,
)  # fmt: skip
# What we note on a reply, as a provider could forge it.
MARKS = ("nudge", "order", "checked", "estimated", "shown", "seconds", "at", "cut", "tagged", "stopped")
marked = st.dictionaries(st.sampled_from(MARKS), junk, min_size=1, max_size=1)
reasons = st.sampled_from(REASONS) | junk
metadata = one(
    finish_reason=reasons, stop_reason=reasons, status=reasons, incomplete_details=junk,
    model_provider=words | odd, model_name=words | odd, prompt_feedback=junk, signoff=marked | junk,
    usage=junk,
)  # fmt: skip
counts = st.sampled_from((0, 1, 7, -5, 2**70, 10**9))
usages: st.SearchStrategy[Any] = st.none() | st.builds(
    dict,
    st.fixed_dictionaries({"input_tokens": counts, "output_tokens": counts, "total_tokens": counts}),
    output_token_details=one(reasoning=counts),
    input_token_details=one(cache_read=counts),
)
calls = st.lists(st.fixed_dictionaries({"name": names, "args": arguments, "id": ids}), max_size=3)
bad_calls = st.lists(
    st.fixed_dictionaries({"name": names | st.none(), "args": raw | st.none(), "id": ids, "error": words}),
    max_size=2,
)
common = {
    "content": contents, "additional_kwargs": extras, "response_metadata": metadata, "usage_metadata": usages,
    "id": ids, "name": words,
}  # fmt: skip
plain = one(**common, tool_calls=calls, invalid_tool_calls=bad_calls)
pieces = st.fixed_dictionaries(
    {
        "name": names | st.none(),
        "args": raw | st.none(),
        "id": ids,
        "index": st.sampled_from((0, 0, 1, None, 5)),
    }
)
chunk = one(
    **common, tool_call_chunks=st.lists(pieces, max_size=2), chunk_position=st.sampled_from(("last", None))
)
# What a careless provider's package puts there after the message was made, past all checks.
assigned = one(
    content=junk,
    usage_metadata=st.dictionaries(st.sampled_from(("input_tokens", "total_tokens")), odd) | junk,
    id=odd, name=odd, response_metadata=metadata,
    tool_calls=st.lists(
        st.fixed_dictionaries({"name": names, "args": arguments | junk, "id": ids | odd}), max_size=2
    ),
)  # fmt: skip


def _calling(name: str, **args: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"name": name, "args": args, "id": f"call_{name}"}]}


def _pieces(name: str, *texts: str) -> list[dict[str, Any]]:
    """A call as it is streamed."""
    first = {"name": name, "args": "", "id": f"call_{name}", "index": 0}
    rest = [{"name": None, "args": text, "id": None, "index": 0} for text in texts]
    return [{"content": "", "tool_call_chunks": [piece]} for piece in (first, *rest)]


FINISH = _calling("finish_task", summary="Done.")
USAGE = {"usage_metadata": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}}
SOUND = (
    {"content": "Let me see."}, {"content": ""}, FINISH, {**FINISH, **USAGE}, _calling("act", what="x"),
    _calling("look", what="x"), _calling("ask_user", question="Which?"), _calling("think", thought="hm"),
    _calling("pay", what="x"),
    {**_calling("act"), "tool_calls": [*_calling("act")["tool_calls"], *FINISH["tool_calls"]]},
)  # fmt: skip
LAST = {"content": "", "response_metadata": {"finish_reason": "stop"}, "chunk_position": "last", **USAGE}
STREAMS: tuple[list[dict[str, Any]], ...] = (
    [{"content": "Let me"}, {"content": " see."}, LAST],
    [*_pieces("finish_task", '{"summary": "Do', 'ne."}'), LAST],
    [*_pieces("finish_task", '{"summary": "Done."}'), {"content": "And more."}, LAST],
    [*_pieces("act", '{"what": ', '"x"}'), LAST],
    [*_pieces("ask_user", '{"question": "Wh', 'ich?"}'), {"content": "x"}],
    [],
)


@dataclass(frozen=True)
class Sent:
    """One reply: what its message, or its chunks, are made of, and what is set on it past all checks."""

    parts: list[dict[str, Any]]
    streamed: bool = False
    assigned: Mapping[str, Any] = field(default_factory=dict)

    def messages(self) -> Iterator[Any]:
        """Raises what a provider's package raises when it cannot build its message."""
        for part in self.parts:
            message = AIMessageChunk(**part) if self.streamed else AIMessage(**part)
            for name, value in self.assigned.items():
                setattr(message, name, value)
            yield message


def _whole(sound: dict[str, Any], wrong: list[dict[str, Any]], past: dict[str, Any]) -> Sent:
    return Sent([{**sound, **{name: value for part in wrong for name, value in part.items()}}], assigned=past)


def _streamed(sound: list[dict[str, Any]], wrong: list[tuple[int, bool, dict[str, Any]]]) -> Sent:
    parts = list(sound)
    for at, beside, part in wrong:
        at = min(at, len(parts))
        here = parts[at : at + (not beside)]
        parts[at : at + (not beside)] = [{"content": "", **(here[0] if here else {}), **part}]
    return Sent(parts, streamed=True)


none = st.just(dict[str, Any]())
whole = st.builds(_whole, st.sampled_from(SOUND), st.lists(plain, max_size=2), none | none | assigned)
streamed = st.builds(
    _streamed,
    st.sampled_from(STREAMS),
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), chunk), max_size=2),
)
# All replies of a thread come the same way.
replies = st.lists(whole, min_size=1, max_size=3) | st.lists(streamed, min_size=1, max_size=3)
ways = st.sampled_from(("invoke", "run", "step", "arun"))
DONE = Sent([FINISH])
