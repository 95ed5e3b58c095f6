"""The graphs of the command line's own threads in a worker: each with what the thread was submitted with."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from signoff.cli.settings import Given, Settings, recall, settle
from signoff.cli.working import for_waiting, graph_of, policy_of, working_tools
from signoff.graph.build import Graph
from signoff.models.choose import EMBEDDED, Chosen, check_model, choose_model
from signoff.session.standing import look, reading_graph
from signoff.storage.postgres import PostgresStorage


class OwnGraphs:
    """Makes the graph of a thread from its settings, with tools and a model of its own; the embedded model
    is loaded once. `close` ends what was started."""

    def __init__(self, storage: PostgresStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._embedded: Chosen | None = None
        self._stack = ExitStack()

    @contextmanager
    def __call__(self, thread_id: str) -> Iterator[Graph]:
        settings = settle(Given(), recall(self._storage.store, thread_id), os.environ)
        waiting = look(reading_graph(self._storage), thread_id).waiting
        with ExitStack() as stack:
            found = stack.enter_context(working_tools(settings, _unheard))
            tools, handed_over = for_waiting(found, waiting)
            policy = policy_of(settings, Given(), tools, waiting)
            chosen = self._model(settings, stack)
            yield graph_of(settings, chosen, tools, self._storage, policy, handed_over)

    def close(self) -> None:
        self._stack.close()

    def _model(self, settings: Settings, stack: ExitStack) -> Chosen:
        check_model(settings.model, settings.base_url, os.environ)
        if settings.model != EMBEDDED:
            chosen = choose_model(settings.model, settings.base_url, os.environ)
            stack.enter_context(chosen.resource)
            return chosen
        with self._lock:
            if self._embedded is None:
                self._embedded = choose_model(EMBEDDED, None, os.environ)
                self._stack.enter_context(self._embedded.resource)
            return self._embedded


def _unheard(data: bytes) -> None:
    """What commands write while they run is shown to nobody; their result has it."""
