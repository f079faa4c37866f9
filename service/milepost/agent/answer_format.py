"""What an answer shall be: a class of pydantic's, or a JSON Schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from milepost.core.agents import StructuredOutput
from milepost.core.json import Json
from milepost.runtime.structured import AnswerCheck, require_judged

ResponseFormat = type[BaseModel] | Mapping[str, Any] | StructuredOutput
"""A class, a schema, or a schema with a name, a count of retries and a mode."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The schema that answers fit, and the class that makes objects of them, if there is one."""

    wanted: StructuredOutput
    model: type[BaseModel] | None = None

    @property
    def check(self) -> AnswerCheck | None:
        """What the class demands beyond the schema."""
        return None if self.model is None else self._issue

    def parsed(self, value: Json) -> object:
        """Return an answer's value as the caller wants it."""
        return value if self.model is None else self.model.model_validate(value)

    def _issue(self, value: Json) -> str | None:
        assert self.model is not None, "only a class checks"
        try:
            self.model.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            return f"{place or 'it'}: {first['msg']}"
        return None


def answer_format(wanted: ResponseFormat | None) -> AnswerFormat | None:
    """Return the format; raise `InvalidError` for a schema by which nothing could be judged."""
    match wanted:
        case None:
            return None
        case StructuredOutput():
            found = AnswerFormat(wanted)
        case type():
            schema = wanted.model_json_schema()
            found = AnswerFormat(StructuredOutput(schema, _name(wanted)), wanted)
        case _:
            found = AnswerFormat(StructuredOutput(dict(wanted)))
    require_judged(found.wanted.schema)
    return found


def _name(model: type[BaseModel]) -> str:
    """Return a name that vendors take: a generic class has brackets in its own."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in model.__name__)[
        :64
    ]
