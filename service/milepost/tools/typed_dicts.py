"""`typing.TypedDict` before Python 3.12, made anew in the form that pydantic reads."""

import sys
import types
import typing
from typing import Annotated, Any, Literal, NotRequired, Required, get_args, get_origin

import typing_extensions

_QUALIFIERS = {Required: True, NotRequired: False}


def readable_by_pydantic(annotation: Any, remade: dict[type, type]) -> Any:
    """Return `annotation` with every TypedDict in it as one that pydantic reads.

    Python 3.11 does not record what a TypedDict was derived from; the one of typing_extensions
    does. `remade` holds those made already: a TypedDict that appears twice stays one.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if _is_old(annotation):
        return _remade(annotation, remade)
    origin, parts = get_origin(annotation), get_args(annotation)
    if not parts or origin is Literal:
        return annotation
    changed = tuple(readable_by_pydantic(part, remade) for part in parts)
    if all(new is old for new, old in zip(changed, parts, strict=True)):
        return annotation
    return _with_parts(annotation, origin, changed)


def _is_old(annotation: Any) -> bool:
    return type(annotation).__module__ == "typing" and typing.is_typeddict(annotation)


def _with_parts(annotation: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    if origin is Annotated:
        return Annotated[parts]
    if origin is types.UnionType:
        return typing.Union[parts]  # noqa: UP007 - its parts are known at run time only
    if isinstance(annotation, types.GenericAlias):
        return types.GenericAlias(origin, parts)
    return annotation.copy_with(parts)


def _remade(old: Any, remade: dict[type, type]) -> type:
    if old in remade:
        return remade[old]
    make: Any = typing_extensions.TypedDict
    new = make(old.__name__, {})
    # Registered before its fields are read: they may name it.
    remade[old] = new
    hints = typing.get_type_hints(old, include_extras=True)
    new.__annotations__ = {name: readable_by_pydantic(hint, remade) for name, hint in hints.items()}
    required = {name for name, hint in hints.items() if _is_required(name, hint, old)}
    new.__required_keys__ = frozenset(required)
    new.__optional_keys__ = frozenset(hints.keys() - required)
    for kept in ("__module__", "__qualname__", "__doc__", "__total__", "__pydantic_config__"):
        if hasattr(old, kept):
            setattr(new, kept, getattr(old, kept))
    return typing.cast("type", new)


def _is_required(name: str, hint: Any, old: Any) -> bool:
    """Say what the key's own qualifier says: of one written as text, Python 3.11 keeps no note."""
    while (origin := get_origin(hint)) is not None:
        if origin in _QUALIFIERS:
            return _QUALIFIERS[origin]
        if origin is not Annotated:
            break
        hint = get_args(hint)[0]
    return name in old.__required_keys__
