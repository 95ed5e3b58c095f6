"""A subject's process behind the protocol: it is started, queried, killed and restarted."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from loopcheck.case import FEATURES
from loopcheck.outside import line, load
from loopcheck.replies import Manner

PROTOCOL = 1
START = 120.0
"""Time limit for importing a framework, in seconds."""
LARGEST = 4_000_000
"""Largest response, in bytes; a larger one is refused."""
KEPT = 400
"""How many chunks, of at most 4 KB, are kept of a subject's output."""
MARK = "LOOPCHECK_PROCESS"
"""The environment variable that marks everything that a subject's process has started."""


class NoAnswer(Exception):
    """A subject gave no valid response: why, in one sentence."""


class Dead(NoAnswer):
    """The process has ended, or could not be started."""


class Silent(NoAnswer):
    """The subject did not respond in time."""


class Unfit(NoAnswer):
    """The subject does not follow the protocol."""


@dataclass(frozen=True)
class Hello:
    """A subject's description of its framework. lacks: the features that it does not claim, with reasons."""

    framework: str
    versions: Mapping[str, str]
    manner: Manner
    lacks: Mapping[str, str]

    @classmethod
    def read(cls, said: Any) -> "Hello":
        """Parses the description. Raises Unfit if it does not follow this protocol."""
        if not isinstance(said, Mapping) or "protocol" not in said:
            raise Unfit("GET / did not answer with a JSON object that names its `protocol`.")
        # To Python, true is 1.
        if isinstance(said["protocol"], bool) or said["protocol"] != PROTOCOL:
            raise Unfit(f"It speaks protocol {said['protocol']!r}; this suite speaks {PROTOCOL}.")
        try:
            versions, lacks = _texts(said["versions"]), _texts(said["lacks"])
            if unknown := next((name for name in lacks if name not in FEATURES), ""):
                raise ValueError(f"`lacks` names the feature {unknown!r}, which CASES.md does not know")
            if not any(versions.values()):
                raise ValueError("`versions` names no version of a package")
            if silent := next((name for name, why in lacks.items() if not why), ""):
                raise ValueError(f"`lacks` does not say why it names `{silent}`")
            manner = _manner(said)
            if claimed := next((one for one in _unmet(manner) if one[1] not in lacks), None):
                raise ValueError(f"{claimed[0]}, and `lacks` does not name `{claimed[1]}`")
            return cls(line(said["framework"]), versions, manner, lacks)
        except KeyError as missing:
            raise Unfit(f"What it says of itself has no {missing}.") from missing
        except ValueError as error:
            raise Unfit(f"What it says of itself cannot be used: {error}.") from error


def _unmet(manner: Manner) -> Iterator[tuple[str, str]]:
    """What a feature needs and the manner has not: in words, and the feature."""
    if manner.ask is None:
        yield "`ask` is null", "ask"
    if manner.delegate is None:
        yield "`delegation` is null", "children"
    if "name" not in manner.ending("call"):
        yield "`finish` has no call", "finish_call"
    if not {"value", "json"} & {*_values(manner.ending("structured"))}:
        yield "`finish` has no structured answer", "structured"


def _manner(said: Mapping[str, Any]) -> Manner:
    ways = said["finish"]
    if not isinstance(ways, Mapping) or "any" not in ways:
        raise ValueError("`finish` has no template for `any`")
    finish = {way: _template(given, f"finish.{way}", _FINISH) for way, given in ways.items()}
    ask, delegation = said.get("ask"), said.get("delegation")
    return Manner(
        finish,
        None if ask is None else _template(ask, "ask", _ASK),
        None if delegation is None else _template(delegation, "delegation", _DELEGATION),
    )


_FINISH, _ASK, _DELEGATION = ("text", "value", "json"), ("text", "default", "seconds"), ("name", "text")


def _template(given: Any, where: str, values: Sequence[str]) -> Mapping[str, Any]:
    """Reads a template: text, or a call; `$` with one of these names stands for a value."""
    fields = given if isinstance(given, Mapping) else {}
    # The arguments may be the structured answer itself.
    is_call = isinstance(fields.get("name"), str) and (
        isinstance(fields.get("args"), Mapping) or fields.get("args") == "$value"
    )
    if not is_call and not isinstance(fields.get("text"), str):
        raise ValueError(f'`{where}` is neither {{"text": …}} nor {{"name": …, "args": {{…}}}}')
    unknown = next((one for one in _values(fields) if one not in values), None)
    if unknown is not None:
        raise ValueError(f"`{where}` asks for ${unknown}; there are: {', '.join(values)}")
    return fields


def _values(template: Any) -> Iterator[str]:
    """Returns the names of the values that a template uses."""
    if isinstance(template, str) and template.startswith("$"):
        yield template[1:]
    if isinstance(template, Mapping):
        for one in template.values():
            yield from _values(one)


def _texts(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("`versions` and `lacks` are objects")
    return {line(name): line(text) for name, text in given.items()}


@dataclass
class Output:
    """The end of a subject's output; earlier output is discarded as it arrives."""

    pieces: deque[bytes] = field(default_factory=lambda: deque(maxlen=KEPT))

    def drain(self, pipe: Any) -> None:
        with pipe:
            while piece := pipe.read1(4096):
                self.pieces.append(piece)

    @property
    def last(self) -> str:
        """The last line, as a sentence; empty if there is none."""
        lines = b"".join(self.pieces).decode(errors="replace").strip().splitlines()
        return f" It printed last: {line(lines[-1], 200)}" if lines else ""


class Process:
    """One process of a subject, or, without a command, the one that already runs at `url`.

    start: the time limit until it serves, in seconds. Raises Dead if it ends before it has described itself,
    Silent if it does not respond, and Unfit if it does not follow the protocol; nothing of it is left then.
    """

    def __init__(self, command: Sequence[str], printed: Output, url: str = "", start: float = START) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._printed = printed
        self._gone = False
        self._mark = uuid4().hex
        port = _free_port()
        self._address = f"127.0.0.1:{port}" if command else find_address(url)
        try:
            if command:
                self._begin(command, port)
            self.hello = Hello.read(self._first(start))
        except BaseException:
            self._end(0.0)
            raise

    def _begin(self, command: Sequence[str], port: int) -> None:
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**_environment(port), MARK: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            raise Dead(f"It cannot be started: {error}.") from error
        threading.Thread(target=self._printed.drain, args=(self._child.stdout,), daemon=True).start()

    def ask(self, path: str, order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the response to one request. Raises Dead, Silent or Unfit; the process has ended then,
        unless it sent an invalid response."""
        try:
            status, data = self._request("POST", path, json.dumps(order).encode(), seconds)
        except TimeoutError:
            self._end(0.0)
            raise Silent(f"It gave no answer within {seconds:g} s.") from None
        except (OSError, http.client.HTTPException) as error:
            if self._child is None and isinstance(error, ConnectionRefusedError):
                raise Dead(f"Nothing answers at {self._address}.") from None
            # Either it is dying, which takes a moment, or it lives but does not respond.
            died = self._end(2.0)
            raise Dead("Its process died." if died else "It broke its answer off.") from None
        except Unfit:
            self._end(0.0)
            raise
        found = _read(data)
        if status != 200 or not isinstance(found, dict):
            raise Unfit(f"POST {path} answered {status}: {line(data[:800].decode(errors='replace'), 200)}")
        return found

    def kill(self) -> None:
        """Sends SIGKILL to the process and everything that it started, in any session: a survivor would keep
        in memory what a crash must destroy."""
        if self._child is None or self._gone:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        end = time.monotonic() + 2.0
        while (left := _find_marked(self._mark)) and time.monotonic() < end:
            for number in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.002)

    @property
    def alive(self) -> bool:
        return self._child is None or self._child.poll() is None

    def close(self) -> None:
        """Ends it, first with SIGTERM."""
        if self._child is not None:
            self._child.terminate()
            self._end(5.0)

    def _end(self, seconds: float) -> bool:
        """Waits this long for its end, then kills what is left, including what it started. Returns whether it
        ended by itself."""
        if self._child is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        ended = self._child.poll() is not None
        self.kill()
        self._child.wait()
        # From now on its PID may belong to another process.
        self._gone = True
        return ended

    def _first(self, seconds: float) -> Any:
        """Returns its description, once it serves."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._child is not None and (code := self._child.poll()) is not None:
                raise Dead(f"It ended with status {code} before it served.{self._printed.last}")
            try:
                status, data = self._request("GET", "/", b"", min(5.0, seconds))
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            if status != 200:
                raise Unfit(f"GET / answered {status}: {line(data[:800].decode(errors='replace'), 200)}")
            return _read(data)
        raise Silent(f"It did not serve within {seconds:g} s.{self._printed.last}")

    def _request(self, method: str, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Raises TimeoutError if the whole response is not there in time, however slowly it drips."""
        connection = http.client.HTTPConnection(self._address, timeout=seconds)
        end = time.monotonic() + seconds
        try:
            connection.connect()
            clock = threading.Timer(seconds, _break, [connection.sock])
            clock.start()
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                found = _whole(connection.getresponse(), f"{method} {path}")
            finally:
                clock.cancel()
            if time.monotonic() >= end:
                raise TimeoutError
            return found
        except (OSError, http.client.HTTPException):
            if time.monotonic() >= end:
                raise TimeoutError from None
            raise
        finally:
            connection.close()


def _find_marked(mark: str) -> list[int]:
    """Returns the processes with this mark in their environment. Without /proc it finds none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # It may have just ended, or be another user's.
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def _break(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _whole(answer: http.client.HTTPResponse, what: str) -> tuple[int, bytes]:
    data = bytearray()
    while piece := answer.read1(65_536):
        data += piece
        if len(data) > LARGEST:
            raise Unfit(f"{what} answered with more than {LARGEST:,} bytes.")
    if answer.length:
        raise http.client.IncompleteRead(bytes(data), answer.length)
    return answer.status, bytes(data)


def _read(data: bytes) -> Any:
    try:
        return load(data)
    except ValueError:
        raise Unfit(f"It answered with something else than JSON: {data[:200]!r}.") from None


def find_address(url: str) -> str:
    """Returns host and port. Raises Unfit if the URL cannot be a subject's."""
    with suppress(ValueError):
        parts = urlsplit(url)
        # `port` raises ValueError for an invalid port number.
        if parts.scheme == "http" and parts.hostname and not parts.path.strip("/") and parts.port != 0:
            return parts.netloc
    raise Unfit(f"{url!r} is not the address of a subject; use http://HOST:PORT.")


def _free_port() -> int:
    """Returns a free port below the ephemeral range: otherwise another server of the suite, which takes any
    port, could take this one before the subject listens on it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def _environment(port: int) -> dict[str, str]:
    """Returns the environment for subjects: only loopback, without keys or proxies of this machine."""
    hidden = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PROXY", "_proxy")
    clean = {key: value for key, value in os.environ.items() if not key.endswith(hidden)}
    return {**clean, "OPENAI_API_KEY": "none", "PYTHONUNBUFFERED": "1", "LOOPCHECK_PORT": str(port)}
