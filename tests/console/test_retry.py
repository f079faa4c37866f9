"""The button that sends a run on which waits for an operator."""

from collections.abc import AsyncIterator

import pytest

from milepost.store.records import Change, Entry
from tests.api.asking import started
from tests.api.serving import Service, serving, settings_for
from tests.console.browser import Page
from tests.console.visiting import one, refused
from tests.store.conftest import store_at
from tests.store.making import NOW_MS, a_park, a_worker, claims

OPERATOR = '{"for": "operator", "pending": []}'
WAITING = Change("waiting", waiting_for=OPERATOR)
RETRY = "form.stuck button"


@pytest.fixture
async def stuck(sqlite_database_url: str) -> AsyncIterator[tuple[Service, str]]:
    """A service, and a run that has crashed its workers until nobody may take it."""
    async with (
        serving(settings_for(sqlite_database_url, slots=0)) as idle,
        idle.client() as client,
        store_at(sqlite_database_url) as store,
    ):
        run_id = await started(client, "What is 17 + 25?")
        (claim,) = await claims(store, await a_worker(store))
        waits = Entry("run.waiting", NOW_MS, OPERATOR)
        await store.append(a_park(claim, change=WAITING, entries=(waits,)))
    async with serving(settings_for(sqlite_database_url)) as service:
        yield service, run_id


async def test_a_run_that_waits_for_an_operator_is_sent_on(
    stuck: tuple[Service, str], page: Page
) -> None:
    service, run_id = stuck
    await page.open(f"{service.base_url}/#/runs/{run_id}")
    await page.until(f"{one(RETRY)}?.checkVisibility()")
    assert "three times" in await page.do(f"{one('form.stuck')}.innerText")

    await page.do(f"{one(RETRY)}.focus()")
    await page.enter()

    await page.until(one("article.end.completed"))
    await page.until("document.querySelector('h1 .badge')?.textContent === 'completed'")
    assert not await page.do(f"{one(RETRY)}.checkVisibility()")
    assert page.faults == []


async def test_who_sends_on_what_somebody_else_has_sent_on_is_told_so(
    stuck: tuple[Service, str], page: Page
) -> None:
    service, run_id = stuck
    await page.open(f"{service.base_url}/#/runs/{run_id}")
    await page.until(f"{one(RETRY)}?.checkVisibility()")
    await page.do(f"{one('details.stop button')}.click()")
    await page.until("document.querySelector('article.end.cancelled')")

    await page.do(f"{one('form.stuck')}.requestSubmit()")

    await refused(page, "not_waiting_for")


async def test_only_a_run_that_waits_for_an_operator_has_the_button(
    service: Service, page: Page
) -> None:
    async with service.client() as client:
        run_id = await started(client, "Send an email to ann@example.com saying hello")
    await page.open(f"{service.base_url}/#/runs/{run_id}")

    await page.until(one("article.call article.card"))

    assert not await page.do(f"{one(RETRY)}.checkVisibility()")
