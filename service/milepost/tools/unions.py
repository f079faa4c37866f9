"""Alternatives: which of several schemas a value is fitted to."""

from collections.abc import Mapping, Sequence

from milepost.core.json import Json
from milepost.tools.misfit import Misfit, clipped, shown, some
from milepost.tools.scalars import Coerce


class Union:
    """Takes the first branch that fits as it is, else the first for which a value can be mended.

    An exclusive one refuses what fits two as it is. Each branch sees a value once: a schema that
    contains itself would otherwise double the work with every level.
    """

    def __init__(
        self, branches: Sequence[Json], compiled: Sequence[Coerce], *, exclusive: bool
    ) -> None:
        self._compiled = compiled
        self._exclusive = exclusive
        self._expected = some(branches, " or ", kind_of)
        # An Optional's own complaint says more than that null would have done as well.
        solid = [coerce for coerce, b in zip(compiled, branches, strict=True) if not _is_null(b)]
        self._telling = solid[0] if len(solid) == 1 else None

    def coerce(self, value: Json) -> Json:
        """Fit `value` to one of the branches."""
        exact: list[Json] = []
        mended: list[Json] = []
        told: Misfit | None = None
        for branch in self._compiled:
            try:
                result = branch(value)
            except Misfit as misfit:
                told = misfit if branch is self._telling else told
                continue
            (exact if result == value else mended).append(result)
            if exact and not self._exclusive:
                return result
            if len(exact) > 1:
                raise _ambiguous(value)
        if fitting := exact or mended:
            return fitting[0]
        raise told or self._unfit(value)

    def _unfit(self, value: Json) -> Misfit:
        issue = f"must be {self._expected}, got {shown(value)}"
        return Misfit(issue, f"Expected type: {self._expected}")


def kind_of(schema: Json) -> str:
    """Return a word for what `schema` accepts."""
    if not isinstance(schema, Mapping):
        return "any value"
    if "const" in schema:
        return clipped(schema["const"])
    if isinstance(choices := schema.get("enum"), list):
        return some(choices, " or ", clipped)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return str(schema.get("type", "any value"))


def _ambiguous(value: Json) -> Misfit:
    issue = f"fits more than one of its alternatives, got {shown(value)}"
    return Misfit(issue, "Say more, so that it fits exactly one")


def _is_null(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"
