"""`@tool`: turns a function into something that a model may call, and leaves it a function."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast, overload

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.core.repetition import OnUnknown, ToolEffect
from milepost.tools.definition import Isolation, Tool
from milepost.tools.docstring import documentation
from milepost.tools.schema import ParameterNotes
from milepost.tools.signature import INVALID_TOOL
from milepost.tools.written import ToolParameter

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__milepost_tool__"


class ToolOptions(TypedDict, total=False):
    """The keywords of `@tool`, whose meaning and defaults are those of `Tool`."""

    name: str | None
    description: str | None
    parameters: Mapping[str, Json] | Sequence[ToolParameter] | None
    effect: ToolEffect
    on_unknown: OnUnknown | None
    lookup: Callable[..., Any] | None
    timeout_s: float | None
    requires_approval: bool
    terminal: bool
    streaming: bool
    screen_output: bool
    cacheable: bool
    cache_ttl_s: float
    no_background: bool
    allow_repeat: bool
    strict: bool
    permissions: Sequence[str] | None
    blocking: bool
    isolation: Isolation | None
    param_metadata: Mapping[str, ParameterNotes]
    inject: Mapping[str, object]


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
    """Make `function` a tool, and return the very same function.

    The name is the function's, the description its docstring's first paragraph, and the schema
    comes from its signature. The keywords are those of `Tool`.
    """

    def decorate(function: F) -> F:
        return _decorated(function, options)

    return decorate if function is None else _decorated(function, options)


def executor(kind: str, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]:
    """Make a function what is called once the user of a chat has confirmed an action of this kind.

    It gets the action's arguments by name, and is a tool in all but one: no model is offered it.
    The keywords are those of `@tool`.
    """

    def decorate(function: F) -> F:
        _attach(function, dataclasses.replace(define(function, options), executes=kind))
        return function

    return decorate


def define(function: Callable[..., Any], options: ToolOptions) -> Tool:
    """Return the tool that `@tool(**options)` makes of `function`, and leave the function alone."""
    stated: dict[str, Any] = {**options}
    called = _called(function)
    name = stated.pop("name", None) or _own_name(function)
    description = stated.pop("description", None)
    if description is None:
        description = _description(called, name)
    return Tool(name=name, description=description, function=called, **stated)


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
    if inspect.ismethod(function) or _is_instance_of_tool(function):
        return dataclasses.replace(definition, function=function)
    return definition


def is_tool(candidate: object) -> bool:
    """Say whether `tool_of` knows `candidate`."""
    return isinstance(getattr(candidate, _ATTRIBUTE, None), Tool)


def schema_of(function: Callable[..., Any]) -> dict[str, Json]:
    """Return name, description and parameters of any function, decorated or not."""
    definition = tool_of(function) if is_tool(function) else define(function, {})
    return definition.schema.to_dict()


def _decorated(function: F, options: ToolOptions) -> F:
    _attach(function, define(function, options))
    return function


def _attach(function: Any, definition: Tool) -> None:
    # What is fetched from a class is the wrapped function, which must carry the tool then.
    for carrier in (function, getattr(function, "__func__", function)):
        setattr(carrier, _ATTRIBUTE, definition)


def _called(function: Any) -> Callable[..., Any]:
    """Return what is called: of a class that can be called when it is made, an instance."""
    if isinstance(function, (staticmethod, classmethod)):
        return cast("Callable[..., Any]", function.__func__)
    if not inspect.isclass(function) or "__call__" not in vars(function):
        return cast("Callable[..., Any]", function)
    try:
        return cast("Callable[..., Any]", function())
    except TypeError as error:
        raise ToolValidationError(
            f"{function.__qualname__} cannot be made without arguments ({error}); "
            "make a tool of an instance: tool(name=...)(instance)",
            code=INVALID_TOOL,
        ) from error


def _is_instance_of_tool(function: object) -> bool:
    """Say whether the tool is that of `function`'s class, and not its own."""
    if inspect.isclass(function) or _ATTRIBUTE in getattr(function, "__dict__", {}):
        return False
    return hasattr(type(function), _ATTRIBUTE)


def _own_name(function: Callable[..., Any]) -> str:
    own = getattr(function, "__name__", None)
    if not isinstance(own, str):
        raise ToolValidationError(
            f"{function!r} has no name of its own; give one: @tool(name=...)", code=INVALID_TOOL
        )
    return own


def _description(function: Callable[..., Any], called: str) -> str:
    if words := documentation(function).summary:
        return words
    warnings.warn(
        f"tool {called!r} has no docstring, so that models must guess what it does; write one",
        stacklevel=5,
    )
    return f"Tool {called}"
