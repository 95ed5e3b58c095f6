"""The program that runs inside the sandbox, as one text, so that no file is read that could be changed."""

import sys
from pathlib import Path

from signoff.tools.processes.helpers import program_text

_FOLDER = Path(__file__).parent
# In the order in which they need each other; the last one is the program itself.
_PARTS = ("kernel", "syscalls", "landlock", "seccomp", "confine", "worker")

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
