"""How the pages stand in a window."""

from tests.api.making import an_agent, made
from tests.api.serving import Service
from tests.console.browser import Page
from tests.console.visiting import one

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
