"""JSON Schema (2020-12) from annotations, through a pydantic model that later makes the values."""

import inspect
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ForwardRef, Literal, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.coerce import SchemaCompiler, fits
from milepost.tools.signature import INVALID_TOOL, Parameter, Signature

# What pydantic raises where an annotation is beyond it.
_INEXPRESSIBLE = (PydanticUserError, PydanticUndefinedAnnotation, TypeError, RecursionError)
_PARTS = ("items", "additionalProperties", "propertyNames", "not")
_PART_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_PART_MAPS = ("properties", "patternProperties", "$defs")


class ParameterNotes(typing.TypedDict, total=False):
    """What `param_metadata` may say about one parameter; the `enum` of a list is for its items."""

    description: str
    enum: Sequence[str | int | float | bool]


class _PlainSchema(GenerateJsonSchema):
    """Pydantic's schema without the titles, which cost tokens and tell a model nothing new."""

    # A default that JSON cannot show still holds when the function is called.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's hook
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002 - pydantic's hook
        """Leave the order in which it was made, which is the same each time."""
        return value

    def encode_default(self, dft: Any) -> Any:
        # Pydantic builds a serializer for each default, a fifth of a registration's time.
        plain = type(dft) in {bool, int, str, type(None)}
        return dft if plain else super().encode_default(dft)


class _ResultSchema(_PlainSchema):
    """The schema of what a tool returns, in which bytes are what `results` makes of them."""

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:  # noqa: ARG002
        return {
            "type": "object",
            "properties": {
                "base64": {"type": "string", "contentEncoding": "base64"},
                "bytes": {"type": "integer"},
            },
            "required": ["base64", "bytes"],
            "additionalProperties": False,
        }


def arguments_model(signature: Signature, tool: str) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the model of what the function takes from a language model, and the model's schema.

    Raises ToolValidationError, naming the parameter, for an annotation that has no JSON form.
    """
    for parameter in signature.offered:
        _check_keys(parameter.annotation, parameter.name, tool)
    fields: dict[str, Any] = {
        _field_name(parameter.name): _field(parameter, tool) for parameter in signature.offered
    }
    try:
        model = create_model(
            "Arguments", __config__=ConfigDict(extra="forbid", regex_engine="python-re"), **fields
        )
        schema = model.model_json_schema(schema_generator=_PlainSchema)
    except _INEXPRESSIBLE as error:
        raise _inexpressible(signature, tool, error) from error
    return model, schema


def arguments_schema(
    schema: dict[str, Any],
    notes: Mapping[str, ParameterNotes],
    documented: Mapping[str, str],
    tool: str,
) -> dict[str, Json]:
    """Return the model's schema as language models see it, with what the author noted.

    `documented` is what the docstring says about a parameter; whatever else describes it, counts
    for more.
    """
    _tidy(schema)
    properties = schema.setdefault("properties", {})
    for name, words in documented.items():
        if name in properties:
            properties[name].setdefault("description", words)
    for name, note in notes.items():
        if name not in properties:
            raise ToolValidationError(
                f"tool {tool!r}: param_metadata names {name!r}, which the model does not fill; "
                f"it fills {', '.join(properties) or 'nothing'}",
                code=INVALID_TOOL,
            )
        _annotate(properties[name], note, schema, f"tool {tool!r}: param_metadata of {name!r}")
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
        **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
    }


def result_schema(returns: Any, *, joined: bool) -> dict[str, Json] | None:
    """Return the schema of a result, None where the annotation tells nothing.

    `joined`: the function yields pieces, which the model sees as one text.
    """
    if joined or returns is str:
        return {"type": "string"}
    if returns in {inspect.Signature.empty, None, type(None), Any, object}:
        return None
    if _contains_itself(returns):
        return None  # Pydantic finds out at the end of the stack, ten milliseconds later.
    try:
        schema = TypeAdapter(returns).json_schema(
            mode="serialization", schema_generator=_ResultSchema
        )
    except _INEXPRESSIBLE:
        return None
    _tidy(schema)
    return schema or None


def _field(parameter: Parameter, tool: str) -> tuple[Any, Any]:
    annotation = parameter.annotation
    if annotation is None:
        warnings.warn(
            f"tool {tool!r}: parameter {parameter.name!r} has no annotation and is taken for a "
            f"string; write `{parameter.name}: str`, or what it is",
            stacklevel=2,
        )
        annotation = str
    default = parameter.default
    if parameter.required:
        default = None if takes_none(annotation) else ...
    annotation = _described(annotation)
    if _field_name(parameter.name) != parameter.name:
        annotation = Annotated[annotation, Field(alias=parameter.name)]
    return annotation, default


def _field_name(parameter: str) -> str:
    """Return a name that is none of pydantic's own: `json`, `copy` and `schema` are parameters."""
    taken = hasattr(BaseModel, parameter) or parameter.startswith(("model_", "field_"))
    return f"field_{parameter}" if taken else parameter


def _described(annotation: Any) -> Any:
    """Turn the shorthand `Annotated[str, "City name"]` into a description; a Field's own wins."""
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *metadata = get_args(annotation)
    words = [mark for mark in metadata if isinstance(mark, str)]
    if not words:
        return annotation
    others = [mark for mark in metadata if not isinstance(mark, str)]
    if not any(isinstance(mark, FieldInfo) and mark.description for mark in others):
        others.append(Field(description=words[-1]))
    for mark in others:
        kind = Annotated[kind, mark]
    return kind


def _contains_itself(annotation: Any) -> bool:
    """Say whether a name is left in an annotation that was resolved, as `Json` has its own."""
    return isinstance(annotation, ForwardRef) or any(map(_contains_itself, get_args(annotation)))


def takes_none(annotation: Any) -> bool:
    """Say whether None is among the values that `annotation` allows."""
    if annotation in {None, type(None)}:
        return True
    if get_origin(annotation) is Annotated:
        return takes_none(get_args(annotation)[0])
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        return any(takes_none(part) for part in get_args(annotation))
    return False


def _check_keys(annotation: Any, parameter: str, tool: str) -> None:
    """Refuse `dict[int, …]`: the keys of a JSON object are strings."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return
    is_mapping = inspect.isclass(origin) and issubclass(origin, Mapping)
    if is_mapping and parts and not _is_text(parts[0]):
        raise ToolValidationError(
            f"tool {tool!r}: parameter {parameter!r} has {_name(parts[0])} for keys; "
            "the keys of a JSON object are strings: use dict[str, …] or a list of pairs",
            code=INVALID_TOOL,
        )
    for part in parts:
        _check_keys(part, parameter, tool)


def _is_text(key: Any) -> bool:
    if get_origin(key) is Annotated:
        return _is_text(get_args(key)[0])
    if get_origin(key) is Literal:
        return all(isinstance(value, str) for value in get_args(key))
    return key is Any or (inspect.isclass(key) and issubclass(key, str))


def _inexpressible(signature: Signature, tool: str, cause: Exception) -> ToolValidationError:
    for parameter in signature.offered:
        if parameter.annotation is None:
            continue
        try:
            TypeAdapter(parameter.annotation).json_schema()
        except _INEXPRESSIBLE as error:
            return ToolValidationError(
                f"tool {tool!r}: parameter {parameter.name!r} is annotated "
                f"{_name(parameter.annotation)}, {_remedy(error)}",
                code=INVALID_TOOL,
            )
    return ToolValidationError(
        f"tool {tool!r}: its parameters have no JSON Schema: {cause}", code=INVALID_TOOL
    )


def _remedy(error: Exception) -> str:
    if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
        return "which Python before 3.12 cannot read; import TypedDict from typing_extensions"
    if isinstance(error, RecursionError):
        return "which contains itself; name it with typing_extensions.TypeAliasType"
    reason = ""
    if not isinstance(error, PydanticSchemaGenerationError):
        reason = f" ({str(error).partition(chr(10))[0]})"
    return (
        f"which has no JSON form{reason}; use str, int, float, bool, list, dict, an Enum, a "
        "dataclass or a pydantic model, or mark it Injected[...] if the model is not to fill it"
    )


def _name(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def _annotate(
    schema: dict[str, Json], note: ParameterNotes, document: dict[str, Json], where: str
) -> None:
    if not isinstance(note, Mapping):
        raise ToolValidationError(
            f'{where} is {note!r}; write {{"description": ...}} or {{"enum": [...]}}',
            code=INVALID_TOOL,
        )
    if unknown := sorted(note.keys() - ParameterNotes.__annotations__.keys()):
        raise ToolValidationError(
            f"{where} says {', '.join(unknown)}; it may say description and enum",
            code=INVALID_TOOL,
        )
    if "description" in note:
        if not isinstance(note["description"], str):
            raise ToolValidationError(
                f"{where} says {note['description']!r} for description; it must be a text",
                code=INVALID_TOOL,
            )
        schema["description"] = note["description"]
    if "enum" in note:
        _restrict(schema, note["enum"], document, where)


def _restrict(
    schema: dict[str, Json], given: object, document: dict[str, Json], where: str
) -> None:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ToolValidationError(
            f"{where} says {given!r} for enum; it must be a list of values", code=INVALID_TOOL
        )
    choices: list[Json] = [*given]
    if not choices:
        raise ToolValidationError(
            f"{where} allows no value at all; name some in enum, or leave it out",
            code=INVALID_TOOL,
        )
    compiler = SchemaCompiler(document, strict=True)
    chosen = [*_chosen(schema)]
    judges = [compiler.compile(part) for part in (schema, *chosen)]
    for choice in choices:
        # Null may be named as well where it is possible anyhow.
        if not any(fits(judge, choice) for judge in judges[choice is not None :]):
            raise ToolValidationError(
                f"{where} names {choice!r} in enum, which its type does not allow; name values of"
                " that type, and for a list those of its items",
                code=INVALID_TOOL,
            )
    for part in chosen:
        part["enum"] = choices


def _chosen(schema: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield the parts of `schema` that a choice is made for: of a list, what its items are."""
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        # Null stays possible where it was: the choice is among the values.
        for branch in branches:
            if isinstance(branch, dict) and branch.get("type") != "null":
                yield from _chosen(branch)
    elif schema.get("type") == "array" and "prefixItems" not in schema:
        yield from _chosen(cast("dict[str, Json]", schema.setdefault("items", {})))
    else:
        yield schema


def _tidy(schema: object) -> None:
    """Drop the titles, and what says no more than its absence."""
    if not isinstance(schema, dict):
        return
    schema.pop("title", None)
    if schema.get("items") == {}:
        del schema["items"]
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]
    for name in _PARTS:
        _tidy(schema.get(name))
    for name in _PART_LISTS:
        for part in schema.get(name, ()):
            _tidy(part)
    for name in _PART_MAPS:
        for part in schema.get(name, {}).values():
            _tidy(part)
