"""Loopcheck's parts do what they say: replies, the record, the stage with its model and tools, the driver."""

import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, get_args

import pytest

from loopcheck.bench import Bench
from loopcheck.case import Case, Do, Role, load_cases
from loopcheck.driver import NEEDS_A_COMMAND, Script, judge_case, leave_out, read_report, run_case
from loopcheck.judge import STATUSES
from loopcheck.kit import KitWorld, Plan
from loopcheck.observed import Message, ModelCall, Observed, Report, ToolRun
from loopcheck.outside import line, load
from loopcheck.play import make_setup
from loopcheck.process import Hello, Unfit
from loopcheck.replies import Ask, Call, Delegate, Finish, Manner, Part, Reply, render
from loopcheck.stage import MOST_BYTES, MOST_CALLS, MOST_RUNS, Stage
from loopcheck.subjects import ROOT, Subject, list_subjects
from tests.conformance.tiny import LOOK, LOOP

MANNER = Manner(
    finish={
        "any": {"text": "$text"},
        "call": {"name": "done", "args": {"summary": "$text"}},
        "structured": {"text": "$json"},
    },
    ask={"name": "ask", "args": {"question": "$text", "default": "$default"}},
    delegate={"name": "$name", "args": {"task": "$text"}},
)


# Replies.


def reply(*parts: Part) -> Reply:
    return Reply(parts)


def ids() -> Iterator[str]:
    return (f"call_{number}" for number in count(1))


@pytest.mark.parametrize(
    ("said", "way", "text", "calls", "reason"),
    [
        (reply("Hello."), "any", "Hello.", [], "stop"),
        (reply(Finish("Done.")), "any", "Done.", [], "stop"),
        (reply(Finish("Done.")), "call", "", [("call_1", "done", '{"summary": "Done."}')], "tool_calls"),
        (reply(Finish("Done.", {"a": 1})), "structured", '{"a": 1}', [], "stop"),
        (reply(Ask("Why?")), "any", "", [("call_1", "ask", '{"question": "Why?"}')], "tool_calls"),
        (reply(Call("read", id="x", raw="{")), "any", "", [("x", "read", "{")], "tool_calls"),
        (reply(Delegate("aide", "Go.")), "any", "", [("call_1", "aide", '{"task": "Go."}')], "tool_calls"),
        (Reply((Finish("Done.", cut=True),), "length"), "any", "Don", [], "length"),
        (reply(), "any", "", [], "stop"),
    ],
)
def test_a_reply_goes_over_the_wire_in_the_framework_s_manner(
    said: Reply, way: str, text: str, calls: list[Any], reason: str
) -> None:
    wire = render(said, MANNER, way, ids())
    found = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in wire.calls]
    assert (wire.text, found, wire.reason) == (text, calls, reason)


def test_the_arguments_of_a_finish_may_be_the_structured_answer() -> None:
    lacks = dict.fromkeys(("ask", "children", "finish_call"), "it has none")
    said = {"protocol": 1, "framework": "x\n", "versions": {"x": 1}, "lacks": lacks, "finish": {}}
    finish = {"any": {"text": "$text"}, "structured": {"name": "City", "args": "$value"}}
    hello = Hello.read({**said, "finish": finish})
    assert (hello.framework, hello.versions) == ("x", {"x": "1"})
    wire = render(reply(Finish("It is Oslo.", {"city": "Oslo"})), hello.manner, "structured", ids())
    assert wire.calls[0]["function"] == {"name": "City", "arguments": '{"city": "Oslo"}'}


# The record.

CALL = Message("assistant", calls=(("a", "read", "{}"), ("b", "read", "{}")))


@pytest.mark.parametrize(
    ("messages", "dangling"),
    [
        ((CALL, Message("tool", answers="a"), Message("tool", answers="b")), []),
        ((CALL, Message("tool", answers="a"), Message("user", "Stop.")), ["b"]),
        ((CALL, Message("tool", answers="b")), ["a"]),
        (
            (CALL, Message("user", "Stop."), Message("tool", answers="a"), Message("tool", answers="b")),
            ["a", "b"],
        ),
        ((Message("user", "Go."),), []),
    ],
)
def test_a_call_dangles_when_no_result_follows_it(messages: tuple[Message, ...], dangling: list[str]) -> None:
    assert ModelCall(messages).dangling == dangling


def test_what_happened_is_told_in_a_line() -> None:
    run = ToolRun("pay", {"to": "ada", "amount": 5})
    seen = Observed((ModelCall(), run, run, Report("approval"), Report("success")))
    assert seen.told() == "approval → success; 1 model call; pay(ada, 5) (x2)"


def test_what_a_model_was_told_since_its_first_words_is_known() -> None:
    shown = ModelCall(
        (Message("user", "Go."), Message("assistant", "Yes."), Message("tool", "It failed.", answers="a"))
    )
    assert (shown.told_first, shown.told_since) == ("Go.", "It failed.")


# The stage: a model and tools.

TOOLS = {"tools": [{"type": "function"}]}


@contextmanager
def stage(*script: Reply, **more: Any) -> Iterator[Stage]:
    with Stage(Script(Case("x", "?", ".", script, (), **more)), KitWorld("after_write"), MANNER) as found:
        yield found


def post(url: str, body: Any) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def ask(one: Stage, *messages: Mapping[str, Any], **more: Any) -> tuple[int, str]:
    return post(f"{one.url}/chat/completions", {"messages": list(messages), **more})


def said(one: Stage, *messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(ask(one, *messages, **more)[1])["choices"][0]["message"]
    return message


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def streamed(text: str) -> dict[str, Any]:
    """The message that a stream's pieces make up."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    deltas = [choice["delta"] for line in lines[:-1] for choice in json.loads(line)["choices"]]
    calls = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    words = "".join(delta.get("content") or "" for delta in deltas)
    return {"content": words, "arguments": "".join(piece["arguments"] for piece in calls)}


def test_the_model_says_the_same_streamed_or_not() -> None:
    both = reply("Look.", Call("read", {"name": "a"}))
    with stage(both, both) as one:
        whole, pieces = said(one), streamed(ask(one, stream=True)[1])
    arguments = whole["tool_calls"][0]["function"]["arguments"]
    assert pieces == {"content": whole["content"], "arguments": arguments}


@pytest.mark.parametrize(("by_history", "second"), [(True, "one"), (False, "two")])
def test_the_model_goes_by_its_history_or_by_its_calls(by_history: bool, second: str) -> None:
    with stage(reply("one"), reply("two"), by_history=by_history) as one:
        assert [said(one)["content"] for _ in range(2)] == ["one", second]


READS = Role(
    "Read it.", (reply(Call("read", {"name": "a"})),), reply("below"), cornered=reply("I may call nothing")
)


@pytest.mark.parametrize(
    ("told", "more", "says"),
    [
        ("Do it.", TOOLS, "above"),
        ('{"request": "Read it."}', TOOLS, None),
        ("Read it.", {}, "I may call nothing"),
        ("Read it.", {**TOOLS, "tool_choice": "none"}, "I may call nothing"),
    ],
)
def test_the_model_knows_a_sub_agent_by_its_task(told: str, more: dict[str, Any], says: str | None) -> None:
    with stage(reply("above"), roles=(READS,), by_history=True) as one:
        system = {"role": "system", "content": "Be good."}
        assert said(one, system, user(told), **more)["content"] == says
    assert [shown.who for _, shown in one.seen] == ["Read it." if "Read it." in told else ""]


def test_a_sub_agent_that_is_not_told_its_task_any_more_is_known_by_its_calls() -> None:
    with stage(reply("above"), roles=(READS,), by_history=True) as one:
        first = said(one, user("Read it."), **TOOLS)
        answer = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "quiet"}
        assert said(one, first, answer, **TOOLS)["content"] == "below"


STRICT = [{"type": "function", "function": {"name": "read", "strict": True}}]


@pytest.mark.parametrize(
    ("body", "forbids"),
    [
        ({}, set()),
        ({"tool_choice": "auto"}, set()),
        ({"tool_choice": "required"}, {"talk"}),
        ({"tools": STRICT}, {"shape"}),
        ({"response_format": {"type": "json_schema", "json_schema": {"strict": True}}}, {"shape"}),
    ],
)
def test_the_record_says_what_a_request_forbids(body: dict[str, Any], forbids: set[str]) -> None:
    with stage(reply(Call("read", {"name": "a"}))) as one:
        ask(one, **body)
    assert [shown.forbids for _, shown in one.seen] == [forbids]


def test_a_model_that_is_called_for_ever_ends_the_run_and_fills_no_record() -> None:
    with stage() as one:
        found = [ask(one)[0] for _ in range(MOST_CALLS + 3)]
        assert one.capped
    assert found == [200] * MOST_CALLS + [400] * 3
    assert len(one.seen) == MOST_CALLS + 1


def test_a_request_that_is_refused_for_ever_ends_the_run_too() -> None:
    with stage() as one:
        found = {ask(one, user("x" * 700_000))[0] for _ in range(4 * MOST_CALLS + 1)}
        assert (found, one.capped) == ({400}, True)


def test_tools_that_are_called_for_ever_end_the_run() -> None:
    with stage() as one:
        one.world.call("pay", {"to": "ada", "amount": 1})
        found = [one.take_place("read", {"name": "a"})[0] for _ in range(MOST_RUNS + 1)]
        assert (found[0], found[-1], one.capped) == (200, 429, True)


def post_raw(one: Stage, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(one.tools_url.removeprefix("http://"), timeout=5)
    connection.putrequest("POST", path)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body)
    with closing(connection), connection.getresponse() as answer:
        return answer.status, json.loads(answer.read())


READ = b'{"name": "a"}'


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        (b"d\r\n%s\r\n0\r\n\r\n" % READ, 200, "a holds: all quiet"),
        (
            b"5\r\n%s\r\n8;of=it\r\n%s\r\n0\r\nMore: so\r\n\r\n" % (READ[:5], READ[5:]),
            200,
            "a holds: all quiet",
        ),
        (b"ffffffff\r\n", 413, None),
        (b"-1\r\n", 413, None),
        (b"zz\r\n", 413, None),
        (b'3\r\n{"n\r\n0\r\n\r\n', 400, None),
    ],
)
def test_a_request_may_come_in_chunks(body: bytes, status: int, answer: str | None) -> None:
    with stage() as one:
        found, said = post_raw(one, "/call/read", body, Transfer_Encoding="chunked")
    assert (found, said.get("result")) == (status, answer)


@pytest.mark.parametrize("size", ["-1", "1000001", "9" * 5000, "much"])
def test_a_call_of_a_tool_that_is_too_large_is_refused(size: str) -> None:
    with stage() as one:
        found, said = post_raw(one, "/call/read", b"", Content_Length=size)
    assert (found, said["error"]["code"]) == (413, "too_large")


def test_tools_that_are_called_with_too_much_end_the_run() -> None:
    with stage() as one:
        found = [one.take_place("read", {"name": "a"}, MOST_BYTES // 3)[0] for _ in range(4)]
        assert (found, one.capped) == ([200, 200, 200, 429], True)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/chat/completions", {"messages": [user("")] * 6000}, 400, "context_length_exceeded"),
        (
            "/v1/chat/completions",
            {"messages": [], "tools": [{"x": "y" * 700_000}]},
            400,
            "context_length_exceeded",
        ),
        ("/v1/chat/completions", b'{"messages": %s}' % (b"[" * 150 + b"]" * 150), 400, "no_json_object"),
        ("/v1/chat/completions", {"messages": [user("x" * 1_000_000)]}, 400, "context_length_exceeded"),
        ("/v1/chat/completions", {}, 400, "malformed_request"),
        ("/v1/chat/completions", {"messages": ["Hello."]}, 400, "malformed_request"),
        ("/v1/chat/completions", {"messages": [{"tool_calls": [{}]}]}, 400, "malformed_request"),
        ("/v1/chat/completions", {"messages": [], "tools": ["read"]}, 400, "malformed_request"),
        ("/v1/chat/completions", [1], 400, "no_json_object"),
        ("/v1/chat/completions", b"{", 400, "no_json_object"),
        ("/call/read", b"[" * 100_000, 400, "no_json_object"),
        ("/v1/embeddings", {}, 404, "unknown_path"),
    ],
)
def test_what_cannot_be_answered_is_refused(path: str, body: Any, status: int, code: str) -> None:
    with stage() as one:
        found, text = post(f"{one.tools_url}{path}", body)
    assert (found, json.loads(text)["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "body", "status", "answer"),
    [
        ("/call/read", {"name": "a"}, 200, {"result": "a holds: all quiet"}),
        ("/call/pay", {"to": "ada", "amount": 5}, 200, {"result": "paid 5 to ada"}),
        ("/call/pay", {"to": "ada"}, 422, {"error": "pay needs amount."}),
        ("/call/fail", {"what": "it"}, 422, {"error": "disk-17 is full"}),
        ("/call/steal", {}, 404, {"error": "There is no tool 'steal'."}),
        ("/gate", {}, 200, {"missing": "The report has not been written yet."}),
    ],
)
def test_tools_take_place_at_the_stage(path: str, body: Any, status: int, answer: Any) -> None:
    with stage() as one:
        found, text = post(f"{one.tools_url}{path}", body)
    assert (found, json.loads(text)) == (status, answer)


def test_the_completion_check_passes_once_something_was_written() -> None:
    world = KitWorld("after_write")
    assert world.gate()
    world.call("write", {"name": "report", "text": "all"})
    assert world.gate() is None


@pytest.mark.parametrize(("when", "happened"), [("before", 1), ("after", 2)])
def test_a_kill_comes_at_the_nth_run_of_a_tool(when: str, happened: int) -> None:
    kills: list[str] = []
    world = KitWorld()
    world.new_step(Plan("write", 2, when, kill=lambda: kills.append(when)))
    for number in range(2):
        try:
            world.call("write", {"name": "a", "text": str(number)})
        except ConnectionAbortedError:
            assert (when, number) == ("before", 1)
    assert (kills, len(world.ran)) == ([when], happened)


# What comes from a subject.


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, "b"]}', {"a": [1, "b"]}),
        (b"[" * 100 + b"]" * 100, "any"),
        (b"[" * 101 + b"]" * 101, None),
        (b'{"a":' * 150 + b"1" + b"}" * 150, None),
        (b"[" * 100_000, None),
        (b"9" * 5000, None),
        (b'{"a": "\xe9"}', None),
        (b"", None),
    ],
)
def test_json_is_taken_that_can_be_printed_again(data: bytes, value: Any) -> None:
    if value is None:
        with pytest.raises(ValueError):  # noqa: PT011  of the reader, or of this suite
            load(data)
    else:
        assert load(data) == value or value == "any"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("all right", "all right"),
        (" two\n lines\t", "two lines"),
        ("\x1b[31mred \ud83d", "?[31mred ?"),
        ("a" * 20, "a" * 10 + "…"),
        ("a" * 10, "a" * 10),
        ("a" + " " * 1000, "a…"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_words_of_a_subject_are_a_line_of_bounded_length(given: Any, told: str) -> None:
    assert line(given, 10) == told


# The driver.


def named(name: str) -> Case:
    return next(case for case in load_cases() if case.name == name)


@pytest.mark.parametrize(
    ("name", "lacks", "why"),
    [
        ("deadline", {"crash": "it has no storage"}, None),
        ("deadline", {"deadline": "it waits for ever"}, "deadline: it waits for ever"),
    ],
)
def test_a_case_that_is_not_claimed_does_not_count(name: str, lacks: dict[str, str], why: str | None) -> None:
    cell = leave_out(named(name), lacks)
    assert (cell and (cell.mark, cell.why)) == (why and ("n/a", why))


@pytest.mark.parametrize(
    ("name", "forbids", "mark"),
    [
        ("promise", (), "fail"),
        ("promise", ("talk",), "n/a"),
        ("structured_never", ("talk",), "fail"),
        ("structured_never", ("shape",), "n/a"),
        ("filtered", ("talk", "shape"), "fail"),
    ],
)
def test_a_reply_that_a_request_forbids_is_no_loss(name: str, forbids: tuple[str, ...], mark: str) -> None:
    message = Message("user", named(name).steps[0].text)
    seen = Observed((ModelCall((message,), forbids=frozenset(forbids)), Report("success")))
    assert judge_case(named(name), seen).mark == mark


def test_what_a_subject_reports_is_read() -> None:
    waits = [{"id": "a", "name": "pay", "args": {"to": "ada"}, "more": 1}]
    told = read_report({"status": "approval", "words": None, "pending": waits})
    assert told == Report("approval", "", None, ({"id": "a", "name": "pay", "args": {"to": "ada"}},))


@pytest.mark.parametrize("pending", [5, "all", {"a": 1}, [1], [{}], [{"name": "pay", "args": "all"}]])
def test_calls_that_are_none_are_no_report(pending: Any) -> None:
    with pytest.raises(Unfit, match="`pending` is no list of calls"):
        read_report({"status": "approval", "pending": pending})


@pytest.mark.slow
def test_a_subject_that_runs_already_is_not_killed() -> None:
    port = "19999"
    with subprocess.Popen(LOOP, env={**os.environ, "LOOPCHECK_PORT": port}) as process:
        try:
            with Bench([], f"http://127.0.0.1:{port}") as bench:
                found = {
                    name: run_case(bench, named(name)) for name in ("crash_before_reply", "failed_sibling")
                }
            assert process.poll() is None
        finally:
            process.kill()
    crash, sibling = found.values()
    assert (crash.mark, crash.why) == ("n/a", NEEDS_A_COMMAND)
    assert sibling.mark == "ok", sibling.why


@pytest.mark.slow
def test_the_protocol_tells_what_a_subject_is_sent_and_may_say() -> None:
    text = (ROOT / "PROTOCOL.md").read_text()
    with Bench(LOOP) as bench, stage() as one:
        given = make_setup(LOOK, one, bench.folder, "call", asks=True)
    sent = [*given, *get_args(Do), *(status for status in STATUSES if status != "hung")]
    assert [name for name in sent if f"`{name}`" not in text and f'"{name}"' not in text] == []


# The subjects.


def test_every_subject_has_an_adapter_and_is_pinned() -> None:
    assert list_subjects()
    for one in list_subjects():
        assert all("==" in package for package in one.packages), one.name
        assert one.kind == "node" or one.adapter.exists(), one.name


def test_a_subject_that_is_not_installed_is_no_error() -> None:
    assert Subject("nobody", "Nobody", packages=["nobody==1"]).problem == "not installed"


def test_a_subject_of_one_s_own_is_started_by_its_words() -> None:
    assert Subject("own", "Own", "given", given=[sys.executable, "x.py"]).command == [sys.executable, "x.py"]
