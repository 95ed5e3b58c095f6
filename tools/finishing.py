"""What a graph adds to the arguments of `finish_task`: a validated `result`, and `evidence`."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from langchain_core.utils.json_schema import dereference_refs
from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PydanticSchemaGenerationError,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import is_typeddict

from signoff.graph.errors import SetupError
from signoff.graph.phases import is_phase
from signoff.tools.control import ControlTool, argument_tool
from signoff.tools.control_arguments import FinishTask, TextList
from signoff.tools.kinds import Effect
from signoff.tools.schemas import schema_check

ResponseFormat = type[Any] | Mapping[str, Any]
"""A pydantic model, a dataclass, a TypedDict, or a JSON schema."""

_EMPTY: tuple[Any, ...] = ("", {}, [])


class _WithEvidence(FinishTask):
    evidence: TextList = Field(
        default_factory=list,
        description="Calls whose results show that it is done: ids, or the name of a tool for its last call.",
    )


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
    controls: Sequence[ControlTool], response_format: ResponseFormat | None = None, *, evidence: bool = False
) -> tuple[ControlTool, ...]:
    """The control tools, with what a graph adds to `finish_task`.

    response_format: the shape of the argument `result`, which becomes required and is validated; without it
        a claim of "blocked" or "impossible", or of a phase, is still one. evidence: adds `evidence`.

    Raises SetupError when there is no `finish_task` to add it to, or the format is none.
    """
    if response_format is None and not evidence:
        return tuple(controls)
    made = [_added(found, response_format, evidence) if _is_ours(found) else found for found in controls]
    if not any(map(_is_ours, controls)):
        raise SetupError(
            "response_format= and evidence= are for finish_task, and control_tools= has no such tool: add "
            "the one of standard_controls()."
        )
    return tuple(made)


def _is_ours(control: ControlTool) -> bool:
    schema = control.tool.args_schema
    finishes = control.effect is Effect.FINISH and not control.runs
    return finishes and isinstance(schema, type) and issubclass(schema, FinishTask)


def _added(control: ControlTool, response_format: ResponseFormat | None, evidence: bool) -> ControlTool:
    schema = control.tool.args_schema
    assert isinstance(schema, type), "so it is ours"
    assert issubclass(schema, FinishTask), "as above"
    bases: list[type[FinishTask]] = [schema]
    if evidence:
        bases.insert(0, _WithEvidence)
    fields: dict[str, Any] = {}
    if response_format is not None:
        bases.insert(0, _WithResult)
        fields["result"] = (_shape(response_format), Field(description="The result of the task."))
    kept = tuple(base for base in bases if not any(base in other.__mro__[1:] for other in bases))
    made = create_model("FinishTask", __base__=kept, **fields)
    return argument_tool(
        control.tool.name, control.tool.description, made, control.effect, aliases=control.aliases
    )


def _shape(given: ResponseFormat) -> Any:
    """The type of `result`: read as `given` says, kept as the JSON value of it, or None."""
    if isinstance(given, Mapping):
        return Annotated[Any, AfterValidator(_fits(given)), WithJsonSchema(_inlined(given))]
    if not (isinstance(given, type) or is_typeddict(given)) or given in (str, int, float, bool):
        raise SetupError(
            f"response_format is {given!r}; give a pydantic model, a dataclass, a TypedDict or a JSON schema."
        )
    try:
        adapter = TypeAdapter[Any](given)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, TypeError, ValueError) as error:
        raise SetupError(f"response_format={given.__name__} has no JSON schema: {error}") from error
    return Annotated[given, WrapValidator(_read), PlainSerializer(_dumping(adapter))]


def _read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value is None:
        return None
    try:
        return handler(value)
    except ValidationError:
        if not isinstance(value, str):
            raise
        # Small models write the object into a string.
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
    """The schema without references: where it stands in the arguments they would lead nowhere."""
    try:
        found = dereference_refs(dict(schema))
    except (KeyError, ValueError, TypeError) as error:
        raise SetupError(f"response_format has a reference that leads nowhere: {error}.") from error
    return {key: part for key, part in found.items() if key not in ("$defs", "definitions", "$schema", "$id")}


def _fits(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A validator for values of this JSON schema. Raises SetupError for what is no JSON schema."""
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
