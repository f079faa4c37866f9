"""Fields that several things which people write down have in common."""

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

EXACT = ConfigDict(extra="forbid", strict=True, frozen=True)
"""Known fields of exactly their types."""

_OBJECT_WANTED = frozenset({"model_type", "model_attributes_type", "dataclass_type", "dict_type"})
_MODEL = re.compile(r"[a-z0-9][a-z0-9_-]*/[\x21-\x7e]{1,200}")


def _checked_model(model: str) -> str:
    if not _MODEL.fullmatch(model):
        raise ValueError("a model is <provider>/<model>, such as openai/gpt-5-mini")
    return model


Glob = Annotated[str, Field(min_length=1, max_length=200)]
Globs = Annotated[list[Glob], Field(max_length=200)]
ModelName = Annotated[str, AfterValidator(_checked_model)]


def first_fault(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return where the first thing is that does not fit, and why not."""
    first = error.errors()[0]
    return tuple(map(str, first["loc"])), why(first)


def why(fault: ErrorDetails) -> str:
    """Return what is wrong there, in words for whoever wrote it."""
    if fault["type"] == "extra_forbidden":
        return "no such field"
    if fault["type"] in _OBJECT_WANTED:
        return "Input should be an object"  # Not an instance of a class that nobody outside knows.
    return fault["msg"].removeprefix("Value error, ")
