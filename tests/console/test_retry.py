"""The button that sends a run on which waits for an operator."""

from collections.abc import AsyncIterator

import pytest

from tests.api.asking import started
from tests.api.serving import Service, serving, settings_for
from tests.api.stuck import a_stuck_run
from tests.console.browser import Page
from tests.console.visiting import one, refused

RETRY = "form.stuck button"


@pytest.fixture
async def stuck(sqlite_database_url: str) -> AsyncIterator[tuple[Service, str]]:
    """A service, and a run that waits for an operator."""
    run_id = await a_stuck_run(sqlite_database_url)
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
