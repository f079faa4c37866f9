"""`@tool`: turns a function into something that a model may call, and leaves it a function."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from milepost.core.errors import ToolValidationError
from milepost.core.repetition import ToolEffect
from milepost.tools.definition import Tool
from milepost.tools.docstring import summary
from milepost.tools.schema import ParameterNotes
from milepost.tools.signature import INVALID_TOOL

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__milepost_tool__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = "once",
    timeout_s: float | None = None,
    requires_approval: bool = False,
    terminal: bool = False,
    strict: bool = False,
    param_metadata: Mapping[str, ParameterNotes] | None = None,
    inject: Mapping[str, object] | None = None,
) -> Callable[[F], F]: ...
def tool(  # noqa: PLR0913 - the keywords of a tool, each with a meaning of its own
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = "once",
    timeout_s: float | None = None,
    requires_approval: bool = False,
    terminal: bool = False,
    strict: bool = False,
    param_metadata: Mapping[str, ParameterNotes] | None = None,
    inject: Mapping[str, object] | None = None,
) -> F | Callable[[F], F]:
    """Make `function` a tool, and return the very same function.

    The name is the function's, the description its docstring's first paragraph, and the schema
    comes from its signature. The keywords are those of `Tool`.
    """

    def decorate(function: F) -> F:
        called = name or _own_name(function)
        definition = Tool(
            name=called,
            description=_description(function, called) if description is None else description,
            function=function,
            effect=effect,
            timeout_s=timeout_s,
            requires_approval=requires_approval,
            terminal=terminal,
            strict=strict,
            param_metadata=param_metadata or {},
            inject=inject or {},
        )
        setattr(function, _ATTRIBUTE, definition)
        return function

    return decorate if function is None else decorate(function)


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return the tool that `function` was made into; for a bound method, one of its instance.

    Raises ToolValidationError for a function that is none.
    """
    definition = getattr(function, _ATTRIBUTE, None)
    if not isinstance(definition, Tool):
        named = getattr(function, "__qualname__", repr(function))
        raise ToolValidationError(
            f"{named} is not a tool; decorate it with @tool", code=INVALID_TOOL
        )
    if inspect.ismethod(function):
        return dataclasses.replace(definition, function=function)
    return definition


def is_tool(candidate: object) -> bool:
    """Say whether `tool_of` knows `candidate`."""
    return isinstance(getattr(candidate, _ATTRIBUTE, None), Tool)


def _own_name(function: Callable[..., Any]) -> str:
    own = getattr(function, "__name__", None)
    if not isinstance(own, str):
        raise ToolValidationError(
            f"{function!r} has no name of its own; give one: @tool(name=...)", code=INVALID_TOOL
        )
    return own


def _description(function: Callable[..., Any], called: str) -> str:
    if words := summary(function):
        return words
    warnings.warn(
        f"tool {called!r} has no docstring, so that models must guess what it does; write one",
        stacklevel=4,
    )
    return f"Tool {called}"
