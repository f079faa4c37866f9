"""All that is wrong with a tool's arguments at once, for whoever asks before there is a call."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit, MisfitKind, dotted, missing, unexpected


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong: of what `kind`, where (`opts.tags[0]`), and in words."""

    kind: MisfitKind
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The arguments with the defaults of what was left out, and what is wrong with them."""

    arguments: dict[str, Json]
    issues: tuple[Issue, ...]

    @property
    def valid(self) -> bool:
        """Say whether a strict tool would take the arguments."""
        return not self.issues


def checked(
    schema: Mapping[str, Json],
    given: Mapping[str, Json],
    values: Callable[[Mapping[str, Json]], Any],
) -> Checked:
    """Check `given` by `schema`, one issue a parameter, then with `values`, if nothing was found.

    Nothing is mended, and `given` stays as it is.
    """
    properties = cast("Mapping[str, Json]", schema.get("properties", {}))
    filled = deepcopy({**_defaults(properties), **given})
    issues = (*_misplaced(schema, given, properties), *_mistyped(schema, given, properties))
    return Checked(filled, issues or (*_unfit(schema, given),) or (*_refused(values, given),))


def _defaults(properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        name: part["default"]
        for name, part in properties.items()
        if isinstance(part, dict) and "default" in part
    }


def _misplaced(
    schema: Mapping[str, Json], given: Mapping[str, Json], properties: Mapping[str, Json]
) -> Iterator[Issue]:
    if schema.get("additionalProperties") is False:
        for name in sorted(given.keys() - properties.keys()):
            yield _issue(unexpected([name], [*properties]), name)
    required = cast("list[str]", schema.get("required", []))
    for name in required:
        if name not in given:
            yield _issue(missing([name], required), name)


def _mistyped(
    schema: Mapping[str, Json], given: Mapping[str, Json], properties: Mapping[str, Json]
) -> Iterator[Issue]:
    compiler = SchemaCompiler(schema, strict=True)
    rest = schema.get("additionalProperties", True)
    for name, value in given.items():
        part = properties.get(name, True if rest is False else rest)
        try:
            compiler.compile(part)(value)
        except Misfit as misfit:
            yield _issue(misfit, dotted((name, *misfit.path)))
        except RecursionError:
            yield Issue("type", name, "is nested too deeply")


def _unfit(schema: Mapping[str, Json], given: Mapping[str, Json]) -> Iterator[Issue]:
    """Check what the schema says of the arguments as a whole."""
    try:
        SchemaCompiler(schema, strict=True).compile(cast("Json", schema))(dict(given))
    except Misfit as misfit:
        yield _issue(misfit, dotted(misfit.path))


def _refused(
    values: Callable[[Mapping[str, Json]], Any], given: Mapping[str, Json]
) -> Iterator[Issue]:
    try:
        values(given)
    except ToolValidationError as error:
        yield Issue("value", error.parameter, error.issue or str(error))


def _issue(misfit: Misfit, path: str) -> Issue:
    return Issue(misfit.kind, path, f"{misfit.issue}. {misfit.suggestion}".strip())
