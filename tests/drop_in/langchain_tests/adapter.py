"""`create_agent` as LangChain's tests call it, by `build_graph`.

Their models end with words, where a Signoff graph ends by `finish_task`: a middleware around all others makes
such a reply a finish, and what belongs to it is taken out of the messages that a test reads. What a model
call has raised is raised, where a Signoff graph has an outcome. Nothing else is changed.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.store.memory import InMemoryStore

from signoff import Texts, build_graph
from signoff.graph.messages import is_answer
from signoff.nodes.middleware.changes import CannotWrite

FINISH = "finish_task"
NO_RULES = Texts(system="")
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
    (reply,) = (one for one in response.result if isinstance(one, AIMessage))
    if reply.tool_calls:
        return response
    call = {"name": FINISH, "args": {"summary": reply.text or "(nothing)"}, "id": "end", "type": "tool_call"}
    return ModelResponse(result=[reply.model_copy(update={"tool_calls": [call]})])


class Agent:
    """The graph, with what a test of `create_agent` reads of its results."""

    def __init__(self, graph: Any, ends: Ends) -> None:
        self.graph, self.ends = graph, ends

    def invoke(self, given: Any, *args: Any, **options: Any) -> dict[str, Any]:
        return self._read(self.graph.invoke(given, *args, **options))

    async def ainvoke(self, given: Any, *args: Any, **options: Any) -> dict[str, Any]:
        return self._read(await self.graph.ainvoke(given, *args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)

    def _read(self, found: Any) -> dict[str, Any]:
        assert isinstance(found, dict)
        outcome = found.pop("outcome", None)
        if outcome is not None and outcome["status"] == "error":
            raise RuntimeError(outcome["error"]) if self.ends.error is None else _origin(self.ends.error)
        return {**found, "messages": [_bare(one) for one in found["messages"] if not _is_of_the_end(one)]}


def _origin(error: BaseException) -> BaseException:
    """What a middleware has raised, where Signoff names that middleware around it."""
    return error.__cause__ if isinstance(error, CannotWrite) and error.__cause__ else error


def _is_of_the_end(message: BaseMessage) -> bool:
    return is_answer(message) or (isinstance(message, ToolMessage) and message.name == FINISH)


def _bare(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    calls = [one for one in message.tool_calls if one["name"] != FINISH]
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
    graph: Any = build_graph(
        model,
        [_reading(one) for one in tools or ()],
        middleware=[ends, *middleware],
        checkpointer=checkpointer,
        store=InMemoryStore() if checkpointer is not None and store is None else store,
        texts=NO_RULES,
        model_retries=None,
        streaming="auto",
        **options,
    )
    return Agent(graph, ends)


def _reading(given: Any) -> Any:
    if isinstance(given, dict):
        return given
    found = given if isinstance(given, BaseTool) else tool(given)
    return found.model_copy(update={"metadata": {"kind": "read", **(found.metadata or {})}})
