"""A tool: a function, what a model is told about it, and how it may be run."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.model import ToolSchema
from milepost.core.repetition import ToolEffect
from milepost.tools.arguments import Arguments
from milepost.tools.inject import Injection
from milepost.tools.ready import check_callable, closed
from milepost.tools.schema import (
    ParameterNotes,
    arguments_model,
    arguments_schema,
    result_schema,
)
from milepost.tools.signature import INVALID_TOOL, Signature, read_signature

# What the vendors have in common.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_EFFECTS = typing.get_args(ToolEffect)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function that a model may call. Everything about it is checked here, once.

    `parameters` is a ready JSON Schema; without one it is made from the function's signature.
    `effect` says what may be repeated after a crash: `read` and `idempotent` may, `once` never is.
    The result of a `terminal` tool is the run's answer. `strict` mends no argument. `inject` holds
    a value, or a factory, for each hidden parameter. `param_metadata` describes parameters and
    restricts their values. `timeout_s` of None leaves the bound to whoever runs the tool.
    """

    name: str
    description: str
    function: Callable[..., Any]
    kind: ToolKind = "server"
    parameters: Mapping[str, Json] | None = None
    effect: ToolEffect = "once"
    timeout_s: float | None = None
    requires_approval: bool = False
    terminal: bool = False
    strict: bool = False
    param_metadata: Mapping[str, ParameterNotes] = field(default_factory=dict)
    inject: Mapping[str, object] = field(default_factory=dict, repr=False)

    schema: ToolSchema = field(init=False, repr=False)
    output_schema: Mapping[str, Json] | None = field(init=False, repr=False)
    signature: Signature = field(init=False, repr=False)
    injection: Injection = field(init=False, repr=False)
    in_thread: bool = field(init=False)
    _arguments: Arguments = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        signature = self._read_signature()
        parameters, model = self._read_parameters(signature)
        joined = _yields(self.function)
        made: dict[str, object] = {
            "schema": ToolSchema(self.name, self.description, parameters),
            "output_schema": result_schema(signature.returns, joined=joined),
            "signature": signature,
            "injection": Injection(self.inject),
            "in_thread": not _is_async(self.function),
            "_arguments": Arguments(self.name, parameters, model, strict=self.strict),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def validate(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return `arguments` as this tool takes them: coerced, in JSON form, in a new dict.

        What comes out is returned unchanged when it goes in again, so that an approval may bind it.
        Raises ToolValidationError with a message for the model that wrote them.
        """
        return self._arguments.validate(arguments)

    def values(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        """Return validated `arguments` as the Python values that the function is annotated with."""
        return self._arguments.values(arguments)

    def describe(self) -> dict[str, Json]:
        """Return what the API tells about this tool."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.schema.parameters),
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
            "effect": self.effect,
            "requires_approval": self.requires_approval,
            "terminal": self.terminal,
            "timeout_s": self.timeout_s,
            "kind": self.kind,
        }

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise self._invalid("its name must be a letter and up to 63 letters, digits, _ or -")
        if not self.description.strip():
            raise self._invalid("it needs a description that tells the model when to use it")
        if not callable(self.function):
            raise self._invalid(f"its function cannot be called: {self.function!r}")
        if self.effect not in _EFFECTS:
            choices = ", ".join(repr(effect) for effect in _EFFECTS)
            raise self._invalid(f"its effect is {self.effect!r}; it must be one of {choices}")
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise self._invalid(f"its timeout_s is {self.timeout_s}; it must be more than 0")

    def _read_signature(self) -> Signature:
        inject = frozenset(self.inject)
        if self.parameters is None or _tells_parameters(self.function):
            return read_signature(self.function, self.name, inject)
        nobody: frozenset[str] = frozenset()
        return Signature((), inject, nobody, {}, inspect.Signature.empty, takes_more=True)

    def _read_parameters(self, signature: Signature) -> tuple[dict[str, Json], Any]:
        if self.parameters is None:
            model, schema = arguments_model(signature, self.name)
            return arguments_schema(schema, self.param_metadata, self.name), model
        if self.param_metadata:
            raise self._invalid("param_metadata belongs into the schema that it was given")
        parameters = closed(self.parameters, self.name)
        check_callable(parameters, signature, self.name)
        return parameters, None

    def _invalid(self, issue: str) -> ToolValidationError:
        return ToolValidationError(f"tool {self.name!r}: {issue}", code=INVALID_TOOL)


def _tells_parameters(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def _is_async(function: Callable[..., Any]) -> bool:
    return any(
        inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def _yields(function: Callable[..., Any]) -> bool:
    return any(
        inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def _forms(function: Callable[..., Any]) -> tuple[object, object]:
    """Return `function` and, for an object that is called like one, the method that answers."""
    return function, type(function).__call__
