"""Looking up by its key whether a call that was cut off has acted, and what it brought."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from milepost.core.errors import ToolError
from milepost.tools.typed_results import ToolResult


@dataclass(frozen=True, slots=True)
class Found(ToolResult):
    """The call has acted; `result` is what it brought, as the tool would have returned it."""

    kind: ClassVar[str] = "found"
    result: Any = None


@dataclass(frozen=True, slots=True)
class Absent(ToolResult):
    """The call has not acted, and will not any more: it may be made again."""

    kind: ClassVar[str] = "absent"


@dataclass(frozen=True, slots=True)
class Unknown(ToolResult):
    """Whether the call has acted cannot be told."""

    kind: ClassVar[str] = "unknown"


def answering(lookup: Callable[..., Any]) -> Callable[..., Any]:
    """Return `lookup`, with the same signature, as one that returns an answer or raises."""
    if inspect.iscoroutinefunction(lookup):

        @functools.wraps(lookup)
        async def ask(*args: Any, **named: Any) -> ToolResult:
            return _answer(await lookup(*args, **named))

        return ask

    @functools.wraps(lookup)
    def look(*args: Any, **named: Any) -> ToolResult | Awaitable[ToolResult]:
        said = lookup(*args, **named)
        return _later(said) if inspect.isawaitable(said) else _answer(said)

    return look


async def _later(said: Awaitable[object]) -> ToolResult:
    return _answer(await said)


def _answer(said: object) -> ToolResult:
    if isinstance(said, Found | Absent | Unknown):
        return said
    raise ToolError(
        f"its lookup returned {type(said).__name__}; return Found(result), Absent() or Unknown()"
    )
