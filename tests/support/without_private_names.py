"""Runs a thread without one of the private names that Signoff knows of other packages, for each of them.

Run as a program: `python -m tests.support.without_private_names FOLDER [NAME ...]`. It prints one line of
JSON for each name, and one for none: a tool that injected arguments go to, two reads, an approval, an answer
to a tool's own `interrupt`, a process killed in the middle of an effect, and the resume in another process,
which is async.

A name is taken away as Signoff sees it where an installed version has none: it is not there.
"""

import asyncio
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(folder: Path, wanted: list[str]) -> None:
    # Every module of the packages that Signoff imports is there before a name is changed; Signoff's own are
    # imported anew in each child.
    import tests.support.without_private_names_run

    names = list(import_module("signoff.graph.inside.private").NAMES)
    for module in [name for name in sys.modules if name.split(".")[0] == "signoff" or name.endswith("_run")]:
        del sys.modules[module]
    del tests.support.without_private_names_run
    for name in wanted or ["", *names]:
        if (child := os.fork()) == 0:
            whole(name, folder / f"{name or 'none'}")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


def whole(name: str, folder: Path) -> None:
    """Takes the name away, begins the thread in a child that is killed, and goes on with it."""
    folder.mkdir()
    told: dict[str, Any] = {"name": name}
    try:
        private = import_module("signoff.graph.inside.private")
        if name:
            setattr(private, name, None)
        run = import_module("tests.support.without_private_names_run")
        if (child := os.fork()) == 0:
            try:
                run.begin(folder)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        told["killed"] = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        told.update(asyncio.run(run.go_on(folder)))
        told["gone"] = [one for one in private.NAMES if not private.has(one)]
    except Exception as error:  # noqa: BLE001  it is what the test shows
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
