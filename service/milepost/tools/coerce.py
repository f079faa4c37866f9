"""From a JSON Schema to the function that fits a model's arguments to it, mending what it may.

What fits the schema passes unchanged; what does not is mended or refused with a `Misfit`. A result
fits, shares no container with what came in, and is returned as it is when it comes in again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from milepost.core.canonical import canonical
from milepost.core.json import Json, clean_text
from milepost.tools.constraints import checks_of
from milepost.tools.effort import Effort, recurs, weight_of
from milepost.tools.misfit import Misfit, clipped, missing, shown, some, unexpected
from milepost.tools.scalars import EXACT, LENIENT, Coerce, anything, nothing
from milepost.tools.unions import Union

Schema = Mapping[str, Json]


class SchemaCompiler:
    """Compiles the schemas of one document; `strict` mends nothing.

    `tried_again`: a validator that tries every alternative to its end has its say afterwards.
    """

    def __init__(self, document: Schema, *, strict: bool, tried_again: bool = False) -> None:
        self._document = document
        self._strict = strict
        self._tried_again = tried_again
        self._scalars = EXACT if strict else LENIENT
        self._references: dict[str, Coerce] = {}
        self._effort = Effort()
        self._multiplies = False

    def compile(self, schema: Json) -> Coerce:
        """Return the function for `schema`, a part of the document.

        It raises `Misfit` for what does not fit, and for what would take too long to check.
        """
        coerce = self._compile(schema)
        # What looks at each part of a value once needs no bound, and is the quicker for it.
        return self._effort.bounding(coerce) if self._multiplies else coerce

    def _compile(self, schema: Json) -> Coerce:
        if not isinstance(schema, Mapping):
            return nothing if schema is False else anything
        kinds = [*self._combined(schema), *self._typed(schema)] or [anything]
        return _chain([*kinds, *self._listed(schema)], [*checks_of(schema)])

    def _combined(self, schema: Schema) -> Iterable[Coerce]:
        if "$ref" in schema:
            yield self._reference(str(schema["$ref"]))
        for part in _list(schema.get("allOf")):
            yield self._compile(part)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield self._alternatives(schema, keyword)

    def _reference(self, reference: str) -> Coerce:
        """Compile what is referred to when it is first needed: a schema may contain itself."""
        effort, self._multiplies = self._effort, True

        def coerce(value: Json) -> Json:
            if reference not in self._references:
                self._references[reference] = self._definition(reference)
            return effort.once(reference, self._references[reference], value)

        return coerce

    def _definition(self, reference: str) -> Coerce:
        schema = self._resolve(reference)
        judge, spend = self._compile(schema), self._spender(schema)

        def coerce(value: Json) -> Json:
            spend(1)
            return judge(value)

        return coerce

    def _spender(self, schema: Json) -> Callable[[int], None]:
        """Return what counts the values that `schema` is used for, of which there may be many."""
        if (weight := weight_of(schema)) == 1:
            return _spend_nothing
        effort, self._multiplies = self._effort, True
        return lambda count: effort.spend(count * weight)

    def _union(self, branches: list[Json], *, exclusive: bool = False) -> Coerce:
        compiled = [self._compile(branch) for branch in branches]
        return Union(branches, compiled, exclusive=exclusive).coerce

    def _alternatives(self, schema: Schema, keyword: str) -> Coerce:
        branches = _list(schema[keyword])
        union = self._union(branches, exclusive=keyword == "oneOf")
        if not self._tried_again or "discriminator" in schema:
            return union
        again = sum(recurs(branch, self._resolve) for branch in branches)
        return self._effort.tried_all(union, again) if again > 1 else union

    def _resolve(self, reference: str) -> Json:
        return resolve(self._document, reference)

    def _typed(self, schema: Schema) -> Iterable[Coerce]:
        match schema.get("type"):
            case list() as kinds:
                distinct = dict.fromkeys(map(str, kinds))
                yield self._union([{**_shape(schema), "type": kind} for kind in distinct])
            case "array":
                yield self._array(schema)
            case "object":
                yield self._object(schema)
            case str() as kind:
                yield self._scalars[kind]
            case _:
                pass

    def _array(self, schema: Schema) -> Coerce:
        prefix = [self._compile(item) for item in _list(schema.get("prefixItems"))]
        rest = self._compile(schema.get("items", True))
        spend = self._spender(schema.get("items", True))
        unique, strict = bool(schema.get("uniqueItems")), self._strict

        def coerce(value: Json) -> Json:
            if not isinstance(value, list):
                raise Misfit(f"must be an array, got {shown(value)}", "Expected type: array")
            spend(len(value))
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
        compiled = {name: self._compile(part) for name, part in properties.items()}
        required = [str(name) for name in _list(schema.get("required"))]
        spare = schema.get("additionalProperties", True)
        rest = None if spare is False else self._compile(spare)
        shape = _ObjectShape(compiled, required, rest, strict=self._strict)
        return shape.coerce if spare is False else shape.spending(self._spender(spare))

    def _listed(self, schema: Schema) -> Iterable[Coerce]:
        if "enum" in schema:
            yield self._enumeration(_list(schema["enum"]))
        if "const" in schema:
            yield self._enumeration([schema["const"]])

    def _enumeration(self, values: list[Json]) -> Coerce:
        known = {_key(value): value for value in values}
        mends: list[Coerce] = [] if self._strict else [LENIENT["number"], LENIENT["boolean"]]
        listed = some(values, word=clipped)
        expected = f"must be one of {listed}" if len(values) > 1 else f"must be {listed}"

        def coerce(value: Json) -> Json:
            if (key := _key(value)) in known:
                return known[key]
            for mend in mends:
                try:
                    return known[_key(mend(value))]
                except (Misfit, KeyError):
                    continue
            raise Misfit(f"{expected}, got {shown(value)}", kind="enum")

        return coerce


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

    def spending(self, spend: Callable[[int], None]) -> Coerce:
        """Return `coerce`, which counts with `spend` what has no name here."""
        if spend is _spend_nothing:
            return self.coerce

        def coerce(value: Json) -> Json:
            if isinstance(value, dict):
                spend(len(value))
            return self.coerce(value)

        return coerce

    def coerce(self, value: Json) -> Json:
        """Fit `value`. Unless strict, null for what may be left out and not be null is left out."""
        if not isinstance(value, dict):
            raise Misfit(f"must be an object, got {shown(value)}", "Expected type: object")
        given = list(value)
        extra = [name for name in given if name not in self._properties]
        if extra and not self._is_open:
            raise unexpected(extra, list(self._properties))
        if absent := [name for name in self._required if name not in value]:
            raise missing(absent, self._required)
        fitted: dict[str, Json] = {}
        name = ""
        try:
            # What is not mended keeps its own order.
            for name in given if self._strict else [*self._properties, *extra]:
                if (coerce := self._properties.get(name)) is None:
                    fitted[clean_text(name)] = self._rest(value[name])
                elif name in value and (value[name] is not None or self._keeps_null(name, coerce)):
                    fitted[name] = coerce(value[name])
        except Misfit as misfit:
            raise misfit.within(name) from None
        return fitted

    def _keeps_null(self, name: str, coerce: Coerce) -> bool:
        return self._strict or name in self._required or fits(coerce, None)


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


def _spend_nothing(_: int) -> None:
    """Count nothing: one part of a schema for one of a value is what both are long."""


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


def fits(coerce: Coerce, value: Json) -> bool:
    """Say whether `coerce` takes `value` as it is."""
    try:
        return coerce(value) == value
    except Misfit:
        return False


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


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
