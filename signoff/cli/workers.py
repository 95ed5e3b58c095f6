"""`signoff run --submit` and `signoff worker`: threads on other machines, also on a graph of your own."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from signoff import Approval, Graph, SetupError, ThreadError
from signoff.front import report
from signoff.front.choices import waits_for
from signoff.front.database import Database
from signoff.front.options import takes
from signoff.front.programs import check_tools
from signoff.front.report import CommandReport, Exit
from signoff.front.settings import Given, Settings, recall, remember, settle
from signoff.front.text import cut, one_line
from signoff.front.thread_ids import checked_thread_id, new_thread_id
from signoff.front.working import for_waiting, graph_of, policy_of, working_tools
from signoff.load import load_graph
from signoff.models.choose import Chosen, check_model, choose_model
from signoff.nodes.model.providers import EMBEDDED
from signoff.session.status import look, reading_graph
from signoff.storage import PostgresStorage
from signoff.workers import submit as hand_to_workers
from signoff.workers.inbox import DEFAULT_QUEUE, HEARTBEAT_SECONDS, packages
from signoff.workers.submitting import NO_POSTGRES, check

if TYPE_CHECKING:
    from signoff.workers.worker import Graphs, Worker


def own_graph(named: str, storage: PostgresStorage) -> Graph:
    """Returns the graph that the function at `package.module:name` or `path/to/file.py:name` builds on
    `storage`.

    The function takes the open storage and returns `build_graph(…, storage=storage)`. It is called once per
    process; the graph then runs several threads at once. Raises SetupError for anything else.
    """
    graph = load_graph(named, storage)
    if graph.checkpointer is not storage.checkpointer or graph.store is not storage.store:
        raise SetupError(
            f"The graph of {named} stores its threads elsewhere; build it with the storage that is passed "
            "to the function: build_graph(…, storage=storage)."
        )
    return graph


def queue_of(named: str) -> str:
    """Returns the default queue for the workers of such a graph: `module:name`."""
    place, _, name = named.rpartition(":")
    return f"{Path(place).stem if place.endswith('.py') else place}:{name}"


class OneGraph:
    """Runs all threads on one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, thread_id: str) -> AbstractContextManager[Graph]:
        return nullcontext(self._graph)


_FORMAT = "%(asctime)s %(message)s"
_LONGEST_LINE = 500

OwnGraph = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:GRAPH]",
        help="A graph of your own: a function that takes the storage and returns build_graph(…, "
        "storage=storage), as package.module:name or path/to/file.py:name (default: the command line's).",
        show_default=False,
    ),
]
ServedQueue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="NAME",
        help="Which queue to serve (default: `module:graph`, else the command line's).",
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, max=256, metavar="N", help="Threads run at once.")
]
Heartbeat = Annotated[
    float,
    typer.Option(
        "--heartbeat",
        min=0.5,
        max=600,
        metavar="S",
        help="Seconds between heartbeats; after three missed ones another worker takes the "
        "threads over. Use one value for all workers.",
    ),
]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when no submitted thread is left to run.")]


def submit(words: str, given: Given, file: Database, thread: str | None, queue: str | None) -> CommandReport:
    """Gives a task to the workers, durably; one of them runs it."""
    _check_shared(file)
    with file.open() as storage:
        assert isinstance(storage, PostgresStorage), "the address was checked above"
        thread_id = (
            new_thread_id(storage.checkpointer.threads()) if thread is None else checked_thread_id(thread)
        )
        _check_waits(storage, thread_id, file)
        if (queue or DEFAULT_QUEUE) == DEFAULT_QUEUE:
            check_tools(storage, look(reading_graph(storage), thread_id))
        whose, _ = check(storage, words, thread_id, queue=queue)
        _keep_settings(storage, thread_id, whose, given)
        hand_to_workers(storage, words, thread_id, queue=queue)
    return report.of_queued(thread_id, file)


def _check_shared(file: Database) -> None:
    """Raises SetupError for a database that workers cannot share."""
    if not file.is_postgres:
        raise SetupError(f"{file} is a SQLite file. {NO_POSTGRES}" if file.named else NO_POSTGRES)


def _check_waits(storage: PostgresStorage, thread_id: str, file: Database) -> None:
    if waits := look(reading_graph(storage), thread_id).waits:
        waiting, how = waits[0], report.of_waits(waits, thread_id, file)[0].resume
        if isinstance(waiting, Approval):
            # A decision is only offered together with what it decides on.
            how = report.command("resume", thread_id, file)
        raise ThreadError(f"Thread {thread_id!r} waits for {waits_for(waiting)}; answer it first: {how}")


def _keep_settings(storage: PostgresStorage, thread_id: str, queue: str, given: Given) -> None:
    """Stores the settings of the thread, unless it runs on a graph of the user's own."""
    if queue == DEFAULT_QUEUE:
        before = recall(storage.store, thread_id)
        remember(storage.store, thread_id, settle(given, before, os.environ))
    elif given.options:
        raise SetupError(
            f"The queue {queue!r} runs a graph of its own, which has its model, tools and limits; leave "
            "these options out."
        )


@takes()
def worker(
    file: Database,
    graph: OwnGraph = None,
    queue: ServedQueue = None,
    concurrency: Concurrency = 4,
    heartbeat: Heartbeat = HEARTBEAT_SECONDS,
    until_idle: UntilIdle = False,
) -> None:
    """Run submitted threads; on a signal they stop and return to the queue.

    Exit codes: 0 drained, or idle, 1 error, 2 wrong usage, 4 stopped at once by a second signal.
    """
    _check_shared(file)
    with packages():
        from signoff.workers.worker import Worker
    with _log_on_stderr(), file.open() as storage, ExitStack() as stack:
        assert isinstance(storage, PostgresStorage), "the address was checked above"
        graphs, own = _graphs(graph, storage, stack)
        made = Worker(storage, graphs, queue=queue or own, concurrency=concurrency, heartbeat=heartbeat)
        asyncio.run(_until_told(made, until_idle, f"queue {queue or own} of {file}, {concurrency} at once"))


def _graphs(named: str | None, storage: PostgresStorage, stack: ExitStack) -> "tuple[Graphs, str]":
    """Yields the source of the threads' graphs, and the queue of these threads."""
    if named is not None:
        return OneGraph(own_graph(named, storage)), queue_of(named)
    graphs = OwnGraphs(storage)
    stack.callback(graphs.close)
    return graphs, DEFAULT_QUEUE


async def _until_told(made: "Worker", until_idle: bool, what: str) -> None:
    """Runs the worker; the first signal drains it, the second ends the process at once."""
    log = logging.getLogger("signoff.workers")
    signals = (signal.SIGINT, signal.SIGTERM)

    def told() -> None:
        if made.draining:
            log.warning("stopped at once; other workers take over the running threads")
            # Nothing is lost: this is the same as a kill.
            os._exit(Exit.PAUSED)
        log.info("draining: running threads stop after their step and return to the queue")
        made.drain()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, told)
    log.info("ready: %s", what)
    await made.run(until_idle=until_idle)
    log.info("ended")


class _OneLine(logging.Formatter):
    """Sanitises thread ids and error texts, so that they cannot control a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = cut(one_line(record.message), _LONGEST_LINE)
        return super().formatMessage(record)


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(_FORMAT))
    log = logging.getLogger("signoff.workers")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    # The relevant log messages of the queue are covered above, in fewer words.
    logging.getLogger("procrastinate").addHandler(logging.NullHandler())
    try:
        yield
    finally:
        log.removeHandler(handler)


class OwnGraphs:
    """Builds the graph of a thread from its settings, with its own tools and model.

    The embedded model is loaded once. `close` ends what was started.
    """

    def __init__(self, storage: PostgresStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._embedded: Chosen | None = None
        self._stack = ExitStack()

    @contextmanager
    def __call__(self, thread_id: str) -> Iterator[Graph]:
        settings = settle(Given(), recall(self._storage.store, thread_id), os.environ)
        waiting = look(reading_graph(self._storage), thread_id).wait()
        with ExitStack() as stack:
            found = stack.enter_context(working_tools(settings, _unheard))
            tools, handed_over = for_waiting(found, waiting)
            policy = policy_of(settings, tools, waiting)
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
    """Discards the output of running commands; it is in their results."""
