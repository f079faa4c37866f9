"""The event loop that serves raises what no other does; the link to Redis outlives that, too."""

import asyncio

import uvloop

from milepost.live.hub import Hub
from milepost.live.redis_link import RedisLink

TIMEOUT_S = 30


async def lose_a_connection_while_it_is_written_to(redis_url: str) -> bool:
    """Say whether the link goes on once its connection was gone under its hands."""
    hub = Hub()
    link = hub.link = RedisLink(redis_url, hub, retry_s=0.02)
    running = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await link.up.wait()
            await link.follow("run_1")
            link._pubsub.connection._writer.transport.abort()
            link.leave("run_1")
            await asyncio.wait({running, asyncio.create_task(link.down.wait())},
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            await asyncio.wait({running, asyncio.create_task(link.up.wait())},
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        return not running.done()
    finally:
        running.cancel()
        await asyncio.wait({running})


def test_a_connection_that_is_lost_while_it_is_written_to_does_not_end_the_link(
    redis_url: str,
) -> None:
    assert uvloop.run(lose_a_connection_while_it_is_written_to(redis_url))
