"""A server that takes spans by OTLP over HTTP, on loopback; or one that connects and never answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.servers.loopback import Handler, Loopback


@dataclass
class Collector:
    """What was sent to it. spans: name, trace, own id, the id of the span above, attributes of each."""

    address: str = ""
    spans: list[dict[str, Any]] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def tree(self) -> set[tuple[str, str]]:
        """The name of each span with that of the one that it is in."""
        names = {span["id"]: span["name"] for span in self.spans}
        return {(span["name"], names.get(span["parent"], "")) for span in self.spans}

    @property
    def traces(self) -> set[str]:
        return {span["trace"] for span in self.spans}

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services.add(_fields(resource.resource.attributes)["service.name"])
            for scope in resource.scope_spans:
                self.spans += [
                    {
                        "name": span.name,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "attributes": _fields(span.attributes),
                    }
                    for span in scope.spans
                ]


def _fields(found: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found}


@contextmanager
def collector(*, answers: bool = True) -> Iterator[Collector]:
    found = Collector()

    class Collecting(Handler):
        def do_POST(self) -> None:
            body = self.body()
            if not answers:
                found.ends.wait()
                return
            found.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with Loopback(Collecting) as server:
        found.address = server.root
        try:
            yield found
        finally:
            found.ends.set()
