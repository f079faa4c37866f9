"""Values that a tool is given and no model may see: declared once, made when the tool runs."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from milepost.core.errors import ToolError
from milepost.tools.context import ToolContext
from milepost.tools.secret import FindSecret, secrets_in

T = TypeVar("T")


class InjectionMarker:
    """What `Injected[...]` leaves in an annotation."""


Injected = Annotated[T, InjectionMarker()]
"""Marks a parameter that `@tool(inject={...})` fills: `database: Injected[Database]`."""


def is_injected(annotation: object) -> bool:
    """Say whether `annotation`, or an alternative of it, is marked `Injected`."""
    metadata = getattr(annotation, "__metadata__", ())
    if any(isinstance(mark, InjectionMarker) for mark in metadata):
        return True
    return any(is_injected(part) for part in get_args(annotation))


def is_context(annotation: object) -> bool:
    """Say whether `annotation`, or an alternative of it, is `ToolContext`."""
    if annotation is ToolContext:
        return True
    return any(is_context(part) for part in get_args(annotation))


def wants_secrets(factory: Callable[..., Any]) -> bool:
    """Say whether a parameter of `factory` is marked with a `Secret`, as far as it can be read."""
    try:
        taken = {*inspect.signature(factory).parameters}
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
    made: Any = factory
    while isinstance(made, functools.partial):
        taken -= made.keywords.keys()
        made = made.func
    # An object that is called has its parameters in a method, and a class in how it is made.
    within = getattr(made, "__init__" if isinstance(made, type) else "__call__")
    hints = {**_hints(within), **_hints(made)}
    return any(True for name in taken & hints.keys() for _ in secrets_in(hints[name]))


def _hints(annotated: object) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, include_extras=True)
    except Exception:  # Whatever its annotations name need not be there: nobody else reads them.
        return {}


class Injection:
    """The declared values of one tool: constants, and factories that are called for every call.

    `secrets` are the names of those that it gets beside them, by parameter.

    A factory takes nothing, or the `ToolContext`; it may be asynchronous. It is called on the event
    loop, so one that waits should be. To inject something callable, wrap it: `lambda: function`.
    """

    def __init__(
        self, declared: Mapping[str, object], secrets: Mapping[str, str] | None = None
    ) -> None:
        self._secrets = dict(secrets or {})
        self._constants = {name: value for name, value in declared.items() if not callable(value)}
        self._factories: dict[str, tuple[Callable[..., Any], bool]] = {
            name: (value, _wants_context(value))
            for name, value in declared.items()
            if callable(value)
        }

    async def secrets(self, context: ToolContext, find: FindSecret) -> dict[str, str]:
        """Return the secrets to pass, by parameter: the tenant's, as they are now."""
        return {
            parameter: await find(context.tenant, name) for parameter, name in self._secrets.items()
        }

    async def values(self, context: ToolContext) -> dict[str, object]:
        """Return what to pass, by parameter."""
        values = dict(self._constants)
        for name, (factory, wants_context) in self._factories.items():
            try:
                value = factory(context) if wants_context else factory()
                values[name] = await value if inspect.isawaitable(value) else value
            except Exception as error:
                # The error's own text may hold what was to be kept from the model: a key, a URL.
                kind = type(error).__name__
                raise ToolError(f"could not prepare {name!r}, which it needs: {kind}") from error
        return values


def _wants_context(factory: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin that does not tell
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        for parameter in parameters
    )
