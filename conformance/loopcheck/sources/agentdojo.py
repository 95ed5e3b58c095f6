"""The user tasks of AgentDojo, from its own package (MIT): its prompts, tools, environments, the calls that
solve each task, and its own check of what came of it. Nothing of it is copied here."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from loopcheck.sources.task import Call, Source, Task, Tool, Turn

_VERSION = "v1.2.2"
_WRITES = {
    "workspace": "add_calendar_event_participants append_to_file cancel_calendar_event create_calendar_event "
    "create_file delete_email delete_file reschedule_calendar_event send_email share_file",
    "travel": "cancel_calendar_event create_calendar_event reserve_car_rental reserve_hotel "
    "reserve_restaurant send_email",
    "banking": "schedule_transaction send_money update_password update_scheduled_transaction "
    "update_user_info",
    "slack": "add_user_to_channel invite_user_to_slack post_webpage remove_user_from_slack "
    "send_channel_message send_direct_message",
}
"""AgentDojo does not say which functions write. These change the environment where a solution calls them, or
do by their source where none does. `get_webpage` and `get_unread_emails` read, and leave a trace of it in the
environment: a second time does no harm."""


def _agentdojo(module: str) -> Any:
    """A module of the package, which is not everywhere. Raises ImportError."""
    return import_module(f"agentdojo.{module}")


def tasks() -> list[Task]:
    """All of them. Raises ImportError where the package is missing."""
    with warnings.catch_warnings():
        # Those of the clients of models that the package imports.
        warnings.simplefilter("ignore")
        suites = _agentdojo("task_suite.load_suites").get_suites(_VERSION)
        return [_task(suite, task) for suite in suites.values() for task in suite.user_tasks.values()]


@functools.cache
def _default(suite: Any) -> Any:
    """The environment that all tasks of a suite begin with, read once: that takes long."""
    return suite.load_and_inject_default_environment({})


def _begun(suite: Any, task: Any) -> Any:
    return task.init_environment(_default(suite).model_copy(deep=True))


@functools.cache
def _tools(suite: Any) -> Mapping[str, Tool]:
    runtime = _agentdojo("functions_runtime").FunctionsRuntime(suite.tools)
    writes = _WRITES[suite.name].split()
    return {name: _tool(runtime, name, name not in writes) for name in runtime.functions}


def _tool(runtime: Any, name: str, reads: bool) -> Tool:
    function = runtime.functions[name]
    said = _agentdojo("agent_pipeline.tool_execution").tool_result_to_str

    def whole(args: Mapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = function.parameters.model_validate(dict(args)).model_dump(mode="json")
        return found

    def run(env: Any, args: Mapping[str, Any]) -> str:
        found, _ = runtime.run_function(env, name, args, raise_on_error=True)
        return str(said(found))

    schema = function.parameters.model_json_schema()
    inlined = _inlined(schema, schema.pop("$defs", {}))
    return Tool(name, function.description, inlined, run, reads, whole)


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with its definitions in the places that refer to them: not every framework follows those."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    given = dict(schema)
    if "$ref" in given:
        given = definitions[given.pop("$ref").rpartition("/")[2]] | given
    return {key: _inlined(value, definitions) for key, value in given.items()}


def _task(suite: Any, task: Any) -> Task:
    first, tools = _begun(suite, task), _tools(suite)
    solution = task.ground_truth(first.model_copy(deep=True))
    calls = [Call(one.function, dict(one.args)) for one in solution]

    def solved(env: Any, answers: Sequence[str], ran: Sequence[Call]) -> bool:
        call = _agentdojo("functions_runtime").FunctionCall
        traces = [call(function=one.name, args=tools[one.name].whole(one.args)) for one in ran]
        answer = answers[-1] if answers else ""
        by_traces = task.utility_from_traces(answer, first, env, traces)
        return bool(task.utility(answer, first, env) if by_traces is None else by_traces)

    turn = Turn(task.PROMPT.strip(), calls, task.GROUND_TRUTH_OUTPUT or "Done.")
    name = f"{suite.name} {task.ID}"
    return Task("agentdojo", name, [turn], tools, functools.partial(_begun, suite, task), solved)


SOURCE = Source(
    name="agentdojo",
    title=f"AgentDojo {_VERSION}, user tasks",
    # All that is imported: its tools are in one package with clients of many language models.
    packages=[
        "agentdojo==0.1.35",
        "annotated-types==0.8.0",
        "anthropic==2.14.0",
        "anyio==4.16.0",
        "cachebox==5.2.3",
        "certifi==2026.10.19.post1",
        "charset-normalizer==3.5.3",
        "cohere==7.3.1",
        "deepdiff==9.1.0",
        "distro==1.9.0",
        "dnspython==2.9.2",
        "docstring-parser==0.18.0",
        "email-validator==2.4.0",
        "fastavro==1.13.1",
        "google-auth==2.63.0",
        "google-genai==3.6.1",
        "httpx2==2.16.2",
        "httpx==0.28.1",
        "idna==3.20",
        "jiter==0.19.0",
        "openai==3.57.0",
        "opentelemetry-api==1.45.2",
        "orderly-set==5.5.0",
        "pydantic-core==2.50.5",
        "pydantic==2.14.4",
        "pyyaml==6.0.4",
        "requests==2.34.2",
        "rich==15.0.0",
        "sniffio==1.3.1",
        "tenacity==9.1.4",
        "tokenizers==0.23.3",
        "typing-extensions==4.16.0",
        "typing-inspection==0.4.5",
        "urllib3==2.8.0",
        "websockets==17.4",
    ],
    licence="MIT",
    link="https://github.com/ethz-spylab/agentdojo",
    tasks=tasks,
)
