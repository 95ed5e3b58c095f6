"""Runs a thread without one of the private names that Signoff knows of other packages, for each of them.

Run as a program: `python -m tests.support.without_private_names FOLDER [NAME ...]`. It prints one line of
JSON for each name, and one for none: a tool that injected arguments go to, two reads, an approval, an answer
to a tool's own `interrupt`, a process killed in the middle of an effect, and the resume in another process,
which is async.

A name is taken away as a new version of the package would do it: it has another one there, wherever the
package itself uses it, and a key has another value, too. What pydantic's compiled core writes cannot be
renamed so; there Signoff is told that it is not there.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

LIBRARIES = ("langgraph", "langchain_core")
NEW = "{}_as_the_next_version_calls_it"


def main(folder: Path, wanted: list[str]) -> None:
    # Every module of the packages that Signoff imports is there before a name is changed; Signoff's own are
    # imported anew in each child.
    import tests.support.without_private_names_run

    names = dict(import_module("signoff.graph.inside.private").NAMES)
    for module in [name for name in sys.modules if name.split(".")[0] == "signoff" or name.endswith("_run")]:
        del sys.modules[module]
    del tests.support.without_private_names_run
    for name in wanted or ["", *names]:
        if (child := os.fork()) == 0:
            whole(name, names.get(name), folder / f"{name or 'none'}")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


def whole(name: str, place: tuple[str, str] | None, folder: Path) -> None:
    """Takes the name away, begins the thread in a child that is killed, and goes on with it."""
    folder.mkdir()
    told: dict[str, Any] = {"name": name}
    try:
        if place is not None and place[0] == "pydantic":
            setattr(import_module("signoff.graph.inside.private"), name, None)
        elif place is not None:
            rename(*place)
        run = import_module("tests.support.without_private_names_run")
        if (child := os.fork()) == 0:
            try:
                run.begin(folder)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        told["killed"] = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        told.update(asyncio.run(run.go_on(folder)))
        private = import_module("signoff.graph.inside.private")
        told["gone"] = [one for one in private.NAMES if not private.has(one)]
    except Exception as error:  # noqa: BLE001  it is what the test shows
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told), flush=True)


def rename(module: str, path: str) -> None:
    """Gives what stands there another name in the package, and in all of its code that uses it."""
    old = path.rpartition(".")[2]
    import_module(module)
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType | type) and _is_theirs(one)]
    for one in found:
        if isinstance(one, FunctionType):
            one.__code__ = _renamed(one.__code__, old)
        elif old in vars(one):
            setattr(one, NEW.format(old), vars(one)[old])
            delattr(one, old)
    for place in [one for name, one in sys.modules.items() if name.split(".")[0] in LIBRARIES]:
        if old in vars(place):
            value = vars(place).pop(old)
            vars(place)[NEW.format(old)] = f"__other{value}" if isinstance(value, str) else value


def _renamed(code: CodeType, old: str) -> CodeType:
    names = tuple(NEW.format(name) if name == old else name for name in code.co_names)
    constants = tuple(_renamed(one, old) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_names=names, co_consts=constants)


def _is_theirs(one: FunctionType | type) -> bool:
    module = getattr(one, "__module__", None)
    return isinstance(module, str) and module.split(".")[0] in LIBRARIES


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
