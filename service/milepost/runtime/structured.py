"""Answers that fit a JSON Schema: what the model is told of it, and how an answer is read."""

from collections.abc import Mapping

import orjson

from milepost.core.agents import StructuredOutput
from milepost.core.answers import NoJsonError, extract_json
from milepost.core.errors import InvalidError, ToolValidationError
from milepost.core.json import Json
from milepost.core.rulings import AnswerRule, Fits, Misfits
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit, dotted
from milepost.tools.ready import check_judgeable


def answer_rule(wanted: StructuredOutput) -> AnswerRule:
    """Return the rule by which answers are read: strictly, as nothing is mended in an answer."""
    fit = SchemaCompiler(wanted.schema, strict=True).compile(dict(wanted.schema))

    def read(text: str) -> Fits | Misfits:
        try:
            value = extract_json(text)
        except NoJsonError as error:
            return Misfits(str(error))
        try:
            return Fits(fit(value))
        except Misfit as misfit:
            return Misfits(f"{dotted(misfit.path) or 'it'} {misfit.issue}")

    return AnswerRule(read, wanted.retries)


def instruction(wanted: StructuredOutput) -> str:
    """Return what a model is told that cannot be held to a schema by its vendor."""
    schema = orjson.dumps(wanted.schema).decode()
    return (
        "Your final answer must be JSON that fits the following JSON Schema, and nothing else: no"
        f" words around it, no code fence.\n{schema}"
    )


def require_judged(schema: Mapping[str, Json]) -> None:
    """Raise `InvalidError` for a schema by which answers could not be judged whole."""
    try:
        check_judgeable(schema, "the response format")
    except ToolValidationError as error:
        raise InvalidError(str(error), code="invalid_request") from error
