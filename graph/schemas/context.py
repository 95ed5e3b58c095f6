"""The context of a run: Signoff's own fields, and those of the graph's `context_schema`.

LangGraph validates a context against one schema. So the two are combined into one form, which Studio shows;
the user's code receives only its own part, as an instance of its own type.
"""

import inspect
import reprlib
import warnings
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, ClassVar, NotRequired, Required, Self, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from typing_extensions import ReadOnly, get_type_hints, is_typeddict

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain
from signoff.graph.state import Context

_MARKS: tuple[Any, ...] = (Required, NotRequired, ReadOnly)
_ANY = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class ContextForm(Context):
    """The combined context schema of a graph with a `context_schema`."""

    model_config = _ANY
    _schema: ClassVar[Any] = None
    _keys: ClassVar[Mapping[str, str]] = {}
    _users: Any = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _with_users_part(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        form = handler(value)
        if isinstance(value, Mapping):
            form._users = form._part(value)
        return form

    def __getitem__(self, name: str) -> Any:
        # A subgraph may have the same TypedDict as its schema, and receives this context.
        return self._users[name]

    def _part(self, given: Mapping[str, Any]) -> Any:
        """The user's part, as an instance of the user's type, with that type's own validation."""
        kind = type(self)._schema
        named = {key: name for name, key in type(self)._keys.items()}
        # A pydantic model validates the given values itself; the other types would accept anything.
        reads = inspect.isclass(kind) and issubclass(kind, BaseModel)
        part = {key: given[key] if reads else getattr(self, named[key]) for key in named if key in given}
        try:
            return part if is_typeddict(kind) else kind(**part)
        except ValidationError as error:
            raise SetupError(f"Context: {explain(error)}") from None
        except Exception as error:
            # The user's `__post_init__` may raise anything.
            raise SetupError(
                f"Context: {kind.__name__} rejects its values ({type(error).__name__}: {error})."
            ) from error

    @classmethod
    def takes(cls, given: object) -> bool:
        """Whether this is accepted as it is: an instance of the user's type."""
        return not is_typeddict(cls._schema) and isinstance(given, cls._schema)

    @classmethod
    def wanted(cls) -> str:
        """What a run accepts besides a mapping, in words."""
        name = cls._schema.__name__
        return f"the keys of {name} in one" if is_typeddict(cls._schema) else f"an instance of {name}"

    @classmethod
    def users_part(cls, held: Any) -> Any:
        """The user's part of a run's context; None if there is none.

        The context may come from a graph around this one: then fields that this graph does not declare are
        ignored.
        """
        if isinstance(held, ContextForm):
            return held._users if type(held) is cls else cls.users_part(held._users)
        if held is None or isinstance(held, Context) or cls.takes(held):
            return None if isinstance(held, Context) else held
        if isinstance(held, Mapping):
            found = {key: held[key] for key in cls._keys.values() if key in held}
        else:
            found = {key: getattr(held, name) for name, key in cls._keys.items() if hasattr(held, name)}
        return cls(**found)._users if found else None


def context_form(schema: Any) -> type[ContextForm] | None:
    """The combined context schema of a graph; None without a `context_schema`.

    Raises SetupError for anything but a dataclass, a pydantic model or a TypedDict, and for a field with one
    of Signoff's own names.
    """
    if schema is None:
        return None
    if not inspect.isclass(schema) or not (
        is_dataclass(schema) or is_typeddict(schema) or issubclass(schema, BaseModel)
    ):
        raise SetupError(
            f"context_schema= is {reprlib.repr(schema)}; pass a dataclass, a pydantic model or a TypedDict."
        )
    if issubclass(schema, Context):
        raise SetupError(
            "context_schema= is made of Signoff's own Context, whose fields every run already has; name only "
            "your own fields."
        )
    try:
        found = {name: (_form_type(kind), field) for name, kind, field in _fields(schema)}
    except NameError as error:
        first_line = str(error).splitlines()[0]
        raise SetupError(
            f"context_schema={schema.__name__} refers to an unknown type ({first_line}); "
            "define it beside the class."
        ) from error
    if own := [name for name in found if name in Context.model_fields]:
        raise SetupError(
            f"context_schema={schema.__name__} has the field {own[0]!r}, which every run already has "
            f"(reserved: {', '.join(Context.model_fields)}); rename yours."
        )
    defined: dict[str, Any] = dict(found)
    with warnings.catch_warnings():
        # A field may be called `schema` or `json`, like pydantic's methods.
        warnings.simplefilter("ignore", UserWarning)
        try:
            made: Any = create_model("Context", __base__=ContextForm, __doc__=schema.__doc__, **defined)
        except Exception as error:
            raise SetupError(
                f"context_schema={schema.__name__} cannot be read ({type(error).__name__}: {error})."
            ) from error
    made._schema, made._keys = schema, {name: _key(name, field) for name, (_, field) in found.items()}
    form: type[ContextForm] = made
    return form


def _fields(schema: Any) -> Iterator[tuple[str, Any, FieldInfo]]:
    """The fields of a schema: name, type, and pydantic's field info."""
    if issubclass(schema, BaseModel):
        # It may refer to types defined after it; a type defined nowhere is a NameError.
        schema.model_rebuild()
        yield from ((name, field.annotation, copy(field)) for name, field in schema.model_fields.items())
        return
    field: Any
    hints = get_type_hints(schema, include_extras=True)
    if is_typeddict(schema):
        for name, hint in hints.items():
            while get_origin(hint) in _MARKS:
                (hint,) = hint.__args__
            optional = name not in schema.__required_keys__
            field = Field(default=None) if optional else Field()
            yield name, hint, field
        return
    for one in fields(schema):
        if isinstance(one.default, FieldInfo):
            field = copy(one.default)
        elif one.default_factory is not MISSING:
            field = Field(default_factory=one.default_factory)
        else:
            field = Field() if one.default is MISSING else Field(default=one.default)
        if one.init:
            yield one.name, hints[one.name], field


def _form_type(kind: Any) -> Any:
    """The type as a form can show it; any type without a JSON schema becomes Any."""
    try:
        create_model("One", __config__=_ANY, field=(kind, ...)).model_json_schema()
    except PydanticInvalidForJsonSchema:
        return Annotated[kind, WithJsonSchema({})]
    return kind


def _key(name: str, field: FieldInfo) -> str:
    """The key under which a field is passed."""
    return field.validation_alias if isinstance(field.validation_alias, str) else field.alias or name
