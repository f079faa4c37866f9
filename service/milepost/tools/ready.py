"""What a ready-made JSON Schema must be, to stand for a tool's parameters."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import cast

from milepost.core.errors import ToolValidationError
from milepost.core.json import DEPTH_MAX, Json
from milepost.tools.coerce import resolve
from milepost.tools.constraints import misuses
from milepost.tools.forms import malformed
from milepost.tools.signature import INVALID_TOOL, Signature

# Assertions that are not judged here: passing them over would accept what the schema forbids.
UNJUDGED = frozenset(
    {
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
        "patternProperties", "propertyNames", "contains", "minContains", "maxContains",
        "unevaluatedItems", "unevaluatedProperties", "additionalItems", "$dynamicRef",
    }
)  # fmt: skip


def closed(schema: Mapping[str, Json], tool: str) -> dict[str, Json]:
    """Return `schema` as an object that, unless it says otherwise, takes what it names and no more.

    One that requires what it does not name, or has more named by a schema beside it, is left open:
    closed, it would never take that.
    Raises ToolValidationError for a schema that is not one of an object, or cannot be judged whole.
    """
    if schema.get("type") != "object":
        raise _invalid(tool, f"its parameters must be of type object, not {schema.get('type')!r}")
    check_judgeable(schema, f"tool {tool!r}")
    properties = cast("Mapping[str, Json]", schema.get("properties", {}))
    if not _names_more(schema, properties):
        schema = {"additionalProperties": False, **schema}
    return {**schema, "properties": dict(properties)}


def check_judgeable(schema: Mapping[str, Json], whose: str) -> None:
    """Raise ToolValidationError for a schema of which a part is wrong, or would not be judged.

    What a reference names is a part, wherever in the document it stands.
    """
    places: dict[str, str] = {}
    seen: set[int] = set()
    ahead: list[tuple[str, Json]] = [("#", cast("Json", schema))]
    while ahead:
        start, whole = ahead.pop()
        if id(whole) in seen:
            continue
        for pointer, part in _parts(whole, start, 0):
            where = f"{whose}: the schema at {pointer}"
            seen.add(id(part))
            _check_part(schema, part, where)
            if "$ref" in part:
                reference = str(part["$ref"])
                places.setdefault(reference, where)
                ahead.append((reference, resolve(schema, reference)))
    _check_ends(schema, places)


def check_callable(schema: Mapping[str, Json], signature: Signature, tool: str) -> None:
    """Refuse a function that cannot be called with what the schema accepts."""
    properties = cast("Mapping[str, Json]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    if exposed := sorted(signature.hidden & properties.keys()):
        raise _invalid(
            tool, f"{exposed} is injected or private, so its schema must not offer it to the model"
        )
    known = {parameter.name for parameter in signature.offered}
    if not signature.takes_more and (foreign := sorted(properties.keys() - known)):
        raise _invalid(tool, f"its schema offers {foreign}, which its function does not take")
    needed = {parameter.name for parameter in signature.offered if parameter.required}
    if open_to_omission := sorted(needed - set(required)):
        raise _invalid(tool, f"its function needs {open_to_omission}, its schema does not")


def _parts(schema: Json, pointer: str, depth: int) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield each part with its place, before what is in it is looked at."""
    if not isinstance(schema, Mapping):
        return
    if depth > DEPTH_MAX:
        raise _wrong(f"the schema at {pointer}", f"is nested deeper than {DEPTH_MAX} levels")
    yield pointer, schema
    for name in ("items", "additionalProperties"):
        yield from _parts(schema.get(name), f"{pointer}/{name}", depth + 1)
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, part in enumerate(cast("list[Json]", schema.get(name, []))):
            yield from _parts(part, f"{pointer}/{name}/{index}", depth + 1)
    for name in ("properties", "$defs", "definitions"):
        for key, part in cast("Mapping[str, Json]", schema.get(name, {})).items():
            yield from _parts(part, f"{pointer}/{name}/{key}", depth + 1)


def _check_part(document: Mapping[str, Json], part: Mapping[str, Json], where: str) -> None:
    if unjudged := sorted(UNJUDGED & part.keys()):
        raise _wrong(where, f"uses {', '.join(unjudged)}, which Milepost does not judge")
    if isinstance(part.get("items"), list):
        raise _wrong(where, "lists its items; since 2020-12 that keyword is prefixItems")
    for misuse in (*malformed(part), *misuses(part)):
        raise _wrong(where, misuse)
    if "$ref" in part and not _holds(document, str(part["$ref"])):
        raise _wrong(where, f"refers to {part['$ref']}, where it has no schema")


def _check_ends(document: Mapping[str, Json], places: Mapping[str, str]) -> None:
    """Refuse a reference by which judging a value leads there again with the very same value.

    `places` says of each reference where it stands. Each part is looked at once, however many
    references lead there.
    """
    onward: dict[int, list[int]] = {}
    ahead = [resolve(document, reference) for reference in places]
    while ahead:
        part = ahead.pop()
        if id(part) not in onward:
            following = [resolve(document, each) for each in _references_beside(part)]
            onward[id(part)] = [id(each) for each in following]
            ahead += following
    try:
        TopologicalSorter(onward).prepare()
    except CycleError as error:
        circle = set(error.args[1])
        for reference, where in places.items():
            if id(resolve(document, reference)) in circle:
                issue = f"refers to {reference}, which is nothing but that again"
                raise _wrong(where, issue) from None


def _references_beside(part: Json) -> Iterator[str]:
    """Yield the references by which the same value is judged as by `part`."""
    if not isinstance(part, Mapping):
        return
    if "$ref" in part:
        yield str(part["$ref"])
    for name in ("anyOf", "oneOf", "allOf"):
        parts = part.get(name)
        for each in parts if isinstance(parts, list) else []:
            yield from _references_beside(each)


def _holds(document: Mapping[str, Json], reference: str) -> bool:
    try:
        return isinstance(resolve(document, reference), (Mapping, bool))
    except (KeyError, TypeError):
        return False


def _names_more(document: Mapping[str, Json], known: Mapping[str, Json]) -> bool:
    """Say whether the document, or a schema beside it for the same value, names what is unknown.

    Each is looked at once: references may lead to it by more ways than anybody can go.
    """
    seen: set[int] = set()
    ahead = [cast("Json", document)]
    while ahead:
        part = ahead.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        named = {*cast("Mapping[str, Json]", part.get("properties", {}))}
        named.update(cast("list[str]", part.get("required", [])))
        if named - known.keys():
            return True
        for name in ("anyOf", "oneOf", "allOf"):
            ahead += cast("list[Json]", part.get(name, []))
        if "$ref" in part:
            ahead.append(resolve(document, str(part["$ref"])))
    return False


def _wrong(where: str, issue: str) -> ToolValidationError:
    return ToolValidationError(f"{where} {issue}", code=INVALID_TOOL)


def _invalid(tool: str, issue: str) -> ToolValidationError:
    return ToolValidationError(f"tool {tool!r}: {issue}", code=INVALID_TOOL)
