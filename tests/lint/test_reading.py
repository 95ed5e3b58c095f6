"""Whatever a file holds: a history, or one sentence that says what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff.lint import ControlNames, Trace, Unreadable, faults, read_file, read_trace
from signoff.lint.formats import DEEPEST, FORMATS, KNOWN, MOST_BYTES
from signoff.lint.trace import Result, TraceCall, TraceMessage, TraceReply
from tests.support.lint.cases import END, GO
from tests.support.lint.writers import WRITERS, Line, Res, Use, ai

LANGCHAIN, RESPONSES, *_, ANTHROPIC, CHAT = (known.name for known in FORMATS)
USED: list[Line] = [
    GO,
    ai("So.", Use("read", "r", '{"b": 1, "a": [2]}')),
    Res("r", "text", failed=True),
    *END,
]
FORMAT_OF = {
    **{name: LANGCHAIN for name in WRITERS if name.startswith("LangChain")},
    "OpenAI chat": CHAT,
    "plain role and content": CHAT,
    "OpenAI Responses": RESPONSES,
    "Anthropic": ANTHROPIC,
    **{name: f"{name} messages" for name in ("AgentDojo", "inspect", "tau2-bench")},
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_format_is_told_by_its_shape_and_says_the_same(writer: str) -> None:
    document, places = WRITERS[writer](USED)
    trace = read_trace(document)
    assert trace.format == FORMAT_OF[writer]
    words, reply, result, *_ = trace.entries
    at = places[1, "r"]
    made = TraceCall(at, "r", "read", '{"a": [2], "b": 1}')
    assert words == TraceMessage(0)
    assert reply == TraceReply(places[1, None], "So.", (made,))
    assert isinstance(result, Result)
    assert (result.at, result.id, result.failed) == (places[2, "r"], "r", True)
    assert result.text in ("text", "Error: text")


@pytest.mark.parametrize("writer", WRITERS)
def test_a_list_alone_and_json_lines_are_read(writer: str, tmp_path: Path) -> None:
    document, _ = WRITERS[writer](USED)
    while isinstance(document, dict):
        inner = document.get("values") or document.get("messages")
        document = inner or [*document["input"], *document["output"]]
    lines = tmp_path / "trace.jsonl"
    lines.write_text("\n".join(json.dumps(item) for item in document) + "\n\n", "utf-8")
    assert read_trace(read_file(lines)).entries == read_trace(document).entries


def chat(*contents: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for content in contents]


SPECIAL: dict[str, tuple[Any, Callable[[Trace], bool]]] = {
    "a system message takes a place, and begins nothing": (
        [{"role": "system", "content": "be kind"}, {"role": "user", "content": "do it"}],
        lambda trace: trace.entries == (TraceMessage(1),) and trace.messages == 2,
    ),
    "Anthropic: text beside results is no person's": (
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "Go on."}],
            },
        ],
        lambda trace: trace.entries[1:] == (Result(1, "a"), TraceMessage(1, genuine=False)),
    ),
    "Anthropic: what the provider runs itself is no call": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    {"type": "text", "text": "Found."},
                ],
            }
        ],
        lambda trace: trace.entries == (TraceReply(0, "Found."),),
    ),
    "Responses: a shell that the program runs is a call": (
        [
            {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "l", "call_id": "c", "output": "a"},
        ],
        lambda trace: (
            trace.entries[1] == Result(1, "c", "a")
            and trace.entries[0]
            == TraceReply(0, "", (TraceCall(0, "c", "local_shell", '{"action": {"command": ["ls"]}}'),))
        ),
    ),
    "Responses: a search that OpenAI runs is none": (
        [{"type": "web_search_call", "id": "w", "status": "completed"}],
        lambda trace: trace.entries == (TraceReply(0),),
    ),
    "Responses: the response says that its last reply was cut": (
        {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}],
        },
        lambda trace: trace.entries == (TraceReply(0, "", (TraceCall(0, "c", "x"),), cut=True),),
    ),
    "chat: a custom tool has free text": (
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}}],
            }
        ],
        lambda trace: (
            trace.entries == (TraceReply(0, "", (TraceCall(0, "c", "sql", '{"input": "select"}'),)),)
        ),
    ),
    "LangChain: calls that are only in the provider's extras": (
        [
            {
                "type": "ai",
                "data": {
                    "content": "",
                    "additional_kwargs": {
                        "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": "{}"}}]
                    },
                },
            }
        ],
        lambda trace: trace.entries == (TraceReply(0, "", (TraceCall(0, "c", "x"),)),),
    ),
    "LangChain: calls that are only blocks": (
        [{"type": "ai", "content": [{"type": "tool_use", "id": "c", "name": "x", "input": {"a": 1}}]}],
        lambda trace: trace.entries == (TraceReply(0, "", (TraceCall(0, "c", "x", '{"a": 1}'),)),),
    ),
    "LangChain: our own reminders are no person's": (
        [{"type": "human", "content": "go on", "additional_kwargs": {"signoff": {"nudge": "talked"}}}],
        lambda trace: trace.entries == (TraceMessage(0, genuine=False),),
    ),
    "a batch of one conversation": ([chat("do it")], lambda trace: trace.entries == (TraceMessage(0),)),
    "one message alone": ({"role": "user", "content": "x"}, lambda trace: trace.messages == 1),
    "ids that are numbers": (
        [{"role": "tool", "tool_call_id": 7, "content": "x"}],
        lambda trace: trace.entries == (Result(0, "7", "x"),),
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_what_formats_have_of_their_own(name: str) -> None:
    document, holds = SPECIAL[name]
    assert holds(read_trace(document))


DEEP = "[" * 200_000
FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is empty"),
    "white space": (b" \n\t ", "is empty"),
    "no JSON": (b"hello there", "is not JSON (line 1, column 1"),
    "cut JSON": (b'[{"role": "user"', "is not JSON"),
    "JSON lines with a broken one": (b'{"role": "user"}\n{"role": "us\n', "is not JSON (line 2"),
    "no text": (b"\x89PNG\r\n\x1a\n\x00\xff", "is not UTF-8 text"),
    "UTF-16": ("[]".encode("utf-16"), "is not UTF-8 text"),
    "nested too deeply": (DEEP.encode(), "nested"),
    "nested deeply, and closed": (DEEP.encode() + b"]" * 200_000, "nested"),
    "nested deeper than any history": (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested deeper than 100"),
    "as deep as can be": (b"[" * DEEPEST + b"]" * DEEPEST, "item 0 is a list"),
    "nested in JSON lines": (b"{}\n" + DEEP.encode(), "nested"),
    "a number that is too long": (b"[" + b"9" * 10_000 + b"]", "too long"),
    "too large": (b" " * (MOST_BYTES + 1), "longer than 64 MB"),
    "an empty list": (b"[]", "contains an empty list"),
    "a list of an empty list": (b"[[]]", "contains an empty list"),
    "a number": (b"7", "holds a number, not a list of messages"),
    "nothing at all": (b"null", "holds nothing, not a list of messages"),
    "a text": (b'"hi"', "holds a text, not a list of messages"),
    "an object without messages": (b'{"a": 1, "b": 2}', "with the keys 'a', 'b', not a list of messages"),
    "an empty object": (b"{}", "with no keys"),
    "a list of numbers": (b"[1, 2]", "a list in which item 0 is a number"),
    "objects that are no messages": (
        b'[{"x": 1}]',
        "1 object, the first with the keys 'x', which is none of",
    ),
    "system messages only": (b'[{"role": "system", "content": "x"}]', "contains only instructions"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_history_is_told_in_one_sentence(name: str, tmp_path: Path) -> None:
    data, says = FILES[name]
    file = tmp_path / "trace.json"
    file.write_bytes(data)
    with pytest.raises(Unreadable) as told:
        read_trace(read_file(file), str(file))
    message = str(told.value)
    assert says in message
    assert message.startswith(str(file))
    assert len(message) < 400


@pytest.mark.parametrize("name", ["missing.json", ".", "nul\0l"])
def test_a_file_that_cannot_be_opened(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="cannot be read"):
        read_file(tmp_path / name)


def test_a_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(Unreadable, match="longer than 64 MB"):
        read_file(Path("/dev/zero"))


def test_the_formats_that_are_known_are_named() -> None:
    with pytest.raises(Unreadable) as told:
        read_trace([{"speaker": "me", "says": "hi"}], "a.json")
    assert KNOWN in str(told.value)
    assert all(known.name in KNOWN for known in FORMATS)


ODD: list[Any] = [None, True, 7, -1.5, "x", "\ud800", [], {}, [[]], [None], [7], ["x"], [{}], {"x": 1}]


def parts(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        inside = list(document.items())
    elif isinstance(document, list):
        inside = list(enumerate(document))
    return [path, *(found for key, value in inside for found in parts(value, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("writer", WRITERS)
def test_a_wrong_type_anywhere_is_read_or_told(writer: str) -> None:
    document, _ = WRITERS[writer](USED)
    refused: list[str] = []
    for path in parts(document):
        for value in ODD:
            try:
                faults(read_trace(changed(document, path, value)), ControlNames())
            except Unreadable as told:
                refused.append(str(told))
    assert len(refused) > 50
    assert [message for message in refused if not message.endswith(".")] == []


def test_a_wrong_type_is_told_with_its_place() -> None:
    with pytest.raises(Unreadable, match=r"^Message 1: tool_calls is a number"):
        read_trace([*chat("x"), {"role": "assistant", "tool_calls": 3}])
    with pytest.raises(Unreadable, match=r"^Message 1 has an unknown role: 'robot'"):
        read_trace([*chat("x"), *chat("x", role="robot")])
