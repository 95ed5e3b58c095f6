"""A graph, or what makes one, named on a command line: `package.module:name` or `path/to/file.py:name`."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from signoff.graph.build import Graph
from signoff.graph.errors import ApprovalWarning, SetupError

__all__ = ["load", "load_graph"]

_NAME = "signoff_verified_graph"


def load_graph(named: str, *arguments: Any) -> Graph:
    """The graph, or the result of the function, at `package.module:name` or `path/to/file.py:name`.

    arguments: of the function; with them it must be one. Raises SetupError when there is none, or the code
    around it fails.
    """
    with warnings.catch_warnings():
        # Whoever loads a graph by its name gives it a storage.
        warnings.simplefilter("ignore", ApprovalWarning)
        found = make = load(named)
        if callable(found) and not isinstance(found, Graph):
            found = run_theirs(lambda: make(*arguments), named)
        elif arguments:
            raise SetupError(f"{named} is no function; name one that makes the graph from what it is given.")
    if not isinstance(found, Graph):
        raise SetupError(
            f"{named} is of type {type(found).__name__}; name the graph that build_graph returned."
        )
    return found


def load(named: str) -> Any:
    """The object at `package.module:name` or `path/to/file.py:name`.

    Raises SetupError when there is none, or the code around it fails.
    """
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise SetupError(f"Write {named!r} as package.module:graph or path/to/file.py:graph.")
    module = run_theirs(lambda: _module(place), place)
    if not hasattr(module, name):
        raise SetupError(f"{place} has no {name!r}; name the graph, or a function that makes it.")
    return getattr(module, name)


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        # Like `python -m`: modules in the current folder can be named.
        sys.path.insert(0, "")
        return importlib.import_module(place)
    if not Path(place).is_file():
        raise SetupError(f"There is no file {place}; check the path.")
    spec = importlib.util.spec_from_file_location(_NAME, place)
    if spec is None or spec.loader is None:
        raise SetupError(f"{place} is not a Python file; name one that can be imported.")
    module = importlib.util.module_from_spec(spec)
    # Classes with annotations look up their module by its name.
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def run_theirs(code: Callable[[], Any], what: str) -> Any:
    """Runs the user's code. Raises SetupError, which names `what`, when it fails."""
    try:
        return code()
    except SetupError:
        raise
    # A script that ends the process would look like a graph whose properties all hold.
    except (Exception, SystemExit) as error:
        raise SetupError(f"{what} could not be loaded ({type(error).__name__}: {error}); fix it.") from error
