"""The control tools: what the model calls to end its work, to ask a person, or to note a thought.

A control tool is a LangChain tool plus the `Effect` it has on the machine. The machine looks up effects,
never names, so a tool of yours with an effect takes part like the built-in ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.graph.wording import FINISH_NAME
from signoff.tools.control_arguments import AskUser, FinishTask, RequestMoreTurns, Think, with_summary
from signoff.tools.kinds import Effect, Kind
from signoff.tools.output import explain


def should_continue(value: Any) -> Effect:
    """The effect of a finishing tool by what it returned: `{"shouldContinue": true}` (or `should_continue`)
    means that the task goes on, everything else that it has ended."""
    said = isinstance(value, Mapping) and (value.get("shouldContinue"), value.get("should_continue"))
    return Effect.CONTINUE if said and True in said else Effect.FINISH


@dataclass(frozen=True)
class ControlTool:
    """A LangChain tool and its effect on the machine.

    The tool itself runs only with `Effect.FINISH`: `review` runs it, at most once, when nothing is wrong with
    the claim and a person who must confirm it has done so. What it returns is the result of the call and of
    the task; when it raises, the claim is refused with the error.

    decide: the effect of what it returned (as a JSON value, else as text): FINISH accepts the claim, CONTINUE
        lets the task go on with the tool's answer, ASK asks a person to confirm. Default: `should_continue`.
    aliases: further names under which a call of it counts. The model is not told of them.
    runs: False for a tool that has nothing to run, only arguments to read.

    Raises SetupError for a `decide` on a tool that does not finish.
    """

    tool: BaseTool
    effect: Effect
    decide: Callable[[Any], Effect] = should_continue
    aliases: tuple[str, ...] = ()
    runs: bool = True

    def __post_init__(self) -> None:
        if self.decide is not should_continue and self.effect is not Effect.FINISH:
            raise SetupError(f"decide= of {self.tool.name!r} needs Effect.FINISH: only a finish is run.")

    @property
    def is_run(self) -> bool:
        """Whether `review` runs the tool before it accepts the claim."""
        return self.runs and self.effect is Effect.FINISH


def _never_run(**_: Any) -> str:
    raise SetupError("A control tool steers the machine; it is not run by itself.")


@lru_cache(maxsize=64)
def _described(name: str, description: str, schema: type[BaseModel]) -> StructuredTool:
    """The tool that the copies are made of. What a model is told of its arguments takes longer to derive than
    the rest of a graph to build; LangChain keeps it with the tool."""
    tool = StructuredTool(name=name, description=description, args_schema=schema, func=_never_run)
    _ = tool.tool_call_schema
    return tool


def argument_tool(
    name: str, description: str, schema: type[BaseModel], effect: Effect, aliases: Sequence[str] = ()
) -> ControlTool:
    """A control tool that is nothing but a name, its arguments and an effect."""
    tool = _described(name, description, schema).model_copy(update={"metadata": {"kind": Kind.CONTROL.value}})
    return ControlTool(tool, effect, aliases=tuple(aliases), runs=False)


def standard_controls(
    texts: Texts = DEFAULT_TEXTS, *, finish: str = FINISH_NAME, aliases: Sequence[str] = ()
) -> tuple[ControlTool, ...]:
    """`finish_task`, `ask_user` and `think`, described by `texts`.

    finish: another name for `finish_task`, which the model is told everywhere. `finish_task` stays an alias.
    aliases: further names under which a call of it counts.
    """
    known = (*aliases, FINISH_NAME) if finish != FINISH_NAME else aliases
    return (
        argument_tool(finish, texts.naming(finish).finish_task.format(), FinishTask, Effect.FINISH, known),
        argument_tool("ask_user", texts.ask_user.format(), AskUser, Effect.ASK),
        argument_tool("think", texts.think.format(), Think, Effect.CONTINUE),
    )


def more_turns_control(texts: Texts = DEFAULT_TEXTS) -> ControlTool:
    """`request_more_turns`, described by `texts`."""
    return argument_tool(
        "request_more_turns", texts.request_more_turns.format(), RequestMoreTurns, Effect.MORE_TURNS
    )


class ControlRegistry(Mapping[str, ControlTool]):
    """The control tools of a graph by name; `aliases` are further names, each with the name that it stands
    for. Raises SetupError when a name comes twice, and when no tool can finish a task."""

    def __init__(self, controls: Sequence[ControlTool]) -> None:
        self._by_name = {control.tool.name: control for control in controls}
        others = [(alias, control.tool.name) for control in controls for alias in control.aliases]
        self.aliases: Mapping[str, str] = dict(others)
        if len({*self._by_name, *self.aliases}) < len(controls) + len(others):
            raise SetupError("Two control tools have the same name; rename one of them.")
        if not any(control.effect is Effect.FINISH for control in controls):
            raise SetupError("No control tool can finish a task; add one with Effect.FINISH.")

    def __getitem__(self, name: str) -> ControlTool:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def finish(self) -> str:
        """The name of the first tool that can finish a task."""
        return next(name for name, control in self.items() if control.effect is Effect.FINISH)

    def effect(self, name: str) -> Effect | None:
        """The effect of a call to `name`; None for a work call."""
        control = self._by_name.get(name)
        return control.effect if control else None

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None:
        """Why `args` do not fit the control tool `name`, in one sentence; None when they do."""
        try:
            if schema := self._schema(name):
                schema.model_validate(args)
        except ValidationError as error:
            return explain(error)
        return None

    def read(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """`args`, which fit, as the schema of the control tool `name` reads them."""
        schema = self._schema(name)
        return schema.model_validate(args).model_dump(mode="json") if schema else dict(args)

    def salvage(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """What of `args` fits, each argument for itself, and an empty summary where there is none."""
        schema = self._schema(name)
        try:
            return self.read(name, args)
        except ValidationError as error:
            bad = {found["loc"][0] for found in error.errors() if found["loc"]}
            fields = schema.model_fields if schema else {}
            given = with_summary(args) if "summary" in fields else args
            empty = {"summary": ""} if "summary" in fields else {}
            return empty | {key: value for key, value in given.items() if key in fields and key not in bad}

    def _schema(self, name: str) -> type[BaseModel] | None:
        schema = self._by_name[name].tool.args_schema
        return schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None


def needs_confirmation(claim: Mapping[str, Any]) -> bool:
    """Whether a finish with these arguments waits for a person: the model asks for one, or claims "done"
    although problems stay open. An honest "partial", "blocked" or "impossible" needs nobody."""
    if claim.get("requires_user_confirmation"):
        return True
    return claim.get("outcome", "done") == "done" and bool(claim.get("pending_issues"))
