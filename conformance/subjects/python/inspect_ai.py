"""inspect-ai: its `react` agent as a task of one sample, with checkpoints and `eval_retry`."""

import asyncio
import functools
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from anyio import to_thread
from inspect_ai import Task, eval_async, eval_retry_async, task
from inspect_ai._util.asyncfiles import AsyncFilesystem
from inspect_ai.agent import AgentAttempts, AgentPrompt, AgentState, AgentSubmit, as_tool, react
from inspect_ai.approval import Approval, ApprovalPolicy, Approver, approver, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalLogInfo, list_eval_logs, read_eval_log, read_eval_log_async
from inspect_ai.model import ChatMessage, ChatMessageUser, GenerateConfig, get_model
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool, ToolCall, ToolDef, ToolError, tool
from inspect_ai.util import CheckpointConfig, TurnInterval, turn_limit
from kit import Kit
from parked import Parked
from platformdirs import user_cache_path
from wire import Adapter, Refused, Report, Setup

os.environ["INSPECT_DISPLAY"] = "none"
os.environ["OPENAI_API_KEY"] = "none"

CHECKPOINTS = any(user_cache_path("inspect_ai").glob("bin/restic_*"))
"""Whether it has the program that keeps its checkpoints; it fetches it from GitHub at the first need."""

ATTEMPTS = 3
"""Submissions where there is a check. The framework wants a number; its default, 1, sends nobody back."""


@tool
def submit_city() -> Tool:
    async def execute(city: str, population: int) -> str:
        """Submit a city.

        Args:
            city: Its name.
            population: How many live there.
        """
        return json.dumps({"city": city, "population": population})

    return execute


@tool
def ask_user(parked: Parked) -> Tool:
    async def execute(question: str) -> str:
        """Ask the user something.

        Args:
            question: What to ask.
        """
        return str(await to_thread.run_sync(parked.ask, Report("question", question)))

    return execute


@approver
def person(parked: Parked) -> Approver:
    """A person decides, elsewhere than at this process's terminal."""

    async def approve(message: str, call: ToolCall, *_: Any) -> Approval:
        waiting = Report("approval", pending=[{"name": call.function, "args": call.arguments}])
        return _approval(call, await to_thread.run_sync(parked.ask, waiting))

    return approve


@scorer(metrics=[accuracy()])
def checked(check: Callable[[], str | None]) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        problem = check()
        return Score(value=CORRECT if problem is None else INCORRECT, explanation=problem)

    return score


class InspectAI(Adapter):
    framework = "inspect-ai"
    packages = ("inspect-ai", "openai")
    finish: ClassVar = {
        "any": {"name": "submit", "args": {"answer": "$text"}},
        "structured": {"name": "submit", "args": "$value"},
    }
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"input": "$text"}}
    lacks: ClassVar = {
        "recursion": "an agent as a tool is complete when the tool is made; `deepagent` has a depth of 1",
        "call_limit": "messages, turns, tokens, time and cost are limited; calls of tools are not",
        "approval_ids": "calls are put to an approver one at a time, and it answers that one",
        "compaction": "`react` compacts or truncates where it is told to; by default it does neither",
        "durable_wait": "an approval is waited for inside the process that runs the sample",
        "one_runner": "who retries a log is to see to it that nobody else does",
        "deadline": "a question waits without a deadline",
    }
    if not CHECKPOINTS:
        lacks["crash"] = "not possible here: its checkpoints need restic, which it could not fetch"

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        os.environ["XDG_DATA_HOME"] = str(setup.folder)
        self._logs = str(setup.folder / "logs")
        self._parked = Parked()
        self._stop: Callable[[], None] = lambda: None
        self._task = task(self._work, name="work")

    def _work(self, text: str, after: str | None = None) -> Task:
        setup = self.setup
        earlier = [] if after is None else _messages(read_eval_log(after))
        approvals = [
            ApprovalPolicy(person(self._parked), list(setup.approve)),
            ApprovalPolicy(auto_approver(), "*"),
        ]
        asks = [ask_user(self._parked)] if setup.asks else []
        submit = (
            AgentSubmit("submit", tool=submit_city(), answer_only=True)
            if setup.finish == "structured"
            else None
        )
        return Task(
            [Sample([*earlier, ChatMessageUser(content=text)])],
            solver=react(
                prompt=AgentPrompt(instructions=setup.system or None),
                tools=[self._helper(name) for name in setup.helpers] or [*self._tools(), *asks],
                attempts=AgentAttempts(ATTEMPTS, _why) if setup.gate else 1,
                submit=submit,
            ),
            scorer=checked(self.kit.gate) if setup.gate else None,
            approval=approvals if setup.approve else None,
            turn_limit=setup.tree_turns or setup.turns,
        )

    def _tools(self) -> list[ToolDef]:
        return [_tool(function) for function in self.kit.functions()]

    def _helper(self, name: str) -> Tool:
        turns = self.setup.helper_turns
        agent = react(name=name, description="Does a task.", tools=self._tools())
        return as_tool(agent, limits=[] if turns is None else [turn_limit(turns)])

    def say(self, text: str) -> Report:
        after = self._latest()
        model = get_model(
            "openai/scripted",
            base_url=self.setup.url,
            config=GenerateConfig(fail_on_refusal=True),
            memoize=False,
            responses_api=False,
        )
        return self._run(
            lambda options: eval_async(self._task(text, after and after.name), model=model, **options)
        )

    def resume(self) -> Report:
        log = self._latest()
        if log is None or read_eval_log(log, header_only=True).status == "success":
            raise Refused("no log is unfinished")
        return self._run(lambda options: eval_retry_async(log, **options))

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        return self._parked.answer(decisions[0])

    def answer(self, text: str) -> Report:
        return self._parked.answer(text)

    def stop(self) -> None:
        self._stop()

    def close(self) -> None:
        self._parked.close()

    def _latest(self) -> EvalLogInfo | None:
        return next(iter(list_eval_logs(self._logs)), None)

    def _run(self, work: Callable[[dict[str, Any]], Awaitable[list[EvalLog]]]) -> Report:
        return self._parked.run(lambda: asyncio.run(self._wait(work)))

    async def _wait(self, work: Callable[[dict[str, Any]], Awaitable[list[EvalLog]]]) -> Report:
        running, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert running is not None
        self._stop = lambda: loop.call_soon_threadsafe(running.cancel) and None
        checkpoint = CheckpointConfig(trigger=TurnInterval(every=1)) if CHECKPOINTS else None
        async with AsyncFilesystem():  # `eval` has it by itself, `eval_async` only by this
            logs = await work({"log_dir": self._logs, "checkpoint": checkpoint, "ctl_server": False})
            latest = self._latest()
            log = logs[0] if logs or latest is None else await read_eval_log_async(latest)
        return self._told(log)

    def _told(self, log: EvalLog) -> Report:
        if log.status != "success" or not log.samples:
            words = log.error.message if log.error else log.status
            return Report("stopped" if log.status == "cancelled" else "error", words)
        sample = log.samples[0]
        if sample.limit:
            return Report("limit", f"{sample.limit.type} limit of {sample.limit.limit:g}")
        refused = [score for score in (sample.scores or {}).values() if score.value != CORRECT]
        if refused:
            return Report("error", f"its score is {refused[0].value}: {refused[0].explanation}")
        answer = sample.output.completion
        return Report("success", answer, json.loads(answer) if self.setup.finish == "structured" else answer)


def _tool(function: Callable[..., str]) -> ToolDef:
    """A function of the kit as a tool of the framework: async, with its failures for the model."""

    @functools.wraps(function)
    async def execute(**args: Any) -> str:
        try:
            return await to_thread.run_sync(functools.partial(function, **args))
        except OSError as error:
            raise ToolError(str(error)) from error

    return ToolDef(execute, name=function.__name__)


def _approval(call: ToolCall, decision: Mapping[str, Any]) -> Approval:
    match decision["type"]:
        case "edit":
            return Approval(decision="modify", modified=replace(call, arguments=dict(decision["args"])))
        case "reject":
            return Approval(decision="reject", explanation=decision["message"])
    return Approval(decision="approve")


async def _why(state: AgentState, scores: list[Score]) -> str:
    return scores[0].explanation or "Your submission was incorrect."


def _messages(log: EvalLog) -> list[ChatMessage]:
    """The conversation so far; the agent puts its own system message before it."""
    found = log.samples[0].messages if log.samples else []
    return [message for message in found if message.role != "system"]
