"""The model server: a worker process, started on demand and shared."""

import atexit
import hashlib
import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import httpx

from signoff.graph.errors import SetupError
from signoff.models.local import prefix
from signoff.models.local.weights import INSTALL_HINT, QWEN_CODER, Progress, Stage, ensure_weights, silent
from signoff.tools.processes.helpers import program_text, with_packages

_WORKER = program_text(Path(__file__).with_name("worker.py"))
# Without these, OpenMP's threads spin while they wait, which is ten times slower on a busy machine. The
# native library reads them when it loads, so they must be set before the process starts.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


class Child:
    """A worker process that ends with this process, however this process ends.

    A thread of its own, which lives as long as the worker, starts it and waits for it: Linux treats the end
    of the *thread* that started a process as the death of its parent, and callers' threads come and go.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        """Starts the worker and sends it its settings. Raises OSError when no process can be started."""
        self.owner = os.getpid()
        self._order = json.dumps({**order, "owner": self.owner})
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child; `stop` closes it
        self._started: SimpleQueue[subprocess.Popen[str] | OSError] = SimpleQueue()
        self._reports: SimpleQueue[str] = SimpleQueue()
        self._keeper = threading.Thread(target=self._keep, name="signoff-local-model", daemon=True)
        self._keeper.start()
        started = self._started.get()
        if isinstance(started, OSError):
            self._log.close()
            raise started
        self._process = started

    def _keep(self) -> None:
        try:
            process = subprocess.Popen(
                with_packages(_WORKER),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        except OSError as error:
            self._started.put(error)
            return
        self._started.put(process)
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(self._order + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            process.kill()
        with process.stdout:
            self._reports.put(process.stdout.readline())
        process.wait()

    @property
    def alive(self) -> bool:
        """Whether the worker runs. In a fork of its owner it counts as dead."""
        return self._keeper.is_alive()

    @property
    def pid(self) -> int:
        """Returns the worker's process id."""
        return self._process.pid

    def report(self, timeout: float) -> dict[str, Any] | None:
        """Waits up to `timeout` seconds for the worker's report; returns None when there is none yet.

        Raises ChildProcessError with the end of its log when it ended instead.
        """
        try:
            line = self._reports.get(timeout=timeout)
        except Empty:
            return None
        if not line:
            self._keeper.join()
            raise ChildProcessError(f"exit code {self._process.returncode}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Ends the worker and waits for it. Does nothing in a fork of its owner."""
        if os.getpid() != self.owner or self._log.closed:
            return
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._keeper.join(timeout=3)
        if self._keeper.is_alive():
            self._process.kill()
            self._keeper.join()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:]) or "no message"


MODEL_NAME = "qwen2.5-coder-1.5b-instruct"
_TEMPLATE = Path(__file__).with_name("chat.jinja")


@dataclass(frozen=True)
class ServerSettings:
    """How the model runs.

    context: tokens of prompt and reply together. threads: CPU threads, None for one per physical core.
    start_timeout: seconds that a server may take to load.
    """

    context: int = 8192
    threads: int | None = None
    start_timeout: float = 300.0


@dataclass(frozen=True)
class Endpoint:
    """The server's port on 127.0.0.1, and the key that it requires. Both are new at every start."""

    port: int
    api_key: str

    @property
    def url(self) -> str:
        """Returns the address of /health and /metrics; the OpenAI-compatible API is below it under /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers that every request needs."""
        return {"Authorization": f"Bearer {self.api_key}"}


class LocalServer:
    """A model server that starts when it is needed, and again when it has died. Safe to use from threads."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._endpoint: Endpoint | None = None
        self._keeps = False
        self._opened: Child | None = None

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the server listens; None while it is not running."""
        return self._endpoint if self._child and self._child.alive else None

    @property
    def pid(self) -> int | None:
        """Returns the server's process id; None while it is not running."""
        return self._child.pid if self._child and self._child.alive else None

    def start(self, on_progress: Progress = silent) -> Endpoint:
        """Makes sure that the server answers, and returns its endpoint. Quick when it is running.

        Raises SetupError when something is not installed or the server does not start.
        """
        with self._lock:
            running = self.endpoint
            if running:
                return running
            self._stop_child()
            if find_spec("xllamacpp") is None:
                raise SetupError(f"The local model's server (xllamacpp) is not installed: {INSTALL_HINT}.")
            weights = ensure_weights(on_progress)
            try:
                self._endpoint = self._launch(weights, on_progress)
            except BaseException:
                self._stop_child()
                raise
            return self._endpoint

    @property
    def keeps_prompts(self) -> bool:
        """Whether the running server can save a prompt prefix, and was not yet asked to."""
        return self._keeps and self._child is not None and self._opened is not self._child

    def open_prompt(self, text: str) -> Iterator[tuple[int, int]]:
        """Loads the prompt prefix `text` into the server, once for each server.

        It comes from the file of an earlier run; otherwise the server processes it, and the result is saved
        to that file. Yields how many tokens are processed, of how many. A failure only costs time: the prompt
        is processed anyway.
        """
        child, endpoint = self._child, self.endpoint
        if child is None or endpoint is None or not self.keeps_prompts:
            return
        self._opened = child
        name = prefix.file_name_of(text, self._maker())
        with suppress(httpx.HTTPError, OSError, ValueError):
            if _slot(endpoint, "restore", name):
                prefix.used(name)
                return
            prefix.drop(name)
            yield from _read(endpoint, text)
            half = prefix.half_name(name)
            try:
                if _slot(endpoint, "save", half):
                    prefix.take(half, name)
            finally:
                prefix.drop(half)

    def _maker(self) -> dict[str, object]:
        """Returns what else the server's state for a text depends on."""
        return {
            "weights": QWEN_CODER.sha256,
            "server": metadata.version("xllamacpp"),
            "context": self.settings.context,
            "template": hashlib.sha256(_TEMPLATE.read_bytes()).hexdigest(),
        }

    def _slots(self) -> str:
        """Returns the folder where the server saves prompts; empty for none."""
        self._keeps = False
        if prefix.is_on():
            with suppress(OSError):
                prefix.make_folder()
                self._keeps = True
        return f"{prefix.prefix_folder()}{os.sep}" if self._keeps else ""

    def stop(self, patience: float = -1) -> None:
        """Ends the server. A later `start` starts it again.

        patience: seconds to wait for a start in progress in another thread; -1 for no limit.
        """
        if self._lock.acquire(timeout=patience):
            try:
                self._stop_child()
            finally:
                self._lock.release()

    def _stop_child(self) -> None:
        child, self._child, self._endpoint = self._child, None, None
        if child:
            child.stop()

    def _launch(self, weights: Path, on_progress: Progress) -> Endpoint:
        api_key = secrets.token_urlsafe(32)
        deadline = time.monotonic() + self.settings.start_timeout
        on_progress(Stage.LOAD, 0, 0)
        try:
            self._child = Child(
                {
                    "weights": str(weights),
                    "alias": MODEL_NAME,
                    "chat_template": _TEMPLATE.read_text(encoding="utf-8"),
                    "context": self.settings.context,
                    "threads": self.settings.threads,
                    "api_key": api_key,
                    "slots": self._slots(),
                }
            )
            while (report := self._child.report(timeout=0.2)) is None:
                on_progress(Stage.LOAD, 0, 0)
                self._check(deadline)
        except OSError as error:
            raise SetupError(
                f"The local model's server did not start ({error}). It needs about 2 GB of free memory."
            ) from error
        endpoint = Endpoint(report["port"], api_key)
        while not _healthy(endpoint):
            self._check(deadline)
            time.sleep(0.1)
        on_progress(Stage.LOAD, 1, 1)
        return endpoint

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise SetupError(
                f"The local model did not load within {self.settings.start_timeout:g} seconds; try again "
                "when the machine is less busy."
            )


def _healthy(endpoint: Endpoint) -> bool:
    """Whether the server is ready. Ignores proxies of the environment, which must not see local calls."""
    try:
        answer = httpx.get(f"{endpoint.url}/health", headers=endpoint.headers, trust_env=False, timeout=5)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


# Processing a long prompt takes minutes on a busy machine; loading a file takes less than a second.
_SLOT_SECONDS, _SILENT_SECONDS = 120.0, 600.0


def _slot(endpoint: Endpoint, action: str, name: str) -> bool:
    """Saves the server's state under a name, or restores it. Returns False when that fails."""
    answer = httpx.post(
        f"{endpoint.url}/slots/0?action={action}",
        headers=endpoint.headers,
        json={"filename": name},
        trust_env=False,
        timeout=_SLOT_SECONDS,
    )
    return answer.status_code == httpx.codes.OK


def _read(endpoint: Endpoint, text: str) -> Iterator[tuple[int, int]]:
    """Has the server process a text without generating; closing the generator early stops it."""
    body = {"prompt": text, "n_predict": 0, "stream": True, "return_progress": True, "cache_prompt": True}
    with httpx.stream(
        "POST",
        f"{endpoint.url}/completion",
        headers=endpoint.headers,
        json=body,
        trust_env=False,
        timeout=_SILENT_SECONDS,
    ) as answer:
        for line in answer.iter_lines():
            kind, _, data = line.partition(":")
            if kind == "data" and (found := progress_in(json.loads(data))):
                yield found


def progress_in(chunk: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns how many tokens of the prompt are processed, of how many, if a chunk of the stream says so."""
    progress = chunk.get("prompt_progress")
    return (progress["processed"], progress["total"]) if isinstance(progress, Mapping) else None


class Lease:
    """A lease on a running server. The server stops when its last lease is closed."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    def close(self) -> None:
        """Releases the lease; a second call does nothing."""
        with _SHARING:
            holders = _HOLDERS.get(self.server.settings, set())
            holders.discard(self)
            unused = not holders
        if unused:
            self.server.stop()


_SHARING = threading.Lock()
_SERVERS: dict[ServerSettings, LocalServer] = {}
_HOLDERS: dict[ServerSettings, set[Lease]] = {}


def lease(settings: ServerSettings) -> Lease:
    """Returns a lease on this process's server with these settings. Does not start it."""
    with _SHARING:
        share = Lease(_SERVERS.setdefault(settings, LocalServer(settings)))
        _HOLDERS.setdefault(settings, set()).add(share)
        return share


@atexit.register
def _stop_all() -> None:
    for server in _SERVERS.values():
        server.stop(patience=1)
