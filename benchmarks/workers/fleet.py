"""Worker processes that are killed, stopped and restarted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.workers import agent

ROOT = Path(__file__).parent.parent.parent
GRAPH = f"{Path(agent.__file__)}:graph"
QUEUE = "agent:graph"


@dataclass
class Fleet:
    """A number of workers on one database; a killed one is replaced at once."""

    url: str
    record: Path
    log: Path
    heartbeat: float
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    kills: int = 0
    stops: int = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "signoff.cli", "worker", GRAPH, "--concurrency", "4"]
        environment = {**os.environ, "SIGNOFF_DATABASE": self.url, agent.RECORD: str(self.record)}
        with self.log.open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [*command, "--heartbeat", str(self.heartbeat)], cwd=ROOT, env=environment, stderr=log
                )
            )

    def kill(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kills the oldest worker, and starts another one after the given action."""
        victim = self.processes.pop(0)
        victim.kill()
        victim.wait()
        self.kills += 1
        meanwhile()
        self.start()

    def stop(self) -> Callable[[], None]:
        """Sends SIGSTOP to the oldest worker; the returned function continues it."""
        victim = self.processes.pop(0)
        victim.send_signal(signal.SIGSTOP)
        # So that it is not the next one to be killed.
        self.processes.append(victim)
        self.stops += 1
        return lambda: victim.send_signal(signal.SIGCONT)

    def end(self) -> list[int]:
        """Ends all workers as an administrator would; returns their exit codes."""
        # The signal would simply end a worker that is still starting.
        wait_until(lambda: self._said(" ready: ") >= len(self.processes) + self.kills, 60)
        for process in self.processes:
            process.terminate()
        return [process.wait(60) for process in self.processes]

    def close(self) -> None:
        """Ends all processes, even after an error."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def taken_over(self) -> int:
        """Returns how many threads were taken over from dead workers, according to the workers' log."""
        return self._said("taken over from worker")

    def _said(self, words: str) -> int:
        return self.log.read_text().count(words) if self.log.exists() else 0


def wait_until(done: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    """Returns whether the condition became true within this many seconds."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True
