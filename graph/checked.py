"""Settings that say in one sentence what is wrong with them."""

from typing import Any, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator

from signoff.graph.errors import SetupError
from signoff.tools.output import explain

_MOST = 5


class Checked(BaseModel):
    """A model of settings: raises SetupError, naming the field, for a value that does not fit."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise SetupError(f"{cls.__name__}: {cls._unknown(error) or explain(error)}") from None

    @classmethod
    def _unknown(cls, error: ValidationError) -> str | None:
        """The sentence for names that are no fields: which there are."""
        names = [str(part["loc"][-1]) for part in error.errors() if part["type"] == "extra_forbidden"]
        if not names:
            return None
        told = ", ".join(repr(name[:40]) for name in names[:_MOST])
        return f"there is no {told}; there are {', '.join(cls.model_fields)}."
