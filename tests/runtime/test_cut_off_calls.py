"""Model calls that were cut off: whoever ends one, it is in the run's usage and on the bill."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from milepost.core.agents import Compression
from milepost.core.errors import ProviderError
from milepost.core.events import RunCancelled, Terminal
from milepost.core.usage import UNKNOWN, Usage
from milepost.providers.scripted import calling, saying
from milepost.runtime.drive import Drive
from milepost.runtime.ending import end_run
from milepost.store import queue, usage
from milepost.store.records import NewRun
from milepost.store.usage import UsageFilter
from tests.runtime.tools import look_up
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Workshop, in_background, of

ANSWERED = Usage(input_tokens=10, output_tokens=5, model_calls=1, unpriced_calls=1)


async def cancelled(shop: Workshop, run: NewRun, driven: Drive) -> None:
    await shop.cancel(run.id)


async def expired(shop: Workshop, run: NewRun, driven: Drive) -> None:
    shop.clock.ahead_ms = 60_000
    shop.ring(run.id)


@pytest.mark.parametrize("stop", [cancelled, expired])
async def test_a_message_that_is_stopped_with_its_run_is_counted(
    shop: Workshop, stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]]
) -> None:
    model = Held()
    run = await shop.queue(deadline_ms=shop.clock() + 50_000)
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))

    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    await assert_counted(shop, run.id, UNKNOWN)


async def test_a_message_that_is_handed_back_is_counted_beside_the_one_that_came(
    shop: Workshop,
) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        driven.drain()

    await shop.go_on([saying("Anew.")])

    await assert_counted(shop, run.id, ANSWERED + UNKNOWN)


async def stranded(shop: Workshop) -> NewRun:
    """Return a run whose worker died in the middle of a message; it is queued again."""
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    dying = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    await shop.store.write(queue.dismiss_others("nobody"))
    await shop.store.write(queue.sweep())
    dying.cancel()
    await asyncio.wait({dying})
    return run


async def test_a_message_whose_worker_died_is_counted_by_the_next(shop: Workshop) -> None:
    run = await stranded(shop)

    await shop.go_on([saying("Anew.")])

    await assert_counted(shop, run.id, ANSWERED + UNKNOWN)


async def test_a_message_whose_worker_died_is_counted_where_nobody_takes_the_run(
    shop: Workshop,
) -> None:
    run = await stranded(shop)

    await end_run(
        shop.ports,
        await shop.row(run.id),
        lambda used: RunCancelled("ann", None, (), used),
    )

    await assert_counted(shop, run.id, UNKNOWN)


async def test_a_run_that_had_begun_no_message_owes_nothing(shop: Workshop) -> None:
    run = await shop.queue()

    await end_run(
        shop.ports,
        await shop.row(run.id),
        lambda used: RunCancelled("ann", None, (), used),
    )

    await assert_counted(shop, run.id, Usage())


async def test_a_summary_that_broke_off_is_counted(shop: Workshop) -> None:
    cut = ProviderError("the stream broke off", code="provider_stream_cut", retryable=True)
    agent = shop.agent(look_up, compression=Compression("test/model", threshold_chars=1))
    run = await shop.queue()

    await shop.go_on([calling(("look_up", {})), cut, saying("Seen.")], look_up, agent=agent)

    await assert_counted(shop, run.id, ANSWERED + ANSWERED + UNKNOWN)


async def assert_counted(shop: Workshop, run_id: str, expected: Usage) -> None:
    """Assert that the log, the run's row, and the bill by model agree."""
    [ended] = of(await shop.log(run_id), *Terminal.__args__)
    assert ended.usage == expected
    outcome = (await shop.row(run_id)).outcome or ""
    assert f'"unknown_calls":{expected.unknown_calls}' in outcome
    billed = await shop.store.read(usage.grouped(TENANT, ["model"], UsageFilter()))
    assert {group.key: group.usage for group in billed} == (
        {("test/model",): expected} if expected != Usage() else {}
    )
