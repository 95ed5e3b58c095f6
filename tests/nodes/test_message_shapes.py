"""Every shape in which a provider delivers a reply reads the same: imported, whole, and in pieces."""

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, FunctionMessage, ToolCallChunk, ToolMessage

from signoff import build_graph
from signoff.graph.history.reasons import StopReason, broken_off, stop_of
from signoff.graph.history.received import received as whole
from signoff.graph.history.replies import normal, read_reply
from signoff.graph.messages import NOTES, is_reply
from tests.support.histories import CONTROLS, assert_sendable, user
from tests.support.message_shapes import FINISH, WAYS, Fields, Pieces, Whole, function, nudges, run, text, use

SERVER_TOOLS = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "server_tool_call", "id": "ws_2", "name": "web_search", "args": {}},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
]
PAUSED = {"content": SERVER_TOOLS[:1], "response_metadata": {"stop_reason": "pause_turn"}}
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", **function()}
BAD_CALL = {"type": "invalid_tool_call", "id": "a", "name": "write", "args": '"{\\"text\\": \\"x\\"}"'}

# Each is one call of `write` with the text "x"; a number says that it is so many.
ONE_CALL: dict[str, Fields] = {
    "tool_calls": {"tool_calls": [{"name": "write", "id": "a", "args": {"text": "x"}}]},
    "tool_calls and their raw form": {
        "tool_calls": [{"name": "write", "id": "a", "args": {"text": "x"}}],
        "additional_kwargs": {"tool_calls": [{"id": "a", "type": "function", "function": function()}]},
    },
    "tool_calls, and the last once more as function_call": {
        "tool_calls": [{"name": "write", "id": "a", "args": {"text": "x"}}],
        "additional_kwargs": {"function_call": function()},
    },
    "function_call": {"additional_kwargs": {"function_call": function()}},
    "function_call beside words": {"content": "I write.", "additional_kwargs": {"function_call": function()}},
    "raw tool_calls": {"additional_kwargs": {"tool_calls": [{"id": "a", "function": function()}]}},
    "a tool_use block": {"content": [use()]},
    "a tool_use block as it was streamed": {"content": [use(input={}, partial_json='{"text": "x"}')]},
    "words around it": {"content": [text("Now."), use(), text("So.")]},
    "thoughts before it": {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, use()]},
    "a tool_call block": {
        "content": [text("Now."), {"type": "tool_call", "id": "a", "name": "write", "args": {"text": "x"}}]
    },
    "a tool_call_chunk block": {
        "content": [{"type": "tool_call_chunk", "id": "a", "name": "write", "args": '{"text": "x"}'}]
    },
    "a function_call item": {"content": [{"type": "reasoning", "id": "rs_1", "summary": []}, ITEM]},
    "a function_call item that was read": {
        "content": [ITEM],
        "tool_calls": [{"name": "write", "id": "call_1", "args": {"text": "x"}}],
    },
    "a provider's own tools beside it": {"content": [*SERVER_TOOLS, text("Found."), use()]},
    "no id": {"content": [use(id=None)]},
    "reasoning_content beside it": {
        "tool_calls": [{"name": "write", "id": "a", "args": {"text": "x"}}],
        "additional_kwargs": {"reasoning_content": "hm"},
    },
}
SEVERAL: dict[str, tuple[Fields, int]] = {
    "parallel tool_use blocks with words between": (
        {"content": [text("a"), use(1), text("b"), use(2), text("c"), use(3)]},
        3,
    ),
    "function_call items": ({"content": [ITEM, {**ITEM, "id": "fc_2", "call_id": "call_2"}]}, 2),
    "the same id twice": ({"content": [use(1), use(1)]}, 2),
    "no ids": ({"content": [use(id=""), use(id=None)]}, 2),
    "raw calls without ids": ({"additional_kwargs": {"tool_calls": [{"function": function()}] * 2}}, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [*ONE_CALL, *SEVERAL])
def test_all_shapes_of_a_call_read_the_same(shape: str, way: str) -> None:
    fields, count = SEVERAL[shape] if shape in SEVERAL else (ONE_CALL[shape], 1)
    result, written, _ = run(way, fields)
    assert written == ["x"] * count
    outcome = result["outcome"]
    assert (outcome["status"], outcome["turns"], outcome["tool_calls"]) == ("success", 2, count)
    assert nudges(result) == []


INVALID: dict[str, Fields] = {
    "an invalid call": {"invalid_tool_calls": [{**BAD_CALL, "error": "no object"}]},
    "an invalid_tool_call block": {"content": [BAD_CALL]},
}


@pytest.mark.parametrize("way", ["imported", "whole"])
@pytest.mark.parametrize("shape", INVALID)
def test_what_the_package_calls_invalid_does_not_run_although_it_can_be_read(shape: str, way: str) -> None:
    result, written, _ = run(way, INVALID[shape])
    assert (written, result["outcome"]["tool_calls"]) == ([], 0)


@pytest.mark.parametrize("way", WAYS)
def test_calls_keep_their_order_when_one_of_them_is_malformed(way: str) -> None:
    bad = {"id": "b", "function": function('{"text": ')}
    calls = [{"id": "a", "function": function()}, bad, {"id": "c", "function": function()}]
    result, written, _ = run(way, {"additional_kwargs": {"tool_calls": calls}})
    results = [(m.tool_call_id, m.status) for m in result["messages"] if isinstance(m, ToolMessage)][:3]
    assert written == ["x", "x"]
    assert sorted(results) == [("a", "success"), ("b", "error"), ("c", "success")]
    last = AIMessage("", additional_kwargs={"tool_calls": calls}, id="m")
    assert [call.id for call in read_reply(last, CONTROLS).calls] == ["a", "b", "c"]


SECOND = {**ITEM, "id": "fc_2", "call_id": "call_2"}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_has_the_id_by_which_its_provider_knows_it(way: str) -> None:
    result, _, _ = run(way, {"content": [ITEM]})
    assert next(m.tool_call_id for m in result["messages"] if isinstance(m, ToolMessage)) == "call_1"


@pytest.mark.parametrize("way", WAYS)
def test_the_blocks_of_a_reply_follow_when_a_call_gets_another_id(way: str) -> None:
    _, written, model = run(way, *[ONE_CALL["a function_call item that was read"]] * 2)
    assert written == ["x", "x"]
    sent = [message for message in model._seen[-1] if isinstance(message, AIMessage)]
    in_blocks = [part["call_id"] for m in sent for part in m.content if isinstance(part, dict)]
    assert in_blocks == [m.tool_calls[0]["id"] for m in sent]
    assert len(set(in_blocks)) == 2


def test_what_the_inner_guard_cuts_off_is_gone_from_the_blocks_too() -> None:
    parts = [
        ToolCallChunk(name="write", args="{}", id=item["call_id"], index=at)
        for at, item in enumerate([ITEM, SECOND])
    ]
    metadata = {"finish_reason": "tool_calls", NOTES: {"cut": 1}}
    cut = whole([AIMessageChunk(content=[ITEM, SECOND], tool_call_chunks=parts, response_metadata=metadata)])
    assert ([call["id"] for call in cut.tool_calls], cut.content) == (["call_1"], [ITEM])


def test_a_shape_that_is_right_is_left_as_it_is() -> None:
    message = AIMessage("hm", **ONE_CALL["tool_calls"])
    assert normal(message) is message
    once = normal(AIMessage(**ONE_CALL["words around it"]))
    assert normal(once) is once


def test_the_result_of_a_function_call_in_an_old_history() -> None:
    called = AIMessage("", additional_kwargs={"function_call": function()})
    model = Pieces(replies=[FINISH])
    given = [user(), called, FunctionMessage(content="written before", name="write")]
    result = build_graph(model).invoke({"messages": given})
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 2)
    (view,) = model._seen
    assert_sendable(view)
    assert [message.text for message in view if isinstance(message, ToolMessage)] == ["written before"]


THOUGHTS: dict[str, Fields] = {
    "a thinking block": {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
    "a hidden thinking block": {"content": [{"type": "redacted_thinking", "data": "x"}]},
    "a reasoning item": {"content": [{"type": "reasoning", "id": "rs_1", "summary": []}]},
    "reasoning_content": {"additional_kwargs": {"reasoning_content": "hm"}},
    "tags": {"content": "<think>\nhm\n</think>\n\n"},
    "a tag that opens in the prompt": {"content": "hm\n</think>"},
    "a tag that never closes": {"content": "<think>hm"},
    "only a count of them": {
        "usage_metadata": {
            "input_tokens": 5,
            "output_tokens": 9,
            "total_tokens": 14,
            "output_token_details": {"reasoning": 9},
        }
    },
}
SPOKEN: dict[str, tuple[Fields, str]] = {
    "words after thoughts": ({"content": "<think>hm</think>Done!"}, "talked"),
    "words that name the tag": ({"content": "Use <think> and </thinking> then."}, "talked"),
    "thoughts and words in blocks": (
        {"content": [{"type": "thinking", "thinking": "hm"}, text("So.")]},
        "talked",
    ),
    "nothing": ({"content": ""}, "empty"),
    "no blocks": ({"content": []}, "empty"),
    "empty words": ({"content": [text(" ")]}, "empty"),
    "a provider's own tools alone": ({"content": SERVER_TOOLS}, "empty"),
    "a call that the provider could not read": (
        {"response_metadata": {"finish_reason": "MALFORMED_FUNCTION_CALL"}},
        "truncated",
    ),
    "a refusal": ({"additional_kwargs": {"refusal": "I cannot."}}, "filtered"),
    "a refusal among blocks": ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "filtered"),
    "a refusal in a foreign block": (
        {"content": [{"type": "non_standard", "value": {"type": "refusal", "refusal": "No."}}]},
        "filtered",
    ),
    "cut in the middle of its thoughts": (
        {"content": "<think>hm", "response_metadata": {"finish_reason": "length"}},
        "truncated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [*THOUGHTS, *SPOKEN])
def test_a_reply_without_a_call_gets_the_reminder_that_fits(shape: str, way: str) -> None:
    fields, kind = SPOKEN[shape] if shape in SPOKEN else (THOUGHTS[shape], "reasoning")
    result, _, _ = run(way, fields)
    assert nudges(result) == [kind]
    assert result["outcome"]["status"] == "success"


@pytest.mark.parametrize("way", WAYS)
def test_a_reply_that_the_provider_interrupted_is_sent_back_as_it_is(way: str) -> None:
    result, _, model = run(way, *[PAUSED] * 7, sendable=False)
    assert nudges(result) == []
    assert model._seen[-1][-1].content == SERVER_TOOLS[:1]
    # Its parts are one reply, which nothing may divide.
    assert {message.type for message in model._seen[-1][-7:]} == {"ai"}


BROKEN_OFF = ["error", "abort", "insufficient_system_resource", "network_error"]
STOPS: dict[StopReason, list[Fields]] = {
    StopReason.NORMAL: [
        {"finish_reason": word}
        for word in ("stop", "tool_calls", "function_call", "STOP", "eos_token", "COMPLETE", "", None, 3)
    ]
    + [{"stop_reason": word} for word in ("end_turn", "tool_use", "stop_sequence")]
    + [{"stopReason": "end_turn"}, {"done_reason": "stop"}, {"status": "completed"}, {}]
    + [{"status": "completed", "incomplete_details": None}, {"prompt_feedback": {"block_reason": 0}}],
    StopReason.LENGTH: [
        *({"finish_reason": word} for word in ("length", "MAX_TOKENS", "model_length")),
        {"finish_reason": "FinishReason.MAX_TOKENS"},
        {"stop_reason": "max_tokens"},
        {"stop_reason": "model_context_window_exceeded"},
        {"stopReason": "max_tokens"},
        {"done_reason": "length"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"status": "incomplete"},
        *({"finish_reason": word} for word in BROKEN_OFF),
    ],
    StopReason.FILTERED: [
        *({"finish_reason": word} for word in ("content_filter", "SAFETY", "RECITATION", "BLOCKLIST")),
        {"finish_reason": "sensitive"},
        *({"finish_reason": word} for word in ("SPII", "PROHIBITED_CONTENT", "ERROR_TOXIC", "IMAGE_SAFETY")),
        {"stop_reason": "refusal"},
        {"stopReason": "guardrail_intervened"},
        {"stopReason": "content_filtered"},
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        {"prompt_feedback": {"block_reason": "SAFETY"}},
    ],
    StopReason.PAUSED: [{"stop_reason": "pause_turn"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("stop", "metadata"), [(stop, given) for stop, all in STOPS.items() for given in all]
)
def test_the_words_of_all_providers_for_how_a_reply_stopped(stop: StopReason, metadata: Fields) -> None:
    message = AIMessage("", response_metadata=metadata)
    assert stop_of(message) is stop
    assert broken_off(message) == (metadata.get("finish_reason") in BROKEN_OFF)


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("reason", BROKEN_OFF)
def test_a_reply_that_the_provider_broke_off_is_an_error_and_nothing_of_it_is_kept(
    reason: str, way: str
) -> None:
    broken = {"content": "I will", "response_metadata": {"finish_reason": reason}}
    model = (Whole if way == "whole" else Pieces)(replies=[broken])
    result = build_graph(model, model_retries=None).invoke({"messages": [user()]})
    assert (result["outcome"]["reason"], len(result["messages"])) == ("model_error", 2)
    assert not any(map(is_reply, result["messages"])), "the last one only tells how it ended"
    assert reason in result["outcome"]["error"]
