"""Turns: what is done again and again, in every process, whatever becomes of one of them."""

import asyncio
import random
from collections.abc import Awaitable
from typing import TypeVar

from structlog.stdlib import BoundLogger

from milepost.core.errors import MilepostError
from milepost.store.cancellation import heed_cancellation

T = TypeVar("T")


async def take_turn(turn: Awaitable[T], otherwise: T, log: BoundLogger) -> T:
    """Return what comes of a turn; one that fails keeps none of the others from theirs.

    One that has not heard of its cancellation is the last all the same.
    """
    result = otherwise
    try:
        result = await turn
    except MilepostError as error:
        log.warning("a turn failed", error=str(error))
    except Exception:
        log.exception("a turn failed")
    heed_cancellation()
    return result


async def rest(rung: asyncio.Event, poll_s: float) -> None:
    """Wait for the bell, `poll_s` seconds at most, and never as long as the other processes."""
    try:
        async with asyncio.timeout(poll_s * random.uniform(0.8, 1.0)):  # noqa: S311
            await rung.wait()
    except TimeoutError:
        return
