"""Pictures, documents, recordings and links in a tool's result, with the packages of the providers.

The servers refuse what the providers' documentation does not allow in the result of a tool.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from signoff import build_graph
from signoff.graph.blocks import NOTHING
from signoff.guards import Guards
from tests.support.servers.fake_others import AnthropicReply, GoogleReply, ResponsesReply
from tests.support.servers.fake_provider import Body, FakeProvider, Fault, Reply, Request, error, tool_call

# Of Google's own client in an event loop.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PDF = b64encode(b"%PDF-1.4 of a page").decode()
TEXT = {"type": "text", "text": "made it"}
FINISH = tool_call("finish_task", summary="x", id="call_f")
Refuse = Callable[[Body], bool]


class Strict(FakeProvider):
    """Refuses a request that `refuse` says something against."""

    def __init__(self, script: Any, refuse: Refuse) -> None:
        super().__init__(script)
        self.refuse, self.refused = refuse, 0

    def take(self, request: Request) -> Reply | Fault:
        if self.refuse(request.body):
            self.refused += 1
            self.requests.append(request)
            return error(400, "Invalid content in the messages.")
        return super().take(request)


def types(content: Any) -> set[str]:
    return set() if isinstance(content, str) else {block["type"] for block in content}


def by_openai(body: Body) -> bool:
    return any(types(m["content"] or "") - {"text"} for m in body["messages"] if m["role"] == "tool")


def by_responses(body: Body) -> bool:
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return any(types(output) - {"input_text", "input_image", "input_file"} for output in outputs)


def by_anthropic(body: Body) -> bool:
    parts = [part for m in body["messages"] if isinstance(m["content"], list) for part in m["content"]]
    contents = [part["content"] for part in parts if part["type"] == "tool_result"]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    empty = any(block["type"] == "text" and not block["text"].strip() for block in blocks)
    return empty or bool(types(blocks) - {"text", "image", "document"})


def never(body: Body) -> bool:
    return False


def openai(url: str, root: str) -> BaseChatModel:
    return ChatOpenAI(model="fake", base_url=url, api_key=SecretStr("k"), max_retries=0)


def responses(url: str, root: str) -> BaseChatModel:
    key = SecretStr("k")
    return ChatOpenAI(model="fake", base_url=url, api_key=key, max_retries=0, use_responses_api=True)


def mistral(url: str, root: str) -> BaseChatModel:
    return ChatMistralAI(model_name="fake", endpoint=url, api_key=SecretStr("k"), max_retries=1)


def anthropic(url: str, root: str) -> BaseChatModel:
    return ChatAnthropic(model="fake", base_url=root, api_key=SecretStr("k"), max_retries=0)


def google(url: str, root: str) -> BaseChatModel:
    return ChatGoogleGenerativeAI(model="fake", base_url=root, api_key=SecretStr("k"))


CLIENTS: dict[str, tuple[Callable[[str, str], BaseChatModel], type[Reply], Refuse]] = {
    "openai": (openai, Reply, by_openai),
    "mistral": (mistral, Reply, by_openai),
    "responses": (responses, ResponsesReply, by_responses),
    "anthropic": (anthropic, AnthropicReply, by_anthropic),
    "google": (google, GoogleReply, never),
}
EVERYONE = frozenset(CLIENTS)
NOBODY = frozenset[str]()

# The block; who is shown what it holds; what all others read.
BLOCKS: dict[str, tuple[Any, frozenset[str], str]] = {
    "a picture": (
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
        EVERYONE,
        "[image: image/png, 70 bytes]",
    ),
    "a picture in OpenAI's form": (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        EVERYONE,
        "[image: image/png, 70 bytes]",
    ),
    "a picture in Anthropic's form": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        EVERYONE,
        "[image: image/png, 70 bytes]",
    ),
    "a picture in MCP's form": (
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        EVERYONE,
        "[image: image/png, 70 bytes]",
    ),
    "a picture on the web": (
        {"type": "image", "url": "https://example.com/a.png"},
        EVERYONE - {"google"},
        "[image: https://example.com/a.png]",
    ),
    "a PDF": (
        {"type": "file", "base64": PDF, "mime_type": "application/pdf", "filename": "may.pdf"},
        EVERYONE - {"mistral"},
        "[file: may.pdf, application/pdf, 18 bytes]",
    ),
    "another document": (
        {"type": "file", "base64": PDF, "mime_type": "application/zip", "filename": "may.zip"},
        NOBODY,
        "[file: may.zip, application/zip, 18 bytes] It cannot be shown here.",
    ),
    "a recording": (
        {"type": "audio", "base64": PDF, "mime_type": "audio/wav"},
        NOBODY,
        "[audio: audio/wav, 18 bytes] It cannot be shown here.",
    ),
    "a film": (
        {"type": "video", "base64": PDF, "mime_type": "video/mp4"},
        NOBODY,
        "[video: video/mp4, 18 bytes] It cannot be shown here.",
    ),
    "a link": (
        {"type": "resource_link", "uri": "file:///may.txt", "name": "May", "size": 12},
        NOBODY,
        "[resource: May, file:///may.txt, 12 bytes]",
    ),
    "a file by its address": (
        {"type": "file", "url": "file:///may.txt", "mime_type": "text/plain"},
        NOBODY,
        "[file: file:///may.txt, text/plain]",
    ),
    "an empty text": ({"type": "text", "text": ""}, NOBODY, "made it"),
}


def returning(content: Any) -> Any:
    @tool
    def look(call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Look."""
        return ToolMessage(content, tool_call_id=call_id)

    look.metadata = {"kind": "read"}
    return look


def twice(how: str, model: BaseChatModel, content: Any) -> list[Any]:
    """The outcomes of two tasks of a thread, the first of which calls the tool."""
    tools, saver = [returning(content)], InMemorySaver()
    if how == "guards":
        agent: Any = create_agent(model, tools, middleware=[Guards()], checkpointer=saver)
    else:
        agent = build_graph(model, tools, checkpointer=saver, streaming="never", model_retries=None)
    config: Any = {"configurable": {"thread_id": "t"}}
    given = [agent.invoke({"messages": [("user", text)]}, config) for text in ("one", "two")]
    return [result["outcome"]["status"] for result in given]


def script(kind: type[Reply]) -> list[Reply]:
    return [kind(calls=[tool_call("look")]), kind(calls=[FINISH]), kind(calls=[FINISH])]


def sent(server: FakeProvider) -> str:
    """The last request, with the alphabet of addresses that Google takes put back."""
    return json.dumps(server.requests[-1].body).replace("-", "+").replace("_", "/")


@pytest.mark.parametrize("how", ["graph", "guards"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_each_client_is_shown_what_it_takes_and_reads_the_rest(name: str, client: str, how: str) -> None:
    (block, shown_to, text), (made, kind, refuse) = BLOCKS[name], CLIENTS[client]
    with Strict(script(kind), refuse) as server:
        outcomes = twice(how, made(server.url, server.root), [TEXT, block])
        body = sent(server)
    assert (outcomes, server.refused) == (["success"] * 2, 0)
    assert "made it" in body
    holds = [PIXEL in body, PDF in body, '"https://example.com/a.png"'.replace("-", "+") in body]
    if client in shown_to:
        assert any(holds)
    else:
        assert not any(holds)
        assert json.dumps(text)[1:-1].replace("-", "+").replace("_", "/") in body


EMPTY: list[tuple[Any, str]] = [
    ("", NOTHING),
    (" \n", NOTHING),
    ([], "[]"),
    ([{"type": "text", "text": ""}], NOTHING),
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("content", "text"), EMPTY)
def test_nothing_is_a_text(content: Any, text: str, client: str) -> None:
    made, kind, refuse = CLIENTS[client]
    with Strict(script(kind), refuse) as server:
        assert twice("graph", made(server.url, server.root), content) == ["success"] * 2
        assert text in json.dumps(server.requests[1].body)


def sees_nothing(body: Body) -> bool:
    return PIXEL in json.dumps(body)


@pytest.mark.parametrize("how", ["graph", "guards"])
@pytest.mark.parametrize("client", ["openai", "responses", "anthropic"])
def test_a_model_that_refuses_a_picture_reads_what_it_is(client: str, how: str) -> None:
    made, kind, _ = CLIENTS[client]
    picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    with Strict(script(kind), sees_nothing) as server:
        assert twice(how, made(server.url, server.root), [TEXT, picture]) == ["success"] * 2
        assert "[image: image/png, 70 bytes] It cannot be shown here." in json.dumps(server.requests[-1].body)
    assert server.refused == 2, "once for each turn after it"


def test_another_refusal_ends_the_task_after_one_request() -> None:
    with Strict(script(Reply), lambda body: True) as server:
        outcomes = twice("graph", openai(server.url, server.root), [TEXT])
    assert (outcomes, server.refused) == (["error"] * 2, 2)


@pytest.mark.parametrize("client", ["openai", "mistral"])
@pytest.mark.parametrize("how", ["graph", "guards"])
def test_pictures_follow_all_results_of_a_reply(how: str, client: str) -> None:
    calls = [tool_call("look", id="call_1"), tool_call("look", id="call_2")]
    picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    with Strict([Reply(calls=calls), Reply(calls=[FINISH]), Reply(calls=[FINISH])], by_openai) as server:
        assert twice(how, CLIENTS[client][0](server.url, server.root), [picture]) == ["success"] * 2
        first, second = (request.body["messages"] for request in server.requests[1:])
    assert [m["role"] for m in first] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [block["type"] for block in first[-1]["content"]] == ["text", "image_url"] * 2
    assert second[: len(first)] == first


def test_a_model_that_sees_nothing_reads_what_the_pictures_are() -> None:
    picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    with Strict(script(Reply), by_openai) as server:
        blind = openai(server.url, server.root).model_copy(update={"profile": {"image_inputs": False}})
        assert twice("graph", blind, [picture]) == ["success"] * 2
        body = sent(server)
    assert PIXEL not in body
    assert "[image: image/png, 70 bytes]" in body
