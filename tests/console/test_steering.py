"""The field to say something to a run that is under way."""

import pytest

from milepost.store.records import STEERS_MAX
from tests.api.asking import parked
from tests.api.making import an_agent, made
from tests.api.serving import KeyedService, Service
from tests.console.browser import Page
from tests.console.visiting import HOSTILE, a_key, one, refused, unlock

FIELD = "form.steer textarea"


@pytest.fixture
async def waiting(service: Service, page: Page) -> str:
    """A run that waits for a yes, in the tab; its path."""
    async with service.client() as client:
        run_id = (await parked(client))["run_id"]
    await page.open(f"{service.base_url}/#/runs/{run_id}")
    await page.until(one("article.call article.card"))
    return f"/v1/runs/{run_id}"


async def say(page: Page, words: str) -> None:
    """Write into the field, and press the button."""
    await page.do(f"{one(FIELD)}.value = {words!r}; {one('form.steer button')}.click()")


@pytest.mark.usefixtures("waiting")
async def test_what_is_said_to_a_run_is_in_its_story_as_text(page: Page) -> None:
    await say(page, HOSTILE)

    await page.until("document.querySelectorAll('article.said').length === 2")
    shown = "document.querySelectorAll('article.said .text')[1].textContent"
    assert await page.do(shown) == HOSTILE
    await page.until(f"{one(FIELD)}.value === ''")
    assert await page.do("document.querySelectorAll('main script, main img').length") == 0
    assert await page.do("document.title") == "Run · Milepost"
    assert page.faults == []


@pytest.mark.usefixtures("waiting")
async def test_what_is_written_while_something_is_being_said_stays_in_the_field(page: Page) -> None:
    await page.do(
        f"{one(FIELD)}.value = 'First.'; {one('form.steer button')}.click();"
        f" {one(FIELD)}.value = 'Second.'"
    )

    await page.until(f"{one('form.steer + p')}.textContent.startsWith('It was said')")

    assert await page.do(f"{one(FIELD)}.value") == "Second."


async def test_what_the_service_refuses_is_told_in_its_words_and_stays_in_the_field(
    service: Service, page: Page, waiting: str
) -> None:
    async with service.client() as client:
        for number in range(STEERS_MAX):
            await client.post(f"{waiting}/messages", json={"content": f"{number}"})

    await say(page, "One more.")

    await refused(page, "too_many_messages")
    assert f"takes {STEERS_MAX} messages" in await page.do(f"{one('div.trouble')}.innerText")
    assert await page.do(f"{one(FIELD)}.value") == "One more."


async def test_a_run_that_is_over_has_no_field_and_what_it_did_not_hear_is_kept_in_sight(
    service: Service, page: Page, waiting: str
) -> None:
    await page.do(f"{one(FIELD)}.value = 'And the time?'")

    async with service.client() as client:
        await client.post(f"{waiting}/cancel", json={})

    await page.until(f"!{one(FIELD)}.checkVisibility()")
    assert "has not heard this:\n\nAnd the time?" in await page.do(f"{one('main')}.innerText")
    await page.open("about:blank")
    await page.open(f"{service.base_url}/#{waiting.removeprefix('/v1')}")
    await page.until(one("article.end"))
    assert not await page.do(f"{one(FIELD)}.checkVisibility()")


async def test_who_may_only_read_is_told_so(keyed: KeyedService, page: Page) -> None:
    agent = await made(keyed.acme, "/v1/agents", an_agent())
    body = {"agent": agent["id"], "input": "Hi.", "delay_s": 3600}
    run = await made(keyed.acme, "/v1/runs", body)
    await page.open(f"{keyed.service.base_url}/#/runs/{run['id']}")
    await unlock(page, await a_key(keyed, "ann", "runs:read"))
    await page.until(f"{one(FIELD)}?.checkVisibility()")

    await say(page, "Hello?")

    await refused(page, "runs:write")
