"""Cuts each task of AgentDojo's banking suite short and undoes it: `python -m benchmarks.undone_bank`.

It needs `agentdojo` and Signoff in a separate environment: `uv venv .bench/agentdojo`, then `uv pip install
--python .bench/agentdojo/bin/python agentdojo -e .`; run it with that Python. A scripted model makes the
calls of the suite's own solution, and reaches the turn limit before it can finish. The compensations that
each tool declares then undo the effects. It prints one line of JSON per task: the number of effects, and the
database's hash before, in between and after, by DeepHash, with which AgentDojo compares its environments.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from deepdiff import DeepHash
from langchain_core.tools import BaseTool, StructuredTool

from signoff import build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, reply
from signoff.models.scripted import ScriptedCall

READS = ("get_", "read_")


class Bank:
    """The environment of one task, with its tools and the compensation of each."""

    def __init__(self, suite: Any) -> None:
        self.env = suite.load_and_inject_default_environment({})
        self._runtime = FunctionsRuntime(suite.tools)

    @property
    def hash(self) -> str:
        return str(DeepHash(self.env)[self.env])

    def tools(self) -> list[BaseTool]:
        return [self._tool(name, found) for name, found in self._runtime.functions.items()]

    def _tool(self, name: str, found: Any) -> BaseTool:
        def run(**args: Any) -> tuple[str, Any]:
            before = self._before(name, args)
            result, error = self._runtime.run_function(self.env, name, args, raise_on_error=True)
            return str(result if error is None else error), before

        tool = StructuredTool(
            name=name,
            description=found.description,
            args_schema=found.parameters,
            func=run,
            response_format="content_and_artifact",
        )
        if name.startswith(READS):
            tool.metadata = {"kind": "read"}
        else:
            tool.metadata = {"undo": getattr(self, f"undo_{name}")}
        return tool

    def _before(self, name: str, args: dict[str, Any]) -> Any:
        """Returns what a call is about to change."""
        account, user = self.env.bank_account, self.env.user_account
        match name:
            case "send_money" | "schedule_transaction":
                known = [one.id for one in [*account.transactions, *account.scheduled_transactions]]
                return {"id": max(known, default=0) + 1}
            case "update_scheduled_transaction":
                found = [one for one in account.scheduled_transactions if one.id == args["id"]]
                return found[0].model_dump() if found else None
            case "update_password" | "update_user_info":
                return user.model_dump()
        return None

    def undo_send_money(self, args: Any, result: str, artifact: Any) -> None:
        self._drop(self.env.bank_account.transactions, artifact["id"])

    def undo_schedule_transaction(self, args: Any, result: str, artifact: Any) -> None:
        self._drop(self.env.bank_account.scheduled_transactions, artifact["id"])

    def undo_update_scheduled_transaction(self, args: Any, result: str, artifact: Any) -> None:
        (found,) = [one for one in self.env.bank_account.scheduled_transactions if one.id == artifact["id"]]
        self._restore(found, artifact)

    def undo_update_password(self, args: Any, result: str, artifact: Any) -> None:
        self.env.user_account.password = artifact["password"]

    def undo_update_user_info(self, args: Any, result: str, artifact: Any) -> None:
        self._restore(self.env.user_account, {**artifact, "password": self.env.user_account.password})

    @staticmethod
    def _drop(found: list[Any], own: int) -> None:
        (at,) = [place for place, one in enumerate(found) if one.id == own]
        del found[at]

    @staticmethod
    def _restore(found: Any, before: dict[str, Any]) -> None:
        for name, value in before.items():
            setattr(found, name, value)


def undone(suite: Any, name: str, tasks: Sequence[Any], folder: Path) -> dict[str, Any]:
    """Runs one task, cut short after the calls of these tasks' solutions."""
    bank = Bank(suite)
    before, done = bank.hash, [bank.hash]
    script: list[Any] = [
        reply(ScriptedCall(one.function, json.dumps(one.args)))
        for task in tasks
        for one in task.ground_truth(bank.env)
    ]

    def watched(run: Callable[..., Any]) -> Callable[..., Any]:
        def seen(**args: Any) -> Any:
            found = run(**args)
            done.append(bank.hash)
            return found

        return seen

    tools = bank.tools()
    for tool in tools:
        assert isinstance(tool, StructuredTool)
        assert tool.func is not None
        tool.func = watched(tool.func)
    with sqlite_storage(folder / f"{name}.sqlite") as storage:
        graph = build_graph(
            ScriptedModel(script),
            tools,
            storage=storage,
            limits={"turns": len(script)},
            policy={"on_failure": "undo"},
        )
        values = graph.invoke({"messages": [("user", tasks[0].PROMPT)]}, {"configurable": {"thread_id": "t"}})
    report = outcome_of(values).undo
    return {
        "task": name,
        "effects": 0 if report is None else len(report.undone) + len(report.standing),
        "undone": 0 if report is None else len(report.undone),
        "before": before,
        "changed": done[-1],
        "after": bank.hash,
    }


def main() -> None:
    suite = get_suite("v1", "banking")
    with tempfile.TemporaryDirectory() as folder:
        every = list(suite.user_tasks.values())
        for name, tasks in [*((task.ID, [task]) for task in every), ("all of them", every)]:
            print(json.dumps(undone(suite, name, tasks, Path(folder))), flush=True)


if __name__ == "__main__":
    sys.exit(main())
