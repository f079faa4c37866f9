"""A call's arguments: the check at the model's boundary, and the Python values made from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

import orjson
from pydantic import BaseModel, ValidationError

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.defaults import Defaults, Filled
from milepost.tools.misfit import Misfit, clipped, dotted, unexpected
from milepost.tools.raised import told
from milepost.tools.signature import OMITTED


@dataclass(frozen=True, slots=True)
class Fitted:
    """A call's arguments, coerced: `given` as its model gave them, `taken` as the tool gets them.

    To the latter belong the defaults of what was left out.
    """

    given: dict[str, Json]
    taken: dict[str, Json]


class Arguments:
    """Judges arguments by `schema`, then by `model`, which a ready-made schema lacks."""

    def __init__(
        self,
        tool: str,
        schema: Mapping[str, Json],
        model: type[BaseModel] | None,
        *,
        strict: bool,
        defaults: Defaults,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        """`hidden` are the names that no model may fill, even where the schema is open."""
        self._tool = tool
        self._offered = [*cast("Mapping[str, Json]", schema.get("properties", {}))]
        # What a model makes the values of takes no more than it offers.
        self._hidden = hidden if model is None else frozenset[str]()
        compiler = SchemaCompiler(schema, strict=strict, tried_again=model is not None)
        self._coerce = compiler.compile(cast("Json", schema))
        self._defaults = defaults
        self._read = None
        self._parameters: dict[str, str] = {}
        self._as_made = False
        if model is not None:
            self._read = model.__pydantic_validator__.validate_json
            self._parameters = {
                name: field.alias or name for name, field in model.model_fields.items()
            }
            # Nothing to rename and nothing to leave out: nothing to copy.
            fields = model.model_fields.values()
            named = all(name == parameter for name, parameter in self._parameters.items())
            self._as_made = named and all(field.default is not OMITTED for field in fields)

    def validate(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return `given` coerced, in containers of its own; ToolValidationError if it cannot be."""
        coerced = self._coerced(given)
        self._values(coerced)
        return coerced

    def fit(self, given: Mapping[str, Json]) -> Fitted:
        """Return `given` coerced, and with the defaults of what it leaves out.

        Raises ToolValidationError if it cannot be.
        """
        coerced = self._coerced(given)
        made = self._values(coerced)
        taken = self._completed(coerced, made) if self._defaults.declares_any else coerced
        return Fitted(coerced, taken)

    def values(self, given: Mapping[str, Json]) -> dict[str, Any]:
        """Return what to call the function with, as the types it is annotated with."""
        return self._values(self._coerced(given))

    def _coerced(self, given: Mapping[str, Json]) -> dict[str, Json]:
        try:
            self._require_offered(given)
            plain = given if type(given) is dict else dict(given)
            return cast("dict[str, Json]", self._coerce(plain))
        except Misfit as misfit:
            raise misfit.to_error(self._tool) from None
        except RecursionError:
            message = f"{self._tool} got arguments that are nested too deeply"
            raise ToolValidationError(message) from None
        except Exception as error:
            # A check that breaks has not passed, and who judges a call hears a refusal, no crash.
            raise self._broken(error) from error

    def _completed(self, coerced: dict[str, Json], made: dict[str, Any]) -> dict[str, Json]:
        """Return arguments with the defaults that come to the same, said or left out.

        Those do not that the tool itself would refuse, or would make something else of.
        """
        try:
            full = self._defaults.fill(coerced)
        except Misfit as misfit:
            raise misfit.to_error(self._tool) from None
        if not full.taken or self._comes_to(full, 0, coerced, made):
            return full.arguments
        kept: list[int] = []
        for each in dict.fromkeys(full.taken):
            more = self._defaults.fill(coerced, [*kept, each])
            if self._comes_to(more, len(full.taken) - len(more.taken), coerced, made):
                kept.append(each)
        return self._defaults.fill(coerced, kept).arguments

    def _comes_to(
        self, full: Filled, lacking: int, coerced: dict[str, Json], made: dict[str, Any]
    ) -> bool:
        """Say whether the tool gets what is `made` if more is said, which lacks no more then."""
        try:
            said = self._coerced(full.arguments)
            if said != full.arguments or len(self._defaults.fill(said).taken) != lacking:
                return False
            if self._read is None:
                return True
            # What is made the second time of the same comes last: a clock may have moved by then.
            values = self._values(said)
            return _is_equal(values, made) or _is_same(values, made, self._values(coerced))
        except Exception:
            return False

    def _require_offered(self, given: Mapping[str, Json]) -> None:
        if exposed := self._hidden & given.keys():
            raise unexpected([*exposed], self._offered)

    def _values(self, coerced: dict[str, Json]) -> dict[str, Any]:
        if self._read is None:
            return coerced
        try:
            instance = self._read(orjson.dumps(coerced))
        except ValidationError as error:
            raise self._refused(error) from None
        except BaseException as error:
            # The tool's own validator raised it: that is its way of refusing, and stops nobody.
            raise self._broken(error) from error
        made: dict[str, Any] = instance.__dict__
        if self._as_made:
            return made
        return {
            parameter: value
            for field, parameter in self._parameters.items()
            if (value := made[field]) is not OMITTED
        }

    def _broken(self, error: BaseException) -> ToolValidationError:
        return ToolValidationError(f"{self._tool}: its arguments are refused: {told(error)}")

    def _refused(self, error: ValidationError) -> ToolValidationError:
        first = error.errors(include_url=False, include_context=False)[0]
        where, got = dotted(first["loc"]), clipped(first["input"])
        issue = f"is refused: {first['msg']}, got {got}"
        return ToolValidationError(
            f"{self._tool}: parameter {where!r} {issue}",
            tool=self._tool,
            parameter=where,
            issue=issue,
        )


def _is_same(full: Any, made: Any, again: Any) -> bool:
    """Say whether `full` is what is `made`, but for what is made anew each time, as is `again`.

    The tool itself makes that, whatever is said beside it: the time of a call, or an id.
    """
    if _is_equal(full, made):
        return True
    parts = [_parts(value) for value in (full, made, again)]
    if type(full) is type(made) and parts[0].keys() == parts[1].keys() == parts[2].keys() != set():
        return all(_is_same(*(part[name] for part in parts)) for name in parts[1])
    return not _is_equal(made, again)


def _parts(value: Any) -> dict[Any, Any]:
    """Return what a value consists of, nothing where it is to be compared as a whole."""
    match value:
        case dict():
            return value
        case list() | tuple():
            return dict(enumerate(value))
        case BaseModel():
            return value.__dict__
        case _ if is_dataclass(value):
            return {each.name: getattr(value, each.name) for each in fields(value)}
        case _:
            return {}


def _is_equal(one: Any, other: Any) -> bool:
    """Say whether two values are equal; those of which nobody can say it are not."""
    try:
        return bool(one == other)
    except Exception:
        return False
