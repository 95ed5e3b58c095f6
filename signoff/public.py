"""How a package offers names without importing all the modules that they come from."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that imports each name, of a module in `names`, at its first use.

    A program that needs only one name does not wait for all, nor need their extras.
    """
    modules = {name: module for module, offered in names.items() for name in offered}

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return attribute
