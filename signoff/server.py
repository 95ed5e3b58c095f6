"""What a LangGraph server needs to share the commands' database; `langgraph.json` names these three.

    checkpointer    the threads' checkpoints, in place of the server's own memory
    store           the journal, the outcomes and the figures, beside them
    app             lists threads that were begun elsewhere (`Foreign`), refuses strange web pages (`Pages`)
                    and to undo runs (`Rollbacks`)

The database is that of the commands: SIGNOFF_DATABASE, else that of signoff.toml, else the file in the user's
data folder. With the store in the same database as the checkpoints an effect runs at most once, whoever runs
the thread.

The server wraps every checkpointer that it is given, and its wrapper makes the channels' versions by
LangGraph's own rule, as strings. In a SQLite file ours are whole numbers, which cannot be compared with
strings: what the server saves there is written with numbers, and what it reads is given with its strings.
"""

import asyncio
import logging
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import httpx
import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.store.base import BaseStore
from langgraph_sdk import get_client
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff import Session, SignoffError
from signoff.front.database import OpenStorage, database
from signoff.front.settings import config_file
from signoff.session.status import reading_graph
from signoff.storage.base import async_form

_log = logging.getLogger("signoff.server")

NO_ROLLBACK = (
    "A run is not rolled back: what its tools have done stays done, and its steps are the record of it. Use "
    "'interrupt' in place of 'rollback'."
)


class ServerSaver(BaseCheckpointSaver[str]):
    """The checkpointer of `storage`, for async use by the server alone."""

    aget_tuple = async_form("get_tuple")
    aput = async_form("put")
    aput_writes = async_form("put_writes")
    adelete_thread = async_form("delete_thread")
    aget_delta_channel_history = async_form("get_delta_channel_history")

    def __init__(self, storage: OpenStorage) -> None:
        super().__init__(serde=storage.checkpointer.serde)
        self.storage = storage
        self.saver: Any = storage.checkpointer
        # By its address a thread's kept outputs are found again, from here and from elsewhere.
        self.database = self.saver.database
        self._counts = isinstance(self.saver.get_next_version(None, None), int)

    def runner(self, thread_id: str) -> AbstractContextManager[Any]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        held: AbstractContextManager[Any] = self.saver.runner(thread_id)
        return held

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = self.saver.get_tuple(config)
        return found and self._given(found)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        return map(self._given, self.saver.list(config, **options))

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        async for found in self.saver.alist(config, **options):
            yield self._given(found)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if self._counts:
            checkpoint, new_versions = _with_versions(checkpoint, _number), _each(new_versions, _number)
        saved: RunnableConfig = self.saver.put(config, checkpoint, metadata, new_versions)
        return saved

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: str | None, channel: None) -> str:
        # The server asks its own wrapper.
        return _string(_number(current or 0) + 1)

    def _given(self, found: CheckpointTuple) -> CheckpointTuple:
        if not self._counts:
            return found
        return found._replace(checkpoint=_with_versions(found.checkpoint, _string))

    def delete_thread(self, thread_id: str) -> None:
        with _refusals():
            self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        """Deletes nothing, and raises nothing: the server would count the run as running for ever, and let
        others wait behind it."""
        _log.warning("The steps of run %s are kept. %s", ", ".join(run_ids), NO_ROLLBACK)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread as it stands now, with what the journal says of its open calls: a copy without it
        would repeat effects."""

        def copy() -> None:
            with _refusals():
                graph = reading_graph(self.storage, source_thread_id)
                Session(graph, source_thread_id).fork(None, target_thread_id)

        await asyncio.to_thread(copy)


@contextmanager
def _refusals() -> Iterator[None]:
    """Has the server answer 409 with the words of an error of Signoff's.

    Any other exception is to the server a fault of its own: it answers 500 without words, and closes the
    connection, so that the client's next request may be lost.
    """
    try:
        yield
    except SignoffError as error:
        raise HTTPException(409, str(error)) from error


def _string(version: Any) -> str:
    """A number as the server's version string."""
    return f"{int(version):032}."


def _number(version: Any) -> int:
    """The number of the server's version string."""
    return int(str(version).partition(".")[0])


def _with_versions(checkpoint: Checkpoint, how: Callable[[Any], Any]) -> Checkpoint:
    changed = checkpoint.copy()
    changed["channel_versions"] = _each(checkpoint["channel_versions"], how)
    changed["versions_seen"] = {node: _each(seen, how) for node, seen in checkpoint["versions_seen"].items()}
    return changed


def _each(versions: ChannelVersions, how: Callable[[Any], Any]) -> ChannelVersions:
    return {channel: how(version) for channel, version in versions.items()}


_PAGES = re.compile(
    r"https://([a-z0-9-]+\.)*smith\.langchain\.com|https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
)


@asynccontextmanager
async def checkpointer() -> AsyncIterator[ServerSaver]:
    """The checkpoints of the shared database. Raises StorageError when it cannot be opened."""
    async with _opened() as storage:
        yield ServerSaver(storage)


@asynccontextmanager
async def store() -> AsyncIterator[BaseStore]:
    """The store of the shared database. Raises StorageError when it cannot be opened."""
    async with _opened() as storage:
        yield storage.store


@asynccontextmanager
async def _opened() -> AsyncIterator[OpenStorage]:
    # Opening a file blocks, and the server's event loop must not.
    opening = await asyncio.to_thread(_database)
    storage = await asyncio.to_thread(opening.__enter__)
    try:
        yield storage
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


def _database() -> AbstractContextManager[OpenStorage]:
    return database(None, os.environ, config_file(None, os.environ)).open()


class Foreign:
    """Makes threads known to the server that another program has begun in the database.

    The server keeps a list of its own and says "not found" of any thread that is not in it. So whatever asks
    for threads has the new ones of the database entered first. The server takes no id but a UUID: threads
    with other ids stay away. So do all of them where the server has several graphs: the database does not say
    which graph a thread belongs to.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.known: set[str] = set()
        self.entering = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _thread_in_path(scope["path"]) if scope["type"] == "http" else ""
        if asked and asked not in self.known:
            await self._enter(scope["app"].state.threads)
        if asked and scope["method"] == "DELETE":
            self.known.discard(asked)
        await self.app(scope, receive, send)

    async def _enter(self, threads: Callable[[], list[str]]) -> None:
        async with self.entering, get_client(api_key=None) as client:
            graphs = {found["graph_id"] for found in await client.assistants.search(limit=1000)}
            if len(graphs) != 1:
                return
            (graph,) = graphs
            for thread in await asyncio.to_thread(threads):
                if thread not in self.known and _is_uuid(thread):
                    await client.threads.create(thread_id=thread, graph_id=graph, if_exists="do_nothing")
                    self.known.add(thread)


def _thread_in_path(path: str) -> str:
    """What a request wants of the threads: the id of one, or a word such as `search`; empty for nothing."""
    _, found, rest = path.partition("/threads/")
    return rest.partition("/")[0] if found else ""


def _is_uuid(thread_id: str) -> bool:
    try:
        return str(uuid.UUID(thread_id)) == thread_id
    except ValueError:
        return False


class Pages:
    """Rejects requests of web pages other than Studio's and those of this machine.

    The server has no password and answers any page that the user's browser has open; the graph writes files.
    SIGNOFF_ORIGINS: further pages that may use it, as `https://name`, with commas between them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.more = {origin.strip() for origin in os.environ.get("SIGNOFF_ORIGINS", "").split(",")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] in ("http", "websocket") else None
        if origin is None or _PAGES.fullmatch(origin) or origin in self.more:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            text = "This page may not use the server; name its origin in SIGNOFF_ORIGINS to allow it.\n"
            await PlainTextResponse(text, status_code=403)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


class Rollbacks:
    """Refuses to undo a run, and cancels the runs that were to be undone, as `interrupt` does.

    LangGraph undoes a run by deleting its checkpoints. What its tools have done would stay, without a record.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") in ("POST", "PATCH", "DELETE") and _OF_RUNS.search(scope["path"]):
            request = Request(scope, receive)
            body = await request.body()
            if await _refuses(request, body):
                # A page of another origin, such as Studio, may read why.
                headers = {"access-control-allow-origin": "*"}
                await JSONResponse({"detail": NO_ROLLBACK}, 400, headers)(scope, receive, send)
                return
            receive = partial(_again, [{"type": "http.request", "body": body}], receive)
        await self.app(scope, receive, send)


async def _again(messages: list[Message], receive: Receive) -> Message:
    """Returns the messages that were received before, then the next ones."""
    return messages.pop() if messages else await receive()


async def _refuses(request: Request, body: bytes) -> bool:
    """Whether a request is to undo a run, or to delete it with its steps; cancels what is to be undone."""
    if request.method == "DELETE":
        return "/crons/" not in request.url.path
    if request.url.path.endswith("/cancel"):
        undoes = request.query_params.get("action") == "rollback"
    else:
        undoes = _names_rollback(body)
    if undoes:
        await _cancel(request, body)
    return undoes


_OF_RUNS = re.compile(r"/(runs|commands)(/|$)")
_BEGINS_RUN = re.compile(r"(.*)/threads/([^/]+)/(runs|runs/stream|runs/wait|commands)/?")


def _names_rollback(sent: bytes) -> bool:
    """Whether the settings of a run, of one of several, or a command name the strategy."""
    try:
        document = orjson.loads(sent)
    except ValueError:
        return False
    for settings in document if isinstance(document, list) else [document]:
        if isinstance(settings, dict):
            command = settings.get("params")
            named = command.get("multitaskStrategy") if isinstance(command, dict) else None
            if "rollback" in (settings.get("multitask_strategy"), named):
                return True
    return False


async def _cancel(request: Request, body: bytes) -> None:
    """Cancels the runs that a request is to undo, with the rights of whoever sends it."""
    path = request.scope["path"]
    headers = [field for field in request.headers.raw if field[0] != b"content-length"]
    transport = httpx.ASGITransport(request.app, root_path=request.scope.get("root_path", ""))
    async with httpx.AsyncClient(transport=transport, base_url="http://server", headers=headers) as server:
        if path.endswith("/cancel"):
            await server.post(path, params={**request.query_params, "action": "interrupt"}, content=body)
        elif begins := _BEGINS_RUN.fullmatch(path):
            root, thread_id, _ = begins.groups()
            runs = await server.get(f"{root}/threads/{thread_id}/runs", params={"limit": 1000})
            listed = runs.json() if runs.is_success else []
            active = [run["run_id"] for run in listed if run["status"] in ("pending", "running")]
            await server.post(f"{root}/runs/cancel", json={"thread_id": thread_id, "run_ids": active})


@asynccontextmanager
async def _with_threads(app: Starlette) -> AsyncIterator[None]:
    async with _opened() as storage:
        app.state.threads = storage.checkpointer.threads
        yield


app = Starlette(
    middleware=[Middleware(Pages), Middleware(Rollbacks), Middleware(Foreign)], lifespan=_with_threads
)
