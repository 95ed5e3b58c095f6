"""Runs a thread without one of the private names that Signoff knows of other packages, for each of them.

Run as a program: `python -m tests.support.without_private_names FOLDER`. It prints one line of
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


def main(folder: Path) -> None:
    # Every module of the packages that Signoff imports is there before a name is changed; Signoff's own are
    # imported anew in each child.
    import tests.support.without_private_names_run

    names = list(import_module("signoff.graph.inside.private").NAMES)
    for module in [name for name in sys.modules if name.split(".")[0] == "signoff" or name.endswith("_run")]:
        del sys.modules[module]
    del tests.support.without_private_names_run
    for name in ["", *names]:
        if (child := os.fork()) == 0:
            whole(name, folder / f"{name or 'none'}")
            os._exit(0)
        os.waitpid(child, 0)


def whole(name: str, folder: Path) -> None:
    """Takes the name away, begins the thread in a child that is killed, and goes on with it."""
    folder.mkdir()
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
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    gone = [one for one in private.NAMES if not private.has(one)]
    told = {"name": name, "killed": killed, "gone": gone, **asyncio.run(run.go_on(folder))}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
