"""A workspace folder with the working tools in it, for the tests of these tools."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff.tools.files import workspace_tools


class Bench:
    """A folder, its tools, and their results checked to be text that can be saved."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools: dict[str, BaseTool] = {tool.name: tool for tool in workspace_tools(root)}

    def put(self, path: str, content: str | bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content.encode() if isinstance(content, str) else content)

    def __call__(self, name: str, **arguments: Any) -> str:
        result = self.tools[name].invoke(arguments)
        assert isinstance(result, str)
        result.encode()
        return result

    def refusal(self, name: str, **arguments: Any) -> str:
        with pytest.raises(ToolException) as error:
            self(name, **arguments)
        str(error.value).encode()
        return str(error.value)
