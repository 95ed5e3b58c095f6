"""The program that runs inside the sandbox, and the location of its Python.

The program is one text, so that it reads no file that could have been changed.
"""

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from signoff.tools.processes.helpers import base_python, program_text

_FOLDER = Path(__file__).parent
# In the order of their imports; the last one is the program itself.
_PARTS = ("confine", "adapt", "worker")

_BEGIN = """
import sys, types
package = ""
for name in ("signoff", "tools", "sandbox"):
    package += f".{{name}}" if package else name
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = []
*parts, (_, program, text) = {parts!r}
for name, file, source in parts:
    module = sys.modules[f"{{package}}.{{name}}"] = types.ModuleType(f"{{package}}.{{name}}")
    setattr(sys.modules[package], name, module)
    exec(compile(source, file, "exec"), module.__dict__)
__file__ = program
exec(compile(text, program, "exec"))
"""


def _program() -> str:
    files = [(name, str(_FOLDER / f"{name}.py")) for name in _PARTS]
    return _BEGIN.format(parts=[(name, file, program_text(file)) for name, file in files])


PROGRAM = _program() if sys.platform != "win32" else ""


_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store")
_CONFIGURATION = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/fonts", "/etc/mime.types"),
)
_MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")
_OWN_PROCESS = ("/proc/self/maps", "/proc/self/stat", "/proc/self/statm", "/proc/self/status")


@dataclass(frozen=True)
class Installation:
    """Where a Python installation lies.

    executable: the interpreter itself, links resolved. packages: folders that `import` searches. readable:
    what Python and its packages need of this machine."""

    executable: str
    packages: tuple[str, ...]
    readable: tuple[str, ...]


def installation() -> Installation:
    """Returns the running Python's installation. Raises SetupError when Python does not know its own path."""
    executable = base_python()
    paths = sysconfig.get_paths()
    packages = tuple(dict.fromkeys(os.path.realpath(paths[name]) for name in ("purelib", "platlib")))
    library = sysconfig.get_config_var("LIBDIR")
    python = (
        executable,
        os.path.dirname(os.__file__),
        os.path.join(sys.base_prefix, "lib"),
        library,
        *packages,
    )
    places = (*_SYSTEM, *_CONFIGURATION, *_MACHINE, *_OWN_PROCESS, *(path for path in python if path))
    return Installation(executable, packages, tuple(dict.fromkeys(places)))
