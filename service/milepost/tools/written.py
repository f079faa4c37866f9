"""Parameters that an author writes down, instead of having them read from the function."""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milepost.core.errors import ToolValidationError
from milepost.tools.schema import ParameterNotes, takes_none
from milepost.tools.signature import INVALID_TOOL, OMITTED, Parameter, Signature
from milepost.tools.typed_dicts import readable_by_pydantic

# What stands in the brackets of each.
_CONTAINERS: Mapping[type, Callable[[Any], Any]] = {
    list: lambda element: element,
    set: lambda element: element,
    frozenset: lambda element: element,
    tuple: lambda element: (element, ...),
    dict: lambda element: (str, element),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParameter:
    """One parameter of a plain `Tool`.

    `type` is any annotation that `@tool` would take; `element_type` says what a bare list, set,
    tuple or dict contains. What is not `required` has a default in the function, or may be None.
    """

    name: str
    type: Any = str
    description: str = ""
    required: bool = True
    enum: Sequence[str | int | float | bool] | None = None
    element_type: Any = None


def written(
    parameters: Iterable[ToolParameter], signature: Signature, tool: str
) -> tuple[Signature, dict[str, ParameterNotes]]:
    """Return the signature that offers `parameters` to the model, and what was noted about them.

    Raises ToolValidationError where the function cannot be called with them.
    """
    stated = [*parameters]
    given: list[object] = [*stated]
    if strange := [each for each in given if not isinstance(each, ToolParameter)]:
        raise _invalid(
            tool,
            f"its parameters hold {strange[0]!r}; list ToolParameter(name=...), or give a JSON"
            " Schema",
        )
    _check_names(stated, signature, tool)
    known = {parameter.name: parameter for parameter in signature.offered}
    remade: dict[type, type] = {}
    offered = tuple(
        Parameter(
            parameter.name,
            readable_by_pydantic(_annotation(parameter, tool), remade),
            _default(parameter, known, tool),
        )
        for parameter in stated
    )
    notes = {parameter.name: note for parameter in stated if (note := _note(parameter))}
    return replace(signature, offered=offered), notes


def _check_names(stated: list[ToolParameter], signature: Signature, tool: str) -> None:
    names = [parameter.name for parameter in stated]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise _invalid(tool, f"it has more than one parameter {_listed(twice)}; name each once")
    if exposed := sorted(signature.hidden & set(names)):
        raise _invalid(
            tool, f"{_listed(exposed)} is injected or private, so the model must not fill it"
        )
    known = {parameter.name for parameter in signature.offered}
    if not signature.takes_more and (foreign := [n for n in names if n not in known]):
        raise _invalid(tool, f"its function does not take {_listed(foreign)}; it takes "
                       f"{_listed(known) or 'nothing'}")  # fmt: skip
    needed = (parameter.name for parameter in signature.offered if parameter.required)
    if unfilled := [name for name in needed if name not in names]:
        raise _invalid(
            tool, f"its function needs {_listed(unfilled)}; add a ToolParameter or a default"
        )


def _annotation(parameter: ToolParameter, tool: str) -> Any:
    element = parameter.element_type
    if element is None:
        return parameter.type
    if parameter.type not in _CONTAINERS:
        raise _invalid(
            tool,
            f"parameter {parameter.name!r} has an element_type, which its type {parameter.type!r} "
            "does not contain; use it with list, set, frozenset, tuple or dict",
        )
    return types.GenericAlias(parameter.type, _CONTAINERS[parameter.type](element))


def _default(parameter: ToolParameter, known: Mapping[str, Parameter], tool: str) -> Any:
    own = known.get(parameter.name)
    if own is None:
        return inspect.Parameter.empty if parameter.required else OMITTED
    if parameter.required and not own.required:
        raise _invalid(
            tool,
            f"parameter {parameter.name!r} is said to be required, but its function has a default "
            "for it; say required=False, or drop the default",
        )
    if own.required and not parameter.required and not takes_none(parameter.type):
        raise _invalid(
            tool,
            f"parameter {parameter.name!r} is said to be optional, but its function has no default "
            "for it; add one, or give it a type that takes None",
        )
    return own.default


def _note(parameter: ToolParameter) -> ParameterNotes:
    note: ParameterNotes = {}
    if parameter.description:
        note["description"] = parameter.description
    if parameter.enum is not None:
        note["enum"] = parameter.enum
    return note


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _invalid(tool: str, issue: str) -> ToolValidationError:
    return ToolValidationError(f"tool {tool!r}: {issue}", code=INVALID_TOOL)
