"""What a provider refuses or breaks: tried again where that can help, else an outcome; and one can go on."""

import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages.utils import count_tokens_approximately
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Ended, Limits, ModelRetries, Outcome, Session, build_graph, sqlite_storage
from signoff.events import Retrying, Said
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import FINISH, GO, saved
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, sse, tool_call

KEY = "sk-live-0123456789abcdef"
DONE = Reply(calls=[tool_call("finish_task", summary="All of it.")])
WORDS = Reply("I will now do all of it.", size=4)
DROPPED = Reply(WORDS.text, size=4, ends="cut")
BROKEN = error(500, "The server had an error.")
LONG = error(429, "Too fast", Retry_After="30")
AT_ONCE = ModelRetries(tries=2, first_wait=0)
NEVER: dict[str, Any] = {"model_retries": None}


def chat(url: str, name: str = "m", **options: Any) -> ChatOpenAI:
    given = {"api_key": SecretStr(KEY), "max_retries": 0, "timeout": 10, **options}
    return ChatOpenAI(model=name, base_url=url, **given)


def session_of(model: Any, limits: Any = None, middleware: Any = (), **policy: Any) -> Session:
    graph = build_graph(model, limits=limits, middleware=middleware, policy=policy, **saved())
    return Session(graph, "t")


def ended(decision: Any) -> Outcome:
    assert isinstance(decision, Ended)
    outcome: Outcome = decision.outcome
    return outcome


# What is said, and that the thread goes on.


def page(status: int, title: str) -> Fault:
    text = f"<!DOCTYPE html><html><head><style>b {{}}</style><title>{title}</title></head></html>"
    return Fault(status, text, content_type="text/html")


# What the server answers; and what the error names: the server's words, what to change.
CASES: dict[str, tuple[Reply | Fault, Sequence[str]]] = {
    "401": (error(401, "Incorrect API key.", "invalid_api_key"), ["Incorrect API key", "OPENAI_API_KEY"]),
    "404 of a model": (error(404, "The model `m` does not exist."), ["`m`", "--model"]),
    "404 of an address": (page(404, "404 Not Found"), ["404 Not Found", "--base-url"]),
    "422": (Fault(422, {"detail": [{"loc": ["body", "n"], "msg": "no"}]}), ["body.n: no"]),
    "429 of a quota": (error(429, "You exceeded your quota.", "insufficient_quota"), ["your quota"]),
    "500": (BROKEN, ["The server had an error"]),
    "a dropped stream": (DROPPED, []),
    "a drop that looks like an end": (Reply(WORDS.text, ends="silent"), ["finish_reason"]),
    "no answer in time": (Reply("x", wait=30), ["timed out"]),
    "a stream that stalls": (Reply(WORDS.text, pause=30), ["timed out"]),
    "no body": (Fault(200, ""), ["base URL"]),
    "a page": (page(200, "Welcome"), ["base URL"]),
    "an object of something else": (Fault(200, {"status": "ok"}), ["base URL"]),
    "an error with status 200": (Fault(200, {"error": {"message": "It died", "code": 502}}), ["It died"]),
    "a malformed event": (sse('data: {"choices": ['), ["base URL"]),
    "an error in the stream": (sse('data: {"error": {"message": "Busy", "code": 503}}'), ["Busy"]),
}  # fmt: skip
LATE = {"no answer in time", "a stream that stalls"}
NOT_STREAMED = {"no answer in time", "an error with status 200"}


@pytest.mark.parametrize("name", CASES)
def test_an_error_names_what_was_said_and_what_to_change_and_the_thread_goes_on(
    name: str, server: FakeProvider
) -> None:
    answer, named = CASES[name]
    server.plays(answer, DONE)
    seconds = 0.4 if name in LATE else 10
    session = session_of(chat(server.url, disable_streaming=name in NOT_STREAMED, timeout=seconds), **NEVER)
    outcome = ended(session.run("do it"))
    assert (outcome.reason, len(server.requests)) == ("model_error", 1)
    assert [word for word in named if word not in str(outcome.error)] == [], outcome.error
    assert "<" not in str(outcome.error), "no markup of a page"
    assert [message.type for message in session.status().values["messages"]] == ["human", "ai"]
    assert ended(session.go_on()).status == "success"


UNREACHABLE = {
    "refused": ("http://127.0.0.1:{closed}/v1", "reached"),
    "unknown host": ("http://no-such-host.invalid/v1", "host"),
    "no TLS": ("https://127.0.0.1:{open}/v1", "https"),
}


@pytest.mark.parametrize(("url", "named"), UNREACHABLE.values(), ids=UNREACHABLE)
def test_a_server_that_cannot_be_reached_is_told_from_one_that_refuses(
    url: str, named: str, server: FakeProvider
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ports = {"closed": probe.getsockname()[1], "open": server.server_port}
        outcome = ended(session_of(chat(url.format(**ports)), **NEVER).run("do it"))
    assert (outcome.reason, named in str(outcome.error)) == ("model_error", True)


ECHOES: dict[str, Fault] = {
    "in a message": Fault(401, '{"error": {"message": "Bad header: {authorization}"}}'),
    "in a stream": sse('data: {"error": {"message": "no {authorization}"}}'),
    "far behind": Fault(400, '{"error": {"message": "' + "x" * 480 + ' {authorization}"}}'),
}  # fmt: skip


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_no_error_tells_the_key_and_none_is_stored(echo: Fault, server: FakeProvider, tmp_path: Path) -> None:
    server.plays(echo)
    # One that looks like none.
    key = "a plain password"
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(chat(server.url, api_key=SecretStr(key)), storage=storage, policy=NEVER)
        outcome = ended(Session(graph, "t").run("do it"))
    assert key in server.requests[0].headers["authorization"], "the server has been told"
    assert "password" not in str(outcome.error)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert key.encode() not in stored


HIDDEN: dict[str, str] = {
    "Incorrect API key provided: sk-proj-abc***wxyz.": "sk-proj",
    "Authorization: Bearer abc.def-ghi": "abc.def-ghi",
    '{"api_key": "12345"}': "12345",
    "no route to https://ada:secret@host/v1": "secret",
    "GET /v1/models?key=12345&a=b": "12345",
    "key AIzaSyA1234567890abcdef": "AIzaSy",
}
SHOWN = "The key to it is a task-list-of-things"


def error_of(failure: BaseException) -> str:
    outcome = build_graph(ScriptedModel([failure, failure]), policy=NEVER).invoke(GO)["outcome"]
    assert outcome["reason"] == "model_error"
    return str(outcome["error"])


@pytest.mark.parametrize(("said", "secret"), HIDDEN.items())
def test_what_looks_like_a_key_is_hidden(said: str, secret: str) -> None:
    assert secret not in error_of(ValueError(said))
    assert SHOWN in error_of(ValueError(SHOWN)), "words that look only a little like one"


# Which errors may pass, and which say that the prompt is too long: in the words of all providers.


class Refusal(openai.OpenAIError):
    """An error as a provider's package raises it."""

    def __init__(self, said: str = "no", status: int | None = None, headers: Any = None, **more: Any) -> None:
        super().__init__(said)
        self.status_code = status
        self.response = type("Response", (), {"headers": headers or {}, "status_code": status})
        vars(self).update(more)


class Panic(BaseException):
    """What an extension in Rust raises when it panics."""


THROTTLED = {"Code": "throttlingException", "Message": "Too many tokens, please wait"}
EVENT_STREAM_ERROR = import_module("botocore.exceptions").EventStreamError


PASSES: dict[str, BaseException] = {
    **{str(status): Refusal(status=status) for status in (408, 409, 429, 500, 529)},
    "a reset": ConnectionResetError(104, "reset by peer"),
    "a timeout": TimeoutError("timed out"),
    "overloaded, by its type": Refusal(body={"error": {"type": "engine_overloaded_error"}}),
    "Bedrock: throttled": EVENT_STREAM_ERROR({"Error": THROTTLED}, "ConverseStream"),
    "Bedrock: broken, before": Refusal(status=424, body={"error": {"code": "ModelStreamErrorException"}}),
    "Responses: error": ValueError("rate_limit_exceeded: Rate limit reached."),
    "nothing in a stream": ValueError("No generation chunks were returned"),
    "OpenRouter: an event": Refusal(body=json.dumps({"data": {"error": {"code": 502}}})),
    "OpenRouter: words": ValueError("OpenRouter API returned an error: no (code: 502)"),
    "Ollama: in the stream": import_module("ollama").ResponseError("unexpected EOF"),
}
LASTS: dict[str, BaseException] = {
    **{str(status): Refusal(status=status) for status in (400, 401, 404, 501)},
    "503 of which the server says so": Refusal(status=503, headers={"x-should-retry": "false"}),
    "no such host": ConnectionError("Name or service not known"),
    "a mistake": KeyError("x"),
    "a panic": Panic("index out of bounds"),
    "no quota": Refusal(body={"error": {"code": "insufficient_quota", "type": "rate_limit_error"}}),
    "OpenRouter: lasting": Refusal(body=json.dumps({"data": {"error": {"code": 400}}})),
    "a code with a lasting status": Refusal(status=400, body={"error": {"type": "api_error"}}),
}


@pytest.mark.parametrize("name", [*PASSES, *LASTS])
def test_what_may_pass_is_tried_again_and_nothing_else(name: str) -> None:
    model = ScriptedModel([PASSES.get(name) or LASTS[name], FINISH], strict=False)
    outcome = build_graph(model, policy={"model_retries": AT_ONCE}).invoke(GO)["outcome"]
    expected = ("success", 1, 2) if name in PASSES else ("error", 0, 1)
    assert (outcome["status"], outcome["retries"], len(model.seen)) == expected, outcome["error"]


TOO_LONG: list[Exception] = [
    ContextOverflowError("too big"),
    Refusal("prompt is too long: 208310 tokens > 200000 maximum", 400),
    Refusal("Input is too long for requested model.", response={"ResponseMetadata": {"HTTPStatusCode": 400}}),
    Refusal("`inputs` tokens + `max_new_tokens` must be <= 4096", 422),
    Refusal("Request too large for x on tokens per min (TPM): Limit 30000, Requested 40000", 429),
    Refusal(code="context_length_exceeded"),
    Refusal(status=400, body={"error": {"type": "exceed_context_size_error"}}),
    Refusal("Your request exceeded model token limit: 8 (requested: 9)", 400),
    Refusal("<400> InternalError: Range of input length should be [1, 129024]", 400),
    Refusal(status=400, body={"error": {"code": "1261"}}),
    Refusal("prompt token count of 9 exceeds the limit of 8", 400),
    Refusal("The decoder prompt (length 9) is longer than the maximum model length of 8.", 400),
    Refusal("prompt too long; exceeded max context length by 4 tokens", -1),
    Refusal("length of prompt_tokens (9) must be less than max_seq_len (8)", 400),
]
NOT_TOO_LONG: list[Exception] = [
    Refusal("Invalid 'tools[0].function.description': string too long.", 400),
    Refusal("the tool result is too long ago", 400),
    Refusal("Too many tokens, please wait before trying again.", 429),
    Refusal("Range of max_tokens should be [1, 8192]", 400),
]


@pytest.mark.parametrize("failure", [*TOO_LONG, *NOT_TOO_LONG], ids=str)
def test_a_prompt_that_is_too_long_is_sent_once_more_in_every_providers_words(failure: Exception) -> None:
    """Folded, if there is something to fold; and no oftener."""
    model = ScriptedModel([failure, failure])
    outcome = build_graph(model, policy=NEVER).invoke(GO)["outcome"]
    assert (outcome["reason"], len(model.seen)) == ("model_error", 2 if failure in TOO_LONG else 1)


NO_TOOLS: list[Exception] = [
    Refusal("registry.ollama.ai/library/gemma:2b does not support tools", 400),
    Refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', 400),
    Refusal("Function calling is not enabled for models/x", code=400),
    Refusal("This model doesn't support tool use.", response={"ResponseMetadata": {"HTTPStatusCode": 400}}),
]


OTHER = Refusal("Invalid schema for function 'write': 'format' is not supported", 400)


@pytest.mark.parametrize("failure", [*NO_TOOLS, OTHER], ids=str)
def test_a_model_without_tools_is_said_to_have_none_in_every_providers_words(failure: Exception) -> None:
    assert ("tool calling" in error_of(failure)) is (failure is not OTHER)


# A prompt that is too long.


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def notes(count: int, usage: Any = None) -> list[Any]:
    return [reply(call("note", text=f"{at} " + "x" * 400), usage=usage) for at in range(count)]


def noting(model: ScriptedModel, memory: Any = None) -> Session:
    return Session(build_graph(model, [note], limits=Limits(turns=100), **(memory or saved())), "t")


def sizes(model: ScriptedModel) -> list[int]:
    return [count_tokens_approximately(seen.messages) for seen in model.seen]


def test_it_is_folded_to_half_and_the_smaller_budget_holds() -> None:
    # By its words, and of a provider that does not count.
    with ScriptedModel([*notes(20, False), TOO_LONG[1], *notes(20, False), FINISH]) as model:
        outcome = ended(noting(model).run("Remember the heron."))
    assert (outcome.status, outcome.turns) == ("success", 41)
    before, after, *later = sizes(model)[20:]
    assert (after <= before / 2, max(later) < before) == (True, True)
    assert all("Remember the heron." in [m.text for m in seen.messages] for seen in model.seen)


def test_a_second_one_in_a_row_is_an_error_and_one_after_a_reply_is_folded_again() -> None:
    full = TOO_LONG[0]
    with ScriptedModel([*notes(8), full, *notes(3), full, call("note", text="1"), full, full]) as model:
        outcome = ended(noting(model).run("go"))
    assert (outcome.reason, outcome.turns) == ("model_error", 12)


def test_another_process_goes_on_with_what_was_folded_and_the_next_task_begins_anew() -> None:
    full, memory = TOO_LONG[0], saved()
    with ScriptedModel([*notes(10), full, full]) as model:
        assert ended(noting(model, memory).run("one")).status == "error"
    with ScriptedModel([FINISH, *notes(30), FINISH]) as other:
        assert ended(noting(other, memory).go_on()).status == "success"
        assert ended(noting(other, memory).run("two")).status == "success"
    assert sizes(other)[0] <= sizes(model)[-1] + 50
    last = "\n".join(message.text for message in other.seen[-1].messages)
    assert all(f"noted {at} " in last for at in range(30)), "the whole budget again"


# How often, and after which waits.

SOON = ModelRetries(tries=2, longest_wait=1)
TRIES: dict[str, tuple[ModelRetries | None, Fault | Reply, int]] = {
    "a reply that was broken off": (AT_ONCE, Reply("I w", reason="error"), 2),
    "a wait in milliseconds goes first": (SOON, error(429, "", Retry_After_Ms="5", Retry_After="7"), 2),
    "a wait that is nonsense": (AT_ONCE, error(429, "Too fast", Retry_After="soon"), 2),
    "by the client alone, without a policy": (None, error(500, "Oh no", Retry_After_Ms="5"), 3),
}


@pytest.mark.parametrize(("policy", "answer", "times"), TRIES.values(), ids=TRIES)
def test_how_often_it_is_tried(
    policy: ModelRetries | None, answer: Fault | Reply, times: int, server: FakeProvider
) -> None:
    server.plays(*[answer] * 9)
    session = session_of(chat(server.url, max_retries=2), model_retries=policy)
    outcome = ended(session.run("do it"))
    assert len(server.requests) == times
    assert (outcome.reason, outcome.retries) == ("model_error", times - 1 if policy else 0)


def test_the_wait_that_a_server_asks_for_is_kept_and_counts_as_work(server: FakeProvider) -> None:
    server.plays(error(429, "Too fast", Retry_After="0.2"), BROKEN, DONE)
    session = session_of(chat(server.url, "asked"), model_retries=ModelRetries(tries=3, first_wait=0))
    outcome = ended(session.run("do it"))
    assert 0.2 <= outcome.seconds_retrying <= outcome.seconds_active
    assert (outcome.status, outcome.retries, outcome.models) == ("success", 2, {"m": 1})


def test_no_try_begins_after_the_seconds_of_the_task_and_it_is_not_waited_for(server: FakeProvider) -> None:
    server.plays(LONG, DONE)
    session = session_of(chat(server.url), limits=Limits(seconds=20))
    outcome = ended(session.run("do it"))
    assert (outcome.reason, outcome.retries, len(server.requests)) == ("model_error", 0, 1)
    assert outcome.seconds_active < 20
    assert ended(session.go_on()).status == "success"


def test_each_model_has_its_tries_and_the_last_error_stands(server: FakeProvider) -> None:
    server.plays(BROKEN, BROKEN, error(503, "Overloaded"), error(503, "Overloaded"))
    middleware = [ModelFallbackMiddleware(chat(server.url, "b"))]
    session = session_of(chat(server.url, "a"), middleware=middleware, model_retries=AT_ONCE)
    outcome = ended(session.run("do it"))
    assert [request.body["model"] for request in server.requests] == ["a", "a", "b", "b"]
    assert (outcome.reason, outcome.retries, "Overloaded" in str(outcome.error)) == ("model_error", 2, True)


# Who is told of a wait, and what ends it.


def test_a_session_tells_of_a_wait_before_the_next_try(server: FakeProvider) -> None:
    server.plays(error(429, "Too fast", Retry_After="0.2"), BROKEN, DROPPED, DONE)
    session = session_of(chat(server.url), model_retries=ModelRetries(first_wait=0.02))
    waits, retries = list[tuple[int, bool, int]](), list[int]()
    for event in session.events("do it", tokens=True):
        if isinstance(event, Retrying):
            waits.append((event.tries, event.dropped, len(server.requests)))
        elif isinstance(event, Said):
            retries.append(event.retries)
    assert [wait[:2] for wait in waits] == [(1, False), (2, False), (3, True)]
    assert waits[0][2] == 1, "when the wait begins, not after it"
    assert retries == [3]


CONDITIONS = {"pause": "paused", "signal": "stopped", "stop": "ended"}


@pytest.mark.parametrize("how", CONDITIONS)
def test_a_pause_a_signal_and_a_stop_end_the_wait(how: str, server: FakeProvider) -> None:
    server.plays(LONG, DONE)
    session = session_of(chat(server.url))
    for event in session.events("do it", tokens=True):
        if isinstance(event, Retrying):
            session.stop() if how == "stop" else session.pause(how)
    status = session.status()
    assert (len(server.requests), status.condition) == (1, CONDITIONS[how]), "it was not waited for"
    assert status.outcome is None or status.outcome.reason == "cancelled"
    assert ended(session.go_on()).status == "success"


@pytest.mark.parametrize("how", CONDITIONS)
def test_they_end_the_wait_for_a_model_that_says_nothing(how: str) -> None:
    session: Session
    left, waited = threading.Event(), list[bool]()

    def silent(messages: Any) -> Any:
        session.stop() if how == "stop" else session.pause(how)
        waited.append(left.wait(10))
        return FINISH

    session = session_of(ScriptedModel([silent]))
    session.run("do it")
    assert (waited, session.status().condition) == ([], CONDITIONS[how])
    left.set()


def test_a_wait_holds_up_nobody_else_in_its_loop_and_is_cancelled_with_its_task(
    server: FakeProvider,
) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(session_of(chat(server.url)).arun("do it"))
        while not server.requests:
            await asyncio.sleep(0.01)
        await build_graph(ScriptedModel([FINISH])).ainvoke(GO)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    server.plays(LONG)
    asyncio.run(main())
