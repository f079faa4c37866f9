"""Fields that several things which people write down have in common."""

import json
import re
import reprlib
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

EXACT = ConfigDict(extra="forbid", strict=True, frozen=True)
"""Known fields of exactly their types."""

_OBJECT_WANTED = frozenset({"model_type", "model_attributes_type", "dataclass_type", "dict_type"})
_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_LENGTHS = frozenset({"string_too_short", "string_too_long"})
_KINDS = {str: "a string", list: "a list", dict: "an object"}
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


def instead(fault: ErrorDetails) -> str:
    """Return what was written there, as it stands behind `why`; nothing if that has said it.

    Of texts only one that was to be chosen among some is told: any other may be long, or private.
    """
    if "input" not in fault:
        return ""
    kind, written = fault["type"], fault["input"]
    match written:
        case str() if kind == "literal_error":
            return f", not {reprlib.repr(written)}"
        case str() if kind in _LENGTHS:
            return f", not {len(written)}"
        case None | bool() | int() | float() if kind in _BOUNDS or kind.endswith("_type"):
            return f", not {json.dumps(written)}"
        case str() | list() | dict() if kind.endswith("_type"):
            return f", not {_KINDS[type(written)]}"
        case _:
            return ""
