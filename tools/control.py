"""The control tools, which the model calls to end its work, to ask a person, or to record a thought.

A control tool is a LangChain tool plus its effect on the machine. The machine looks up effects, never names,
so your own tool with an effect works like the built-in ones. This module also defines their arguments,
tolerates what small models write there, and extends the arguments of `finish_task`: a validated `result`, and
an `answer`. What `standard_controls()` gives is completed by the graph: with its texts, with deadlines if it
can wait, and with its `response_format`.
"""

import json
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, get_args

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

from signoff.graph.arguments import describe, flag, listed, one_of
from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain, schema_check
from signoff.graph.history.task import is_phase
from signoff.graph.kinds import EFFECTS, Effect, Kind
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

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

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

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

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

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

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
    return "continue" if said and True in said else "finish"


@dataclass(frozen=True)
class ControlTool:
    """A LangChain tool and its effect on the machine: "finish" claims that the task is finished, "ask" waits
    for a person, "continue" records a thought.

    The tool itself runs only with "finish": `review` runs it, at most once, after the claim has passed all
    other criteria and any required confirmation. Its return value is the result of the call and of the task;
    if it raises, the claim is refused with the error.

    decide: maps its return value (as JSON, else as text) to an effect: "finish" accepts the claim, "continue"
    continues the task with the tool's answer, "ask" asks a person to confirm. Default: `should_continue`.
    aliases: further names that count as calls of this tool. They are not shown to the model.
    runs: False for a tool without code to run, which has only arguments.

    Raises SetupError for anything that is not a tool or not an effect, and for a `decide` on a tool that does
    not finish.
    """

    tool: BaseTool
    effect: Effect
    decide: Callable[[Any], Effect] = should_continue
    aliases: tuple[str, ...] = ()
    runs: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.tool, BaseTool):
            raise SetupError(
                f"tool of a ControlTool is {describe(self.tool)}; pass a LangChain tool, as @tool makes it "
                "of a function."
            )
        one_of(f"effect of the control tool {self.tool.name!r}", self.effect, EFFECTS)
        object.__setattr__(self, "aliases", tuple(listed("aliases", self.aliases, '["done"]')))
        if self.decide is not should_continue and self.effect != "finish":
            raise SetupError(
                f'decide= of {self.tool.name!r} needs the effect "finish": only a finish is run.'
            )

    @property
    def is_run(self) -> bool:
        """Whether `review` runs the tool before it accepts the claim."""
        return self.runs and self.effect == "finish"

    def described(self, texts: Texts, *, deadlines: bool) -> "ControlTool":
        """The tool as a graph with these texts shows it to the model. deadlines: whether it can wait for a
        person. A tool of the user's own stays as it is."""
        return self


def _never_run(**_: Any) -> str:
    raise SetupError("A control tool steers the machine; it is not run by itself.")


@lru_cache(maxsize=64)
def _described(name: str, description: str, schema: type[BaseModel]) -> StructuredTool:
    """The cached tool of which copies are made: deriving the schema for the model takes longer than building
    the rest of a graph; LangChain caches it with the tool."""
    tool = StructuredTool(name=name, description=description, args_schema=schema, func=_never_run)
    _ = tool.tool_call_schema
    return tool


def _argument_tool(name: str, description: str, schema: type[BaseModel]) -> BaseTool:
    """A tool that consists only of a name and its arguments."""
    return _described(name, description, schema).model_copy(update={"metadata": {"kind": Kind.CONTROL.value}})


ResponseFormat = type[Any] | Mapping[str, Any]
"""A pydantic model, a dataclass, a TypedDict, or a JSON schema."""

AnswerSource = Literal["summary", "argument", "none"]


@dataclass(frozen=True)
class _StandardControl(ControlTool):
    """A tool of `standard_controls`, which shows the default texts until a graph completes it."""

    runs: bool = False

    def described(self, texts: Texts, *, deadlines: bool) -> ControlTool:
        if self.tool.description != self._description(DEFAULT_TEXTS):
            # The user has written another one.
            return self
        return replace(
            self, tool=_argument_tool(self.tool.name, self._description(texts), self._schema(deadlines))
        )

    def _description(self, texts: Texts) -> str:
        raise NotImplementedError

    def _schema(self, deadlines: bool) -> type[BaseModel]:
        raise NotImplementedError


@dataclass(frozen=True)
class _Finish(_StandardControl):
    answer: AnswerSource = "summary"

    def _description(self, texts: Texts) -> str:
        return texts.naming(self.tool.name).finish_task.format()

    def _schema(self, deadlines: bool) -> type[BaseModel]:
        return FinishTask


@dataclass(frozen=True)
class _Ask(_StandardControl):
    deadlines: bool | None = None

    def _description(self, texts: Texts) -> str:
        return texts.ask_user.format()

    def _schema(self, deadlines: bool) -> type[BaseModel]:
        offers = deadlines if self.deadlines is None else self.deadlines
        return AskUser if offers else _AskAtOnce


@dataclass(frozen=True)
class _Think(_StandardControl):
    rounds: bool = False
    progress: bool = False

    def _description(self, texts: Texts) -> str:
        return texts.think.format()

    def _schema(self, deadlines: bool) -> type[BaseModel]:
        return Think if self.progress else _ThinkOnly


def standard_controls(
    *,
    rounds: bool = False,
    answer: AnswerSource = "summary",
    finish: str = FINISH_NAME,
    aliases: Sequence[str] = (),
    deadlines: bool | None = None,
    progress: bool = False,
) -> tuple[ControlTool, ...]:
    """`finish_task`, `ask_user` and `think`, which the graph completes: with its texts, and with the result
    that its `response_format` asks for.

    rounds: plan, execute, think. A reply may hold a batch of up to eight calls; after each batch the model is
    asked to think about the results, or to finish, before the next one. Each batch costs one extra turn.
    answer: the content of the final message, an `AIMessage` for the caller: `result["messages"][-1]`. It is
    not a turn, and the model never sees it. "summary": the summary of the finish; after a limit, an error or
    a claim other than "done", it starts by saying that the work is not finished, and why. "argument": the
    finish gets an argument `answer` for it. "none": no such message.
    finish: another name for `finish_task`, used in all texts for the model. `finish_task` stays an alias.
    aliases: further names that count as calls of it. deadlines: whether the schema offers a deadline and a
    default answer for questions; None if the graph can wait for a person. progress: the schema offers
    approach and status for thoughts. What is not offered costs no tokens, and is accepted all the same.

    Raises SetupError for anything else.
    """
    flag("rounds", rounds)
    flag("progress", progress)
    if deadlines is not None:
        flag("deadlines", deadlines)
    source = one_of("answer", answer, get_args(AnswerSource))
    known = tuple(listed("aliases", aliases, '["done"]'))
    for name in (finish, *known):
        if not isinstance(name, str) or not name.strip():
            raise SetupError(
                f"finish= and aliases= of standard_controls are names of a tool, not {describe(name)}."
            )
    if finish != FINISH_NAME:
        known = (*known, FINISH_NAME)

    texts = DEFAULT_TEXTS
    said, question = texts.naming(finish).finish_task.format(), texts.ask_user.format()
    may_wait = deadlines is not False
    return (
        _Finish(_argument_tool(finish, said, FinishTask), "finish", aliases=known, answer=source),
        _Ask(
            _argument_tool("ask_user", question, AskUser if may_wait else _AskAtOnce),
            "ask",
            deadlines=deadlines,
        ),
        _Think(
            _argument_tool("think", texts.think.format(), Think if progress else _ThinkOnly),
            "continue",
            rounds=rounds,
            progress=progress,
        ),
    )


def completed(
    controls: Sequence[ControlTool], texts: Texts, response_format: ResponseFormat | None, *, deadlines: bool
) -> tuple[ControlTool, ...]:
    """The control tools of a graph: described by its texts, `finish_task` with its further arguments.

    Raises SetupError for anything that is not a control tool, for a `response_format` without a `finish_task`
    to extend, and for an invalid one.
    """
    for control in controls:
        if not isinstance(control, ControlTool):
            raise SetupError(
                f'control_tools= holds {describe(control)}; write ControlTool(tool, "finish") in its place.'
            )
    return finishing([control.described(texts, deadlines=deadlines) for control in controls], response_format)


def goes_in_rounds(controls: Sequence[ControlTool]) -> bool:
    """Whether the model thinks after each batch of calls."""
    return any(isinstance(control, _Think) and control.rounds for control in controls)


def answers_by(controls: Sequence[ControlTool]) -> AnswerSource:
    """Where the final message comes from."""
    return next((control.answer for control in controls if isinstance(control, _Finish)), "summary")


class ControlRegistry(Mapping[str, ControlTool]):
    """The control tools of a graph by name; `aliases` maps further names to these. Raises SetupError for a
    duplicate name, and if no tool can finish a task."""

    def __init__(self, controls: Sequence[ControlTool]) -> None:
        self._by_name = {control.tool.name: control for control in controls}
        others = [(alias, control.tool.name) for control in controls for alias in control.aliases]
        self.aliases: Mapping[str, str] = dict(others)
        if len({*self._by_name, *self.aliases}) < len(controls) + len(others):
            raise SetupError("Two control tools have the same name; rename one of them.")
        if not any(control.effect == "finish" for control in controls):
            raise SetupError("No control tool can finish a task; add one with the effect 'finish'.")

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
        return next(name for name, control in self.items() if control.effect == "finish")

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
    """Whether a finish with these arguments needs a person, since the model requests it.

    Issues that it leaves open need nobody: they stand in the outcome.
    """
    return bool(claim.get("requires_user_confirmation"))


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
    controls: Sequence[ControlTool], response_format: ResponseFormat | None = None
) -> tuple[ControlTool, ...]:
    """The control tools, with what a graph adds to `finish_task`: `answer`, if the tool asks for it, and
    `result`, the type of which is the response_format. It is required and validated, except for a claim of
    "blocked" or "impossible", or of a phase.

    Raises SetupError if there is no `finish_task` to extend, or for an invalid format.
    """
    if response_format is not None and not any(map(_is_ours, controls)):
        raise SetupError(
            "response_format= is for finish_task, and control_tools= has no such tool: add the one of "
            "signoff.standard_controls()."
        )
    return tuple(_added(control, response_format) if _is_ours(control) else control for control in controls)


def _is_ours(control: ControlTool) -> bool:
    schema = control.tool.args_schema
    finishes = control.effect == "finish" and not control.runs
    return finishes and isinstance(schema, type) and issubclass(schema, FinishTask)


def _added(control: ControlTool, response_format: ResponseFormat | None) -> ControlTool:
    answer = isinstance(control, _Finish) and control.answer == "argument"
    if response_format is None and not answer:
        return control
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
    return replace(control, tool=_argument_tool(control.tool.name, control.tool.description, made))


def result_shape(given: ResponseFormat | None) -> TypeAdapter[Any] | None:
    """The adapter that turns a stored result into an instance; None for a JSON schema, whose results are JSON
    values.

    Raises SetupError for anything that is not a format.
    """
    if given is None or isinstance(given, Mapping):
        return None
    is_type = isinstance(given, type) or is_typeddict(given)
    if not is_type or given.__module__ in ("builtins", "typing"):
        raise SetupError(
            f"response_format is {reprlib.repr(given)}; pass a pydantic model, a dataclass, a TypedDict or a "
            "JSON schema."
        )
    try:
        adapter = TypeAdapter[Any](given)
        adapter.json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise SetupError(f"response_format={given.__name__} has no JSON schema: {why:.200}.") from error
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
