"""The world outside: its state in a file that no kill undoes, and a line for each call that took place."""

import json
import os
import pickle
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool

from benchmarks.agentdojo.faults import Fault
from benchmarks.agentdojo.task import Call, Key, Task, Tool


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class World:
    """The world of one run. fault: what happens in this process; None in the processes after the first."""

    def __init__(self, folder: Path, task: Task, fault: Fault | None) -> None:
        self._state, self._log = folder / "world.pickle", folder / "ran.jsonl"
        self._task, self._fault = task, fault

    def begin(self) -> None:
        self._save(self._task.begin())

    @property
    def state(self) -> Any:
        # Our own file, of a moment ago: AgentDojo's environments do not come back from JSON as they were.
        return pickle.loads(self._state.read_bytes())

    def _save(self, state: Any) -> None:
        new = self._state.with_suffix(".new")
        new.write_bytes(pickle.dumps(state))
        new.replace(self._state)

    def call(self, tool: Tool, args: Mapping[str, Any]) -> Any:
        """Runs it; a killed process dies before or after it has taken place."""
        key, state = tool.key(args), self.state
        kills = self._fault.kills(key, self._task) if self._fault else ""
        if kills == "before":
            die()
        found = tool.run(state, args)
        self._save(state)
        line = json.dumps({"name": tool.name, "args": json.loads(key[1]), "key": key})
        with self._log.open("a") as log:
            log.write(line + "\n")
        if kills == "in":
            die()
        return found

    @property
    def ran(self) -> list[tuple[Key, Call]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        found = [json.loads(line) for line in lines]
        return [((one["key"][0], one["key"][1]), Call(one["name"], one["args"])) for one in found]

    def tools(self) -> list[StructuredTool]:
        """The tools as LangChain's, for any agent."""
        return [self._tool(tool) for tool in self._task.tools.values()]

    def _tool(self, tool: Tool) -> StructuredTool:
        def run(**args: Any) -> Any:
            return self.call(tool, args)

        return StructuredTool.from_function(
            run,
            name=tool.name,
            description=tool.description,
            args_schema=tool.parameters,
            metadata={"kind": "read"} if tool.reads else None,
        )
