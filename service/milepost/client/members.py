"""What an answer's members have to be, by the type that the answer is shaped as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """Marks a member that every answer has; if it is an object, it holds these of its own."""

    names: tuple[str, ...] = ()


Sure = Annotated[T, Told()]
"""A member that is in every answer; an older server may lack the others."""


@dataclass(frozen=True, slots=True)
class _Member:
    kinds: tuple[type, ...]
    within: type | None
    told: Told | None


def fits(shape: type, said: Mapping[str, Any]) -> bool:
    """Say whether an answer's members are what `shape`, a dataclass, promises of them.

    Those that are sure are there; the others may be, and are of their kind then.
    """
    return all(_is(member, said.get(name)) for name, member in _members(shape).items())


def made(shape: type[T], members: Mapping[str, Any]) -> T:
    """Return a `shape` of these members. Raises `TypeError` if they are not what it promises."""
    if not fits(shape, members):
        raise TypeError(f"this is no {shape.__name__}: {members}")
    return shape(**members)


def _is(member: _Member, value: object) -> bool:
    if value is None:
        return member.told is None or NoneType in member.kinds
    if not isinstance(value, member.kinds):
        return False
    if not isinstance(value, Mapping):
        return True
    told = () if member.told is None else member.told.names
    return all(name in value for name in told) and (
        member.within is None or fits(member.within, value)
    )


@cache
def _members(shape: type) -> Mapping[str, _Member]:
    hints = get_type_hints(shape, include_extras=True)
    if not is_typeddict(shape):
        return {name: _member(hint) for name, hint in hints.items() if name != "raw"}
    # Whoever has such an object looks into it by its members' names.
    required: frozenset[str] = vars(shape)["__required_keys__"]
    return {name: _member(hints[name], Told()) for name in required}


def _member(hint: Any, told: Told | None = None) -> _Member:
    plain, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    told = next((mark for mark in marks if isinstance(mark, Told)), told)
    meant = get_args(plain) if get_origin(plain) in {Union, UnionType} else (plain,)
    within = next((each for each in meant if is_typeddict(each)), None)
    return _Member(tuple(kind for each in meant for kind in _kinds(each)), within, told)


def _kinds(hint: Any) -> tuple[type, ...]:
    if hint is Any:
        return (object,)
    if get_origin(hint) is Literal:
        return tuple({type(word) for word in get_args(hint)})
    origin = get_origin(hint) or hint
    if is_typeddict(origin) or origin is Mapping:
        return (dict,)
    if origin is Sequence:
        return (list,)
    return (int, float) if origin is float else (origin,)
