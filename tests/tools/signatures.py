"""Functions drawn at random: any annotations that a tool may have, nested in each other."""

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel, Field


class Unit(Enum):
    """Degrees."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Point:
    """A place."""

    x: float
    y: int = 0


class Options(typing.TypedDict):
    """How to look."""

    value: Annotated[int, Field(ge=0)]
    next: NotRequired[str]


class Node(BaseModel):
    """A list of its own kind."""

    value: int
    next: "Node | None" = None


scalar_annotations = st.sampled_from(
    [
        str,
        int,
        float,
        bool,
        Literal["x", "y"],
        Literal[1, "1"],
        Annotated[int, Field(ge=-2, lt=5)],
        Annotated[str, Field(min_length=1, max_length=3)],
        Annotated[float, Field(gt=0)],
        Annotated[str, "A word"],
    ]
)
leaves = scalar_annotations | st.sampled_from([Unit, Point, Options, Node, Any, list, dict])


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda item: types.GenericAlias(list, item)),
        inner.map(lambda item: types.GenericAlias(dict, (str, item))),
        inner.map(lambda item: types.GenericAlias(tuple, (item, ...))),
        st.tuples(inner, inner).map(lambda items: types.GenericAlias(tuple, items)),
        scalar_annotations.map(lambda item: types.GenericAlias(set, item)),
        st.tuples(inner, inner).map(lambda items: Union[items]),  # noqa: UP007 - drawn
        inner.map(lambda item: Union[item, None]),  # noqa: UP007 - drawn
    )


annotations = st.recursive(leaves, _containers, max_leaves=4)


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """Draw a function of up to four parameters, of which some have the default None."""
    names = draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True))
    hints = {name: draw(annotations) for name in names}
    optional = draw(st.sets(st.sampled_from(names))) if names else set()

    def function(**arguments: Any) -> dict[str, Any]:
        return arguments

    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Union[hint, None] if name in optional else hint,  # noqa: UP007 - drawn
            default=None if name in optional else empty,
        )
        for name, hint in hints.items()
    ]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def is_of(value: Any, annotation: Any) -> bool:
    """Say whether `value` has the type `annotation`, all the way down."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if origin is Annotated:
        return is_of(value, parts[0])
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin in {Union, types.UnionType}:
        return any(is_of(value, part) for part in parts)
    if annotation in {None, type(None)}:
        return value is None
    if origin is tuple and parts[-1] is not ...:
        return (
            type(value) is tuple
            and len(value) == len(parts)
            and all(is_of(item, part) for item, part in zip(value, parts, strict=True))
        )
    if origin in {list, set, tuple}:
        return type(value) is origin and all(is_of(item, parts[0]) for item in value)
    if origin is dict:
        return type(value) is dict and all(is_of(item, parts[1]) for item in value.values())
    if typing.is_typeddict(annotation):
        return type(value) is dict and "value" in value
    return type(value) is annotation
