"""The tools of a run, which calls need approval, and the shell that is closed at its end."""

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from signoff import (
    Action,
    Approval,
    Check,
    Graph,
    Kind,
    LoopPolicy,
    ModelRetries,
    SetupError,
    Waiting,
    build_graph,
    standard_controls,
)
from signoff.front.choices import waits_for
from signoff.front.database import OpenStorage
from signoff.front.settings import Settings
from signoff.models import TaggedText
from signoff.models.choose import Chosen
from signoff.tools import Shell, ShellPool, ShellResult, terminal_tool, workspace_tools
from signoff.tools.approvals import DECISIONS, Rule
from signoff.tools.pty.shell import OnOutput

_KINDS = (Kind.READ, Kind.WRITE, Kind.TERMINAL)
_INDENT = 6
_NARROWEST, _WIDEST = 40, 120


@contextmanager
def working_tools(settings: Settings, on_output: OnOutput) -> Iterator[list[BaseTool]]:
    """Yields the tools of a run; ends what they started afterwards.

    on_output: called in another thread with the output of running commands. Raises SetupError when a tool is
    not available on this host.
    """
    found: list[BaseTool] = []
    with ExitStack() as stack:
        if "files" in settings.tools:
            found += workspace_tools(settings.workspace)
        if "shell" in settings.tools:
            environment = {"PATH": shell_path(os.environ, Path(sys.executable), Path(sys.argv[0]))}
            pool = ShellPool(start=partial(HeardShell, on_output, environment))
            stack.callback(pool.close)
            found.append(terminal_tool(settings.workspace, pool))
        if not {"python", "python-write"}.isdisjoint(settings.tools):
            # Not needed otherwise, and it starts a process to check that it works.
            from signoff.tools import choose_sandbox, python_tool

            sandbox = choose_sandbox(workspace=settings.workspace, writable=settings.python_writes)
            stack.callback(sandbox.close)
            found.append(python_tool(sandbox, settings.workspace))
        yield found


class HeardShell(Shell):
    """A shell that also passes the output of its commands to `on_output` while they run."""

    def __init__(self, heard: OnOutput, env: Mapping[str, str], cwd: str | os.PathLike[str]) -> None:
        # As wide as the displayed lines: otherwise tables and rules would be cut off.
        shown = shutil.get_terminal_size((_WIDEST + _INDENT, 24)).columns - _INDENT
        super().__init__(cwd, env=env, cols=max(_NARROWEST, min(_WIDEST, shown)))
        self._heard = heard

    def run(self, command: str, timeout: float = 60.0, on_output: OnOutput | None = None) -> ShellResult:
        def both(data: bytes) -> None:
            self._heard(data)
            if on_output:
                on_output(data)

        return super().run(command, timeout, both)


def shell_path(env: Mapping[str, str], python: Path, program: Path) -> str:
    """Returns the PATH for the shell, with the environment of `program` first if a person called it from
    there.

    So `python -m pytest` is the one that signoff was installed with. An active environment is already in
    PATH; an application installed on its own (pipx, uv) is not an environment to work in.
    """
    path = env.get("PATH", os.defpath)
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")
    called = program.name == "__main__.py" or program.absolute().parent == python.parent
    return path if active or not called else f"{python.parent}{os.pathsep}{path}"


def graph_of(
    settings: Settings,
    chosen: Chosen,
    tools: Sequence[BaseTool],
    storage: OpenStorage | None,
    policy: Mapping[str, bool | Sequence[str]],
    handed_over: Collection[str],
) -> Graph:
    """Returns the graph for a thread with these settings. handed_over: the tools that the program runs, each
    after the approval that the policy asks for."""
    tagged = settings.protocol == "tagged"
    prompts = (settings.system_prompt, "" if tagged else chosen.prompt)
    principles = {} if settings.constitution is None else {"constitution": settings.constitution}
    return build_graph(
        TaggedText(chosen.model, **principles) if tagged else chosen.model,
        tools,
        system_prompt="\n\n".join(part for part in prompts if part),
        limits=settings.limits,
        checkpointer=None if storage is None else storage.checkpointer,
        store=None if storage is None else storage.store,
        approvals={**policy, **_handed_over(handed_over, policy, tools)},
        control_tools=standard_controls(rounds=settings.rounds),
        checks=[Check(command, folder=settings.workspace) for command in settings.checks],
        policy=LoopPolicy(
            model_seconds=settings.model_seconds, model_retries=ModelRetries(tries=settings.model_tries)
        ),
    )


def _handed_over(
    names: Collection[str], policy: Mapping[str, bool | Sequence[str]], tools: Sequence[BaseTool]
) -> dict[str, Rule]:
    """The rules of tools that the program runs."""
    rules: dict[str, Rule] = {}
    for tool in tools:
        if tool.name in names:
            asks = policy.get(tool.name, policy.get((tool.metadata or {}).get("kind", Kind.WRITE), False))
            decisions = DECISIONS if asks is True else asks
            rules[tool.name] = (
                {"allowed_decisions": decisions, "hand_over": True} if decisions else "hand_over"
            )
    return rules


def policy_of(
    settings: Settings, tools: Sequence[BaseTool], waiting: Waiting | None
) -> dict[str, bool | Sequence[str]]:
    """Returns which calls a person must approve. Raises SetupError for a name that is neither a tool nor a
    kind.

    A call that waits for a decision needs it even if these settings do not mention it: otherwise a rejected
    call would run.
    """
    names = {tool.name for tool in tools}
    if settings.approve_by:
        for name in settings.approve:
            if name not in names and name not in _KINDS:
                raise SetupError(
                    f"{settings.approve_by} names {name!r}; use kinds ({', '.join(_KINDS)}) or tools of this "
                    f"run ({', '.join(sorted(names)) or 'there are none'})."
                )
    policy: dict[str, bool | Sequence[str]] = {
        name: True for name in settings.approve if name in names or name in _KINDS
    }
    if isinstance(waiting, Approval) and waits_for(waiting) == "approval":
        policy |= {
            call.name: call.allowed for call in waiting.calls if not _covered(call.name, policy, tools)
        }
    return policy


def _covered(name: str, policy: Mapping[str, Any], tools: Sequence[BaseTool]) -> bool:
    kind = next((tool.metadata or {}).get("kind") for tool in tools if tool.name == name)
    return name in policy or kind in policy


def for_waiting(tools: list[BaseTool], waiting: Waiting | None) -> tuple[list[BaseTool], list[str]]:
    """Returns the tools, and the names of those whose calls are handed over.

    Raises SetupError when a call that waits belongs to a missing tool.
    """
    names = {tool.name for tool in tools}
    handed_over = [waiting.tool] if isinstance(waiting, Action) else []
    asked = (
        [call.name for call in waiting.calls]
        if isinstance(waiting, Approval) and waits_for(waiting) == "approval"
        else handed_over
    )
    if missing := [name for name in asked if name not in names]:
        raise SetupError(
            f"{missing[0]} waits for {waits_for(waiting)} and is not among the tools of this run; name its "
            "group with --tools."
        )
    return tools, handed_over
