"""`python -m tests.benchmarks.tools_cost`: what a tool costs over a direct call of its function.

Each figure is the least of several rounds: whatever else the machine does can only add to it. The
loop is the one that the service runs on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import uvloop
from pydantic import validate_call

from milepost.core.json import Json
from milepost.tools import Invoker, Tool, ToolContext, ToolThreads, tool, tool_of
from tests.benchmarks.costs import Cost, least

ROUNDS = 15
CALLS = 300
TIMEOUT_S = 60.0

ARGUMENTS: dict[str, Json] = {
    "city": "Oslo", "days": 3, "unit": "C", "wind": True, "limit": 1.5, "tags": ["a", "b"],
}  # fmt: skip
CONTEXT = ToolContext(
    run_id="run_1",
    session_id="ses_1",
    tenant="acme",
    user=None,
    call_id="call_1_0",
    attempt=1,
    idempotency_key="key-1",
)


def forecast(
    city: str,
    days: int,
    *,
    unit: Literal["C", "F"] = "C",
    wind: bool = False,
    limit: float = 0.0,
    tags: list[str] | None = None,
) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: How many days from now on.
    """
    return city


async def forecast_async(
    city: str,
    days: int,
    *,
    unit: Literal["C", "F"] = "C",
    wind: bool = False,
    limit: float = 0.0,
    tags: list[str] | None = None,
) -> str:
    """Tell the weather."""
    return city


async def costs(rounds: int = ROUNDS, calls: int = CALLS) -> list[Cost]:
    """Measure everything, each in `rounds` of `calls`."""
    threads = ToolThreads(threads_max=4)
    try:
        return await _costs(_Meter(rounds, calls), Invoker(threads))
    finally:
        threads.close()


class _Meter:
    """Measures in rounds."""

    def __init__(self, rounds: int, calls: int) -> None:
        self._rounds = rounds
        self._calls = calls

    def sync(self, work: Callable[[], object], calls: int | None = None) -> float:
        """Return the microseconds of one `work` in the best round."""
        return least(work, rounds=self._rounds, times=calls or self._calls)

    async def asynchronous(self, work: Callable[[], Awaitable[object]]) -> float:
        """Return the microseconds of one awaited `work` in the best round."""
        rounds: list[float] = []
        for _ in range(self._rounds):
            began = time.perf_counter()
            for _ in range(self._calls):
                await work()
            rounds.append((time.perf_counter() - began) / self._calls * 1e6)
        return min(rounds)


async def _costs(meter: _Meter, invoker: Invoker) -> list[Cost]:
    weather, quick = tool_of(tool(forecast_async)), tool_of(tool(forecast))
    unthreaded = Tool(name="quick", description="Q.", function=forecast, blocking=False)
    checked: Any = validate_call(forecast_async)
    checked_sync: Any = validate_call(forecast)
    arguments: dict[str, Any] = dict(ARGUMENTS)

    def call(definition: Tool) -> Awaitable[object]:
        return invoker.invoke(definition, ARGUMENTS, CONTEXT, timeout_s=TIMEOUT_S)

    async def in_sequence() -> None:
        for _ in range(3):
            await call(weather)

    async def side_by_side() -> None:
        await asyncio.gather(call(weather), call(weather), call(weather))

    direct = await meter.asynchronous(lambda: forecast_async(**arguments))
    direct_sync = meter.sync(lambda: forecast(**arguments))
    sequence = await meter.asynchronous(in_sequence)
    return [
        Cost("register six parameters", meter.sync(_register, 10), 1_000),
        Cost("  pydantic's validate_call", meter.sync(lambda: validate_call(forecast), 10)),
        Cost("direct call, async", direct),
        Cost("  pydantic's, added",
             await meter.asynchronous(lambda: checked(**arguments)) - direct),
        Cost("  validate alone", meter.sync(lambda: weather.values(ARGUMENTS))),
        Cost("  as a tool, added", await meter.asynchronous(lambda: call(weather)) - direct, 15),
        Cost("direct call, sync", direct_sync),
        Cost("  pydantic's, added", meter.sync(lambda: checked_sync(**arguments)) - direct_sync),
        Cost("  as a tool without a thread, added",
             await meter.asynchronous(lambda: call(unthreaded)) - direct_sync),
        Cost("  as a tool in a thread, added",
             await meter.asynchronous(lambda: call(quick)) - direct_sync, 100),
        Cost("three tools in sequence", sequence),
        Cost("three tools side by side", await meter.asynchronous(side_by_side), 2 * sequence),
    ]  # fmt: skip


def _register() -> Tool:
    return Tool(name="forecast", description="Tell the weather.", function=forecast)


def main() -> None:
    """Measure, and print a line each."""
    for cost in uvloop.run(costs()):
        print(cost)


if __name__ == "__main__":
    main()
