"""From a JSON Schema to the function that fits a model's arguments to it, mending what it may.

What fits the schema passes unchanged; what does not is mended or refused with a `Misfit`. A result
fits, shares no container with what came in, and is returned as it is when it comes in again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from milepost.core.canonical import canonical
from milepost.core.json import Json, clean_text
from milepost.tools.constraints import checks_of
from milepost.tools.misfit import Misfit, clipped, missing, shown, unexpected
from milepost.tools.scalars import EXACT, LENIENT, Coerce, anything, nothing

Schema = Mapping[str, Json]


class SchemaCompiler:
    """Compiles the schemas of one document; `strict` mends nothing."""

    def __init__(self, document: Schema, *, strict: bool) -> None:
        self._document = document
        self._strict = strict
        self._scalars = EXACT if strict else LENIENT
        self._references: dict[str, Coerce] = {}

    def compile(self, schema: Json) -> Coerce:
        """Return the function for `schema`, a part of the document."""
        if not isinstance(schema, Mapping):
            return nothing if schema is False else anything
        kinds = [*self._combined(schema), *self._typed(schema)] or [anything]
        return _chain([*kinds, *self._listed(schema)], [*checks_of(schema)])

    def _combined(self, schema: Schema) -> Iterable[Coerce]:
        if "$ref" in schema:
            yield self._reference(str(schema["$ref"]))
        for part in _list(schema.get("allOf")):
            yield self.compile(part)
        if "anyOf" in schema:
            yield self._union(_list(schema["anyOf"]))
        if "oneOf" in schema:
            yield self._union(_list(schema["oneOf"]), exclusive=True)

    def _reference(self, reference: str) -> Coerce:
        """Compile what is referred to when it is first needed: a schema may contain itself."""

        def coerce(value: Json) -> Json:
            if reference not in self._references:
                self._references[reference] = self.compile(resolve(self._document, reference))
            return self._references[reference](value)

        return coerce

    def _union(self, branches: list[Json], *, exclusive: bool = False) -> Coerce:
        compiled = [self.compile(branch) for branch in branches]
        return _Union(branches, compiled, exclusive=exclusive).coerce

    def _typed(self, schema: Schema) -> Iterable[Coerce]:
        match schema.get("type"):
            case list() as kinds:
                yield self._union([{**_shape(schema), "type": kind} for kind in kinds])
            case "array":
                yield self._array(schema)
            case "object":
                yield self._object(schema)
            case str() as kind:
                yield self._scalars[kind]
            case _:
                pass

    def _array(self, schema: Schema) -> Coerce:
        prefix = [self.compile(item) for item in _list(schema.get("prefixItems"))]
        rest = self.compile(schema.get("items", True))
        unique, strict = bool(schema.get("uniqueItems")), self._strict

        def coerce(value: Json) -> Json:
            if not isinstance(value, list):
                raise Misfit(f"must be an array, got {shown(value)}", "Expected type: array")
            items: list[Json] = []
            try:
                for item in value:
                    coerce_item = prefix[len(items)] if len(items) < len(prefix) else rest
                    items.append(coerce_item(item))
            except Misfit as misfit:
                raise misfit.within(len(items)) from None
            return _distinct(items, strict) if unique else items

        return coerce

    def _object(self, schema: Schema) -> Coerce:
        properties = cast("Schema", schema.get("properties", {}))
        compiled = {name: self.compile(part) for name, part in properties.items()}
        required = [str(name) for name in _list(schema.get("required"))]
        spare = schema.get("additionalProperties", True)
        rest = None if spare is False else self.compile(spare)
        return _ObjectShape(compiled, required, rest, strict=self._strict).coerce

    def _listed(self, schema: Schema) -> Iterable[Coerce]:
        if "enum" in schema:
            yield self._enumeration(_list(schema["enum"]))
        if "const" in schema:
            yield self._enumeration([schema["const"]])

    def _enumeration(self, values: list[Json]) -> Coerce:
        known = {_key(value): value for value in values}
        mends: list[Coerce] = [] if self._strict else [LENIENT["number"], LENIENT["boolean"]]

        def coerce(value: Json) -> Json:
            if (key := _key(value)) in known:
                return known[key]
            for mend in mends:
                try:
                    return known[_key(mend(value))]
                except (Misfit, KeyError):
                    continue
            listed = ", ".join(clipped(choice) for choice in values)
            issue = f"must be one of {listed}" if len(values) > 1 else f"must be {listed}"
            raise Misfit(f"{issue}, got {shown(value)}", kind="enum")

        return coerce


class _Union:
    """Takes the first branch that fits as it is, else the first for which a value can be mended.

    An exclusive one refuses what fits two as it is. Each branch sees a value once: a schema that
    contains itself would otherwise double the work with every level.
    """

    def __init__(self, branches: list[Json], compiled: list[Coerce], *, exclusive: bool) -> None:
        self._compiled = compiled
        self._exclusive = exclusive
        self._expected = " or ".join(kind_of(branch) for branch in branches)
        # An Optional's own complaint says more than that null would have done as well.
        solid = [coerce for coerce, b in zip(compiled, branches, strict=True) if not _is_null(b)]
        self._telling = solid[0] if len(solid) == 1 else None

    def coerce(self, value: Json) -> Json:
        """Fit `value` to one of the branches."""
        exact: list[Json] = []
        mended: list[Json] = []
        told: Misfit | None = None
        for branch in self._compiled:
            try:
                result = branch(value)
            except Misfit as misfit:
                told = misfit if branch is self._telling else told
                continue
            (exact if result == value else mended).append(result)
            if exact and not self._exclusive:
                return result
            if len(exact) > 1:
                raise _ambiguous(value)
        if fitting := exact or mended:
            return fitting[0]
        raise told or self._unfit(value)

    def _unfit(self, value: Json) -> Misfit:
        issue = f"must be {self._expected}, got {shown(value)}"
        return Misfit(issue, f"Expected type: {self._expected}")


class _ObjectShape:
    """An object's checks in their order: what is unexpected, what is missing, then each value."""

    def __init__(
        self,
        properties: Mapping[str, Coerce],
        required: list[str],
        rest: Coerce | None,
        *,
        strict: bool,
    ) -> None:
        self._properties = properties
        self._required = required
        self._is_open = rest is not None
        self._rest = rest or nothing
        self._strict = strict

    def coerce(self, value: Json) -> Json:
        """Fit `value`. Unless strict, null for what may be left out and not be null is left out."""
        if not isinstance(value, dict):
            raise Misfit(f"must be an object, got {shown(value)}", "Expected type: object")
        extra = [name for name in value if name not in self._properties]
        if extra and not self._is_open:
            raise unexpected(extra, list(self._properties))
        if absent := [name for name in self._required if name not in value]:
            raise missing(absent, self._required)
        fitted: dict[str, Json] = {}
        name = ""
        try:
            for name, coerce in self._properties.items():
                if name in value and (value[name] is not None or self._keeps_null(name, coerce)):
                    fitted[name] = coerce(value[name])
            for name in extra:
                fitted[clean_text(name)] = self._rest(value[name])
        except Misfit as misfit:
            raise misfit.within(name) from None
        return fitted

    def _keeps_null(self, name: str, coerce: Coerce) -> bool:
        return self._strict or name in self._required or _fits(coerce, None)


def resolve(document: Schema, reference: str) -> Json:
    """Return the part of `document` that a local `$ref` names; KeyError where it dangles."""
    if not reference.startswith("#"):
        raise KeyError(reference)
    part: Json = cast("Json", document)
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(part, Mapping):
            raise KeyError(reference)
        part = part[step.replace("~1", "/").replace("~0", "~")]
    return part


def kind_of(schema: Json) -> str:
    """Return a word for what `schema` accepts."""
    if not isinstance(schema, Mapping):
        return "any value"
    if "const" in schema:
        return clipped(schema["const"])
    if "enum" in schema:
        return " or ".join(clipped(value) for value in _list(schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return str(schema.get("type", "any value"))


def _chain(steps: list[Coerce], checks: list[Callable[[Json], None]]) -> Coerce:
    if len(steps) == 1 and not checks:
        return steps[0]

    def coerce(value: Json) -> Json:
        for step in steps:
            value = step(value)
        for check in checks:
            check(value)
        return value

    return coerce


def _fits(coerce: Coerce, value: Json) -> bool:
    try:
        return coerce(value) == value
    except Misfit:
        return False


def _ambiguous(value: Json) -> Misfit:
    issue = f"fits more than one of its alternatives, got {shown(value)}"
    return Misfit(issue, "Say more, so that it fits exactly one")


def _distinct(items: list[Json], strict: bool) -> Json:
    distinct = {_key(item): item for item in items}
    if strict and len(distinct) < len(items):
        raise Misfit("must not contain the same item twice", kind="bound")
    return list(distinct.values())


def _key(value: Json) -> object:
    """Return what equal JSON values share: true is not 1, but 1.0 is."""
    if isinstance(value, (list, dict)):
        return ("json", canonical(value))
    return ("bool", value) if isinstance(value, bool) else value


def _shape(schema: Schema) -> dict[str, Json]:
    """Return the keywords that speak of a container's contents."""
    named = ("properties", "required", "additionalProperties", "items", "prefixItems")
    return {name: schema[name] for name in (*named, "uniqueItems") if name in schema}


def _is_null(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
