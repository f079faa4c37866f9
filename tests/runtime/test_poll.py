"""The net under the hints: whoever listens hears of what no hint told."""

import asyncio

from milepost.core.events import StepStarted
from milepost.live.frames import Frame
from milepost.live.hub import LINK_BELL, Hub, session_bell
from milepost.providers.scripted import saying
from milepost.runtime.poll import HINTED_S, Poller
from tests.runtime.workshop import TIMEOUT_S, Workshop


async def test_what_another_process_wrote_is_found_without_a_hint(shop: Workshop) -> None:
    elsewhere = Hub()
    run = await shop.queue()
    poller = Poller(shop.store, elsewhere, lambda: True, hinted_s=0.001)

    polling = asyncio.create_task(poller.run())
    with elsewhere.listen(run.id) as (tail, woken):
        await shop.go_on([saying("Hello.")])
        head = len(await shop.log(run.id))
        async with asyncio.timeout(TIMEOUT_S):
            while tail.known != head:
                await woken.wait()
                woken.clear()
    polling.cancel()


async def test_it_looks_more_often_where_nothing_hints(shop: Workshop) -> None:
    elsewhere = Hub()
    run = await shop.queue()
    poller = Poller(shop.store, elsewhere, lambda: False, blind_s=0.001)

    polling = asyncio.create_task(poller.run())
    with elsewhere.listen(run.id) as (tail, woken):
        await asyncio.wait_for(woken.wait(), TIMEOUT_S)
    polling.cancel()

    assert tail.known == 1


async def test_it_looks_at_once_where_hints_end(shop: Workshop) -> None:
    elsewhere = Hub()
    run = await shop.queue()
    poller = Poller(shop.store, elsewhere, lambda: True)

    polling = asyncio.create_task(poller.run())
    with elsewhere.listen(run.id) as (tail, woken):
        await asyncio.sleep(0)  # It waits for its turn now.
        elsewhere.chime(LINK_BELL)
        async with asyncio.timeout(HINTED_S / 2):
            await woken.wait()
    polling.cancel()

    assert tail.known == 1


async def test_a_listener_that_knows_it_all_is_left_alone(shop: Workshop) -> None:
    elsewhere = Hub()
    run = await shop.queue()
    other = await shop.queue()
    poller = Poller(shop.store, elsewhere, lambda: False, blind_s=0.001)

    with elsewhere.listen(run.id) as (tail, woken), elsewhere.listen(other.id) as (_, rings):
        tail.add([Frame(run.id, 1, StepStarted.type, 0, b"{}")])
        polling = asyncio.create_task(poller.run())
        await asyncio.wait_for(rings.wait(), TIMEOUT_S)
        polling.cancel()

        assert not woken.is_set()


async def test_a_listener_hears_that_its_run_was_erased(shop: Workshop) -> None:
    elsewhere = Hub()
    poller = Poller(shop.store, elsewhere, lambda: False, blind_s=0.001)

    with elsewhere.listen("run_gone") as (tail, woken):
        tail.know(3)
        polling = asyncio.create_task(poller.run())
        await asyncio.wait_for(woken.wait(), TIMEOUT_S)
        polling.cancel()

        assert tail.behind(3) is None


async def test_a_run_that_came_to_a_session_elsewhere_rings_its_bell(shop: Workshop) -> None:
    elsewhere = Hub()
    first = await shop.queue()
    poller = Poller(shop.store, elsewhere, lambda: True, hinted_s=0.001)

    polling = asyncio.create_task(poller.run())
    with elsewhere.bell(session_bell(first.session_id)) as rung:
        for _ in range(2):
            await asyncio.wait_for(rung.wait(), TIMEOUT_S)
            rung.clear()
            await shop.queue(session_id=first.session_id, session_is_new=False)
    polling.cancel()


async def test_an_erased_session_rings_its_bell(shop: Workshop) -> None:
    elsewhere = Hub()
    poller = Poller(shop.store, elsewhere, lambda: True, hinted_s=0.001)

    polling = asyncio.create_task(poller.run())
    with elsewhere.bell(session_bell("ses_gone")) as rung:
        await asyncio.wait_for(rung.wait(), TIMEOUT_S)
    polling.cancel()
