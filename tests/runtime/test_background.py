"""The tasks of a process: told to end until they do, and left if they never will."""

import asyncio

from milepost.runtime.background import TOLD_MAX, Background, end
from tests.runtime.workshop import TIMEOUT_S


async def test_a_part_that_takes_its_cancellation_for_an_outage_is_told_again() -> None:
    begun, deaf = asyncio.Event(), asyncio.Event()

    async def part() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            deaf.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(part())
    await begun.wait()
    await asyncio.wait_for(end(task, again_s=0.001), TIMEOUT_S)

    assert deaf.is_set()
    assert task.cancelled()


async def test_a_part_that_will_not_end_is_left_to_itself() -> None:
    begun, told, release = asyncio.Event(), 0, asyncio.Event()

    async def deaf() -> None:
        nonlocal told
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                told += 1

    part = asyncio.create_task(deaf())
    await begun.wait()
    await asyncio.wait_for(end(part, again_s=0.001), TIMEOUT_S)

    assert (told, part.done()) == (TOLD_MAX, False)
    release.set()
    await part


async def test_what_was_kept_last_ends_first() -> None:
    ended: list[str] = []

    async def part(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    background = Background()
    background.keep(*(asyncio.create_task(part(name)) for name in ("store", "link", "shifts")))
    await asyncio.sleep(0)

    await background.close()

    assert ended == ["shifts", "link", "store"]


async def test_the_first_part_that_dies_is_named() -> None:
    async def part() -> None:
        raise RuntimeError("broken")

    background = Background()
    background.keep(asyncio.create_task(part(), name="the link"))

    assert await asyncio.wait_for(background.died, TIMEOUT_S) == "the link"


async def test_a_part_that_somebody_else_cancels_has_died() -> None:
    """Else the process would live on without it."""
    background = Background()
    part = asyncio.create_task(asyncio.Event().wait(), name="the link")
    background.keep(part)  # type: ignore[arg-type]  # what it would return is of no interest

    part.cancel()

    assert await asyncio.wait_for(background.died, TIMEOUT_S) == "the link"
