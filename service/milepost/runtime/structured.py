"""Answers that fit a JSON Schema: what the model is told of it, and how an answer is read."""

from collections.abc import Callable, Iterator, Mapping

import orjson

from milepost.core.agents import StructuredOutput
from milepost.core.answers import NoJsonError, extract_json
from milepost.core.errors import InvalidError, ToolValidationError
from milepost.core.json import Json
from milepost.core.rulings import AnswerRule, Fits, Misfits
from milepost.guardrails.patterns import PatternError, require_quick
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit, dotted
from milepost.tools.ready import check_judgeable

PATTERNS_CHARS_MAX = 20_000
"""How long all patterns of a schema may be together: whoever takes it in waits for each."""

AnswerCheck = Callable[[Json], str | None]
"""Returns what is wrong with an answer that fits its schema, in words for the model; pure."""


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
        except RecursionError:
            return Misfits("it is nested too deeply to be judged")

    return AnswerRule(read, wanted.retries)


def checked(rule: AnswerRule, check: AnswerCheck) -> AnswerRule:
    """Return the rule, with what `check` has against an answer that fits the schema."""

    def read(text: str) -> Fits | Misfits:
        found = rule.read(text)
        issue = check(found.value) if isinstance(found, Fits) else None
        return found if issue is None else Misfits(issue)

    return AnswerRule(read, rule.retries)


def instruction(wanted: StructuredOutput) -> str:
    """Return what a model is told that cannot be held to a schema by its vendor."""
    schema = orjson.dumps(wanted.schema).decode()
    return (
        "Your final answer must be JSON that fits the following JSON Schema, and nothing else: no"
        f" words around it, no code fence.\n{schema}"
    )


def require_judged(schema: Mapping[str, Json], whose: str = "the response format") -> None:
    """Raise `InvalidError` for a schema by which values could not be judged whole."""
    patterns = dict.fromkeys(_patterns(dict(schema)))
    # Before anything is compiled: that may take long by itself.
    if (chars := sum(map(len, patterns))) > PATTERNS_CHARS_MAX:
        raise InvalidError(
            f"{whose}: its patterns have {chars} characters, and may have {PATTERNS_CHARS_MAX}",
            code="invalid_request",
        )
    for pattern in patterns:
        try:
            require_quick(pattern)
        except PatternError as error:
            raise InvalidError(
                f"{whose}: the pattern {pattern[:100]!r} cannot be judged here: {error}",
                code="invalid_request",
            ) from error
    try:
        check_judgeable(schema, whose)
    except ToolValidationError as error:
        raise InvalidError(str(error), code="invalid_request") from error


def _patterns(part: Json) -> Iterator[str]:
    """Yield the patterns of a schema, and what may only look like one."""
    match part:
        case dict():
            if isinstance(pattern := part.get("pattern"), str):
                yield pattern
            for value in part.values():
                yield from _patterns(value)
        case list():
            for value in part:
                yield from _patterns(value)
        case _:
            return
