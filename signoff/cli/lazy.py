"""Groups of commands that are loaded when they are asked for."""

import importlib
from typing import Any, ClassVar

from typer.core import TyperGroup
from typer.main import get_group


class LazyCommands(TyperGroup):
    """The commands of a module that is loaded when they are asked for: no other command needs its imports."""

    module: ClassVar[str]

    def list_commands(self, ctx: Any) -> list[str]:
        return self._loaded().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._loaded().get_command(ctx, cmd_name)

    def _loaded(self) -> TyperGroup:
        return get_group(importlib.import_module(self.module).app)
