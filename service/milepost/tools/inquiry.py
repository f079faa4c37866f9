"""How a tool's lookup is called: as a tool of its own, whose arguments are the call's key."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.lookup import answering
from milepost.tools.signature import INVALID_TOOL, read_signature

KEY = "key"
ARGUMENTS = "arguments"
_GIVEN: Mapping[str, Json] = {
    KEY: {"type": "string"},
    ARGUMENTS: {"type": "object", "additionalProperties": True},
}


def inquiry(lookup: Callable[..., Any], tool: str, inject: Mapping[str, object]) -> dict[str, Any]:
    """Return function, parameters and injected values of the tool that asks `lookup`.

    Of what `tool` has injected it gets what it names. Raises ToolValidationError for a lookup that
    could not be called.
    """
    if not inspect.isroutine(lookup):
        raise _invalid(tool, f"its lookup is {lookup!r}; give a function that takes `key: str`")
    named = inspect.signature(lookup).parameters
    injected = {name: value for name, value in inject.items() if name in named}
    signature = read_signature(lookup, tool, frozenset(injected))
    if signature.is_method:
        raise _invalid(tool, "its lookup is a method and lacks its instance; give a function")
    offered = {parameter.name: parameter for parameter in signature.offered}
    if KEY not in offered:
        raise _invalid(tool, "its lookup does not take the call's key; write `key: str`")
    for name in offered.keys() - _GIVEN.keys():
        if offered[name].required:
            raise _invalid(
                tool,
                f"its lookup wants {name!r}, and is given `key`, `arguments`, a ToolContext and"
                " what the tool has injected; name one of them",
            )
    taken = {name: schema for name, schema in _GIVEN.items() if name in offered}
    return {
        "function": answering(lookup),
        "parameters": {"type": "object", "properties": taken, "required": [*taken]},
        "inject": injected,
    }


def asked(
    parameters: Mapping[str, Json], key: str, arguments: Mapping[str, Json]
) -> dict[str, Json]:
    """Return what a lookup with these `parameters` is called with."""
    given: dict[str, Json] = {KEY: key, ARGUMENTS: dict(arguments)}
    properties = parameters["properties"]
    assert isinstance(properties, Mapping), "an inquiry's parameters are an object"
    return {name: value for name, value in given.items() if name in properties}


def _invalid(tool: str, issue: str) -> ToolValidationError:
    return ToolValidationError(f"tool {tool!r}: {issue}", code=INVALID_TOOL)
