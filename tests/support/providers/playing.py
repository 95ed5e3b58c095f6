"""A thread with a provider's real client against its strict server, by `build_graph` or under `Guards`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import ModelRetries, build_graph, go_on
from signoff.guards import Guards
from tests.support.adapted import adapted
from tests.support.ends import saved_outcome
from tests.support.providers.clients import Client
from tests.support.providers.server import Answer, StrictServer
from tests.support.servers.fake_provider import Body

Way = Literal["build_graph, streamed", "build_graph, whole", "Guards, streamed", "Guards, whole"]
WAYS: tuple[Way, ...] = ("build_graph, streamed", "build_graph, whole", "Guards, streamed", "Guards, whole")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
_SOON = ModelRetries(tries=3, first_wait=0.01)


@dataclass(frozen=True)
class Sent:
    """What one request shows the model: everything in it but the marks for a cache, and its messages."""

    messages: list[Body]

    def begins_with(self, other: "Sent") -> bool:
        return self.messages[: len(other.messages)] == other.messages


class Playing:
    """Runs one thread after the script `answers`; `ran` is what its tools were called with, in order."""

    def __init__(self, client: Client, way: Way, answers: Sequence[Answer], **rules: Any) -> None:
        self.client, self.server = client, StrictServer(client, answers)
        self.ran = list[str]()
        self._config: Any = {"configurable": {"thread_id": "t"}}
        self._streamed = way.endswith("streamed")
        self.guarded = way.startswith("Guards")
        self._agent = self._made(rules)

    def _made(self, rules: Mapping[str, Any]) -> Any:
        def write(text: str) -> str:
            """Write a text down."""
            self.ran.append(text)
            return f"written: {text}"

        def shoot(name: str) -> list[dict[str, Any]]:
            """Take a picture."""
            self.ran.append(name)
            picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
            return [{"type": "text", "text": f"Picture {name}."}, picture]

        tools: list[Any] = [write, shoot]
        storage: Any = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
        if not self.guarded:
            streaming = "always" if self._streamed else "never"
            rules = {"streaming": streaming, "model_retries": _SOON, **rules}
            return build_graph(self.server.model, tools, **adapted(**storage, **rules))
        return create_agent(self.server.model, tools, middleware=[Guards(**adapted(**rules))], **storage)

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.__exit__()

    def say(self, text: str) -> str:
        """Runs a task, or gives a message to one; how it ended."""
        return self._run({"messages": [HumanMessage(text)]})

    def tell(self, system: str, text: str) -> str:
        """A task that begins with a system message."""
        return self._run({"messages": [SystemMessage(system), HumanMessage(text)]})

    def answer(self, text: str) -> str:
        (wait,) = self._state().interrupts
        return self._run(Command(resume={wait.id: text}))

    def extend(self, turns: int) -> str:
        return self._run(go_on(turns=turns))

    @property
    def outcome(self) -> Any:
        return saved_outcome(self._state().values)

    @property
    def messages(self) -> list[Any]:
        messages: list[Any] = self._state().values["messages"]
        return messages

    @property
    def results(self) -> list[str]:
        return [message.text for message in self.messages if isinstance(message, ToolMessage)]

    @property
    def waits(self) -> bool:
        return bool(self._state().interrupts)

    def sent(self) -> list[Sent]:
        """What the requests that the provider took showed the model."""
        return [Sent(without_marks(_messages(request.body))) for request in self.server.requests]

    def _state(self) -> Any:
        return self._agent.get_state(self._config)

    def _run(self, given: Any) -> str:
        if self._streamed and self.guarded:
            for _ in self._agent.stream(given, self._config, stream_mode="messages"):
                pass
        else:
            self._agent.invoke(given, self._config)
        outcome = self.outcome
        if self.waits:
            return "waits"
        assert outcome is not None, "the run ended without an outcome"
        return f"{outcome['status']}: {outcome['reason']}"


def _messages(body: Body) -> list[Body]:
    messages: list[Body] = body.get("messages") or body.get("contents") or body.get("input") or []
    return messages


def without_marks(value: Any) -> Any:
    """The same without what only a cache reads."""
    if isinstance(value, dict):
        return {
            key: without_marks(part)
            for key, part in value.items()
            if key not in {"cache_control", "cachePoint"}
        }
    return [without_marks(part) for part in value] if isinstance(value, list) else value
