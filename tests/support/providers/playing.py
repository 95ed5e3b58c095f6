"""A thread with a provider's real client against its strict server, by `build_graph` or under `Guards`."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from langchain.agents import create_agent

from signoff import ModelRetries, build_graph
from signoff.guards import Guards
from tests.support.plays import THREAD, input_of, results, saved
from tests.support.providers.clients import Client
from tests.support.providers.server import Answer, StrictServer
from tests.support.servers.fake_provider import Body

Way = Literal["build_graph, streamed", "build_graph, whole", "Guards, streamed", "Guards, whole"]
WAYS: tuple[Way, ...] = ("build_graph, streamed", "build_graph, whole", "Guards, streamed", "Guards, whole")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def agent_of(way: str, model: Any, tools: Sequence[Any], *middleware: Any, **options: Any) -> Any:
    """An agent of this way, which remembers its threads. A `policy` is that of `build_graph`."""
    options = {"policy": {}, "limits": None, **saved(), **options}
    policy, limits = options.pop("policy"), options.pop("limits")
    if way.startswith("Guards"):
        return create_agent(model, tools, middleware=[Guards(limits=limits), *middleware], **options)
    streaming = "always" if way.endswith("streamed") else "never"
    policy = {"streaming": streaming, "model_retries": ModelRetries(tries=1), **policy}
    return build_graph(model, tools, middleware=middleware, limits=limits, policy=policy, **options)


class Playing:
    """Runs one thread after the script `answers`; `ran` is what was written, in order."""

    def __init__(
        self, client: Client, way: Way, answers: Sequence[Answer], limits: Any = None, **policy: Any
    ) -> None:
        self.client, self.server = client, StrictServer(client, answers)
        self.ran = list[str]()
        self.guarded, self._streamed = way.startswith("Guards"), way.endswith("streamed")
        policy = {"model_retries": ModelRetries(tries=3, first_wait=0.01), **policy}
        self._agent = agent_of(way, self.server.model, self._tools(), limits=limits, policy=policy)

    def _tools(self) -> list[Any]:
        def write(text: str) -> str:
            """Write a text down."""
            self.ran.append(text)
            return f"written: {text}"

        def shoot(name: str) -> list[Body]:
            """Take a picture."""
            picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
            return [{"type": "text", "text": f"Picture {name}."}, picture]

        return [write, shoot]

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.__exit__(*error)

    def send(self, given: Any) -> str:
        """Begins a task by a text, or by messages, or gives a command; how it ended, or "waits"."""
        given = input_of(given)
        if self._streamed and self.guarded:
            for _ in self._agent.stream(given, THREAD, stream_mode="messages"):
                pass
        else:
            self._agent.invoke(given, THREAD)
        return "waits" if self._agent.get_state(THREAD).interrupts else str(self.outcome["status"])

    @property
    def outcome(self) -> Any:
        return self._agent.get_state(THREAD).values["outcome"]

    @property
    def results(self) -> list[str]:
        return results(self._agent.get_state(THREAD).values)

    def sent(self) -> list[list[Body]]:
        """The messages of each request, without the marks for a cache."""
        return [_without_marks(_messages(request.body)) for request in self.server.requests]


def _messages(body: Body) -> Any:
    return body.get("messages") or body.get("contents") or body.get("input") or []


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_marks(value[key]) for key in value.keys() - {"cache_control", "cachePoint"}}
