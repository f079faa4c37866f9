"""A union looks at each of its alternatives once, however deep the value is."""

from collections.abc import Iterator
from typing import cast

import pytest

from milepost.core.json import Json
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit

DEPTH = 6
VALUE: Json = {"type": "integer", "minimum": 0}


class Watched(dict[str, Json]):
    """An object that counts how often its names are read."""

    visits = 0

    def __iter__(self) -> Iterator[str]:
        self.visits += 1
        return super().__iter__()


def chain_of(leaf: dict[str, Json]) -> Json:
    """Return an object that holds `leaf` at its end, `DEPTH` objects deep."""
    chain = leaf
    for _ in range(DEPTH):
        chain = {"value": 1, "next": chain}
    return chain


def schema_of(following: Json) -> dict[str, Json]:
    """Return the schema of a chain whose objects say `following` of their next."""
    node: Json = {"type": "object", "properties": {"value": VALUE, "next": following}}
    return {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}


NODE: Json = {"$ref": "#/$defs/Node"}
NULL: Json = {"type": "null"}
OPTIONAL = schema_of({"anyOf": [NODE, NULL]})
EXCLUSIVE = schema_of({"oneOf": [NULL, NODE]})
LISTED = schema_of(
    {"type": ["object", "null"], "properties": {"value": VALUE, "next": {"anyOf": [NODE, NULL]}}}
)
UNIONS = pytest.mark.parametrize("schema", [OPTIONAL, EXCLUSIVE, LISTED])


@UNIONS
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_wrong_at_the_end_of_a_chain_is_looked_at_once(
    schema: dict[str, Json], strict: bool
) -> None:
    leaf = Watched(value="x")
    coerce = SchemaCompiler(schema, strict=strict).compile(cast("Json", schema))

    with pytest.raises(Misfit, match="must be an integer") as misfit:
        coerce(chain_of(leaf))

    assert leaf.visits == 1
    assert misfit.value.path == (*["next"] * DEPTH, "value")


@UNIONS
@pytest.mark.parametrize("value", [1, "1"])
def test_what_fits_at_the_end_of_a_chain_is_looked_at_once(
    schema: dict[str, Json], value: Json
) -> None:
    leaf = Watched(value=value)
    coerce = SchemaCompiler(schema, strict=False).compile(cast("Json", schema))

    fitted = coerce(chain_of(leaf))

    assert leaf.visits == 1
    assert fitted == chain_of({"value": 1})


def test_what_fits_two_of_its_alternatives_is_refused_without_a_look_at_the_rest() -> None:
    given = Watched(value=1)
    schema: dict[str, Json] = {"oneOf": [{"type": "object", "properties": {}}] * 3}

    with pytest.raises(Misfit, match="fits more than one of its alternatives"):
        SchemaCompiler(schema, strict=True).compile(cast("Json", schema))(given)

    assert given.visits == 2
