"""Runs a real model on the public tasks, and compares how runs end with and without an explicit finish.

Each task runs twice with the same model and subject: once ending with text, once ending with a call. No
faults are injected. A proxy between subject and model counts calls and tokens.
"""

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loopcheck.bench import Bench, Seat
from loopcheck.driver import read_report
from loopcheck.faults import NOTHING, Fault
from loopcheck.observed import Report
from loopcheck.play import TURNS, make_setup
from loopcheck.process import Dead, Silent, Unfit
from loopcheck.sources.task import Ask, Task, Turn
from loopcheck.stage import Server, World
from loopcheck.world import TaskWorld

PATIENCE = 900.0
"""Time limit for one step with a real model, in seconds."""
NO_MORE = "I know no more than I have said."
WAYS = ("any", "call")


@dataclass(frozen=True)
class Provider:
    """url: of an OpenAI-compatible API, with its version. price_in, price_out: dollars per million tokens."""

    url: str
    model: str
    key: str = "none"
    price_in: float = 0.0
    price_out: float = 0.0

    @classmethod
    def from_key(cls, variable: str, **given: Any) -> "Provider":
        """The environment variable with the key, so that no command line shows the key."""
        return cls(key=os.environ.get(variable, "none"), **given)


@dataclass
class RealRun:
    """One run. way: `any`, with text, or `call`. end: the status of its last step. solved: by the source's
    own checker. turns: model calls."""

    subject: str
    source: str
    task: str
    seed: int
    way: str
    end: str = ""
    words: str = ""
    solved: bool = False
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Usage:
    """The proxy's counts."""

    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, usage: Mapping[str, Any]) -> None:
        with self.lock:
            self.turns += 1
            self.tokens_in += int(usage.get("prompt_tokens") or 0)
            self.tokens_out += int(usage.get("completion_tokens") or 0)


class Proxy(Server):
    """A provider's model behind the counting proxy."""

    def __init__(self, provider: Provider, world: World) -> None:
        super().__init__(world)
        self.counted = Usage()
        self._provider = provider

    def reply(self, body: Mapping[str, Any], handler: BaseHTTPRequestHandler) -> None:
        given: dict[str, Any] = {**body, "model": self._provider.model}
        if given.get("stream"):
            given["stream_options"] = {"include_usage": True}
        status, kind, data = self._ask(json.dumps(given).encode())
        if status == 200:
            self.counted.add(_usage(data, streamed=bool(given.get("stream"))))
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _ask(self, data: bytes) -> tuple[int, str, bytes]:
        where = urlsplit(self._provider.url)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        connection = kind(where.netloc, timeout=PATIENCE)
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {self._provider.key}"}
        try:
            connection.request("POST", f"{where.path.rstrip('/')}/chat/completions", data, head)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type") or "application/json", answer.read()
        except (OSError, http.client.HTTPException) as error:
            told = {"error": {"message": f"The provider does not answer: {error}.", "type": "server_error"}}
            return 502, "application/json", json.dumps(told).encode()
        finally:
            connection.close()


def _usage(data: bytes, *, streamed: bool) -> Mapping[str, Any]:
    """Returns the usage that the provider reports, or zeros."""
    try:
        if not streamed:
            return json.loads(data).get("usage") or {}
        lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: {")]
        found = [json.loads(line).get("usage") for line in lines]
        return next((usage for usage in reversed(found) if usage), {})
    except (ValueError, AttributeError):
        return {}


def choose_tasks(tasks: Sequence[Task], seed: int, number: int, room: int | None) -> list[Task]:
    """Returns the tasks that a seed selects. room: most tokens of the first request, for small models."""
    fitting = [task for task in tasks if room is None or estimate_start(task) <= room]
    return random.Random(f"{seed} real").sample(fitting, min(number, len(fitting)))


def estimate_start(task: Task) -> int:
    """Estimates the tokens of tools, system prompt and first message, at four characters per token."""
    tools = [{"d": one.description, "p": one.parameters, "n": one.name} for one in task.tools.values()]
    return (len(json.dumps(tools)) + len(task.system) + len(task.turns[0].say)) // 4


def list_ways(bench: Bench) -> list[str]:
    """Returns the ways of ending that this subject has: some end only with a call, some only with text."""
    by_words = "text" in bench.hello.manner.finish["any"]
    has = {"any": by_words, "call": "finish_call" not in bench.hello.lacks}
    return [way for way in WAYS if has[way]]


def play_real(
    bench: Bench, subject: str, task: Task, way: str, seed: int, provider: Provider, turns: int = TURNS
) -> RealRun:
    """Executes one run with a real model. turns: its limit."""
    found = RealRun(subject, task.source, task.name, seed, way)
    world = TaskWorld(task, Fault(NOTHING), lambda: None)
    begun, answers = time.monotonic(), list[str]()
    with Proxy(provider, world) as proxy:
        asks = "ask" not in bench.hello.lacks
        setup = make_setup(task, proxy, bench.new_folder(), way, asks=asks, turns=turns)
        seat = Seat(bench, setup)
        for number, turn in enumerate(task.turns):
            world.turn = number
            told = _turn(seat, world, turn)
            answers.append(str(told.final))
            found.end, found.words = told.status, told.words[:200]
            if told.status != "success":
                break
        found.turns, found.tokens_in = proxy.counted.turns, proxy.counted.tokens_in
        found.tokens_out = proxy.counted.tokens_out
    found.seconds = round(time.monotonic() - begun, 1)
    millions = (found.tokens_in * provider.price_in + found.tokens_out * provider.price_out) / 1e6
    found.dollars = round(millions, 6)
    found.solved = task.solved(world.state, answers, [call for _, _, call in world.ran])
    return found


def _turn(seat: Seat, world: TaskWorld, turn: Turn) -> Report:
    """Sends the user's message, and the task's answers to questions, in their order."""
    waits = [move for move in turn.moves if isinstance(move, Ask)]
    told = _step(seat, {"do": "say", "text": turn.say})
    for _ in range(len(waits) + 3):
        if told.status != "question":
            break
        asked = waits.pop(0) if waits else None
        if asked is not None and asked.does is not None:
            asked.does(world.state)
        told = _step(seat, {"do": "answer", "text": asked.answer if asked else NO_MORE})
    return told


def _step(seat: Seat, order: Mapping[str, Any]) -> Report:
    try:
        return read_report(seat.ready().ask("/step", order, PATIENCE))
    except Dead:
        return Report("error", "its process died")
    except Silent:
        return Report("hung", f"no answer within {PATIENCE:g} s")
    except Unfit as error:
        return Report("error", str(error))


def write_pairs(runs: Sequence[RealRun], provider: Provider) -> str:
    """Writes a row per subject and way, then what changed between the two ways on the same tasks."""
    lines = [
        "| subject | ends | runs | solved | said done, wrongly | ended as | turns | tokens in | out | $ |",
        "| --- | --- | --: | --: | --: | --- | --: | --: | --: | --: |",
    ]
    keys = list(dict.fromkeys((run.subject, run.way) for run in runs))
    for subject, way in keys:
        lines.append(_row(subject, way, [run for run in runs if (run.subject, run.way) == (subject, way)]))
    pairs = [_pair(subject, runs) for subject in dict.fromkeys(subject for subject, _ in keys)]
    return "\n".join([*lines, "", f"Model: {provider.model}.", *filter(None, pairs)])


_ENDS = {"any": "in words", "call": "by a call"}


def _row(subject: str, way: str, runs: Sequence[RealRun]) -> str:
    ends = Counter(run.end for run in runs)
    told = ", ".join(f"{end} {number}" for end, number in ends.most_common())
    wrongly = sum(map(_wrongly, runs))
    mean = sum(run.turns for run in runs) / len(runs)
    sums = [sum(run.tokens_in for run in runs), sum(run.tokens_out for run in runs)]
    cells = [subject, _ENDS[way], len(runs), sum(run.solved for run in runs), wrongly, told, f"{mean:.1f}"]
    cells += [f"{one:,}" for one in sums] + [f"{sum(run.dollars for run in runs):.4f}"]
    return f"| {' | '.join(map(str, cells))} |"


def _pair(subject: str, runs: Sequence[RealRun]) -> str:
    """Says what an explicit finish changed on the same task and seed."""
    by: dict[str, dict[tuple[str, str, int], RealRun]] = {way: {} for way in WAYS}
    for run in runs:
        if run.subject == subject:
            by[run.way][run.source, run.task, run.seed] = run
    both = [(by["any"][key], by["call"][key]) for key in by["any"] if key in by["call"]]
    if not both:
        return ""
    better = sum(call.solved and not words.solved for words, call in both)
    worse = sum(words.solved and not call.solved for words, call in both)
    wrongly = [sum(_wrongly(run) for run in some) for some in zip(*both, strict=True)]
    return (
        f"{subject}, pairs: {len(both)}. Solved by a call alone: {better}, in words alone: {worse}. "
        f"Said done, wrongly: {wrongly[0]} in words, {wrongly[1]} by a call."
    )


def _wrongly(run: RealRun) -> bool:
    return run.end == "success" and not run.solved


def save_real(
    runs: Sequence[RealRun], provider: Provider, day: str, file: Path, *, turns: int = TURNS
) -> None:
    prices = [provider.price_in, provider.price_out]
    told = {"day": day, "model": provider.model, "prices": prices, "most_turns": turns}
    file.write_text(json.dumps({**told, "runs": [run.document() for run in runs]}, indent=1) + "\n")
