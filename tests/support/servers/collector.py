"""A server that takes spans by OTLP over HTTP, on loopback; or one that connects and never answers."""

import threading
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.servers.loopback import Handler, Loopback


class Collector(Loopback):
    """spans: all that were sent to it."""

    def __init__(self, *, answers: bool = True) -> None:
        super().__init__(_Collecting)
        self.answers, self.ends = answers, threading.Event()
        self.spans: list[Any] = []

    def __exit__(self, *error: object) -> None:
        self.ends.set()
        super().__exit__(*error)


class _Collecting(Handler):
    server: Collector

    def do_POST(self) -> None:
        body = self.body()
        if not self.server.answers:
            self.server.ends.wait()
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
