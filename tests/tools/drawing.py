"""Arguments drawn at random for a tool, and who judges them by its schema alone."""

from typing import Any

import jsonschema
from hypothesis import strategies as st

from milepost.core.errors import ToolValidationError
from milepost.core.json import INT_MAX, INT_MIN, Json
from milepost.tools import Tool

# Beyond 64 bits a whole number travels as text, which no schema says: tested apart.
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(-1e15, 1e15)
    | st.sampled_from(
        ["x", "y", "C", "F", "1", " 2 ", "-3", "4.0", "true", "off", "abc", "a\n", ""]
    )
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
)
scalars_of: dict[str, st.SearchStrategy[Json]] = {
    "string": st.sampled_from(["x", "y", "abc", "C"]),
    "integer": st.integers(-2, 5),
    "number": st.integers(-2, 5) | st.floats(-2, 5),
    "boolean": st.booleans(),
    "null": st.none(),
}
keys = st.sampled_from(["a", "b", "c", "x", "y", "value", "next"])
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), values, max_size=5)


def judge(definition: Tool) -> jsonschema.Draft202012Validator:
    """Return the independent judge of a tool's arguments."""
    return jsonschema.Draft202012Validator(dict(definition.schema.parameters))


def accepts(definition: Tool, given_arguments: dict[str, Json]) -> bool:
    """Say whether validation takes `given_arguments`."""
    try:
        definition.validate(given_arguments)
    except ToolValidationError:
        return False
    return True


def near(definition: Tool) -> st.SearchStrategy[dict[str, Json]]:
    """Draw arguments, most of them at least shaped like what the tool wants."""
    schema: dict[str, Any] = dict(definition.schema.parameters)
    fitting = {name: shaped(part, schema) for name, part in schema["properties"].items()}
    loose = {name: strategy | values for name, strategy in fitting.items()}
    return st.one_of(
        *(
            st.fixed_dictionaries(
                {name: drawn[name] for name in schema["required"]},
                optional={n: s for n, s in drawn.items() if n not in schema["required"]},
            )
            for drawn in (fitting, loose)
        ),
        arguments,
    )


def shaped(part: Any, root: Any) -> st.SearchStrategy[Any]:
    """Draw what the schema `part` would take, or nearly."""
    if "$ref" in part:
        return st.deferred(lambda: shaped(root["$defs"][part["$ref"].rpartition("/")[2]], root))
    if "anyOf" in part:
        return st.one_of([shaped(branch, root) for branch in part["anyOf"]])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    match part.get("type"):
        case "array" if "prefixItems" in part:
            return st.tuples(*(shaped(item, root) for item in part["prefixItems"])).map(list)
        case "array":
            return st.lists(shaped(part.get("items", {}), root), max_size=3)
        case "object" if "properties" in part:
            inner = {name: shaped(p, root) for name, p in part["properties"].items()}
            needed = {name: inner.pop(name) for name in part.get("required", [])}
            return st.fixed_dictionaries(needed, optional=inner)
        case "object":
            return st.dictionaries(
                keys, shaped(part.get("additionalProperties", {}), root), max_size=3
            )
        case str(kind):
            return scalars_of[kind] | scalars
        case _:
            return scalars
