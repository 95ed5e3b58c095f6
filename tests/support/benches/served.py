"""`signoff serve` in a process of its own, and the people who use its threads over HTTP."""

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tests.support.benches.agui import Seen, applied, events_of, run_input
from tests.support.benches.cli import CLEAN, PROGRAM
from tests.support.process_table import children
from tests.support.waiting import SECONDS as SECONDS

USER = "X-Forwarded-User"
# Steps of a script, each in Python.
ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'
RUN = 'call("run_shell", command=f"echo it ran >> {folder}/ran.txt")'
LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="Done.")'

Answer = tuple[int, dict[str, Any]]

_MODEL = """
import time
from pathlib import Path

from signoff.models import ScriptedModel, call, reply

FOLDER = Path({folder!r})

def is_reply(message):
    '''Not the message by which the machine says how a task ended.'''
    said = message.response_metadata
    return message.type == "ai" and (not said or "finish_reason" in said)

def step(messages):
    '''The next step of the script that the first task names by its last word.'''
    folder = FOLDER / next(message for message in messages if message.type == "human").text.split()[-1]

    def held(then):
        def wait(messages):
            for _ in range(3_000):
                if (folder / "released").exists():
                    return then
                time.sleep(0.02)
        return wait

    names = {{"call": call, "reply": reply, "held": held, "folder": folder}}
    return eval((folder / "script.py").read_text(), names)[sum(map(is_reply, messages))]

model = ScriptedModel(step)
"""


class Served:
    """A server and its address."""

    def __init__(self, *words: str, **env: str) -> None:
        whole = {name: value for name, value in {**os.environ, **CLEAN, **env}.items() if value is not None}
        command = [*PROGRAM, "serve", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=whole)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[1]
        self.origin, _, rest = self.address.partition("/#token=")
        self.token = rest.partition("&")[0]
        if "--port" in words:
            # The address that people open may be that of a proxy.
            self.origin = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
        self.port = int(self.origin.strip("/").rpartition(":")[2])
        self.http = self.client()

    def client(self, **headers: str) -> httpx.Client:
        """A client that is let in, by a token or by a proxy, unless its headers say otherwise."""
        limits = httpx.Limits(max_connections=None)
        shown = ({"Authorization": f"Bearer {self.token}"} if self.token else {USER: "Ada"}) | headers
        return httpx.Client(base_url=self.origin, headers=shown, timeout=SECONDS, limits=limits)

    def children(self) -> list[int]:
        """The processes that it has started, and theirs."""
        found = [self.process.pid]
        for pid in found:
            found += children(pid)
        return found[1:]

    def end(self, number: int = signal.SIGTERM) -> int | None:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(SECONDS)
        if self.process.stdout:
            self.process.stdout.close()
        return self.process.returncode


class Place:
    """A database, a model that plays a script for each thread, and servers on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "shared"
        self.workspace.mkdir()
        (self.workspace / "config.py").write_text("PORT = 3000\n")
        self.database = str(folder / "threads.sqlite")
        model = folder / "model.py"
        model.write_text(_MODEL.format(folder=str(folder)))
        self.model = f"scripted:{model}"
        self._names = (f"thread-{number}" for number in count(1))

    def start(self, *words: str, **env: str) -> Served:
        options = ["--workspace", str(self.workspace), "--tools", "files,shell", "--approve", "terminal"]
        return Served("--database", self.database, "--model", self.model, *options, *words, **env)

    @contextmanager
    def serve(self, *words: str, **env: str) -> Iterator[Served]:
        served = self.start(*words, **env)
        try:
            yield served
        finally:
            served.end()

    def script(self, steps: str) -> str:
        """The name of a new thread whose model plays `steps`, a list in Python. In it `held(step)` is a step
        that waits until the thread is released, and `folder` the thread's own."""
        name = next(self._names)
        (self.folder / name).mkdir()
        (self.folder / name / "config.py").write_text("PORT = 3000\n")
        (self.folder / name / "script.py").write_text(steps)
        return name


class Thread:
    """A thread of a server, and what a person does with it. settings: of its first task."""

    def __init__(self, place: Place, served: Served, steps: str, **settings: Any) -> None:
        self.name = place.script(steps)
        self.folder = place.folder / self.name
        self.task = f"Do {self.name}"
        self.served, self.http = served, served.http
        self.settings = {"workspace": str(self.folder), **settings}

    def on(self, served: Served) -> "Thread":
        """The same thread on another server."""
        other = object.__new__(Thread)
        vars(other).update(vars(self), served=served, http=served.http)
        return other

    def release(self) -> None:
        (self.folder / "released").touch()

    def ran(self, file: str = "ran.txt") -> str:
        path = self.folder / file
        return path.read_text() if path.exists() else ""

    def post(self, what: str, thread: str | None = None, **body: Any) -> Answer:
        """The status and the document of an answer."""
        answer = self.http.post(f"/api/{what}", json={"thread": thread or self.name, **body})
        return answer.status_code, answer.json()

    def write(self, text: str | None = None, **body: Any) -> int:
        """Begins a task, the first one with the settings; the status."""
        return self.post("write", text=text or self.task, **body)[0]

    def begin(self) -> Seen:
        """The first task, until it rests."""
        assert self.write(settings=self.settings) == 200
        return self.look()

    def agui(self, *texts: str, thread: str | None = None, **more: Any) -> Seen:
        """A request of the protocol AG-UI, and all that came of it."""
        answer = self.http.post("/agui", json=run_input(thread or self.name, *texts, **more))
        assert answer.status_code == 200, answer.text
        return applied(events_of(answer.text))

    @contextmanager
    def following(self, *texts: str, **more: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of such a request, one after another."""
        with self.http.stream("POST", "/agui", json=run_input(self.name, *texts, **more)) as response:
            lines = response.iter_lines()
            yield (json.loads(line[6:]) for line in lines if line.startswith("data: "))

    def look(self, thread: str | None = None) -> Seen:
        """How it stands when it rests."""
        return self.agui(thread=thread)

    def answer(self, *texts: str, **body: Any) -> Answer:
        """Answers what waits now, as a page that shows it would."""
        return self.post("answer", texts=list(texts), **self.asked(), **body)

    def asked(self) -> dict[str, str]:
        """What waits now, as an answer names it."""
        interrupt_id, shown, _ = self.look().interrupts[0]["id"].split(":")
        return {"interrupt_id": interrupt_id, "shown": shown}

    def answered(self, *texts: str) -> Seen:
        """Answers what waits now, and how it stands after that."""
        answer = self.answer(*texts)
        assert answer == (200, {})
        return self.look()

    @contextmanager
    def reading(self, thread: str | None = None) -> "Iterator[Reader]":
        params = {"thread": thread or self.name}
        with self.http.stream("GET", "/api/events", params=params) as response:
            assert response.status_code == 200
            yield Reader(response)

    def parts(self) -> dict[str, str]:
        """The page as it is now."""
        with self.reading() as reader:
            reader.until(lambda: reader.parts)
            return reader.parts


New = Callable[..., Thread]
"""Makes a thread: of its steps, and the settings of its first task."""


class Reader:
    """Somebody who reads the stream of a thread: every event, and what the page would show. It reads on only
    where it waits for something."""

    def __init__(self, response: httpx.Response) -> None:
        self.events: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.parts: dict[str, str] = {}
        self._lines = response.iter_lines()

    @property
    def page(self) -> str:
        return "\n".join(self.parts.values())

    @property
    def typed(self) -> str:
        """What the terminal has shown."""
        data = [event["data"] for kind, event in self.events if kind == "terminal"]
        whole = [event["terminal"]["data"] for kind, event in self.events if event.get("terminal")]
        return b"".join(map(base64.b64decode, [*whole, *data])).decode(errors="replace")

    def sees(self, *words: str) -> None:
        self.until(lambda: all(word in self.page for word in words))

    def types(self, words: str) -> None:
        """Waits until the terminal has shown these words."""
        self.until(lambda: words in self.typed)

    def lists(self, *words: str) -> bool:
        """Whether all of these stand in the list of threads."""
        lists = [event["list"] for _, event in self.events if "list" in event]
        return bool(lists) and all(word in lists[-1] for word in words)

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            # The server says now and then that it is still there.
            assert time.monotonic() < end, self.page[:3_000]
            self._take()

    def _take(self) -> None:
        fields = dict[str, str]()
        for line in self._lines:
            if not line and fields:
                break
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        if "event" not in fields:
            return
        event = json.loads(fields["data"])
        self.events.append((fields["event"], event))
        self.numbers += [int(fields["id"])] if "id" in fields else []
        if fields["event"] in ("all", "parts"):
            self.parts |= event["put"]
            if event["order"] is not None:
                self.parts = {name: self.parts[name] for name in event["order"]}


def at_once(*requests: Callable[[], Any]) -> list[Any]:
    """What comes of requests that are made at the same time, in order."""
    with ThreadPoolExecutor(len(requests)) as pool:
        return [future.result(SECONDS) for future in [pool.submit(request) for request in requests]]
