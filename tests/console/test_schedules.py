"""The page of schedules: what is told of each, and pausing one."""

from tests.api.asking import DEMO
from tests.api.making import made
from tests.api.serving import KeyedService, Service
from tests.console.browser import Page
from tests.console.visiting import HOSTILE, a_key, one, refused, unlock
from tests.store.making_schedules import let_come, let_sink

NEVER = "59 23 31 12 *"
ROW = "table.list tbody tr"
BUTTON = f"{ROW} button"


async def scheduled(service: Service, **changes: object) -> str:
    """Make a schedule of the demo agent; return its path."""
    run = {"agent": "demo", "input": "What is 17 + 25?"}
    body = {"name": "Report", "cron": NEVER, "timezone": "Europe/Berlin", "run": run, **changes}
    async with service.client() as client:
        return f"/v1/schedules/{(await made(client, '/v1/schedules', body))['id']}"


async def look(page: Page, service: Service) -> None:
    """Open the page of schedules, and wait for one."""
    await page.open(f"{service.base_url}/#/schedules")
    await page.until(one(BUTTON))


async def test_a_schedule_is_listed_with_when_it_comes(service: Service, page: Page) -> None:
    await scheduled(service, name=HOSTILE)
    await look(page, service)

    cells = await page.do(f"[...{one(ROW)}.cells].map(each => each.innerText)")

    name, when, coming, last, button = cells
    assert name == f"{HOSTILE}\nruns demo"
    assert when == f"{NEVER}\nEurope/Berlin"
    assert "\nin " in coming
    assert (last, button) == ("has not come yet", "Pause")
    assert await page.do("document.querySelectorAll('main script, main img').length") == 0
    assert await page.do(f"{one('nav a[aria-current]')}.textContent") == "Schedules"
    assert await page.do("document.title") == "Schedules · Milepost"
    assert page.faults == []


async def test_what_became_of_the_last_time_is_told_with_a_link_to_its_run(
    service: Service, page: Page, sqlite_database_url: str
) -> None:
    await scheduled(service)
    await look(page, service)

    await let_come(sqlite_database_url)

    await page.until(f"{one(ROW)}?.querySelector('.badge.started')")  # The list keeps up.
    await page.do(f"location.hash = {one(f'{ROW} a')}.hash")
    await page.until(one("article.end.completed"))


async def test_why_a_time_was_refused_is_told(
    service: Service, page: Page, sqlite_database_url: str
) -> None:
    async with service.client() as client:
        session = await made(client, "/v1/sessions", {})
        run = {"agent": "demo", "input": "Hi.", "session_id": session["id"]}
        await scheduled(service, run=run)
        await client.patch(f"/v1/sessions/{session['id']}", json={"archived": True})
    await let_come(sqlite_database_url)

    await look(page, service)

    await page.until(f"{one(ROW)}?.querySelector('.badge.refused')")
    assert "session_archived: " in await page.do(f"{one(ROW)}.innerText")


async def test_one_that_comes_no_more_is_told_as_such_and_not_as_paused(
    service: Service, page: Page, sqlite_database_url: str
) -> None:
    await scheduled(service)
    await let_sink(sqlite_database_url)
    await let_come(sqlite_database_url)

    await look(page, service)

    await page.until(f"{one(ROW)}?.innerText.includes('no more: its zone is not known')")
    assert await page.do(f"{one(BUTTON)}.textContent") == "Pause"


async def test_a_schedule_is_paused_and_goes_on_and_the_button_keeps_the_focus(
    service: Service, page: Page
) -> None:
    path = await scheduled(service)
    await look(page, service)
    await page.do(f"{one(BUTTON)}.focus()")

    await page.enter()
    await page.until(f"{one(BUTTON)}?.textContent === 'Resume'")
    async with service.client() as client:
        paused = (await client.get(path)).json()
    assert "Report is paused." in await page.do(f"{one('.told')}.innerText")
    assert await page.do("document.activeElement.ariaLabel") == "Resume Report"
    await page.enter()
    await page.until(f"{one(BUTTON)}?.textContent === 'Pause'")

    assert (paused["enabled"], paused["version"]) == (False, 2)
    assert page.faults == []


async def test_who_pauses_what_somebody_else_has_changed_is_told_and_shown_how_it_is(
    service: Service, page: Page
) -> None:
    path = await scheduled(service)
    await look(page, service)

    async with service.client() as client:
        await client.patch(path, json={"name": "Another"})
        await page.do(f"{one(BUTTON)}.click()")

        await refused(page, "412")
        await page.until(f"{one(ROW)}?.innerText.includes('Another')")
        assert (await client.get(path)).json()["enabled"] is True


async def test_schedules_are_found_by_state_and_agent(service: Service, page: Page) -> None:
    await scheduled(service, name="Active")
    await scheduled(service, name="Paused", enabled=False)
    await look(page, service)

    await page.do(f"{one('form select')}.value = 'false'; {one('form')}.requestSubmit()")

    await page.until("document.querySelectorAll('table.list tbody tr').length === 1")
    assert "Paused" in await page.do(f"{one(ROW)}.innerText")
    await page.do("location.hash = '#/schedules?agent=nobody'")
    await page.until(f"{one(ROW)}?.innerText.includes('no such schedule')")


async def test_who_may_only_read_cannot_pause_a_schedule(keyed: KeyedService, page: Page) -> None:
    await made(keyed.acme, "/v1/agents", DEMO)
    body = {"cron": NEVER, "run": {"agent": "demo", "input": "Hi."}}
    await made(keyed.acme, "/v1/schedules", body)
    await page.open(f"{keyed.service.base_url}/#/schedules")
    await unlock(page, await a_key(keyed, "ann", "runs:read"))
    await page.until(one(BUTTON))

    await page.do(f"{one(BUTTON)}.click()")

    await refused(page, "runs:write")
