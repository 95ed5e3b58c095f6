"""A pytest plugin by which LangChain's own tests get their agents of `build_graph`: test_langchain_suite.py.

Their models end with words, where a Signoff graph ends by `finish_task`: a middleware around all others makes
such a reply a finish, and what belongs to it is taken out of the messages that a test reads. What a model
call has raised is raised, where a Signoff graph has an outcome. Nothing else is changed.

It imports nothing of `tests`, which is LangChain's folder there.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import langchain.agents
import langchain.agents.factory
import pytest
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import LoopPolicy, Texts, build_graph

FINISH = "finish_task"
Request = ModelRequest[Any]
Response = ModelResponse[Any]


class Ends(AgentMiddleware[Any, Any, Any]):
    """Around all others: makes a finish of a reply without a call, and notes what the call has raised."""

    error: Exception | None = None

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        try:
            return _ended(handler(request))
        except Exception as error:
            self.error = error
            raise

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            return _ended(await handler(request))
        except Exception as error:
            self.error = error
            raise


def _ended(response: Response) -> Response:
    (reply,) = (message for message in response.result if isinstance(message, AIMessage))
    if reply.tool_calls:
        return response
    call = {"name": FINISH, "args": {"summary": reply.text or "(nothing)"}, "id": "end", "type": "tool_call"}
    return ModelResponse(result=[reply.model_copy(update={"tool_calls": [call]})])


class Agent:
    """The graph, with what a test of `create_agent` reads of its results."""

    built = 0

    def __init__(self, graph: Any, ends: Ends) -> None:
        self.graph, self.ends = graph, ends
        Agent.built += 1

    def invoke(self, state: Any, *args: Any, **options: Any) -> dict[str, Any]:
        return self._read(self.graph.invoke(state, *args, **options))

    async def ainvoke(self, state: Any, *args: Any, **options: Any) -> dict[str, Any]:
        return self._read(await self.graph.ainvoke(state, *args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)

    def _read(self, result: Any) -> dict[str, Any]:
        assert isinstance(result, dict)
        outcome = result.pop("outcome", None)
        if outcome is not None and outcome["status"] == "error":
            raise RuntimeError(outcome["error"]) if self.ends.error is None else _origin(self.ends.error)
        messages = [_without_finish(message) for message in result["messages"] if not _ends_task(message)]
        return {**result, "messages": messages}


def _origin(error: Exception) -> BaseException:
    """What a middleware has raised, where Signoff names that middleware around it."""
    is_ours = type(error).__module__.startswith("signoff.")
    return error.__cause__ if is_ours and error.__cause__ else error


def _ends_task(message: BaseMessage) -> bool:
    is_answer = "answer" in message.response_metadata.get("signoff", {})
    return is_answer or (isinstance(message, ToolMessage) and message.name == FINISH)


def _without_finish(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    calls = [call for call in message.tool_calls if call["name"] != FINISH]
    return message.model_copy(update={"tool_calls": calls})


def create_agent(
    model: Any,
    tools: Sequence[Any] | None = None,
    *,
    middleware: Sequence[Any] = (),
    checkpointer: Any = None,
    store: Any = None,
    **options: Any,
) -> Agent:
    """An agent of `build_graph`, whose tools say that they change nothing: so they may run again."""
    ends = Ends()
    graph = build_graph(
        model,
        [_reading(given) for given in tools or ()],
        middleware=[ends, *middleware],
        checkpointer=checkpointer,
        store=InMemoryStore() if checkpointer is not None and store is None else store,
        policy=LoopPolicy(texts=Texts(system=""), model_retries=None, streaming="auto"),
        **options,
    )
    return Agent(graph, ends)


def _reading(given: Any) -> Any:
    if isinstance(given, dict):
        return given
    found = given if isinstance(given, BaseTool) else tool(given)
    return found.model_copy(update={"metadata": {"kind": "read", **(found.metadata or {})}})


langchain.agents.create_agent = langchain.agents.factory.create_agent = create_agent  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def models_without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its fake models take no tools. `create_agent` binds none where there are none; a Signoff graph
    always has its control tools."""

    def bind_tools(self: BaseChatModel, tools: Any, **options: Any) -> BaseChatModel:
        return self

    monkeypatch.setattr(BaseChatModel, "bind_tools", bind_tools)


@pytest.fixture(autouse=True)
def agents(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Notes how many agents the test has built: one that built none says nothing of Signoff."""
    Agent.built = 0
    yield
    record_property("agents", Agent.built)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def sync_checkpointer() -> InMemorySaver:
    return InMemorySaver()
