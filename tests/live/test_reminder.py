"""The reminder: rings again and again, and no more once it is left."""

import asyncio

from milepost.live.reminder import Reminder


async def test_it_rings_again_and_again_until_it_is_left() -> None:
    rings = 0
    enough = asyncio.Event()

    def ring() -> None:
        nonlocal rings
        rings += 1
        if rings == 3:
            enough.set()

    with Reminder(0.001, ring):
        await asyncio.wait_for(enough.wait(), 5)
    heard, later = rings, asyncio.Event()
    with Reminder(0.002, later.set):
        await asyncio.wait_for(later.wait(), 5)

    assert rings == heard
