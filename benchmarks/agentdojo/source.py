"""The user tasks of AgentDojo, from its own package (MIT licence): its prompts, tools, environments, the
calls that solve each task, and its own check of what came of it. Nothing of it is copied here."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.agentdojo.task import Call, Task, Tool

VERSION = "v1.2.2"
_TRACES = frozenset({"get_webpage", "get_unread_emails"})
"""They read, and leave a trace of it in the environment: a second time does no harm."""


def tasks() -> list[Task]:
    """All of them. Raises ImportError where the package is missing."""
    from agentdojo.task_suite.load_suites import get_suites

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suites = get_suites(VERSION)
        return [
            _task(suite, task, _tools(suite, _effects(suite)))
            for suite in suites.values()
            for task in suite.user_tasks.values()
        ]


@functools.cache
def _effects(suite: Any) -> frozenset[str]:
    """The functions that change the environment in some task: AgentDojo does not say which ones write."""
    from agentdojo.functions_runtime import FunctionsRuntime

    found, runtime = set(), FunctionsRuntime(suite.tools)
    for task in suite.user_tasks.values():
        env = _begun(suite, task)
        for call in task.ground_truth(env.model_copy(deep=True)):
            before = env.model_dump_json()
            runtime.run_function(env, call.function, call.args, raise_on_error=True)
            found |= {call.function} if env.model_dump_json() != before else set()
    return frozenset(found - _TRACES)


def _begun(suite: Any, task: Any) -> Any:
    return task.init_environment(suite.load_and_inject_default_environment({}))


@functools.cache
def _tools(suite: Any, effects: frozenset[str]) -> Mapping[str, Tool]:
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
    from agentdojo.functions_runtime import FunctionsRuntime

    runtime = FunctionsRuntime(suite.tools)

    def tool(name: str, function: Any) -> Tool:
        def run(env: Any, args: Mapping[str, Any]) -> str:
            found, _ = runtime.run_function(env, name, args, raise_on_error=True)
            return str(tool_result_to_str(found))

        return Tool(name, function.description, function.parameters, run, name not in effects)

    return {name: tool(name, function) for name, function in runtime.functions.items()}


def _task(suite: Any, task: Any, tools: Mapping[str, Tool]) -> Task:
    from agentdojo.functions_runtime import FunctionCall

    first = _begun(suite, task)
    calls = [Call(one.function, dict(one.args)) for one in task.ground_truth(first.model_copy(deep=True))]

    def solved(answer: str, env: Any, ran: Sequence[Call]) -> bool:
        traces = [FunctionCall(function=one.name, args=dict(one.args)) for one in ran]
        text = task.utility_from_traces(answer, first, env, traces)
        return bool(task.utility(answer, first, env) if text is None else text)

    answer = task.GROUND_TRUTH_OUTPUT
    return Task(
        f"{suite.name} {task.ID}", task.PROMPT, tools, calls, answer, lambda: _begun(suite, task), solved
    )
