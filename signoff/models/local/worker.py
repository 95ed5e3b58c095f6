"""The child process that runs the model: llama.cpp's OpenAI-compatible server on loopback.

Its source text is run, so that it imports nothing of Signoff. It reads its settings as one line of JSON from
stdin, answers with one line `{"port": n}` on stdout once the model is loaded, and ends when stdin ends: only
the owner has the other end of that pipe, so it closes however the owner dies.
"""

import ctypes
import json
import os
import signal
import sys
import threading
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


def die_with(owner: int) -> None:
    """Makes Linux kill this process when its owner dies, even while native code holds the interpreter."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(0)


def exit_at_end_of_stdin() -> NoReturn:
    """Waits until the owner closes its end of the pipe, then exits at once: there is nothing to save."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def common_params(settings: dict[str, Any]) -> Any:
    """Returns the server's parameters. It downloads nothing, and serves only local clients with the key."""
    # Only this process needs the native library; the rest of Signoff must work without it.
    from xllamacpp import CommonParams  # type: ignore[import-untyped]  # it ships no types

    params = CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = {settings["alias"]}
    params.chat_template = settings["chat_template"]
    params.use_jinja = True
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cache_ram_mib = 512
    # Progress with a prompt is reported after each batch.
    params.n_batch = 256
    params.slot_save_path = settings["slots"]
    if settings["threads"]:
        params.cpuparams.n_threads = settings["threads"]
        params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.cors_origins = "http://127.0.0.1"
    params.cors_credentials = False
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = True
    params.verbosity = 2
    return params


def main() -> None:
    # Ctrl-C reaches the whole process group; the owner decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.stdin.readline())
    die_with(settings["owner"])
    threading.Thread(target=exit_at_end_of_stdin, daemon=True).start()
    # The native code logs to stdout; the report needs it clean.
    report = os.dup(1)
    os.dup2(2, 1)

    from xllamacpp import Server

    server = Server(common_params(settings))
    port = int(server.listening_address.rsplit(":", 1)[1])
    os.write(report, json.dumps({"port": port}).encode() + b"\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
