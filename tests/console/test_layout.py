"""How the pages stand in a window: what is long breaks, and nothing moves under the pointer."""

from collections.abc import AsyncIterator

import pytest

from tests.api.asking import parked
from tests.api.making import an_agent, made
from tests.api.serving import Service, serving, settings_for
from tests.console.browser import Page
from tests.console.visiting import one
from tests.stubs.directed_model import directed_model

CARDS = "document.querySelectorAll('article.card')"
BELOW = "[...document.querySelectorAll('article.card button.main')].at(-1)"
TOP = f"{BELOW}.getBoundingClientRect().top"
NARROW_PX = 400
LONG = "x" * 60


async def test_no_page_is_wider_than_a_narrow_window_however_long_names_are(
    service: Service, page: Page
) -> None:
    async with service.client() as client:
        await made(client, "/v1/agents", an_agent(name=LONG, tools=[]))
        body = {"agent": LONG, "input": LONG * 5, "metadata": {"k" * 64: "v" * 200}}
        run = await made(client, "/v1/runs?wait=20", body)
        minutes = ",".join(map(str, range(50)))
        often = {
            "cron": f"{minutes} 0 1 * *",
            "name": LONG * 2,
            "run": {"agent": LONG, "input": "?"},
        }
        await made(client, "/v1/schedules", often)
    await page.resize(NARROW_PX, 800)
    views = {
        "runs": "table.list a",
        f"runs/{run['id']}": "article.end",
        f"traces/{run['id']}": ".waterfall details",
        "schedules": "table.list button",
        "usage": "tfoot",
        "approvals": ".cards",
        "start": "textarea",
    }

    for view, shown in views.items():
        await page.open(f"{service.base_url}/#/{view}")
        await page.until(one(shown))
        assert await page.do("document.documentElement.scrollWidth") <= NARROW_PX, view


async def test_a_card_that_is_decided_keeps_its_place_in_the_inbox(
    service: Service, page: Page
) -> None:
    """The one below would move up, and be answered in its place."""
    async with service.client() as client:
        await parked(client)
        await parked(client)
    await page.open(f"{service.base_url}/#/approvals")
    await page.until(f"{CARDS}.length === 2")
    stood = await page.do(TOP)

    await page.do(f"{one('.card button[value=deny]')}.click()")

    await page.until(one(".card .badge.denied"))
    assert await page.do(TOP) == stood


@pytest.fixture
async def directed(sqlite_database_url: str) -> AsyncIterator[Service]:
    """A service with an agent that makes the calls that it is told to, and asks before each."""
    async with directed_model() as model:
        settings = settings_for(sqlite_database_url, OPENAI_BASE_URL=model.base_url)
        async with serving(settings) as service, service.client() as client:
            agent = an_agent(model="openai/m", tools=["add"], policy={"ask": ["*"]})
            await made(client, "/v1/agents", agent)
            yield service


async def test_a_question_on_a_run_s_page_keeps_its_place_while_another_is_answered(
    directed: Service, page: Page
) -> None:
    async with directed.client() as client:
        calls = 'call add {"a": 1, "b": 2}\ncall add {"a": 3, "b": 4}'
        run = await made(client, "/v1/runs", {"agent": "clerk", "input": calls})
    await page.open(f"{directed.base_url}/#/runs/{run['id']}")
    await page.until(f"{CARDS}.length === 2")
    await page.do("scrollTo(0, document.documentElement.scrollHeight)")
    await page.do(f"stood = {BELOW}; places = new Set()")
    await page.do(
        "(function look() { places.add(stood.getBoundingClientRect().top);"
        " requestAnimationFrame(look) })()"
    )

    await page.do(f"{one('.card button[value=approve]')}.click()")

    await page.until(f"{one('article.call')}.querySelector('.result')?.textContent === '3'")
    assert await page.do(f"{CARDS}.length") == 1
    assert await page.do("places.size") == 1
    await page.do(f"{BELOW}.click()")
    await page.until(one("article.end.completed"))
