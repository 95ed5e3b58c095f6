"""`signoff worker` in the background: it is told to end, killed or stopped, and another one goes on."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.benches.cli import Bench, steps
from tests.support.benches.cli_workers import handed, row, work
from tests.support.benches.workers import until

pytestmark = pytest.mark.slow

WAITS = """
import os, time
def wait(messages):
    with open({mark!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(0.5)
    return call("search_files", pattern=str(len(messages)))
"""


@pytest.fixture
def bench(tmp_path: Path, postgres_url: str) -> Bench:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    return bench


class Process:
    """`signoff worker` in the background."""

    def __init__(self, bench: Bench, *words: str) -> None:
        self.log = bench.folder / f"worker{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.running = bench.start("worker", *words, stdout=log, stderr=log)

    def said(self, words: str) -> bool:
        return words in self.log.read_text()

    def ended(self) -> int:
        return self.running.wait(60)


@pytest.fixture
def worker(bench: Bench) -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def begin(*words: str) -> Process:
        begun.append(Process(bench, *words))
        return begun[-1]

    yield begin
    for process in begun:
        if process.running.poll() is None:
            process.running.kill()
            process.running.wait()


def slow_script(bench: Bench) -> Path:
    """A model that takes half a second a turn and says which process asked it."""
    mark = bench.folder / "asked"
    mark.touch()
    bench.model(steps(*["wait"] * 6, 'call("finish_task", summary="Done.")'))
    file = Path(str(bench.env["SIGNOFF_MODEL"]).removeprefix("scripted:"))
    file.write_text(WAITS.format(mark=str(mark)) + file.read_text())
    return mark


def in_the_middle(bench: Bench, worker: Callable[..., Process], *words: str) -> tuple[Process, Path]:
    """A worker that has begun the second turn of a thread, and which processes have asked the model."""
    asked = slow_script(bench)
    handed(bench)
    process = worker(*words)
    until(lambda: len(asked.read_text().split()) >= 2)
    return process, asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.sample(1)
def test_a_signal_drains_and_another_worker_goes_on(
    bench: Bench, worker: Callable[..., Process], number: signal.Signals
) -> None:
    first, asked = in_the_middle(bench, worker)
    first.running.send_signal(number)
    assert first.ended() == 0
    assert first.said("t1: goes back to the queue")
    assert first.said("ended")
    assert row(bench)["status"] == "queued"
    work(bench)
    asking = asked.read_text().split()
    assert (row(bench)["status"], row(bench)["turns"]) == ("success", 7)
    # A reply that is still coming in is closed, and asked for again.
    assert (len(asking) in (6, 7), len(set(asking))) == (True, 2)


@pytest.mark.thorough
def test_a_second_signal_ends_at_once_and_the_thread_is_taken_over(
    bench: Bench, worker: Callable[..., Process]
) -> None:
    first, _ = in_the_middle(bench, worker, "--heartbeat", "1")
    first.running.terminate()
    until(lambda: first.said("draining"))
    first.running.terminate()
    assert first.ended() in (0, 4)
    second = worker("--heartbeat", "1")
    until(lambda: row(bench)["status"] == "success")
    second.running.terminate()
    assert second.ended() == 0


@pytest.mark.thorough
def test_a_stopped_worker_that_comes_back_leaves_the_thread_to_the_one_who_took_it(
    bench: Bench, worker: Callable[..., Process]
) -> None:
    first, asked = in_the_middle(bench, worker, "--heartbeat", "1")
    os.kill(first.running.pid, signal.SIGSTOP)
    second = worker("--heartbeat", "1")
    until(lambda: second.said("t1: taken over from worker"))
    until(lambda: str(second.running.pid) in asked.read_text())
    os.kill(first.running.pid, signal.SIGCONT)
    until(lambda: first.said("t1: was taken over by another worker"))
    until(lambda: row(bench)["status"] == "success")
    assert row(bench)["turns"] == 7
    for process in (first, second):
        process.running.terminate()
        assert process.ended() == 0
