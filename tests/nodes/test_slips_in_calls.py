"""Slips of a model in a call: its name, its arguments; read past, or answered so that it can go on."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from signoff import build_graph
from signoff.graph.history.replies import read_reply
from tests.support.histories import CONTROLS, user
from tests.support.message_shapes import FINISH, WAYS, Fields, Pieces, function, run, told, use

NAMES: dict[str, str] = {
    "functions.write": "",
    "function:write": "",
    "default_api.write": "",
    " write\n": "",
    "Write": "",
    "writewrite": "",
    "write<|channel|>commentary": "",
    "functions.write:0": "",
    "wrote": "Did you mean 'write'?",
    "write_page": "Did you mean 'read_page'?",
    "readpage": "Did you mean 'read_page'?",
    "zzz": "There is no tool 'zzz'. Nothing was run. The tools are: write, read_page, finish_task",
    "": "There is no tool ''. Nothing",
    "a b/c": "There is no tool 'a b/c'",
    "w" * 5_000_000: "There is no tool 'www",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:30]))
def test_a_slip_in_a_name_is_read_past_and_another_name_is_answered(name: str, way: str) -> None:
    call = {"name": name, "id": "a", "args": {"text": "x"}}
    result, written, model = run(way, {"tool_calls": [call]})
    assert NAMES[name] in told(result)
    assert written == ([] if NAMES[name] else ["x"])
    (sent,) = [m for m in model._seen[-1] if isinstance(m, AIMessage)]
    assert all(found["name"].replace("_", "").isalnum() for found in sent.tool_calls)
    assert all(0 < len(found["name"]) <= 64 for found in sent.tool_calls)
    assert len(told(result)) < 1000


def test_a_name_that_could_mean_two_tools_is_not_guessed() -> None:
    def write(text: str) -> str:
        """Write."""
        raise AssertionError("it was guessed")

    def Write(text: str) -> str:
        """Write."""
        raise AssertionError("it was guessed")

    call = {"tool_calls": [{"name": "WRITE", "id": "a", "args": {"text": "x"}}]}
    result = build_graph(Pieces(replies=[call, FINISH]), [write, Write]).invoke({"messages": [user()]})
    assert "There is no tool 'WRITE'" in told(result)


# The raw text of the arguments of `write`, and what the model is told; nothing when it is read all the same.
ARGUMENTS: dict[str, tuple[Any, str]] = {
    "an object": ('{"text": "x"}', ""),
    "space around it": (' \n{"text": "x"}\n', ""),
    "an object in a string": (json.dumps('{"text": "x"}'), ""),
    "a line end inside of a string": ('{"text": "x", "more": "a\nb"}', ""),
    "null": ("null", "text: Field required"),
    "nothing": ("", "text: Field required"),
    "none": (None, "text: Field required"),
    "an empty string": ('""', "text: Field required"),
    "a list": ('[{"text": "x"}]', "not valid JSON (a list, not an object)"),
    "a number": ("7", "not valid JSON (a int, not an object)"),
    "words": ("write x", "not valid JSON (Expecting value"),
    "cut": ('{"text": "x', "not valid JSON (Unterminated string"),
    "two objects": ('{"text": "x"}{"text": "y"}', "not valid JSON (Extra data"),
    "NaN": ('{"text": "x", "n": NaN}', "NaN is no JSON value"),
    "minus infinity": ('{"text": "x", "n": -Infinity}', "-Infinity is no JSON value"),
    "a number beyond all": ('{"text": "x", "n": 1e999}', "number too large"),
    "an integer beyond 64 bits": ('{"text": "x", "n": 1' + "0" * 40 + "}", "number too large"),
    "nested too deep": ('{"text": ' + "[" * 100_000, "not valid JSON"),
    "wrong arguments": ('{"words": "x"}', "text: Field required"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_read_or_answered(name: str, way: str) -> None:
    raw, answer = ARGUMENTS[name]
    fields: Fields = {"additional_kwargs": {"function_call": function(raw)}}
    if way == "in pieces":
        fields = {"tool_call_chunks": [{"name": "write", "args": raw, "id": "a", "index": 0}]}
    result, written, _ = run(way, fields)
    assert written == ([] if answer else ["x"])
    assert answer in told(result)
    assert result["outcome"]["status"] == "success"


@pytest.mark.parametrize("way", WAYS)
def test_arguments_of_five_megabytes_are_just_arguments(way: str) -> None:
    big = "x" * 5_000_000
    _, written, _ = run(way, {"additional_kwargs": {"function_call": function(json.dumps({"text": big}))}})
    assert [len(found) for found in written] == [len(big)]


def test_a_reply_whose_package_cannot_build_it_is_answered() -> None:
    listed = {"tool_calls": [{"name": "write", "id": "a", "args": [1]}]}
    result, written, _ = run("whole", listed)
    assert written == []
    assert "a list, not an object" in told(result)


WHOLE = function('{"summary": "x"}', "finish_task")
FINISHES: dict[str, Fields] = {
    "in the extras": {"additional_kwargs": {"function_call": WHOLE}},
    "as an item": {"content": [{"type": "function_call", "id": "fc_1", "call_id": "call_1", **WHOLE}]},
    "as a block": {"content": [use(name="finish_task", input={"summary": "x"})]},
    "as a call": {"tool_calls": [{"name": "finish_task", "id": "a", "args": {"summary": "x"}}]},
}


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
@pytest.mark.parametrize("name", FINISHES)
def test_a_whole_finish_counts_only_in_a_reply_that_is_whole(name: str, reason: str) -> None:
    reply = AIMessage(**{"content": "", **FINISHES[name], "response_metadata": {"finish_reason": reason}})
    assert (read_reply(reply, CONTROLS).control is not None) == (reason == "stop")
