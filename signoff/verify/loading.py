"""Finds the graph that a command line names."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError

_NAME = "signoff_verified_graph"


def load_graph(named: str) -> Graph:
    """The graph at `package.module:name` or `path/to/file.py:name`: a graph, or a function that makes one.

    Raises SetupError when there is none, or the code around it fails.
    """
    found = load(named)
    if callable(found) and not isinstance(found, Graph):
        found = run_theirs(found, named)
    if not isinstance(found, Graph):
        raise SetupError(f"{named} is {type(found).__name__}, no graph; name what build_graph returned.")
    return found


def load(named: str) -> Any:
    """What stands at `package.module:name` or `path/to/file.py:name`.

    Raises SetupError when there is nothing, or the code around it fails.
    """
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise SetupError(f"Write {named!r} as package.module:graph or path/to/file.py:graph.")
    module = run_theirs(lambda: _module(place), place)
    if not hasattr(module, name):
        raise SetupError(
            f"{place} has nothing of the name {name!r}; name the graph, or a function that makes it."
        )
    return getattr(module, name)


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        # As `python -m` does it: what lies in the folder that one stands in can be named.
        sys.path.insert(0, "")
        return importlib.import_module(place)
    if not Path(place).is_file():
        raise SetupError(f"There is no file {place}; check the path.")
    spec = importlib.util.spec_from_file_location(_NAME, place)
    if spec is None or spec.loader is None:
        raise SetupError(f"{place} is no Python file; name one that can be imported.")
    module = importlib.util.module_from_spec(spec)
    # Classes with annotations look themselves up by the name of their module.
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def run_theirs(code: Callable[[], Any], what: str) -> Any:
    """Runs code of the user's. Raises SetupError, which names `what`, when it fails."""
    try:
        return code()
    except SetupError:
        raise
    # A script that ends the process would look like a graph of which everything holds.
    except (Exception, SystemExit) as error:
        raise SetupError(
            f"{what} could not be loaded ({type(error).__name__}: {error}); correct it."
        ) from error
