"""Settings that say in one sentence what is wrong with them."""

from typing import Any, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator

from signoff.graph.errors import SetupError
from signoff.tools.control import explain


class Checked(BaseModel):
    """A model of settings: raises SetupError, naming the field, for a value that does not fit."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise SetupError(f"{cls.__name__}: {explain(error)}") from None
