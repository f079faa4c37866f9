"""A line: one at a time, whoever waits where."""

import asyncio
import threading

import pytest

from milepost.memory.line import Line

TIMEOUT_S = 30


async def test_turns_come_in_the_order_of_arrival() -> None:
    line, order = Line(), list[int]()

    async def come(number: int) -> None:
        async with line.turn():
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(come(number) for number in range(5)))

    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_who_goes_away_is_passed_over() -> None:
    line, order = Line(), list[str]()

    async def come(name: str) -> None:
        async with line.turn():
            order.append(name)

    async with line.turn():
        waiting = [asyncio.create_task(come(name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait({waiting[1]})
    await asyncio.gather(waiting[0], waiting[2])

    assert order == ["a", "c"]
    assert waiting[1].cancelled()


async def test_a_turn_ends_with_an_error_too() -> None:
    line = Line()

    with pytest.raises(ValueError, match="no"):
        async with line.turn():
            raise ValueError("no")

    async with asyncio.timeout(TIMEOUT_S), line.turn():
        pass


def test_those_of_other_loops_wait_too() -> None:
    line = Line()
    inside, most = 0, 0

    async def come() -> None:
        nonlocal inside, most
        for _ in range(20):
            async with line.turn():
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=lambda: asyncio.run(come())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)

    assert not any(thread.is_alive() for thread in threads)
    assert most == 1
