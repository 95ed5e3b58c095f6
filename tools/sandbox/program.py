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
_PARTS = ("confine", "worker")

_BEGIN = """
import sys, types
package = ""
for name in ("signoff", "tools", "sandbox"):
    package += f".{{name}}" if package else name
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = []
*parts, (_, program, text) = {parts!r}
for name, file, source in parts:
    made = sys.modules[f"{{package}}.{{name}}"] = types.ModuleType(f"{{package}}.{{name}}")
    setattr(sys.modules[package], name, made)
    exec(compile(source, file, "exec"), made.__dict__)
__file__ = program
exec(compile(text, program, "exec"))
"""


def _program() -> str:
    files = [(name, str(_FOLDER / f"{name}.py")) for name in _PARTS]
    return _BEGIN.format(parts=[(name, file, program_text(file)) for name, file in files])


PROGRAM = _program() if sys.platform != "win32" else ""


_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store")
_CONFIGURATION = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_CONFIGURATION_OF_TIME = ("/etc/localtime",)


@dataclass(frozen=True)
class Installation:
    """Where a Python installation lies.

    executable: the interpreter itself, links resolved. packages: folders that `import` searches. system:
    folders and files of the system that programs need. own: what else this Python needs.
    """

    executable: str
    packages: tuple[str, ...]
    system: tuple[str, ...]
    own: tuple[str, ...]


def installation() -> Installation:
    """Returns the running Python's installation. Raises SetupError when Python does not know its own path."""
    executable = base_python()
    paths = sysconfig.get_paths()
    packages = tuple(dict.fromkeys(os.path.realpath(paths[name]) for name in ("purelib", "platlib")))
    library = sysconfig.get_config_var("LIBDIR")
    wanted = [
        executable,
        os.path.dirname(os.__file__),
        os.path.join(sys.base_prefix, "lib"),
        *([library] if isinstance(library, str) else []),
        *packages,
    ]
    system = tuple(filter(os.path.exists, (*_SYSTEM, *_CONFIGURATION, *_CONFIGURATION_OF_TIME)))
    own = tuple(dict.fromkeys(path for path in wanted if os.path.exists(path) and not _within(path, _SYSTEM)))
    return Installation(executable, packages, system, own)


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
