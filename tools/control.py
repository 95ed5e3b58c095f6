"""The control tools, which the model calls to end its work, to ask a person, or to record a thought.

A control tool is a LangChain tool plus its `Effect` on the machine. The machine looks up effects, never
names, so your own tool with an effect works like the built-in ones. This module also defines their arguments,
tolerates what small models write there, and extends the arguments of `finish_task`: a validated `result`, and
an `answer`.
"""

import json
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.json_schema import dereference_refs
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError
from typing_extensions import is_typeddict

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain, schema_check
from signoff.graph.history.task import is_phase
from signoff.graph.kinds import Effect, Kind
from signoff.graph.outcome import read_result
from signoff.graph.texts import DEFAULT_TEXTS, FINISH_NAME, Texts
from signoff.tools.answers import seconds_of, text_of

__all__ = [
    "AskUser",
    "ControlTool",
    "FinishTask",
    "ResponseFormat",
    "Think",
    "should_continue",
    "standard_controls",
]


def _as_list(value: Any) -> Any:
    """Small models pass one string, or null, instead of a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


def _problems(value: Any) -> Any:
    """They also write a word for "nothing" into a list that should stay empty."""
    found = _as_list(value)
    if not isinstance(found, list):
        return found
    return [one for one in found if not _says_nothing(one)]


def _phase(value: Any) -> Any:
    """Or as the next phase, although there is none."""
    ended = isinstance(value, str) and value.strip(" .!").lower() in _ENDED
    return None if ended or _says_nothing(value) else value


def _says_nothing(value: Any) -> bool:
    return isinstance(value, str) and value.strip(" .").lower() in _NOTHING


_NOTHING = {"", "-", "none", "null", "nil", "n/a", "no", "nothing", "no issues", "no pending issues"}
# The last two are the argument's own name, which the embedded model passes as its value.
_ENDED = {
    "done",
    "all done",
    "complete",
    "completed",
    "finished",
    "end",
    "no next phase",
    "next_phase",
    "next phase",
}
TextList = Annotated[list[str], BeforeValidator(_as_list)]
Problems = Annotated[list[str], BeforeValidator(_problems)]
NextPhase = Annotated[str | SkipJsonSchema[None], BeforeValidator(_phase)]

# An invalid deadline counts as none: the question matters more. Without null, the schema is half as long;
# small models read it with every call.
DefaultAnswer = Annotated[str | SkipJsonSchema[None], BeforeValidator(text_of)]
Deadline = Annotated[float | SkipJsonSchema[None], BeforeValidator(seconds_of)]


def with_summary(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a finish, with `reason`, the name in other loops, in place of a missing summary."""
    said, reason = args.get("summary"), args.get("reason")
    missing = said is None or (isinstance(said, str) and not said.strip())
    return {**args, "summary": reason} if missing and isinstance(reason, str) else args


class FinishTask(BaseModel):
    """Arguments of `finish_task`. `reason` is read as the summary, where that is missing."""

    model_config = ConfigDict(extra="ignore")

    summary: str
    outcome: Literal["done", "partial", "blocked", "impossible"] = "done"
    completion_percentage: int = Field(default=100, ge=0, le=100, description="Below 100 the task goes on.")
    next_phase: NextPhase = Field(default=None, description="If work is left: it goes on.")
    pending_issues: Problems = Field(default_factory=list, description="Problems that stay open.")
    requires_user_confirmation: bool = False

    @model_validator(mode="before")
    @classmethod
    def _reason_is_the_summary(cls, values: Any) -> Any:
        return with_summary(values) if isinstance(values, Mapping) else values


class AskUser(BaseModel):
    """Arguments of `ask_user`."""

    model_config = ConfigDict(extra="ignore")

    question: str = Field(min_length=1, description="Complete and short.")
    options: TextList = Field(default_factory=list, description="Answers to choose from.")
    default_answer: DefaultAnswer = Field(default=None, description="Taken if nobody answers.")
    deadline_seconds: Deadline = Field(default=None, description="With default_answer only.")


class _AskAtOnce(AskUser):
    """A question without a deadline in its schema; one that the model passes anyway is accepted."""

    default_answer: SkipJsonSchema[DefaultAnswer] = None
    deadline_seconds: SkipJsonSchema[Deadline] = None


class Think(BaseModel):
    """Arguments of `think`."""

    model_config = ConfigDict(extra="ignore")

    thought: str
    approach: str | SkipJsonSchema[None] = Field(default=None, description="The approach you follow now.")
    status: str | SkipJsonSchema[None] = Field(default=None, description="The status of the work.")


class _ThinkOnly(Think):
    """A thought with only its text in the schema; other fields that the model passes are accepted."""

    approach: SkipJsonSchema[str | None] = None
    status: SkipJsonSchema[str | None] = None


def should_continue(value: Any) -> Effect:
    """The effect of a finishing tool by its return value: `{"shouldContinue": true}` (or `should_continue`)
    means that the task continues, everything else that it has ended."""
    said = isinstance(value, Mapping) and (value.get("shouldContinue"), value.get("should_continue"))
    return Effect.CONTINUE if said and True in said else Effect.FINISH


@dataclass(frozen=True)
class ControlTool:
    """A LangChain tool and its effect on the machine.

    The tool itself runs only with `Effect.FINISH`: `review` runs it, at most once, after the claim has passed
    all other criteria and any required confirmation. Its return value is the result of the call and of the
    task; if it raises, the claim is refused with the error.

    decide: maps its return value (as JSON, else as text) to an effect: FINISH accepts the claim, CONTINUE
    continues the task with the tool's answer, ASK asks a person to confirm. Default: `should_continue`.
    aliases: further names that count as calls of this tool. They are not shown to the model.
    runs: False for a tool without code to run, which has only arguments.

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
    """The cached tool of which copies are made: deriving the schema for the model takes longer than building
    the rest of a graph; LangChain caches it with the tool."""
    tool = StructuredTool(name=name, description=description, args_schema=schema, func=_never_run)
    _ = tool.tool_call_schema
    return tool


def argument_tool(
    name: str, description: str, schema: type[BaseModel], effect: Effect, aliases: Sequence[str] = ()
) -> ControlTool:
    """A control tool that consists only of a name, its arguments and an effect."""
    tool = _described(name, description, schema).model_copy(update={"metadata": {"kind": Kind.CONTROL.value}})
    return ControlTool(tool, effect, aliases=tuple(aliases), runs=False)


def standard_controls(
    texts: Texts = DEFAULT_TEXTS,
    *,
    finish: str = FINISH_NAME,
    aliases: Sequence[str] = (),
    deadlines: bool = True,
    progress: bool = False,
) -> tuple[ControlTool, ...]:
    """`finish_task`, `ask_user` and `think`, described by `texts`.

    finish: another name for `finish_task`, used in all texts for the model. `finish_task` stays an alias.
    aliases: further names that count as calls of it. deadlines: the schema offers a deadline and a default
    answer for questions. progress: the schema offers approach and status for thoughts. What is not offered
    costs no tokens, and is accepted all the same.
    """
    known = (*aliases, FINISH_NAME) if finish != FINISH_NAME else aliases
    return (
        argument_tool(finish, texts.naming(finish).finish_task.format(), FinishTask, Effect.FINISH, known),
        argument_tool("ask_user", texts.ask_user.format(), AskUser if deadlines else _AskAtOnce, Effect.ASK),
        argument_tool("think", texts.think.format(), Think if progress else _ThinkOnly, Effect.CONTINUE),
    )


class ControlRegistry(Mapping[str, ControlTool]):
    """The control tools of a graph by name; `aliases` maps further names to these. Raises SetupError for a
    duplicate name, and if no tool can finish a task."""

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

    def __contains__(self, name: object) -> bool:
        # Not that of `Mapping`, which raises an error, and catches it, for each name that is not here.
        return name in self._by_name

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
        """Why `args` are invalid for the control tool `name`, in one sentence; None if they are valid."""
        try:
            if schema := self._schema(name):
                schema.model_validate(args)
        except ValidationError as error:
            return explain(error)
        return None

    def read(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Valid `args`, as parsed by the schema of the control tool `name`."""
        schema = self._schema(name)
        return schema.model_validate(args).model_dump(mode="json") if schema else dict(args)

    def salvage(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in `args` that are valid, checked one by one, and an empty summary if there is
        none."""
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
        control = self._by_name[name]
        if control.is_run:
            return schema_of(control.tool)
        schema = control.tool.args_schema
        return schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None


def schema_of(found: BaseTool) -> type[BaseModel] | None:
    """The schema for the model's arguments, without those that LangChain injects."""
    try:
        whole, offered = found.args_schema, found.tool_call_schema
    except Exception:  # noqa: BLE001  a tool of the user's own making may raise anything
        return None
    if not (isinstance(whole, type) and issubclass(whole, BaseModel)):
        return None
    if not (isinstance(offered, type) and issubclass(offered, BaseModel)):
        return None
    # The reduced schema has lost the validators of the full one; those then run when the tool is called.
    return whole if set(offered.model_fields) == set(whole.model_fields) else offered


def needs_confirmation(claim: Mapping[str, Any]) -> bool:
    """Whether a finish with these arguments needs a person: the model requests it, or claims "done" although
    problems stay open. An honest "partial", "blocked" or "impossible" needs nobody."""
    if claim.get("requires_user_confirmation"):
        return True
    return claim.get("outcome", "done") == "done" and bool(claim.get("pending_issues"))


ResponseFormat = type[Any] | Mapping[str, Any]
"""A pydantic model, a dataclass, a TypedDict, or a JSON schema."""

_EMPTY: tuple[Any, ...] = ("", {}, [])


class _WithAnswer(FinishTask):
    answer: str = Field(description="The answer to the user, complete: they read nothing else of this.")

    @model_validator(mode="before")
    @classmethod
    def _a_phase_has_none(cls, values: Any) -> Any:
        return {"answer": "", **values} if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _is_said(self) -> "_WithAnswer":
        if not self.answer.strip() and not is_phase(dict(self)):
            raise PydanticCustomError("answer", "the answer is empty")
        return self


class _WithResult(FinishTask):
    """Any finish whose last field, made for one graph, is `result`."""

    @model_validator(mode="before")
    @classmethod
    def _may_be_left_out(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        given = {"result": None, **values}
        honest = given.get("outcome") in ("blocked", "impossible")
        return {**given, "result": None} if honest and given["result"] in _EMPTY else given

    @model_validator(mode="after")
    def _is_there(self) -> "_WithResult":
        owed = self.outcome in ("done", "partial") and not is_phase(dict(self))
        if owed and getattr(self, "result", None) is None:
            raise PydanticCustomError("result", "a result is required with outcome 'done' or 'partial'")
        return self


def finishing(
    controls: Sequence[ControlTool],
    response_format: ResponseFormat | None = None,
    *,
    answer: bool = False,
) -> tuple[ControlTool, ...]:
    """The control tools, with what a graph adds to `finish_task`.

    response_format: the type of the argument `result`, which becomes required and is validated, except for a
        claim of "blocked" or "impossible", or of a phase. answer: adds `answer`, which is required.

    Raises SetupError if there is no `finish_task` to extend, or for an invalid format.
    """
    if response_format is None and not answer:
        return tuple(controls)
    made = [_added(found, response_format, answer) if _is_ours(found) else found for found in controls]
    if not any(map(_is_ours, controls)):
        raise SetupError(
            'response_format= and answer="argument" are for finish_task, and control_tools= has no such '
            "tool: add the one of signoff.standard_controls()."
        )
    return tuple(made)


def _is_ours(control: ControlTool) -> bool:
    schema = control.tool.args_schema
    finishes = control.effect is Effect.FINISH and not control.runs
    return finishes and isinstance(schema, type) and issubclass(schema, FinishTask)


def _added(control: ControlTool, response_format: ResponseFormat | None, answer: bool) -> ControlTool:
    schema = control.tool.args_schema
    assert isinstance(schema, type), "so it is ours"
    assert issubclass(schema, FinishTask), "as above"
    bases: list[type[FinishTask]] = [_WithAnswer, schema] if answer else [schema]
    fields: dict[str, Any] = {}
    if response_format is not None:
        bases.insert(0, _WithResult)
        fields["result"] = (_shape(response_format), Field(description="The result of the task."))
    kept = tuple(base for base in bases if not any(base in other.__mro__[1:] for other in bases))
    made = create_model("FinishTask", __base__=kept, **fields)
    return argument_tool(
        control.tool.name, control.tool.description, made, control.effect, aliases=control.aliases
    )


def result_shape(given: ResponseFormat | None) -> TypeAdapter[Any] | None:
    """The adapter that turns a stored result into an instance; None for a JSON schema, whose results are JSON
    values.

    Raises SetupError for anything that is not a format.
    """
    if given is None or isinstance(given, Mapping):
        return None
    if not (isinstance(given, type) or is_typeddict(given)) or given in (str, int, float, bool):
        raise SetupError(
            f"response_format is {reprlib.repr(given)}; pass a pydantic model, a dataclass, a TypedDict or a "
            "JSON schema."
        )
    try:
        adapter = TypeAdapter[Any](given)
        adapter.json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise SetupError(f"response_format={given.__name__} has no JSON schema: {error}") from error
    return adapter


def result_check(given: ResponseFormat | None) -> Callable[[Any], str] | None:
    """A function that returns why a stored result is none of this format; "" if it is one, which can be read
    back as an instance. None without a format. Raises SetupError for anything that is not a format."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return schema_check(given, "response_format")
    shape = result_shape(given)
    assert shape is not None, "only a JSON schema has none"

    def check(value: Any) -> str:
        try:
            read_result(shape, value)
        except ValidationError as error:
            return explain(error)
        return ""

    return check


def _shape(given: ResponseFormat) -> Any:
    """The type of `result`: validated as `given`, stored as its JSON value, or None."""
    if isinstance(given, Mapping):
        return Annotated[Any, AfterValidator(_fits(given)), WithJsonSchema(_inlined(given))]
    adapter = result_shape(given)
    assert adapter is not None, "only a JSON schema has none"
    return Annotated[given, WrapValidator(_read), PlainSerializer(_dumping(adapter))]


def _read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value is None:
        return None
    try:
        return handler(value)
    except ValidationError:
        if not isinstance(value, str):
            raise
        # Small models pass the object as a string.
        return handler(_parsed(value))


def _dumping(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    def dump(value: Any) -> Any:
        return None if value is None else adapter.dump_python(value, mode="json")

    return dump


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with references inlined, since inside the arguments they would not resolve."""
    try:
        found = dereference_refs(dict(schema))
    except (KeyError, ValueError, TypeError) as error:
        raise SetupError(f"response_format has a reference that cannot be resolved: {error}.") from error
    return {key: part for key, part in found.items() if key not in ("$defs", "definitions", "$schema", "$id")}


def _fits(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A validator for values of this JSON schema. Raises SetupError for anything that is not a JSON
    schema."""
    check = schema_check(schema, "response_format")

    def fits(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str) and check(value):
            value = _parsed(value)
        if text := check(value):
            raise PydanticCustomError("result", "{text}", {"text": text})
        return value

    return fits
