"""Tracing of whole programs: with `SIGNOFF_OTEL`, the commands and the workers create spans. Without it,
Signoff does not import OpenTelemetry.
"""

import os
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError
from signoff.storage.threads import Storage

VARIABLE = "SIGNOFF_OTEL"
_OFF = ("", "0", "off", "none")
_WORDS = ("on", "content", "states")


def tracing(graph: Graph) -> list[Any]:
    """The callbacks that create spans for this graph's runs, if the environment requests them.

    Raises SetupError for an unknown word, and if a package is missing.
    """
    said = os.environ.get(VARIABLE, "").strip().lower()
    if said in _OFF:
        return []
    words = [word.strip() for word in said.replace("1", "on").split(",")]
    if unknown := [word for word in words if word not in _WORDS]:
        raise SetupError(
            f"{VARIABLE} has {unknown[0]!r}; set it to on, or to content, states, or both, by commas."
        )
    from signoff.otel import Tracing, has_provider

    if not has_provider():
        raise SetupError(
            f"{VARIABLE} is set, and nothing here exports spans: run: pip install "
            "opentelemetry-exporter-otlp-proto-http"
        )
    return [Tracing(storage=_storage(graph), content="content" in words, states="states" in words)]


def _storage(graph: Graph) -> Storage | None:
    """The storage of a graph's threads."""
    saver, store = graph.checkpointer, graph.store
    if store is None or not isinstance(saver, BaseCheckpointSaver):
        return None
    return Storage(saver, store)
