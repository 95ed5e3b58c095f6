"""The model server as the rest of Signoff sees it: started on demand, shared in this process."""

import atexit
import secrets
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx

from signoff.graph.errors import SetupError
from signoff.models.local.child import Child
from signoff.models.local.progress import Progress, Stage, silent
from signoff.models.local.weights import INSTALL_HINT, ensure_weights

MODEL_NAME = "qwen2.5-coder-1.5b-instruct"
_TEMPLATE = Path(__file__).with_name("chat.jinja")


@dataclass(frozen=True)
class ServerSettings:
    """How the model runs.

    context: tokens of prompt and reply together. threads: CPU threads, None for one per physical core.
    start_timeout: seconds until a server that is still loading is given up.
    """

    context: int = 8192
    threads: int | None = None
    start_timeout: float = 300.0


@dataclass(frozen=True)
class Endpoint:
    """Where the server listens on 127.0.0.1, and the key that it asks for. Both are new at every start."""

    port: int
    api_key: str

    @property
    def url(self) -> str:
        """The address of /health and /metrics; the OpenAI-compatible part is below it under /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"Authorization": f"Bearer {self.api_key}"}


class LocalServer:
    """A model server that starts when it is needed, and again when it has died. Safe to use from threads."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the server listens; None while it is not running."""
        return self._endpoint if self._child and self._child.alive else None

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it is not running."""
        return self._child.pid if self._child and self._child.alive else None

    def start(self, on_progress: Progress = silent) -> Endpoint:
        """Make sure that the server answers, and say where. Quick when it is running.

        Raises SetupError when something is not installed or the server does not come up.
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

    def stop(self, patience: float = -1) -> None:
        """End the server. A later `start` starts it again.

        patience: seconds to wait for a start that is under way in another thread; -1 for as long as it takes.
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
    """Whether the server is ready. No proxy of the environment may see a call to this machine."""
    try:
        answer = httpx.get(f"{endpoint.url}/health", headers=endpoint.headers, trust_env=False, timeout=5)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


class Lease:
    """A share in a running server. The server stops when its last share is closed."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    def close(self) -> None:
        """Give the share back; doing it twice changes nothing."""
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
    """A share in this process's server with these settings. Starts nothing yet."""
    with _SHARING:
        share = Lease(_SERVERS.setdefault(settings, LocalServer(settings)))
        _HOLDERS.setdefault(settings, set()).add(share)
        return share


@atexit.register
def _stop_all() -> None:
    for server in _SERVERS.values():
        server.stop(patience=1)
