"""A function's parameters, sorted by who fills them: the model, the installation, or the call."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from milepost.core.errors import ToolValidationError
from milepost.tools.inject import is_context, is_injected
from milepost.tools.references import SECRET_NAME
from milepost.tools.secret import Secret, secrets_in
from milepost.tools.typed_dicts import readable_by_pydantic

INVALID_TOOL = "invalid_tool"

OMITTED = object()
"""The default of a parameter that is not passed at all when the model leaves it out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the model fills; `annotation` is None where the author wrote none."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Say whether the function has no default of its own."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and from whom.

    `hidden` are the names that no model fills, whatever a schema leaves open: what is injected or
    private, and what was settled before. `secrets` are the names of those that parameters get, by
    parameter. `positional` holds the parameters that cannot be passed by
    name, with their defaults. `takes_more` is true for `**kwargs`, `is_method` where an instance is
    still missing.
    """

    offered: tuple[Parameter, ...]
    injected: frozenset[str]
    context: frozenset[str]
    positional: Mapping[str, Any]
    returns: Any
    secrets: Mapping[str, str] = field(default_factory=dict)
    takes_more: bool = False
    is_method: bool = False
    hidden: frozenset[str] = frozenset()


def read_signature(function: Callable[..., Any], tool: str, inject: frozenset[str]) -> Signature:
    """Read `function`; `inject` names the parameters for which values are declared.

    Raises ToolValidationError where the signature cannot be read, or cannot be filled.
    """
    parameters = _parameters(function, tool)
    is_method = _lacks_instance(function, parameters)
    hints = _hints(function, tool)
    settled = function.keywords if isinstance(function, functools.partial) else {}
    named = [
        p
        for p in parameters[is_method:]
        if p.name not in settled and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
    ]
    context = frozenset(p.name for p in named if is_context(hints.get(p.name)))
    secrets = _secrets([p for p in parameters if p.name not in settled], hints, inject, tool)
    injected = frozenset(p.name for p in named if is_injected(hints.get(p.name))) | (
        inject & {p.name for p in named}
    )
    _check_injected(named, injected - secrets.keys(), inject, tool)
    hidden = context | injected | secrets.keys()
    offered = [p for p in named if p.name not in hidden and not p.name.startswith("_")]
    _check_private(named, hidden, tool)
    return Signature(
        tuple(Parameter(p.name, hints.get(p.name), p.default) for p in offered),
        injected & inject,
        context,
        {p.name: p.default for p in named if p.kind is p.POSITIONAL_ONLY},
        hints.get("return", inspect.Signature.empty),
        secrets,
        any(p.kind is p.VAR_KEYWORD for p in parameters),
        bool(is_method),
        frozenset({p.name for p in named} - {p.name for p in offered}) | settled.keys(),
    )


def _parameters(function: Callable[..., Any], tool: str) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError) as error:
        raise ToolValidationError(
            f"tool {tool!r}: its function does not tell its parameters; "
            "give a JSON Schema as `parameters`",
            code=INVALID_TOOL,
        ) from error


def _lacks_instance(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> bool:
    """Say whether `function` is written in a class and has not been bound to an instance."""
    if not isinstance(function, types.FunctionType) or not parameters:
        return False
    scope = function.__qualname__.rpartition(".")[0]
    in_class = bool(scope) and not scope.endswith("<locals>")
    return in_class and parameters[0].name in {"self", "cls"}


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    annotated = _annotated(function)
    remade: dict[type, type] = {}
    try:
        hints = get_type_hints(annotated, include_extras=True)
        return {name: readable_by_pydantic(hint, remade) for name, hint in hints.items()}
    except Exception as error:
        where = _culprit(annotated)
        raise ToolValidationError(
            f"tool {tool!r}: {where} cannot be read ({type(error).__name__}: {error}); "
            "import or define the type at the top of the module, not for type checkers alone",
            code=INVALID_TOOL,
        ) from error


def _annotated(function: Any) -> Any:
    """Return the object that carries the annotations of what is called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return function.__init__ if inspect.isclass(function) else type(function).__call__


def _culprit(function: Any) -> str:
    for name, annotation in inspect.get_annotations(function).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True)
        except Exception:
            return f"the annotation {annotation!r} of parameter {name!r}"
    return "an annotation"


def _secrets(
    parameters: list[inspect.Parameter], hints: Mapping[str, Any], inject: frozenset[str], tool: str
) -> dict[str, str]:
    """Return the names of the secrets that parameters get, by parameter."""
    found: dict[str, str] = {}
    for parameter in parameters:
        if not (marks := [*secrets_in(hint := hints.get(parameter.name))]):
            continue
        if issue := _wrong_with(marks, hint, parameter, inject):
            raise ToolValidationError(
                f"tool {tool!r}: parameter {parameter.name!r} {issue}", code=INVALID_TOOL
            )
        found[parameter.name] = marks[0].name
    return found


def _wrong_with(
    marks: list[Secret], hint: Any, parameter: inspect.Parameter, inject: frozenset[str]
) -> str | None:
    """Return why a parameter cannot be given the secret that it is marked with."""
    name = marks[0].name
    if len(marks) > 1:
        return "is marked with several secrets; take each in a parameter of its own"
    if marks[0] not in getattr(hint, "__metadata__", ()) or get_args(hint)[0] is not str:
        return f"gets a secret, which is text; write Annotated[str, Secret({name!r})]"
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return "takes any number of values, and a secret is one; take it in a parameter of its own"
    if not SECRET_NAME.fullmatch(str(name)):
        return (
            f"wants the secret {name!r}; a secret's name is a letter or _ and up to 127 letters,"
            " digits, _, . or -"
        )
    if parameter.default is not parameter.empty:
        return "gets a secret, and a call without it fails: its default is never used; drop it"
    if parameter.name in inject:
        return "gets a secret, and inject names it as well; drop one of them"
    return None


def _check_injected(
    named: list[inspect.Parameter], marked: frozenset[str], declared: frozenset[str], tool: str
) -> None:
    if unknown := declared - {p.name for p in named}:
        raise ToolValidationError(
            f"tool {tool!r}: inject names {_listed(unknown)}, which its function does not take",
            code=INVALID_TOOL,
        )
    bare = {p.name for p in named if p.name in marked - declared and p.default is p.empty}
    if bare:
        raise ToolValidationError(
            f"tool {tool!r}: nothing fills the injected parameter {_listed(bare)}; "
            "declare it: @tool(inject={name: value or factory})",
            code=INVALID_TOOL,
        )


def _check_private(named: list[inspect.Parameter], hidden: frozenset[str], tool: str) -> None:
    bare = {
        p.name
        for p in named
        if p.name.startswith("_") and p.name not in hidden and p.default is p.empty
    }
    if bare:
        raise ToolValidationError(
            f"tool {tool!r}: the private parameter {_listed(bare)} is kept from the model; "
            "give it a default or declare it with @tool(inject={...})",
            code=INVALID_TOOL,
        )


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
