"""Sandboxes for Python code that a model wrote, and the tool that runs it."""

from signoff.tools.sandbox.base import Bounds, PythonResult, Sandbox
from signoff.tools.sandbox.linux import LinuxSandbox
from signoff.tools.sandbox.monty import MontySandbox
from signoff.tools.sandbox.tool import UnsafeSandbox, choose_sandbox, python_tool

__all__ = [
    "Bounds",
    "LinuxSandbox",
    "MontySandbox",
    "PythonResult",
    "Sandbox",
    "UnsafeSandbox",
    "choose_sandbox",
    "python_tool",
]
