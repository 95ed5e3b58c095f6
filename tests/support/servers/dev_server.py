"""A real `langgraph dev`, as a person starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.servers.loopback import free_port
from tests.support.waiting import until

REPOSITORY = Path(__file__).parents[3]
START_SECONDS = 90.0


@dataclass(frozen=True)
class Server:
    url: str
    log: Path
    folder: Path
    process_group: int

    def kill(self) -> None:
        """Ends it with all it started, at once, as a power cut would."""
        os.killpg(self.process_group, signal.SIGKILL)


@contextmanager
def langgraph_dev(
    folder: Path, env: dict[str, str], config: Path = REPOSITORY / "langgraph.json"
) -> Iterator[Server]:
    """A server of its own process group, ended with everything it started. Its threads are in `folder`."""
    port = free_port()
    log = folder / "server.log"
    command = [str(Path(sys.executable).with_name("langgraph")), "dev", "--no-browser", "--no-reload"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--config", str(config)]
    # The log goes to a file: a pipe that nobody reads would fill and stop the server.
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"SIGNOFF_DATABASE": str(folder / "threads.sqlite"), **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or is_up(url), START_SECONDS)
        assert is_up(url), f"The server did not come up:\n{log.read_text(errors='replace')[-5000:]}"
        yield Server(url, log, folder, process.pid)
    finally:
        end(process)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ok", trust_env=False, verify=False).is_success
    except httpx.TransportError:
        return False


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(timeout=15)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def quiet_environment(**more: str) -> dict[str, str]:
    """The environment without keys, proxies and tracing: the server needs none of them."""
    unwanted = ("LANGSMITH", "LANGCHAIN", "LANGGRAPH", "OPENAI", "SIGNOFF")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    kept = {key: value for key, value in kept.items() if not key.lower().endswith("_proxy")}
    return {**kept, "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", **more}
