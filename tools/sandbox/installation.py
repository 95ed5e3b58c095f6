"""Where this Python is, so that the same one can run inside a sandbox."""

import os
import sys
import sysconfig
from dataclasses import dataclass

from signoff.tools.processes.helpers import base_python

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store")
_CONFIGURATION = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_CONFIGURATION_OF_TIME = ("/etc/localtime",)


@dataclass(frozen=True)
class Installation:
    """executable: the interpreter itself, links resolved. packages: folders that `import` looks in.

    system: folders and files of the system that programs need. own: what else this Python needs.
    """

    executable: str
    packages: tuple[str, ...]
    system: tuple[str, ...]
    own: tuple[str, ...]


def installation() -> Installation:
    """Of the running Python. Raises SetupError when it does not know where it is."""
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
