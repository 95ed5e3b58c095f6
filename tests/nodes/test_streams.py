"""A reply that comes in pieces: what ends it before its end, who sees that, and what is kept of it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Ended, Limits, Paused, Session, build_graph
from signoff.models import ScriptedModel, call, reply
from tests.support.interrupting import interrupt_process
from tests.support.plays import FINISH, GO, THINK, THREAD, saved
from tests.support.servers import hostile_server as hostile
from tests.support.servers.hostile_server import HostileServer, Sent

# Each starts servers whose answers never end.
pytestmark = pytest.mark.slow

ASK, WRITE = call("ask_user", question="Which one?"), call("write", text='{"a": "}"}')
ALL = 60
"""Seconds after which nobody waits any longer, which fails its test."""


@tool
def write(text: str) -> str:
    """Write a text."""
    return "written"


def chat(server: Any, **options: Any) -> ChatOpenAI:
    # With the retries that the package makes by itself.
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("none"), **options)


def outcome_of_run(model: Any, mode: str = "sync", **options: Any) -> Any:
    graph = build_graph(model, [write], **options)
    result = graph.invoke(GO) if mode == "sync" else asyncio.run(graph.ainvoke(GO))
    return result["outcome"]


def session_of(model: Any, **options: Any) -> Session:
    return Session(build_graph(model, [write], **saved(), **options), "t")


# What follows a finish or a question is cut off; all else comes whole.


def names(message: AIMessage) -> list[str]:
    return [made["name"] or "" for made in [*message.tool_calls, *message.invalid_tool_calls]]


def first_reply(model: BaseChatModel) -> AIMessage:
    graph = build_graph(model, [write], limits=Limits(turns=1), **saved())
    graph.invoke(GO, THREAD)
    messages = graph.get_state(THREAD).values["messages"]
    return next(message for message in messages if isinstance(message, AIMessage))


CUT: dict[str, tuple[list[Any], list[str]]] = {
    "ten finishes": ([FINISH] * 10, ["finish_task"]),
    "a question, then a finish": ([ASK, FINISH], ["ask_user"]),
    "a finish, then a question": ([FINISH, ASK], ["finish_task"]),
    "not what stands before it": (["Now.", WRITE, THINK, FINISH, FINISH], ["write", "think", "finish_task"]),
    "braces in its words": ([call("finish_task", summary='\\"}} {"'), FINISH], ["finish_task"]),
}
UNCUT: dict[str, list[Any]] = {
    "a thought, then a finish": [THINK, FINISH],
    "nothing but a line break follows": [FINISH, "\n"],
    "a finish that is not whole JSON": [call("finish_task", raw='{"summary": "All of'), FINISH],
    "a question that cannot be asked": [call("ask_user"), FINISH],
    "a malformed call before it": [call("write", raw='{"path'), FINISH],
}


@pytest.mark.parametrize("name", [*CUT, *UNCUT])
def test_what_follows_a_finish_or_a_question_is_cut_off(name: str) -> None:
    parts = CUT[name][0] if name in CUT else UNCUT[name]
    bare, model = ScriptedModel([reply(*parts)]), ScriptedModel([reply(*parts)])
    whole, kept = bare.invoke("go"), first_reply(model)
    assert names(kept) == (CUT[name][1] if name in CUT else names(whole))
    assert kept.text == ("Now." if name == "not what stands before it" else "" if name in CUT else whole.text)
    assert (model.chunks_sent < bare.chunks_sent) == (name in CUT), "so much the provider has written"
    assert kept.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_client_leaves_after_the_first_of_ten_finishes_and_the_usage_is_estimated(mode: str) -> None:
    with HostileServer(hostile.finishes(10)) as server:
        outcome = outcome_of_run(chat(server), mode)
        assert server.gone.wait(ALL)
    assert (outcome["status"], outcome["turns"], outcome["usage"]["estimated"]) == ("success", 1, True)
    assert outcome["usage"]["input_tokens"] > 200, "the system prompt and the tools count"
    assert 5 < outcome["usage"]["output_tokens"] < 30


class Ends(BaseCallbackHandler):
    """How each call of a model has ended, as tracing sees it."""

    def __init__(self) -> None:
        self.texts, self.errors = list[str](), list[str]()

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.texts.append(response.generations[0][0].text.strip())

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors.append(type(error).__name__)


def test_who_listens_gets_the_pieces_up_to_the_cut_and_a_reply_that_has_ended() -> None:
    ends, model = Ends(), ScriptedModel([["All is done.", FINISH, "Anything else?"]], chunk_size=4)
    stream = build_graph(model).stream(GO, {"callbacks": [ends]}, stream_mode="messages")
    parts = [part for part, _ in stream if isinstance(part, AIMessageChunk)]
    # After the reply, the answer of the finish may come under an id of its own.
    heard = [part for part in parts if part.id == parts[0].id]
    assert ("".join(part.text for part in heard), len(heard) > 10) == ("All is done.", True)
    assert (ends.texts, ends.errors) == (["All is done."], [])


# A person's stop, a pause and a signal, in the middle of a reply.


class Interrupted(ScriptedModel):
    """Does something in the middle of its first reply."""

    does: Any = None

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for number, chunk in enumerate(super()._stream(*args, **kwargs)):
            if number == 3 and self.does:
                does, self.does = self.does, None
                does()
            yield chunk


def interrupt(session: Session, how: str) -> None:
    session.stop() if how == "stop" else session.pause(how)


def shown(decision: Any) -> Any:
    return decision.outcome.reason if isinstance(decision, Ended) else decision


COMES_TO: dict[str, Any] = {"stop": "cancelled", "signal": Paused("signal"), "pause": Paused("pause")}


@pytest.mark.parametrize("how", COMES_TO)
def test_a_stop_and_a_signal_end_the_reply_of_which_nothing_stays_and_a_pause_lets_it_end(how: str) -> None:
    session: Session
    model = Interrupted(script=["word " * 100, FINISH], does=lambda: interrupt(session, how))
    session = session_of(model)
    assert shown(session.run("go")) == COMES_TO[how]
    stays = any(message.text.startswith("word") for message in session.status().values["messages"])
    done = session.go_on()
    assert isinstance(done, Ended)
    assert (done.outcome.status, done.outcome.turns, stays) == ("success", 1 + stays, how == "pause")


def during(session: Session, server: HostileServer, act: Callable[[], Any], mode: str = "sync") -> Any:
    """What a run comes to while whose first call something happens."""

    def wait() -> None:
        assert server.asked.wait(ALL)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    decision = asyncio.run(session.arun("go")) if mode == "async" else session.run("go")
    thread.join()
    return decision


MUTE = [
    hostile.silent,
    hostile.silent_after_headers,
    hostile.silent_after_a_chunk,
    hostile.keep_alive,
    hostile.line,
]
"""Ways of a server that wakes up nobody who reads from it."""


def at_once(ways: Sequence[Callable[[], Sent]], work: Callable[[Any], Any]) -> dict[str, Any]:
    """What comes of `work` for each way, all at the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(ways)) as pool:
        return dict(zip([way.__name__ for way in ways], pool.map(work, ways), strict=True))


def is_left(server: HostileServer, way: Callable[[], Sent], mode: str) -> bool:
    """Whether the client has left the server, where it can: a thread that waits is abandoned."""
    return (mode == "sync" and way in MUTE) or server.gone.wait(ALL)


@pytest.mark.parametrize(("how", "mode"), [*((how, "sync") for how in COMES_TO), ("stop", "async")])
def test_they_end_a_call_that_is_silent(how: str, mode: str) -> None:
    ways = MUTE if how == "stop" else [hostile.silent, hostile.keep_alive]

    def came(way: Callable[[], Sent]) -> Any:
        with HostileServer(way, hostile.whole) as server:
            session = session_of(chat(server), policy={"model_seconds": None})
            decision = during(session, server, lambda: interrupt(session, how), mode)
            left, done = is_left(server, way, mode), session.go_on()
            assert isinstance(done, Ended)
            return shown(decision), left, done.outcome.status, len(server.requests)

    expected = (COMES_TO[how], True, "success", 2)
    assert at_once(ways, came) == {way.__name__: expected for way in ways}


def test_ctrl_c_without_a_session_ends_the_call() -> None:
    with HostileServer(hostile.silent) as server:
        with pytest.raises(KeyboardInterrupt):
            during(session_of(chat(server)), server, interrupt_process)
        assert len(server.requests) == 1


# A limit, a silence and a size end a reply that does not end by itself.

ENDLESS = [hostile.drip, hostile.flood, hostile.arguments, hostile.no_json, hostile.drip_behind_a_call]
LARGE = [hostile.large_text, hostile.large_arguments, hostile.large_no_json]
WRITING = [hostile.flood, hostile.arguments, hostile.no_json]
Row = tuple[Sequence[Callable[[], Sent]], dict[str, Any], str, str]
BOUNDS: dict[str, Row] = {
    "seconds": ([*MUTE, *ENDLESS], {"limits": Limits(seconds=1)}, "seconds", "sync"),
    "seconds, async": ([hostile.silent, hostile.drip], {"limits": Limits(seconds=1)}, "seconds", "async"),
    "tokens": (WRITING, {"limits": Limits(tokens=300)}, "tokens", "sync"),
    "silence": (MUTE, {"policy": {"model_seconds": 1}}, "model_error", "sync"),
    "silence, async": ([hostile.line], {"policy": {"model_seconds": 1}}, "model_error", "async"),
    "seconds, of a whole reply": (
        [hostile.silent],
        {"limits": Limits(seconds=0.5), "policy": {"streaming": "never"}},
        "seconds",
        "async",
    ),
    "size": (LARGE, {}, "model_error", "sync"),
}


@pytest.mark.parametrize(("ways", "bound", "reason", "mode"), BOUNDS.values(), ids=BOUNDS)
def test_a_reply_without_an_end_is_ended(
    ways: Sequence[Callable[[], Sent]], bound: dict[str, Any], reason: str, mode: str
) -> None:
    # Without a word, it is tried once more, by us and not by the package; after a word it is not.
    mute = set(MUTE) - {hostile.silent_after_a_chunk}
    twice = mute if reason == "model_error" else set()

    def came(way: Callable[[], Sent]) -> Any:
        with HostileServer(way) as server:
            outcome = outcome_of_run(chat(server), mode, **bound)
            told = outcome["status"], outcome["reason"], outcome["usage"]["output_tokens"] < 600_000
            return *told, is_left(server, way, mode), len(server.requests)

    status = "error" if reason == "model_error" else "limit"
    expected = {way.__name__: (status, reason, True, True, 2 if way in twice else 1) for way in ways}
    assert at_once(ways, came) == expected


SHORT = {"limits": Limits(seconds=0.6)}
# What comes whole before the bound is met, and how the task ends by that.
BEFORE: dict[str, tuple[Callable[[], Sent], dict[str, Any], str]] = {
    "a call, before a limit": (hostile.drip_behind_a_call, SHORT, "limit"),
    "a call, before too much": (hostile.large_behind_a_call, {}, "error"),
    "a finish, before a limit": (hostile.silent_behind_a_finish, SHORT, "success"),
    "a finish and the end, before a drip": (hostile.drip_behind_the_end, SHORT, "success"),
}


@pytest.mark.parametrize(("way", "bound", "status"), BEFORE.values(), ids=BEFORE)
def test_what_came_whole_is_kept_a_finish_counts_and_a_call_does_not_run(
    way: Callable[[], Sent], bound: dict[str, Any], status: str
) -> None:
    with HostileServer(way) as server:
        result = build_graph(chat(server), [write], **bound).invoke(GO)
    kept = next(message for message in result["messages"] if isinstance(message, AIMessage))
    assert (result["outcome"]["status"], len(kept.tool_calls)) == (status, 1)
    assert "written" not in [message.text for message in result["messages"]]
    assert bool(result["outcome"]["open_work"]) is (status != "success")


# A call that is abandoned in its thread disturbs nothing.


def test_a_reply_that_comes_too_late_is_dropped() -> None:
    """A reply that is given when the next model has been asked."""
    asked, answered = threading.Event(), threading.Event()

    def late(messages: Any) -> str:
        asked.wait(ALL)
        answered.set()
        return "Too late."

    def in_time(messages: Any) -> Any:
        asked.set()
        answered.wait(ALL)
        return ["In time.", FINISH]

    second, ends = ScriptedModel([in_time]), Ends()
    policy = {"model_seconds": 1, "model_retries": None}
    fallback = ModelFallbackMiddleware(second)
    graph = build_graph(ScriptedModel([late]), middleware=[fallback], policy=policy)
    stream = graph.stream(GO, {"callbacks": [ends]}, stream_mode="messages")
    text = "".join(part.text for part, _ in stream)
    assert ("In time." in text, "late" in text) == (True, False)
    assert ends.texts == ["In time."]
    assert ends.errors, "the first has failed, for who traces it"


PROGRAM = """
from langchain_openai import ChatOpenAI
from signoff import Limits, build_graph

model = ChatOpenAI(model="m", base_url="{url}", api_key="none")
outcome = build_graph(model, limits=Limits(seconds=0.3)).invoke({{"messages": ["go"]}})["outcome"]
print(outcome["reason"])
"""


@pytest.mark.thorough
def test_it_does_not_keep_a_process_from_ending() -> None:
    with HostileServer(hostile.silent) as server:
        command = [sys.executable, "-c", PROGRAM.format(url=server.url)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * ALL, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("seconds\n", "", 0)


def test_a_model_without_an_async_way_cannot_keep_a_loop_from_ending() -> None:
    held = threading.Event()

    class Stuck(BaseChatModel):
        _llm_type = "stuck"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            held.wait(2 * ALL)
            raise NotImplementedError

    try:
        outcome = outcome_of_run(Stuck(), "async", limits=Limits(seconds=0.3))
        assert (outcome["reason"], held.is_set()) == ("seconds", False)
    finally:
        held.set()
