"""Rails that people write in Python: a function that is asked, made a rail by `@rail`."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TypeGuard, get_args, overload

from milepost.core.errors import ConfigurationError
from milepost.core.guardrails import OnError
from milepost.guardrails.verdicts import PASS, Rail, Subject, Verdict

TIMEOUT_S = 10.0

Answer = Verdict | None
Asked = Callable[[Subject], Answer | Awaitable[Answer]]
InThread = Callable[[Callable[[], object]], Awaitable[object]]
"""Does in a thread what may hold up its caller."""


@dataclass(frozen=True, slots=True)
class FunctionRail:
    """A function as a rail: None is a pass. To raise, or to be late, is to fail."""

    name: str
    function: Asked
    on_error: OnError = "block"
    timeout_s: float = TIMEOUT_S
    in_thread: InThread = asyncio.to_thread

    async def check(self, subject: Subject) -> Verdict:
        """Ask the function."""
        async with asyncio.timeout(self.timeout_s):
            if inspect.iscoroutinefunction(self.function):
                answer = await self.function(subject)
            else:
                answer = await self.in_thread(lambda: self.function(subject))
                if inspect.isawaitable(answer):
                    answer = await answer
        if answer is None:
            return PASS
        if not isinstance(answer, Verdict):
            # Not what it answered: that may be what it was asked, and a log is read by many.
            kind = type(answer).__name__
            raise TypeError(f"rail {self.name!r} answered a {kind}, which is no verdict")
        return answer


@overload
def rail(function: Asked) -> FunctionRail: ...


@overload
def rail(
    *, name: str | None = None, on_error: OnError = "block", timeout_s: float = TIMEOUT_S
) -> Callable[[Asked], FunctionRail]: ...


def rail(
    function: Asked | None = None,
    *,
    name: str | None = None,
    on_error: OnError = "block",
    timeout_s: float = TIMEOUT_S,
) -> FunctionRail | Callable[[Asked], FunctionRail]:
    """Make a rail of a function, plain or async, that says of a `Subject` what becomes of it.

    `on_error` says what becomes of it where the function raises, or takes longer than `timeout_s`.
    Raises `ConfigurationError` for what could only ever fail.
    """

    def made(function: Asked) -> FunctionRail:
        found = FunctionRail(name or function.__name__, function, on_error, timeout_s)
        _require_sound(found)
        return found

    return made if function is None else made(function)


def _require_sound(rail: FunctionRail) -> None:
    if rail.on_error not in get_args(OnError):
        raise ConfigurationError(
            f"on_error of guardrail {rail.name!r} is {rail.on_error!r}; it is"
            f" {' or '.join(get_args(OnError))}"
        )
    try:
        inspect.signature(rail.function).bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"guardrail {rail.name!r} must take one argument, the Subject"
        ) from error
    except ValueError:
        pass  # What is written in C may not say what it takes.


def rails_in(modules: Iterable[ModuleType]) -> dict[str, Rail]:
    """Return the modules' rails by name; raise `ConfigurationError` if two share one."""
    found: dict[str, Rail] = {}
    for module in modules:
        for member in vars(module).values():
            if not _is_rail(member):
                continue
            if found.setdefault(member.name, member) is not member:
                raise ConfigurationError(
                    f"{module.__name__}: there is a guardrail {member.name!r} already; rename one"
                )
    return found


def _is_rail(member: object) -> TypeGuard[Rail]:
    """Say whether it is one; what will not even be looked at, such as a proxy, is none."""
    try:
        return isinstance(member, Rail) and not isinstance(member, type)
    except Exception:
        return False
