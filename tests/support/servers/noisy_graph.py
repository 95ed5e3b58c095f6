"""A graph whose tool writes to stdout in every way that there is, and reads from stdin."""

import os
import subprocess
import sys
import warnings

from signoff import build_graph
from signoff.models import ScriptedModel, call

print("while it is loaded")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("a print")
    os.write(1, b"a write\n")
    subprocess.run(["sh", "-c", "echo a child; read line; echo $line"], check=False)
    warnings.warn("a warning", stacklevel=1)
    assert sys.__stdout__ is not None
    sys.__stdout__.write("the first stdout\n")
    return a + b


graph = build_graph(ScriptedModel([call("add", a=19, b=23), call("ask_user", question="Which?")]), [add])
