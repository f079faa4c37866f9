"""Cancellations that met a breaking connection: whoever heard of the connection alone lets go."""

import asyncio


def told_to_stop() -> int:
    """Return how often the current task was cancelled, whether it has heard of it or not."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def heed_cancellation(known: int = 0) -> None:
    """Raise `CancelledError` if the current task was cancelled more often than is `known`.

    A driver that is interrupted while its connection breaks may tell of the connection instead.
    """
    if told_to_stop() > known:
        raise asyncio.CancelledError
