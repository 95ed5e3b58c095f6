"""What a user gives to a model: tools for files, the shell, Python and MCP servers, and control tools."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.tools.approvals import Policy
    from signoff.tools.control import AskUser, FinishTask, Think
    from signoff.tools.files import workspace_tools
    from signoff.tools.mcp import mcp_tools
    from signoff.tools.sandbox import (
        Bounds,
        LinuxSandbox,
        MontySandbox,
        PythonResult,
        Sandbox,
        UnsafeSandbox,
        choose_sandbox,
        python_tool,
    )
    from signoff.tools.terminal import Shell, ShellPool, ShellResult, Spool, terminal_tool
    from signoff.tools.workspace import Workspace

__all__ = [
    "AskUser",
    "Bounds",
    "FinishTask",
    "LinuxSandbox",
    "MontySandbox",
    "Policy",
    "PythonResult",
    "Sandbox",
    "Shell",
    "ShellPool",
    "ShellResult",
    "Spool",
    "Think",
    "UnsafeSandbox",
    "Workspace",
    "choose_sandbox",
    "mcp_tools",
    "python_tool",
    "terminal_tool",
    "workspace_tools",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.tools.approvals": ("Policy",),
        "signoff.tools.control": ("AskUser", "FinishTask", "Think"),
        "signoff.tools.files": ("workspace_tools",),
        "signoff.tools.mcp": ("mcp_tools",),
        "signoff.tools.sandbox": (
            "Bounds",
            "LinuxSandbox",
            "MontySandbox",
            "PythonResult",
            "Sandbox",
            "UnsafeSandbox",
            "choose_sandbox",
            "python_tool",
        ),
        "signoff.tools.terminal": ("Shell", "ShellPool", "ShellResult", "Spool", "terminal_tool"),
        "signoff.tools.workspace": ("Workspace",),
    },
)
