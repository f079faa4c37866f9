"""What was changed about a model's arguments before a tool got them."""

from collections.abc import Iterator, Mapping
from itertools import islice

from milepost.core.json import Json
from milepost.tools.misfit import clipped, dotted

COERCIONS_MAX = 50


def coercions(given: Mapping[str, Json], taken: Mapping[str, Json]) -> tuple[str, ...]:
    """Return a line for each value that was mended, such as `count: "5" became 5`.

    Of very many, the first are told, and that there were more.
    """
    if given == taken and _same_types(given, taken):
        return ()
    found = tuple(islice(_changes(dict(given), dict(taken), ()), COERCIONS_MAX + 1))
    if len(found) <= COERCIONS_MAX:
        return found
    return (*found[:COERCIONS_MAX], "… and more")


def _changes(given: Json, taken: Json, path: tuple[str | int, ...]) -> Iterator[str]:
    match given, taken:
        case dict(), dict():
            for name in (name for name in given if name in taken):
                yield from _changes(given[name], taken[name], (*path, name))
        case list(), list() if len(given) == len(taken):
            for index, (one, other) in enumerate(zip(given, taken, strict=True)):
                yield from _changes(one, other, (*path, index))
        case _ if given != taken or type(given) is not type(taken):
            yield f"{dotted(path)}: {clipped(given)} became {clipped(taken)}"
        case _:
            return


def _same_types(given: Mapping[str, Json], taken: Mapping[str, Json]) -> bool:
    """Say whether no top value changed its type: 4.0 equals 4, and True equals 1."""
    return all(type(given[name]) is type(taken[name]) for name in given)
