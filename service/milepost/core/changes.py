"""Where two JSON values differ, place by place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.core.json import Json

CHANGES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """What stands at a place (a JSON pointer) before and after; None where nothing does."""

    path: str
    before: Json
    after: Json


def changes(before: Json, after: Json) -> list[Change]:
    """Return the places that differ, in the order in which they stand; the first ones of many."""
    found = _changes("", before, after)
    return [change for change, _ in zip(found, range(CHANGES_MAX), strict=False)]


def _changes(path: str, before: Json, after: Json) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(f"{path}/{_escaped(name)}", before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list):
        for place in range(max(len(before), len(after))):
            yield from _changes(f"{path}/{place}", _at(before, place), _at(after, place))
    elif type(before) is not type(after) or before != after:
        yield Change(path, before, after)


def _at(values: list[Json], place: int) -> Json:
    return values[place] if place < len(values) else None


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
