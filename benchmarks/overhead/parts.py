"""The parts of the benchmark, in the order in which they are measured."""

from collections.abc import Callable, Mapping

from benchmarks.overhead.alone import measured as measured_alone
from benchmarks.overhead.client import CLIENTS, clients
from benchmarks.overhead.client import SIZES as CHUNKS
from benchmarks.overhead.crowd import (
    CROWDS,
    OWN,
    PROCESSES,
    SIZES,
    SLOW,
    crowd,
    kilobytes_a_run,
    slow_tools,
    writers,
)
from benchmarks.overhead.embedded import first_tokens
from benchmarks.overhead.guards import guards
from benchmarks.overhead.measure import installed, measure
from benchmarks.overhead.record import Recorded
from benchmarks.overhead.sessions import SHORTENED, WHOLE, sessions
from benchmarks.overhead.start import measured as measured_start
from benchmarks.overhead.stored import stored
from benchmarks.overhead.targets import LENGTHS, LONG

SHORT = 10
_RUNS = {SHORT: 15, 50: 9, 200: 7, 1_000: 3, LONG: 1}


def _turns(turns: int) -> Callable[[Recorded], None]:
    def part(recorded: Recorded) -> None:
        there, runs = installed(), _RUNS.get(turns, 3)
        recorded.add_figures(
            [one for stored in (False, True) for one in measure(there, turns, runs, stored=stored)]
        )

    return part


def _crowd(runs: int) -> Callable[[Recorded], None]:
    return lambda recorded: recorded.add_crowds(crowd(installed(CROWDS), runs))


def _client(chunks: int) -> Callable[[Recorded], None]:
    return lambda recorded: recorded.add_clients(clients(installed(CLIENTS), chunks))


def _slow_model(recorded: Recorded) -> None:
    recorded.add_crowds(crowd([OWN], SIZES[0], SLOW, repeats=1))


def _slow_tools(recorded: Recorded) -> None:
    recorded.slow_tools = slow_tools()


def _writers(recorded: Recorded) -> None:
    recorded.writers = [
        *(writers(runs) for runs in SIZES),
        *(writers(runs, PROCESSES) for runs in (SIZES[0], 4 * SIZES[0])),
    ]


def _postgres(recorded: Recorded) -> None:
    recorded.stored = stored()


def _memory(recorded: Recorded) -> None:
    recorded.kilobytes_a_run = kilobytes_a_run()


def _alone(recorded: Recorded) -> None:
    recorded.alone = measured_alone()


def _start(recorded: Recorded) -> None:
    recorded.start = measured_start()


def _sessions(recorded: Recorded) -> None:
    recorded.sessions = sessions(installed(WHOLE), installed(SHORTENED))


def _guards(recorded: Recorded) -> None:
    recorded.guards = guards()


def _embedded(recorded: Recorded) -> None:
    recorded.first_tokens = first_tokens()


def of_length(turns: int) -> str:
    """Returns the name of the part with runs of this many turns."""
    return f"turns-{turns}"


def part(name: str) -> Callable[[Recorded], None]:
    """Returns the function that measures this part. Raises KeyError for an unknown name."""
    head, _, number = name.partition("-")
    return _turns(int(number)) if head == "turns" and number.isdecimal() else _OTHERS[name]


_OTHERS: Mapping[str, Callable[[Recorded], None]] = {
    "alone": _alone,
    "start": _start,
    **{f"crowd-{runs}": _crowd(runs) for runs in SIZES},
    **{f"client-{chunks}": _client(chunks) for chunks in CHUNKS},
    "sessions": _sessions,
    "slow-model": _slow_model,
    "slow-tools": _slow_tools,
    "writers": _writers,
    "postgres": _postgres,
    "memory": _memory,
    "embedded": _embedded,
    "guards": _guards,
}
PARTS = (*map(of_length, (SHORT, *LENGTHS, LONG)), *_OTHERS)
