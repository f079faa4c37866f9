"""The deadline that moves for the price of an assignment."""

import asyncio

from milepost.providers.watchdog import NEVER, Watchdog


async def test_it_bites_once_the_deadline_has_passed() -> None:
    bitten = asyncio.Event()
    watchdog = Watchdog(bitten.set, period_s=0.01)

    watchdog.deadline = asyncio.get_running_loop().time() + 0.01

    await asyncio.wait_for(bitten.wait(), 5)
    assert watchdog.expired


async def test_a_deadline_that_was_moved_in_time_is_kept() -> None:
    loop = asyncio.get_running_loop()
    bitten = loop.create_future()
    watchdog = Watchdog(lambda: bitten.set_result(loop.time()), period_s=0.01)
    watchdog.deadline = loop.time() + 0.01

    watchdog.deadline = moved = loop.time() + 0.05

    assert await asyncio.wait_for(bitten, 5) >= moved


async def test_nobody_is_late_while_nothing_is_awaited() -> None:
    loop = asyncio.get_running_loop()
    looked_often = loop.create_future()
    watchdog = Watchdog(lambda: None, period_s=0.001)

    watchdog.deadline = NEVER
    loop.call_later(0.02, looked_often.set_result, None)
    await looked_often

    assert not watchdog.expired
    watchdog.stop()


async def test_a_stopped_one_never_bites() -> None:
    loop = asyncio.get_running_loop()
    long_after = loop.create_future()
    watchdog = Watchdog(lambda: None, period_s=0.001)
    watchdog.deadline = loop.time() + 0.001

    watchdog.stop()
    loop.call_later(0.02, long_after.set_result, None)
    await long_after

    assert not watchdog.expired
