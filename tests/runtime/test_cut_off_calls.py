"""Model calls that were cut off: whoever ends one, it is in the run's usage and on the bill."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from milepost.core.agents import Compression, Limits
from milepost.core.errors import ProviderError
from milepost.core.events import (
    MessageAborted,
    ModelRetried,
    RunCancelled,
    RunCompleted,
    SideCallAborted,
    Terminal,
    ToolResultCompressed,
)
from milepost.core.guardrails import Coherence, Guardrails
from milepost.core.model import Delta, ModelRequest, Provider, Spent
from milepost.core.usage import UNKNOWN, Usage
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.catalog import Catalog
from milepost.providers.fallback import Fallback
from milepost.providers.scripted import Script, Scripted, calling, saying
from milepost.runtime.drive import Drive
from milepost.runtime.ending import end_run
from milepost.runtime.result_cache import ResultCache
from milepost.store import queue, usage
from milepost.store.records import NewRun
from milepost.store.usage import UsageFilter
from milepost.tools import tool
from tests.runtime.tools import look_up
from tests.runtime.workshop import (
    TENANT,
    TIMEOUT_S,
    Held,
    Workshop,
    in_background,
    of,
    used_up,
)

ANSWERED = Usage(input_tokens=10, output_tokens=5, model_calls=1, unpriced_calls=1)
BUSY = ProviderError("busy", code="provider_overloaded", retryable=True, status=503)
SMALL = "small/summary-1"
SHORTENED = {"compression": Compression(SMALL, threshold_chars=1)}
JUDGED = {"guardrails": Guardrails(coherence=Coherence(SMALL))}
SILENT = ProviderError("late", code="provider_timeout", retryable=True)


def falling_back(*first: Script, then: Provider) -> Provider:
    """Return models that give these replies, one each, before `then` is asked."""
    models: list[Provider] = [*(Scripted([each]) for each in first), then]
    return Fallback([(f"v/{n}", each) for n, each in enumerate(models)])


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


async def drained(shop: Workshop, run: NewRun, driven: Drive) -> None:
    driven.drain()


@pytest.mark.parametrize("stop", [cancelled, expired, drained])
async def test_a_call_that_is_stopped_while_it_waits_for_its_turn_was_never_made(
    shop: Workshop, stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]]
) -> None:
    queue = await used_up()
    run = await shop.queue(deadline_ms=shop.clock() + 50_000)
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(queue))

    async with in_background(driven):
        await asyncio.wait_for(queue.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    [aborted] = of(await shop.log(run.id), MessageAborted)
    assert aborted.usage == Usage()


async def test_a_call_that_has_no_time_to_wait_for_its_turn_was_never_made(shop: Workshop) -> None:
    limits = Limits(model_retries=0, model_timeout_s=0.05)

    run_id = await shop.driven(await used_up(), agent=shop.agent(limits=limits))

    await assert_counted(shop, run_id, Usage())


async def test_a_message_that_is_stopped_before_it_is_tried_again_was_not_asked_for(
    shop: Workshop,
) -> None:
    agent = shop.agent(limits=Limits(model_retries=1, retry_backoff_s=50))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, shop.means([BUSY]))

    async with in_background(driven):
        await shop.seen(run.id, ModelRetried.type)
        await shop.cancel(run.id)

    await assert_counted(shop, run.id, Usage())


@pytest.mark.parametrize(
    ("first", "unknown"), [((SILENT,), 2), ((BUSY,), 1), ((SILENT, BUSY, SILENT), 3)]
)
async def test_each_model_that_may_be_billed_counts_where_the_last_one_is_stopped(
    shop: Workshop, first: tuple[ProviderError, ...], unknown: int
) -> None:
    last = Held(Spent(Usage()))
    model = falling_back(*first, then=last)
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))

    async with in_background(driven):
        await asyncio.wait_for(last.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    await assert_counted(shop, run.id, Usage(unknown_calls=unknown))


async def test_each_model_that_may_be_billed_counts_where_the_last_one_takes_too_long(
    shop: Workshop,
) -> None:
    model = falling_back(SILENT, then=Held(Spent(Usage())))
    limits = Limits(model_retries=0, model_timeout_s=0.05)

    run_id = await shop.driven(model, agent=shop.agent(limits=limits))

    await assert_counted(shop, run_id, Usage(unknown_calls=2))


async def test_a_model_that_fell_silent_counts_where_the_next_one_s_turn_does_not_come(
    shop: Workshop,
) -> None:
    queue = await used_up()
    run = await shop.queue()
    means = shop.means(falling_back(SILENT, then=queue))
    driven = await shop.driving(await shop.claim(), shop.agent(), means)

    async with in_background(driven):
        await asyncio.wait_for(queue.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    await assert_counted(shop, run.id, UNKNOWN)


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


@tool(effect="read", cacheable=True)
def looked_up() -> str:
    """Look something up."""
    return "A long answer."


async def begun_beside(
    shop: Workshop,
    small: Provider,
    named: Callable[..., Any] = look_up,
    asks: Mapping[str, Any] = SHORTENED,
    **means: Any,
) -> tuple[NewRun, Drive]:
    """Return a run that calls a tool, about which its agent `asks` the model, and its driver."""
    agent = shop.agent(named, **asks)
    run = await shop.queue(deadline_ms=shop.clock() + 50_000)
    own = Scripted([calling((agent.tools[0], {}))])
    providers = Catalog({"test": own, "small": small})
    given = shop.means(own, named, providers=providers, **means)
    return run, await shop.driving(await shop.claim(), agent, given)


async def bill(shop: Workshop) -> dict[tuple[str | None, ...], Usage]:
    """Return what was used, by model."""
    billed = await shop.store.read(usage.grouped(TENANT, ["model"], UsageFilter()))
    return {group.key: group.usage for group in billed}


@pytest.mark.parametrize(("asks", "subject"), [(SHORTENED, "compressed"), (JUDGED, "coherence")])
@pytest.mark.parametrize("stop", [cancelled, expired])
async def test_a_model_that_is_asked_beside_and_stopped_with_its_run_is_counted(
    shop: Workshop,
    stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]],
    asks: Mapping[str, Any],
    subject: str,
) -> None:
    small = Held()
    run, driven = await begun_beside(shop, small, asks=asks)

    async with in_background(driven):
        await asyncio.wait_for(small.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    log = await shop.log(run.id)
    assert of(log, SideCallAborted) == [SideCallAborted(f"call_1_0/{subject}", SMALL, UNKNOWN)]
    [ended] = of(log, *Terminal.__args__)
    assert ended.usage == ANSWERED + UNKNOWN
    assert await bill(shop) == {("test/model",): ANSWERED, (SMALL,): UNKNOWN}


async def test_a_model_that_is_asked_beside_and_handed_back_is_counted_beside_the_one_that_came(
    shop: Workshop,
) -> None:
    small = Held()
    run, driven = await begun_beside(shop, small)
    async with in_background(driven):
        await asyncio.wait_for(small.reached.wait(), TIMEOUT_S)
        driven.drain()

    agent = shop.agent(look_up, compression=Compression("test/model", threshold_chars=1))
    await shop.go_on([saying("Brief."), saying("Seen.")], look_up, agent=agent)

    log = await shop.log(run.id)
    assert of(log, SideCallAborted) == [SideCallAborted("call_1_0/compressed", SMALL, UNKNOWN)]
    assert of(log, RunCompleted)[0].usage == ANSWERED + ANSWERED + ANSWERED + UNKNOWN
    assert (await bill(shop))[SMALL,] == UNKNOWN


@pytest.mark.parametrize("stop", [cancelled, drained])
async def test_a_model_that_would_have_been_asked_beside_is_not_counted(
    shop: Workshop, stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]]
) -> None:
    queue = await used_up()
    run, driven = await begun_beside(shop, queue)

    async with in_background(driven):
        await asyncio.wait_for(queue.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    assert of(await shop.log(run.id), SideCallAborted) == []
    assert await bill(shop) == {("test/model",): ANSWERED}


class Full(InProcessCache):
    """A cache that has no room for a shorter result until it is let go, or never has."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self._error = error
        self._kept = 0
        self.reached = asyncio.Event()

    async def set(self, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> None:
        """Keep the first, which is the tool's own result, and get stuck at the next."""
        self._kept += 1
        if self._kept > 1:
            self.reached.set()
            if self._error:
                raise self._error
            await asyncio.Event().wait()
        await super().set(key, value, ttl_s, owner)


async def answered_beside(shop: Workshop, cache: Full) -> tuple[NewRun, Drive]:
    """Return a run whose result was made shorter, which the cache is to keep, and its driver."""
    results = ResultCache(cache)
    return await begun_beside(shop, Scripted([saying("Brief.")]), looked_up, results=results)


@pytest.mark.parametrize("stop", [cancelled, expired, drained])
async def test_what_a_model_took_that_is_asked_beside_counts_though_its_run_is_stopped_untold(
    shop: Workshop, stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]]
) -> None:
    cache = Full()
    run, driven = await answered_beside(shop, cache)

    async with in_background(driven):
        await asyncio.wait_for(cache.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    log = await shop.log(run.id)
    assert of(log, ToolResultCompressed) == []
    assert of(log, SideCallAborted) == [SideCallAborted("call_1_0/compressed", SMALL, ANSWERED)]
    assert await bill(shop) == {("test/model",): ANSWERED, (SMALL,): ANSWERED}


async def test_what_a_model_took_that_is_asked_beside_counts_though_its_drive_breaks(
    shop: Workshop,
) -> None:
    run, driven = await answered_beside(shop, Full(OSError("no room")))

    with pytest.raises(OSError, match="no room"):
        await asyncio.wait_for(driven.run(), TIMEOUT_S)

    told = SideCallAborted("call_1_0/compressed", SMALL, ANSWERED)
    assert of(await shop.log(run.id), SideCallAborted) == [told]


class Stubborn:
    """A model that answers all the same where it is cancelled, once it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def stream(self, _: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Wait, whatever happens, and answer."""
        self.reached.set()
        while not self.go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.go.wait()
        for delta in saying("Brief."):
            assert not isinstance(delta, Exception)
            yield delta


@pytest.mark.parametrize("stop", [cancelled, expired, drained])
async def test_a_model_that_is_asked_beside_and_will_not_be_stopped_is_counted(
    shop: Workshop, stop: Callable[[Workshop, NewRun, Drive], Awaitable[None]]
) -> None:
    small = Stubborn()
    run, driven = await begun_beside(shop, small, stop_s=0.05, drain_s=0.05)

    async with in_background(driven):
        await asyncio.wait_for(small.reached.wait(), TIMEOUT_S)
        await stop(shop, run, driven)

    small.go.set()
    told = SideCallAborted("call_1_0/compressed", SMALL, UNKNOWN)
    assert of(await shop.log(run.id), SideCallAborted) == [told]
    assert await bill(shop) == {("test/model",): ANSWERED, (SMALL,): UNKNOWN}


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
