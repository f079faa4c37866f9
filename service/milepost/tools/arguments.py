"""A call's arguments: the check at the model's boundary, and the Python values made from them."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit, clipped, dotted


class Arguments:
    """Judges arguments by `schema`, then by `model`, which a ready-made schema lacks."""

    def __init__(
        self,
        tool: str,
        schema: Mapping[str, Json],
        model: type[BaseModel] | None,
        *,
        strict: bool,
    ) -> None:
        self._tool = tool
        self._coerce = SchemaCompiler(schema, strict=strict).compile(cast("Json", schema))
        self._read = None
        self._parameters: dict[str, str] = {}
        if model is not None:
            self._read = model.__pydantic_validator__.validate_json
            self._parameters = {
                name: field.alias or name for name, field in model.model_fields.items()
            }

    def validate(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return `given` coerced, in containers of its own; ToolValidationError if it cannot be."""
        coerced = self._coerced(given)
        self._values(coerced)
        return coerced

    def values(self, given: Mapping[str, Json]) -> dict[str, Any]:
        """Return what to call the function with, as the types it is annotated with."""
        return self._values(self._coerced(given))

    def _coerced(self, given: Mapping[str, Json]) -> dict[str, Json]:
        try:
            return cast("dict[str, Json]", self._coerce(dict(given)))
        except Misfit as misfit:
            raise misfit.to_error(self._tool) from None
        except RecursionError:
            message = f"{self._tool} got arguments that are nested too deeply"
            raise ToolValidationError(message) from None

    def _values(self, coerced: dict[str, Json]) -> dict[str, Any]:
        if self._read is None:
            return coerced
        try:
            instance = self._read(to_json(coerced))
        except ValidationError as error:
            raise self._refused(error) from None
        made = instance.__dict__
        return {parameter: made[field] for field, parameter in self._parameters.items()}

    def _refused(self, error: ValidationError) -> ToolValidationError:
        first = error.errors(include_url=False, include_context=False)[0]
        where, got = dotted(first["loc"]), clipped(first["input"])
        return ToolValidationError(
            f"{self._tool}: parameter {where!r} is refused: {first['msg']}, got {got}"
        )
