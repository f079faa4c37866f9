"""The guardrails in Python that an installation has."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from milepost.core.errors import ConfigurationError
from milepost.guardrails.python_rails import FunctionRail, rails_in
from milepost.guardrails.verdicts import Rail
from milepost.tools import ToolThreads
from milepost.tools.loader import modules_of


def load_rails(specs: Iterable[str], threads: ToolThreads) -> dict[str, Rail]:
    """Return the rails of modules, files and folders by name; plain functions run in `threads`.

    Raises `ConfigurationError` for what does not load, or holds none.
    """
    found: dict[str, Rail] = {}
    for spec in specs:
        rails = rails_in(modules_of(spec))
        if not rails:
            raise ConfigurationError(
                f"{spec} holds no guardrails; decorate its functions with @rail"
            )
        if twice := sorted(found.keys() & rails.keys()):
            raise ConfigurationError(
                f"{spec}: there is a guardrail {twice[0]!r} already; rename one"
            )
        found |= rails
    return {name: _threaded(rail, threads) for name, rail in found.items()}


def _threaded(rail: Rail, threads: ToolThreads) -> Rail:
    if not isinstance(rail, FunctionRail):
        return rail

    async def in_thread(work: Callable[[], object]) -> object:
        call = threads.call(work)
        try:
            answer, error = await call.future
        except asyncio.CancelledError:
            threads.withdraw(call)
            raise
        if error is not None:
            raise error
        return answer

    return replace(rail, in_thread=in_thread)
