"""What judging one value may cost: nothing is looked at twice, and nothing without end.

A schema may be anybody's, and so may a value. Together they can ask for more than either seems to:
alternatives that hold one another double the work with every level of a value, and a long list
under a long schema multiplies the two.
"""

import threading
from collections.abc import Callable, Iterator, Mapping

from milepost.core.json import Json
from milepost.tools.misfit import Misfit
from milepost.tools.scalars import Coerce

PARTS_MAX = 2_000_000
"""Against how many parts of a schema one value may be held, each as often as it is."""
PARTS_PER_REFERENCE = 20
"""What following a reference costs beside, in parts."""
TRIES_MAX = 4_000
TRIES_PER_UNION_MAX = 16
"""How often pydantic, which tries every alternative to its end, may look at nested ones."""


class TooMuchError(Exception):
    """To go on would take too long. No alternative is tried after that."""


class Effort(threading.local):
    """What was spent on the value that this thread judges, and what was found out about its parts.

    One belongs to each compiled schema. Whoever judges a value begins, and ends it.
    """

    def __init__(self) -> None:
        self._room = 0
        self._known: dict[tuple[str, int], tuple[Json, Json | Misfit]] = {}
        self._ways = 1
        self._tries = 0
        self._unions = 0

    def bounding(self, judge: Coerce) -> Coerce:
        """Return `judge` for a whole value."""

        def coerce(value: Json) -> Json:
            self._room = PARTS_MAX
            self._ways, self._tries, self._unions = 1, 0, 0
            try:
                return judge(value)
            except TooMuchError as error:
                raise Misfit(f"takes too long to check: {error}") from None
            finally:
                self._known = {}

        return coerce

    def spend(self, parts: int) -> None:
        """Count parts of a schema that something is held against."""
        self._room -= parts
        if self._room < 0:
            raise TooMuchError("say less in one call, or with fewer levels")

    def once(self, reference: str, judge: Coerce, value: Json) -> Json:
        """Return what `judge`, which is what `reference` means, makes of `value`: known or not."""
        if not isinstance(value, (dict, list)):
            return judge(value)
        key = (reference, id(value))
        if key not in self._known:
            self.spend(PARTS_PER_REFERENCE)
            # With the value, so that no other can come to have its id.
            self._known[key] = (value, _tried(judge, value))
        found = self._known[key][1]
        if isinstance(found, Misfit):
            raise found.again()
        return found

    def tried_all(self, judge: Coerce, branches: int) -> Coerce:
        """Return `judge`, a union of so many `branches` in which it occurs again.

        What is behind it is tried again for each of them, by a validator that is not ours.
        """

        def coerce(value: Json) -> Json:
            before = self._ways
            self._ways = ways = before * branches
            self._tries += ways
            self._unions += 1
            if self._tries > TRIES_MAX + TRIES_PER_UNION_MAX * self._unions:
                raise TooMuchError("alternatives are nested in one another; say it in fewer levels")
            try:
                return judge(value)
            finally:
                self._ways = before

        return coerce


def weight_of(schema: Json) -> int:
    """Return of how many parts a schema is, but for those that are counted as they are used."""
    if not isinstance(schema, Mapping):
        return 1
    lists = (_list(schema.get(name)) for name in ("allOf", "anyOf", "oneOf", "prefixItems"))
    parts = [part for listed in lists for part in listed]
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        parts += properties.values()
    named = len(_list(schema.get("required"))) + len(_list(schema.get("type")))
    return 1 + named + sum(map(weight_of, parts))


def recurs(part: Json, resolve: Callable[[str], Json]) -> bool:
    """Say whether `part` refers, by whatever way, to what refers to itself."""
    return any(found in reached(resolve(found), resolve) for found in reached(part, resolve))


def reached(part: Json, resolve: Callable[[str], Json]) -> frozenset[str]:
    """Return all references that lead on from `part`."""
    found: dict[str, None] = {}
    ahead = [part]
    while ahead:
        for reference in _references_in(ahead.pop()):
            if reference not in found:
                found[reference] = None
                ahead.append(resolve(reference))
    return frozenset(found)


def _references_in(part: Json) -> Iterator[str]:
    match part:
        case dict():
            if isinstance(reference := part.get("$ref"), str):
                yield reference
            for value in part.values():
                yield from _references_in(value)
        case list():
            for value in part:
                yield from _references_in(value)
        case _:
            return


def _tried(judge: Coerce, value: Json) -> Json | Misfit:
    try:
        return judge(value)
    except Misfit as misfit:
        return misfit.again()


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
