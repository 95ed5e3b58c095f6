"""Lines of JSON-RPC: which of them are messages, and that what is written can be read."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from signoff.acp.wire import AcpWire
from signoff.front.stdio import BadLine, LongLine, StdioLines, dump_message, read_message

NO_ID = "number, or a text of at most 200"
REFUSED = {
    "no JSON": ("no JSON", None, "not JSON"),
    "a number that JSON does not have": ('{"id": 1, "method": "m", "params": {"a": NaN}}', None, "not JSON"),
    "another such number": ('{"id": 1, "method": "m", "params": [-Infinity]}', None, "not JSON"),
    "a list": ("[1]", None, "one object per line"),
    "neither a method nor an id": ('{"jsonrpc": "2.0"}', None, "one object per line"),
    "a method that is no text": ('{"id": 1, "method": 5}', 1, "as text"),
    "an id that is a list": ('{"id": [1], "method": "m"}', None, NO_ID),
    "an id that is a fraction": ('{"id": 1.0, "result": {}}', None, NO_ID),
    "an id that is true, which is 1 in Python": ('{"id": true, "result": {}}', None, NO_ID),
    "an id that nobody wants to be sent back": (json.dumps({"id": "x" * 201, "method": "m"}), None, NO_ID),
}
MISFIT = "does not fit the protocol"
ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    "an object": ({"result": {"a": 1}}, {"a": 1}),
    "null": ({"result": None}, None),
    "nothing": ({}, None),
    "null, and no error": ({"result": {"a": 1}, "error": None}, {"a": 1}),
    "a list": ({"result": [1]}, (-32603, MISFIT)),
    "a text": ({"result": "yes"}, (-32603, MISFIT)),
    "an error": ({"error": {"code": -5, "message": "No."}}, (-5, "No.")),
    "an error that is a text": ({"error": "boom"}, (-32603, "boom")),
    "an error that is a list": ({"error": [1]}, (-32603, MISFIT)),
    "an empty error": ({"error": {}}, (-32603, MISFIT)),
    "an error under a text": ({"error": {"code": "x", "message": "No."}}, (-32603, "No.")),
    "an error that says an object": ({"error": {"code": 1, "message": {}}}, (1, MISFIT)),
    "an error and a result": ({"result": {"a": 1}, "error": {"code": 1, "message": "No."}}, (1, "No.")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_line_that_is_no_message_is_refused_under_the_id_of_its_request(name: str) -> None:
    line, own, why = REFUSED[name]
    found = read_message(line.encode())
    assert isinstance(found, BadLine)
    document = found.document()
    assert document["id"] == own
    assert why in document["error"]["message"]


@pytest.mark.parametrize(
    ("head", "own"),
    [
        (b'{"id": 7, "method": "m", "params": "xx', 7),
        (b'{"method": "m", "id": "a", "params": "xx', "a"),
        (b'{"id": 7, "result": {"text": "xx', None),
        (b'{"jsonrpc": "2.0", "params": "xx', None),
    ],
)
def test_a_line_that_is_too_long_is_refused_under_the_id_of_its_request(head: bytes, own: Any) -> None:
    found = read_message(LongLine(head, 70_000_000))
    assert isinstance(found, BadLine)
    assert (found.request, "70,000,000 bytes" in found.why) == (own, True)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_an_object_or_an_error_with_a_number_and_a_text(name: str) -> None:
    given, expected = ANSWERS[name]
    found: Any = read_message(json.dumps({"jsonrpc": "2.0", "id": 0, **given}).encode())
    assert found["id"] == 0
    if isinstance(expected, tuple):
        code, why = expected
        assert "result" not in found
        assert (found["error"]["code"], why in found["error"]["message"]) == (code, True)
    else:
        assert (found["result"], found.get("error")) == (expected, None)


@pytest.mark.parametrize("line", ["", " ", '{"id": null, "error": {"code": 1, "message": "What?"}}'])
def test_what_asks_for_nothing_and_answers_nothing_is_not_answered(line: str) -> None:
    assert read_message(line.encode()) is None


def test_every_line_that_is_written_is_json() -> None:
    line = dump_message({"id": 1, "result": {"args": [float("nan"), float("-inf"), 1.5, "\ud800"]}})
    found = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert found["result"]["args"] == ["NaN", "-Infinity", 1.5, "\ud800"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


class Wanted(BaseModel):
    cwd: str
    deep: list[dict[str, int]] = []


def errors_of(given: Any) -> Any:
    with pytest.raises(ValidationError) as caught:
        Wanted.model_validate(given)
    return caught.value.errors()


LARGE = "x" * 1_000_000
ERRORS: dict[str, tuple[Any, str]] = {
    "what does not fit": (
        {"errors": errors_of({"cwd": [LARGE]})},
        "Wrong: cwd: Input should be a valid string",
    ),
    "many that do not fit": ({"errors": errors_of({"cwd": 1, "deep": [LARGE] * 99})}, "Wrong: cwd"),
    "a number that JSON does not have": ({"errors": errors_of({"cwd": float("nan")})}, "Wrong: cwd"),
    "an unknown method": ({"method": LARGE}, "Wrong"),
    "our own": ({"thread": "t"}, "Wrong"),
    "nothing": (None, "Wrong"),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_does_not_send_back_what_was_sent(pipe: tuple[int, int], name: str) -> None:
    data, why = ERRORS[name]
    with open(os.devnull, "rb") as nothing, os.fdopen(pipe[1], "wb", buffering=0) as writing:
        wire = AcpWire(StdioLines(nothing, writing))
        error = {"code": -32602, "message": "Wrong", "data": data}
        await wire.send({"jsonrpc": "2.0", "id": 1, "error": error})
        line = os.read(pipe[0], 65_536)
        await wire.close()
    found = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert len(line) < 2_000
    assert (found["id"], found["error"]["code"]) == (1, -32602)
    assert found["error"]["message"].startswith(why)
    assert name != "our own" or found["error"]["data"] == data
