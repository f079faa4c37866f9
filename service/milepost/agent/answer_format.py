"""What an answer shall be: a class of pydantic's, or a JSON Schema."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pydantic import BaseModel, ValidationError

from milepost.core.agents import StructuredOutput
from milepost.core.errors import InvalidError
from milepost.core.json import Json
from milepost.runtime.agent_spec import ResponseFormatSpec
from milepost.runtime.spec import first_fault
from milepost.runtime.structured import AnswerCheck, require_judged

ResponseFormat = type[BaseModel] | Mapping[str, Any] | StructuredOutput
"""A class, a schema, or a schema with a name, a count of retries and a mode (also as a dict)."""


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
            said = {each.name: getattr(wanted, each.name) for each in fields(wanted)}
            found = AnswerFormat(_in_words_of_the_service(said))
        case type() if issubclass(wanted, BaseModel):
            schema = wanted.model_json_schema()
            found = AnswerFormat(StructuredOutput(schema, _name(wanted)), wanted)
        case {"schema": Mapping()}:  # No schema has a keyword of this name.
            found = AnswerFormat(_in_words_of_the_service(wanted))
        case Mapping():
            found = AnswerFormat(StructuredOutput(dict(wanted)))
        case _:
            raise InvalidError(
                f"response_format is {wanted!r}; give a class of pydantic's or a JSON Schema"
            )
    require_judged(found.wanted.schema)
    return found


def _in_words_of_the_service(said: Mapping[str, Any]) -> StructuredOutput:
    try:
        spec = ResponseFormatSpec.model_validate(dict(said))
    except ValidationError as error:
        where, why = first_fault(error)
        raise InvalidError(f"{'.'.join(['response_format', *where])}: {why}") from error
    return StructuredOutput(spec.fits, spec.name, spec.retries, spec.mode)


def _name(model: type[BaseModel]) -> str:
    """Return a name that vendors take: a generic class has brackets in its own."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in model.__name__)[
        :64
    ]
