"""Each provider's own client against a server that refuses what the provider refuses: tasks get through.

`docs/how-to/models.md` claims the cells of the table below, and what comes after it.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, cycle, pairwise, product
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool

from signoff import Limits, ModelRetries, build_graph
from tests.support.plays import GO, THREAD, saved
from tests.support.providers.cases import CASES, COLUMNS, SUMMARY, TALK, UNTIL_REQUIRED, finish, has, work
from tests.support.providers.clients import CLIENTS, Client
from tests.support.providers.playing import PIXEL, WAYS, Playing, Way, agent_of
from tests.support.providers.server import Answer, StrictServer
from tests.support.providers.strict import Check, require
from tests.support.replies import wire
from tests.support.replies.providers import PROVIDERS, Provider
from tests.support.replies.wire import Event, WireReply
from tests.support.servers.fake_provider import Body, FakeProvider, Fault, error, sse

pytestmark = [
    pytest.mark.slow,
    # Of Google's own client in an event loop.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    # langchain-anthropic leaves a forced choice out by itself while the model thinks.
    pytest.mark.filterwarnings("ignore:tool_choice is forced but thinking is enabled:UserWarning"),
]
PAGE = (Path(__file__).parents[2] / "docs/how-to/models.md").read_text("utf-8")
BY_ROW = {client.row: client for client in CLIENTS}
OPENAI, RESPONSES = BY_ROW["OpenAI, chat completions"], BY_ROW["OpenAI, Responses"]
ANTHROPIC, MISTRAL, GEMINI = BY_ROW["Anthropic"], BY_ROW["Mistral"], BY_ROW["Google Gemini"]
# One client of each protocol; the others, which speak as these do, are thorough.
FIRST = [OPENAI, RESPONSES, MISTRAL, GEMINI, *map(BY_ROW.get, ("Anthropic, thinking", "Ollama", "DeepSeek"))]
every_client = pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.row, marks=[] if client in FIRST else pytest.mark.thorough)
        for client in CLIENTS
    ],
)
STREAMED: Way = "build_graph, streamed"
NAME = operator.attrgetter("name")
both_faces = pytest.mark.parametrize("face", ["build_graph", "Guards"])


def succeeds(playing: Playing, ran: list[str], nudges: int = 0) -> None:
    status, outcome = playing.send("Do it."), playing.outcome
    assert status == "success", (outcome["error"], playing.server.refused)
    # LangChain's own loop runs the calls of a reply side by side.
    assert (sorted(playing.ran), outcome["summary"], outcome["nudges"]) == (ran, SUMMARY, nudges)


# The table.

CELLS = [(client, name) for client, name in product(CLIENTS, CASES) if has(client, name)]


def play_cell(client: Client, name: str, way: Way) -> None:
    case = CASES[name]
    with Playing(client, way, case.script(client), **case.rules) as playing:
        for at, given in enumerate(case.sends):
            status, outcome = playing.send(given), playing.outcome
            assert status == ("success" if at else case.first), (way, outcome, playing.server.refused)
            if status == "success":
                assert (outcome["summary"], outcome["nudges"]) == (SUMMARY, 0 if at else case.nudges)
        assert playing.server.answers == [], f"{way}: the script is not at its end"
        # Each call runs once, and each result is that of its call.
        written = [result for result in playing.results if result.startswith("written")]
        assert sorted(playing.ran) == sorted(text.removeprefix("written: ") for text in written)
        assert sorted(playing.ran) == sorted(arguments_of(case.answers))
        assert not case.told or case.told in playing.results
        check_prompts(playing, folds=case.folds, has_pictures=name == "pictures in a result")


def arguments_of(answers: Sequence[WireReply]) -> list[str]:
    calls = (made for answer in answers for made in answer.calls)
    return [json.loads(arguments)["text"] for name, arguments in calls if name == "write"]


def check_prompts(playing: Playing, *, folds: bool, has_pictures: bool) -> None:
    """Every request is taken, begins with the one before, and shows the pictures where the provider takes
    them."""
    sent, refused = playing.sent(), playing.server.refused
    in_words = playing.client.pictures == "text"
    assert refused == [] or in_words, refused
    begins = all(after[: len(before)] == before for before, after in pairwise(sent))
    assert begins is not folds or bool(refused)
    if has_pictures:
        last = plain(json.dumps(sent[-1]))
        assert last.count(PIXEL) == (0 if in_words else 2)
        assert "70 bytes" in last or not in_words


@every_client
def test_two_tasks_and_a_call_that_is_required(client: Client) -> None:
    play_cell(client, "a required call", STREAMED)


@pytest.mark.thorough
@pytest.mark.parametrize(("client", "name"), CELLS, ids=[f"{client.row}: {name}" for client, name in CELLS])
def test_cell(client: Client, name: str) -> None:
    for way in WAYS:
        if CASES[name].guards or way.startswith("build_graph"):
            play_cell(client, name, way)


PICTURES = {"result": "in the result", "message": "after the results", "text": "in words"}
PACKAGES = {"bedrock_converse": "langchain-aws", "google_genai": "langchain-google-genai"}


def claimed(client: Client) -> list[str]:
    """The row of the docs' table: only cells that are tried."""
    package = PACKAGES.get(client.provider.package, f"langchain-{client.provider.package}")
    row = [client.row, f"`{package}`"]
    for column, cases in COLUMNS.items():
        is_tried = all((client, case) in CELLS for case in cases)
        yes = PICTURES[client.pictures] if column == "pictures in a result" else "yes"
        row.append(yes if is_tried else "none")
    return row


def test_the_docs_claim_what_is_tried() -> None:
    section = PAGE.partition("## What is tested with which provider")[2]
    rows = [
        [cell.strip() for cell in row.split(" | ")] for row in re.findall(r"^\| ([^-].*) \|$", section, re.M)
    ]
    assert rows == [["provider", "client", *COLUMNS], *map(claimed, CLIENTS)]
    assert sorted(chain.from_iterable(COLUMNS.values())) == sorted(CASES), "each case is claimed once"


# Beside the rule.

BOTH = replace(work("a", "b"), ids=("call_1", "call_2"), reason="tool_calls", size=7)


def stream(change: Callable[[list[Event]], list[Event]]) -> Fault:
    """The reply with two calls, as a server streams it that changes the events."""
    events = change(list(wire.openai_events(BOTH)))
    return sse(*(f"data: {json.dumps(event)}" for event in events), "data: [DONE]")


def without_index(events: list[Event]) -> list[Event]:
    for delta in (choice["delta"] for event in events for choice in event["choices"]):
        for piece in delta.get("tool_calls", ()):
            del piece["index"]
    return events


def all_one_index(events: list[Event]) -> list[Event]:
    """Each call whole in one delta, as servers send them that give all the index 0."""
    deltas = list[Event]()
    for id_, (name, arguments) in zip(BOTH.ids, BOTH.calls, strict=True):
        call = {"index": 0, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        deltas.append({**events[0], "choices": [choice]})
    return [events[0], *deltas, *events[-2:]]


# The reply, what it runs, and how many reminders follow it.
REPLIES: dict[str, tuple[Answer, list[str], int]] = {
    "deltas without index": (stream(without_index), ["a", "b"], 0),
    "all calls with one index": (stream(all_one_index), ["a", "b"], 0),
    "one piece for each character": (replace(work("a"), size=1), ["a"], 0),
    "tool_calls without a call": (replace(TALK, reason="tool_calls"), [], 1),
}


@pytest.mark.parametrize(("reply", "ran", "nudges"), REPLIES.values(), ids=REPLIES)
def test_a_reply_beside_the_rule(reply: Answer, ran: list[str], nudges: int) -> None:
    with Playing(OPENAI, STREAMED, [reply, finish()]) as playing:
        succeeds(playing, ran, nudges)


@every_client
def test_a_call_without_a_name_and_a_system_message_in_the_middle_are_sent_as_the_provider_takes_them(
    client: Client,
) -> None:
    nameless = replace(work("a", "b"), calls=(("", '{"text": "a"}'), *work("b").calls))
    with Playing(client, "build_graph, whole", [nameless, finish(), finish()]) as playing:
        succeeds(playing, ["b"])
        given = [SystemMessage("Speak French from now on."), HumanMessage("Say that you are done.")]
        assert (playing.send(given), playing.server.refused) == ("success", [])


def test_a_prompt_that_gemini_blocks_is_no_dropped_reply() -> None:
    """It has no reason of a finish then."""
    blocked = GEMINI.provider.answer([{"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}])
    with Playing(GEMINI, STREAMED, [blocked, finish()]) as playing:
        succeeds(playing, [], nudges=1)
        assert playing.outcome["retries"] == 0


def overload_in_the_stream() -> Fault:
    failure = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    events = [*wire.anthropic_events(WireReply("I be")), failure]
    return sse(*(wire.named_sse(each).decode().rstrip() for each in events))


FAULTS: dict[str, tuple[Client, Fault]] = {
    "overload in a stream": (ANTHROPIC, overload_in_the_stream()),
    "a wait that Google asks for": (GEMINI, Fault(429, {"error": {
        "code": 429, "message": "Too fast.", "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.1s"}]}})),
}  # fmt: skip


@pytest.mark.parametrize(("client", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_that_passes(client: Client, fault: Fault) -> None:
    with Playing(client, "build_graph, streamed", [fault, work("a"), finish()]) as playing:
        succeeds(playing, ["a"])
        assert playing.outcome["retries"] == 1


# Bedrock's client of AWS tries again by itself.
@pytest.mark.parametrize("provider", [each for each in PROVIDERS if each.name != "Bedrock"], ids=NAME)
def test_only_the_graph_tries_again_also_with_a_client_that_was_used(provider: Provider) -> None:
    eager = replace(provider, options={**provider.options, "max_retries": 6})
    hello = provider.answer(provider.events(WireReply("Hello.", reason=provider.runs[-1])))
    with FakeProvider([hello, *[error(503, "Overloaded")] * 2]) as server:
        model = eager.client(server.root)
        assert "".join(chunk.text for chunk in model.stream("Hi.")) == "Hello."
        graph = build_graph(model, policy={"model_retries": ModelRetries(tries=2, first_wait=0.01)})
        assert graph.invoke(GO)["outcome"]["reason"] == "model_error"
        assert len(server.requests) == 3


def test_a_wrong_key_names_the_variable_of_its_provider() -> None:
    with StrictServer(GEMINI, [GEMINI.refusal("API key not valid. Please pass a valid API key.")]) as server:
        error_text = build_graph(server.model).invoke(GO)["outcome"]["error"]
        assert len(server.requests) == 1
    assert ("GOOGLE_API_KEY" in error_text, "OPENAI" in error_text) == (True, False)


def without_choice(check: Check) -> Check:
    """A provider that refuses a required call, as reasoning models do."""

    def checked(body: Body) -> None:
        choice = body.get("tool_choice", "auto")
        is_free = choice == "auto" or (isinstance(choice, dict) and choice.get("type") == "auto")
        require(is_free, "Thinking mode does not support this tool_choice")
        check(body)

    return checked


@pytest.mark.parametrize(
    ("client", "way"), [(OPENAI, "Guards, streamed"), (BY_ROW["DeepSeek"], STREAMED), (MISTRAL, STREAMED)]
)
def test_a_refused_tool_choice_is_left_out(client: Client, way: Way) -> None:
    choosy = replace(client, check=without_choice(client.check))
    with Playing(choosy, way, [work("a"), *UNTIL_REQUIRED, finish()]) as playing:
        succeeds(playing, ["a"], nudges=len(UNTIL_REQUIRED))
        assert len(playing.server.refused) == 1


def test_a_usage_in_each_chunk_that_counts_up_is_not_summed() -> None:
    options = {**OPENAI.provider.options, "stream_usage": True}
    client = replace(OPENAI, provider=replace(OPENAI.provider, options=options))
    with Playing(client, STREAMED, [replace(finish(), usage="each")]) as playing:
        playing.send("Do it.")
        usage = playing.outcome["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["estimated"]) == (9, 3, False)


def note(text: str) -> str:
    """Write."""
    return f"written {text}"


@pytest.mark.parametrize(("face", "marked"), [("build_graph", 0), ("build_graph", 4), ("Guards", 3)])
def test_there_are_at_most_four_marks_for_the_cache(face: str, marked: int) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    write = StructuredTool.from_function(note, name="write", extras=mark)
    parts: list[Any] = [
        {"type": "text", "text": word, **(mark if at < marked else {})} for at, word in enumerate("abcd")
    ]
    caching = pytest.importorskip("langchain_anthropic.middleware").AnthropicPromptCachingMiddleware()
    with StrictServer(ANTHROPIC, [work("a"), finish()] * 2) as server:
        agent = agent_of(face, server.model, [write], caching, system_prompt=SystemMessage(parts))
        for task in range(2):
            given: Any = [{"type": "text", "text": f"Task {task}.", **mark}]
            result = agent.invoke({"messages": [HumanMessage(given)]}, THREAD)
            assert result["outcome"]["status"] == "success", server.refused
        assert json.dumps(server.requests[-1].body).count('"cache_control"') == 4


# Pictures, documents and links in a result: shown where the provider takes them, else told in words.

PDF = "JVBERi0xLjQgb2YgYSBwYWdl"
PICTURE: Body = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
TAKES = {row: {"picture", "address", "PDF"} for row in (OPENAI.row, RESPONSES.row, ANTHROPIC.row)}
TAKES |= {MISTRAL.row: {"picture", "address"}, GEMINI.row: {"picture", "PDF"}}
SHOWS = {"picture": PIXEL, "address": '"https://example.com/a.png"', "PDF": PDF}
SIZE = "image/png, 70 bytes"
# Blocks of every form, what takes each, and words that tell of it.
BLOCKS: list[tuple[Body, str, str]] = [
    (PICTURE, "picture", SIZE),
    ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}, "picture", SIZE),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}, "picture",
     SIZE),
    ({"type": "image", "data": PIXEL, "mimeType": "image/png"}, "picture", SIZE),
    ({"type": "image", "url": "https://example.com/a.png"}, "address", "https://example.com/a.png"),
    ({"type": "file", "base64": PDF, "mime_type": "application/pdf", "filename": "may.pdf"}, "PDF",
     "may.pdf, application/pdf, 18 bytes"),
    ({"type": "audio", "base64": PDF, "mime_type": "audio/wav"}, "", "audio/wav, 18 bytes"),
    ({"type": "video", "base64": PDF, "mime_type": "video/mp4"}, "", "video/mp4, 18 bytes"),
    ({"type": "resource_link", "uri": "file:///may.txt", "name": "May", "size": 12}, "",
     "May, file:///may.txt, 12 bytes"),
    ({"type": "text", "text": ""}, "", "made it"),
]  # fmt: skip
SHOT = WireReply(calls=(("look", "{}"),))


def showing(server: StrictServer, content: Any, face: str = "build_graph", **options: Any) -> Any:
    """The outcome of a task whose model looks at this, then finishes."""

    @tool
    def look(call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Look."""
        return ToolMessage(content, tool_call_id=call_id)

    look.metadata = {"kind": "read"}
    agent = agent_of(face, server.model.model_copy(update=options), [look])
    return agent.invoke(GO, THREAD)["outcome"]


def plain(text: str) -> str:
    """Without the alphabet of addresses that Google takes for base64."""
    return text.replace("-", "+").replace("_", "/")


def last_request(server: StrictServer) -> str:
    return plain(json.dumps(server.requests[-1].body))


@pytest.mark.parametrize(("row", "face"), [*product(TAKES, ["build_graph"]), (OPENAI.row, "Guards")])
def test_each_client_is_shown_what_it_takes_and_reads_the_rest(row: str, face: str) -> None:
    with StrictServer(BY_ROW[row], [SHOT, finish()]) as server:
        content = [{"type": "text", "text": "made it"}, *(block for block, *_ in BLOCKS)]
        outcome = showing(server, content, face)
        body = last_request(server)
    assert (outcome["status"], server.refused, "made it" in body) == ("success", [], True)
    shown = [sort for _, sort, _ in BLOCKS if sort in TAKES[row]]
    assert {sort: body.count(plain(part)) for sort, part in SHOWS.items()} == {
        sort: shown.count(sort) for sort in SHOWS
    }
    told = [words for _, sort, words in BLOCKS if sort not in TAKES[row]]
    assert [words for words in told if plain(words) not in body] == []


@pytest.mark.parametrize("row", TAKES)
def test_an_empty_result_is_sent_as_some_text(row: str) -> None:
    with StrictServer(BY_ROW[row], [SHOT, finish()]) as server:
        assert (showing(server, " \n")["status"], server.refused) == ("success", [])


def sees_no_picture(check: Check) -> Check:
    def checked(body: Body) -> None:
        require(PIXEL not in json.dumps(body), "Invalid content in the messages.")
        check(body)

    return checked


@pytest.mark.parametrize(
    ("client", "face"), [(OPENAI, "build_graph"), (RESPONSES, "build_graph"), (ANTHROPIC, "Guards")]
)
def test_a_model_that_refuses_a_picture_reads_what_it_is(client: Client, face: str) -> None:
    blind = replace(client, check=sees_no_picture(client.check))
    with StrictServer(blind, [SHOT, finish()]) as server:
        assert showing(server, [PICTURE], face)["status"] == "success"
        assert (len(server.refused), "image/png, 70 bytes" in last_request(server)) == (1, True)


def test_a_model_whose_profile_has_no_pictures_is_sent_none() -> None:
    with StrictServer(OPENAI, [SHOT, finish()]) as server:
        showing(server, [PICTURE], profile={"image_inputs": False})
        assert (PIXEL in last_request(server), "70 bytes" in last_request(server)) == (False, True)


# Only what arrived whole runs, and a finish counts only beside what ran (law 7).

EARLY = ("finish_task", '{"summary": "Too early."}')


def paying(provider: Provider, amount: int, *more: tuple[str, str], **reply: Any) -> list[Event]:
    calls = (("pay", f'{{"to": "ada", "amount": {amount}}}'), *more)
    given = {"reason": provider.runs[0], "size": 8, "usage": "each", "calls": calls, **reply}
    return list(provider.events(WireReply(**given)))


def broken(provider: Provider) -> list[list[Event]]:
    """Streams that end after each event, or in the middle of a call. A usage is no end."""
    endless = paying(provider, 1, EARLY, reason="")
    cuts = range(len(endless) if provider.named_last else 1, len(endless) + 1)
    streams = [endless[:at] for at in cuts]
    if provider.calls != "objects":
        half = '{"to": "ada", "amount": 10'
        streams += [paying(provider, 2, calls=(("pay", half[:at]),)) for at in range(1, len(half), 5)]
    return streams


@both_faces
@pytest.mark.parametrize("provider", PROVIDERS, ids=NAME)
def test_only_what_arrived_whole_is_paid(provider: Provider, face: str) -> None:
    """A word means what its provider documents. Under `Guards` in a few cases."""
    paid, step = list[int](), 1 if face == "build_graph" else 4

    def pay(to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        paid.append(amount)
        return f"paid {amount}"

    limits = Limits(turns=200, talk_turns=200, refusals=None, repeats=None)
    script, whole = broken(provider)[::step], paying(provider, 1000)
    words = provider.does_not_run[::step]
    # Several words that forbid would end the task, if nothing ran between them.
    for word in words:
        script += [paying(provider, 3, EARLY, reason=word), whole]
    script += [paying(provider, 1000, reason=word) for word in provider.runs]
    script.append(list(provider.events(replace(finish(), reason=provider.runs[0]))))
    with FakeProvider([provider.answer(events) for events in script]) as server:
        model = provider.client(server.root)
        # Bedrock's client raises for a reply without an end.
        retries = [ModelRetryMiddleware(max_retries=99, initial_delay=0)] if face == "Guards" else []
        policy = {"streaming": "always", "model_retries": ModelRetries(tries=99, first_wait=0)}
        agent = agent_of(face, model, [pay], *retries, limits=limits, policy=policy)
        for _ in agent.stream(GO, THREAD, stream_mode="messages"):
            pass
        outcome = agent.get_state(THREAD).values["outcome"]
        assert paid == [1000] * (len(words) + len(provider.runs)), outcome
        assert (outcome["status"], outcome["summary"]) == ("success", SUMMARY)
        assert len(server.requests) == len(script)


# A thread goes on with another provider's model: each is shown its own thoughts, and nobody else's.

THINKERS = {
    "Anthropic": BY_ROW["Anthropic, thinking"],
    "Bedrock": BY_ROW["Amazon Bedrock"],
    "Gemini": GEMINI,
    "Ollama": BY_ROW["Ollama"],
    "Responses": RESPONSES,
}
# Each is the first once, and the second once.
every_pair = pytest.mark.parametrize(
    ("one", "other", "face"),
    list(zip(THINKERS, [*list(THINKERS)[1:], "Anthropic"], cycle(["build_graph", "Guards"]))),
)


def thoughts(whose: str, *replies: WireReply) -> list[Answer]:
    return [replace(each, thoughts=f"{whose} thought {at}") for at, each in enumerate(replies)]


def knows(server: StrictServer, thought: str) -> bool:
    return thought in json.dumps(server.requests[-1].body)


def check_apart(server: StrictServer, elsewhere: StrictServer) -> None:
    assert (server.refused, elsewhere.refused) == ([], [])
    assert (knows(elsewhere, "our thought"), knows(server, "their thought")) == (False, False)


WRITE = StructuredTool.from_function(note, name="write")


@every_pair
def test_the_next_run_has_another_model_and_the_third_the_first_again(
    one: str, other: str, face: str
) -> None:
    ours, theirs = thoughts("our", work("a"), finish(), finish()), thoughts("their", work("b"), finish())
    with StrictServer(THINKERS[one], ours) as server, StrictServer(THINKERS[other], theirs) as elsewhere:
        memory, messages = saved(), list[Any]()
        for model in (server.model, elsewhere.model, server.model):
            result = agent_of(face, model, [WRITE], **memory).invoke(GO, THREAD)
            assert result["outcome"]["status"] == "success", (server.refused, elsewhere.refused)
            messages = result["messages"]
        check_apart(server, elsewhere)
        # Gemini wants its signature back, which is made of the call.
        assert knows(server, "our thought 0") or one in ("Ollama", "Gemini")
    assert "our thought 0" in repr(messages[1]), "the history keeps it"


@pytest.mark.parametrize(
    ("one", "other", "face"), [("Anthropic", "Responses", "Guards"), ("Gemini", "Ollama", "build_graph")]
)
def test_a_fallback_takes_over_and_gives_back(one: str, other: str, face: str) -> None:
    ours, theirs = thoughts("our", work("a"), finish()), thoughts("their", work("b"))
    ours.insert(1, error(500, "broken"))
    with StrictServer(THINKERS[one], ours) as server, StrictServer(THINKERS[other], theirs) as elsewhere:
        agent = agent_of(face, server.model, [WRITE], ModelFallbackMiddleware(elsewhere.model))
        assert agent.invoke(GO, THREAD)["outcome"]["status"] == "success", (server.refused, elsewhere.refused)
        check_apart(server, elsewhere)
