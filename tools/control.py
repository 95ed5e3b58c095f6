"""The control tools: what the model calls to end its work, to ask a person, or to note a thought.

A control tool is a LangChain tool plus the `Effect` it has on the machine. The machine looks up effects,
never names, so a tool of yours with an effect takes part like the built-in ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.tools.kinds import Kind


class Effect(StrEnum):
    """What a control call does: claim that the task has ended, wait for a person, or nothing but note."""

    FINISH = "finish"
    ASK = "ask"
    CONTINUE = "continue"


@dataclass(frozen=True)
class ControlTool:
    """A LangChain tool and its effect on the machine. The tool itself is never run by `execute`."""

    tool: BaseTool
    effect: Effect


def _as_list(value: Any) -> Any:
    """Small models give one string, or null, where a list is meant."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


TextList = Annotated[list[str], BeforeValidator(_as_list)]


class FinishTask(BaseModel):
    """Arguments of `finish_task`."""

    model_config = ConfigDict(extra="ignore")

    summary: str = Field(description="What was done, files touched, key results, cautions.")
    outcome: Literal["done", "partial", "blocked", "impossible"] = Field(
        default="done", description="done: everything; otherwise say honestly how it ended."
    )
    completion_percentage: int = Field(default=100, ge=0, le=100, description="How much is done, 0 to 100.")
    next_phase: str | None = Field(default=None, description="The next phase, if work is left.")
    pending_issues: TextList = Field(default_factory=list, description="Problems that stay open.")
    requires_user_confirmation: bool = Field(default=False, description="True if a person must confirm.")


class AskUser(BaseModel):
    """Arguments of `ask_user`."""

    model_config = ConfigDict(extra="ignore")

    question: str = Field(min_length=1, description="The question, complete and short.")
    options: TextList = Field(default_factory=list, description="Answers to choose from, if there are some.")


class Think(BaseModel):
    """Arguments of `think`."""

    model_config = ConfigDict(extra="ignore")

    thought: str = Field(description="The thought, the plan or the progress.")
    approach: str | None = Field(default=None, description="The approach you follow now.")
    status: str | None = Field(default=None, description="The status of the work.")


def _never_run(**_: Any) -> str:
    raise SetupError("A control tool steers the machine; it is not run by itself.")


def _control(name: str, description: str, schema: type[BaseModel], effect: Effect) -> ControlTool:
    tool = StructuredTool(
        name=name,
        description=description,
        args_schema=schema,
        func=_never_run,
        metadata={"kind": Kind.CONTROL.value},
    )
    return ControlTool(tool, effect)


def standard_controls(texts: Texts = DEFAULT_TEXTS) -> tuple[ControlTool, ...]:
    """`finish_task`, `ask_user` and `think`, described by `texts`."""
    return (
        _control("finish_task", texts.finish_task, FinishTask, Effect.FINISH),
        _control("ask_user", texts.ask_user, AskUser, Effect.ASK),
        _control("think", texts.think, Think, Effect.CONTINUE),
    )


class ControlRegistry(Mapping[str, ControlTool]):
    """The control tools of a graph by name. Raises SetupError when a name comes twice."""

    def __init__(self, controls: Sequence[ControlTool]) -> None:
        self._by_name = {control.tool.name: control for control in controls}
        if len(self._by_name) < len(controls):
            raise SetupError("Two control tools have the same name; rename one of them.")
        if not any(control.effect is Effect.FINISH for control in controls):
            raise SetupError("No control tool can finish a task; add one with Effect.FINISH.")

    def __getitem__(self, name: str) -> ControlTool:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def effect(self, name: str) -> Effect | None:
        """The effect of a call to `name`; None for a work call."""
        control = self._by_name.get(name)
        return control.effect if control else None

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None:
        """Why `args` do not fit the control tool `name`, in one sentence; None when they do."""
        schema = self._by_name[name].tool.args_schema
        if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            return None
        try:
            schema.model_validate(args)
        except ValidationError as error:
            return explain(error)
        return None


def explain(error: ValidationError) -> str:
    """A pydantic error as one sentence for the model: which argument, what is wrong."""
    parts = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()]
    return "; ".join(parts) + "."
