"""The whole console in a real browser, against a real service."""

import pytest

from tests.api.asking import ARGUMENTS, DEMO, decide, ended, parked
from tests.api.serving import KeyedService, Service
from tests.console.browser import Page
from tests.console.visiting import HOSTILE, a_key, one, start, unlock
from tests.contract import CONTRACT


async def test_a_run_is_started_and_watched_and_what_anybody_says_is_text(
    service: Service, page: Page
) -> None:
    await start(page, service, f"{HOSTILE} What is 17 + 25?")
    await page.until(one("article.end"))

    said = await page.do(f"{one('article.said .text')}.textContent")
    assert said == f"{HOSTILE} What is 17 + 25?"
    assert await page.do(f"{one('article.call .result')}.textContent") == "42"
    assert "17 + 25 = 42" in await page.do(f"{one('.story')}.innerText")
    assert await page.do("document.querySelectorAll('main script, main img').length") == 0
    assert await page.do("document.title") == "Run · Milepost"
    assert page.faults == []


async def test_a_call_is_edited_and_approved_in_the_inbox_and_its_trace_is_shown(
    service: Service, page: Page
) -> None:
    await start(page, service, "Send an email to ann@example.com saying hello")
    await page.until(one("article.call article.card"))
    await page.do("location.hash = '#/approvals'")
    await page.until(one(".cards article.card"))

    await page.do(f"{one('.card button[type=button]')}.click()")
    await page.do(
        f"const text = {one('.card textarea')};"
        "text.value = JSON.stringify({...JSON.parse(text.value), subject: 'Changed'})"
    )
    await page.do(f"{one('.card button[value=approve]')}.click()")
    await page.until(one(".card .badge.approved"))
    await page.do(f"location.hash = {one('.card dl a')}.getAttribute('href')")
    await page.until(one("article.end.completed"))

    assert '"subject": "Changed"' in await page.do(f"{one('article.call pre')}.textContent")
    await page.do("[...document.querySelectorAll('.links a')][0].click()")
    await page.until(one(".waterfall details"))
    spans = await page.do(f"{one('.waterfall')}.innerText")
    assert "execute_tool send_email" in spans
    assert page.faults == []


async def test_what_comes_into_the_inbox_moves_no_button_that_is_there(
    service: Service, page: Page
) -> None:
    """It would be pressed in the place of the one that was meant."""
    top = "document.querySelector('.cards article.card button.main').getBoundingClientRect().top"
    async with service.client() as client:
        first = await parked(client)
        await page.open(f"{service.base_url}/#/approvals")
        await page.until(one(".cards article.card"))
        stood = await page.do(top)

        second = await parked(client)
        await page.until("document.querySelectorAll('.cards article.card').length === 2")

    links = await page.do("[...document.querySelectorAll('.card h2 a')].map(each => each.hash)")
    assert links == [f"#/approvals/{asked['id']}" for asked in (first, second)]
    assert await page.do(top) == stood


async def test_enter_behind_a_comment_says_no_yes(service: Service, page: Page) -> None:
    """Whoever writes why not has answered nothing before a button is pressed."""
    await start(page, service, "Send an email to ann@example.com saying hello")
    await page.until(one("article.call article.card"))

    await page.do(f"{one('.card input')}.value = 'Not to her.'; {one('.card input')}.focus()")
    await page.enter()
    await page.do(f"{one('.card button[value=deny]')}.click()")

    await page.until(one("article.end"))
    assert "Not to her." in await page.do(f"{one('article.call')}.innerText")
    assert await page.do(f"{one('article.call .badge')}.textContent") == "denied"


async def test_an_edit_that_a_browser_would_round_is_not_sent(service: Service, page: Page) -> None:
    await start(page, service, "Send an email to ann@example.com saying hello")
    await page.until(one("article.call article.card"))

    await page.do(f"{one('.card button[type=button]')}.click()")
    await page.do(f"{one('.card textarea')}.value = '{{\"to\": 9007199254740993}}'")
    await page.do(f"{one('.card button[value=approve]')}.click()")

    await page.until("document.querySelector('.card [role=alert]')?.innerText.includes('large')")
    assert await page.do(f"{one('.card .badge')}.textContent") == "pending"


async def test_who_looks_at_a_call_while_another_edits_it_must_look_again(
    keyed: KeyedService, page: Page
) -> None:
    policy = {"ask": [{"tool": "send_email", "required": 2}]}
    await keyed.acme.post("/v1/agents", json={**DEMO, "policy": policy})
    asked = await parked(keyed.acme)
    await page.open(f"{keyed.service.base_url}/#/approvals")
    await unlock(page, await a_key(keyed, "bob", "approvals:decide"))
    await page.until(one(".cards article.card"))

    edited = {**ARGUMENTS, "subject": "Changed"}
    ann = await keyed.with_key(await a_key(keyed, "ann", "approvals:decide"))
    await decide(ann, asked, "approve", digest=asked["digest"], arguments=edited)

    await page.until(one(".card p.trouble button"))
    assert await page.do(f"{one('.card form')}.hidden")
    assert "Changed" in await page.do(f"{one('.card')}.innerText")
    await page.do(f"{one('.card p.trouble button')}.click()")
    await page.do(f"{one('.card button[value=approve]')}.click()")
    await page.until(one(".card .badge.approved"))
    await ended(keyed.acme, asked["run_id"])


async def test_where_keys_are_needed_the_page_asks_for_one_and_keeps_it_in_its_tab(
    keyed: KeyedService, page: Page
) -> None:
    await page.open(f"{keyed.service.base_url}/")

    await unlock(page, "mp_made_up")
    await page.until("document.querySelector('.trouble')?.innerText.includes('invalid_key')")
    await unlock(page, await a_key(keyed, "ann", "runs:read"))

    await page.until(one("table.list"))
    assert await page.do("Object.keys(localStorage).length + document.cookie.length") == 0
    await page.do(f"{one('#forget')}.click()")
    await page.until(one("input[type=password]"))


async def test_the_reference_shows_every_operation(service: Service, page: Page) -> None:
    await page.open(f"{service.base_url}/docs")
    await page.until("document.readyState === 'complete'")

    shown = await page.do("document.querySelectorAll('article p.call').length")

    promised = [m for item in CONTRACT["paths"].values() for m in item if m != "parameters"]
    assert shown == len(promised)
    assert await page.do("getComputedStyle(document.body).display") == "grid"
    assert page.faults == []


@pytest.mark.parametrize(
    ("view", "chosen", "asked"),
    [
        ("runs", "completed", "status=completed&agent=a+b"),
        ("approvals", "denied", "status=denied&agent=a+b"),
        ("schedules", "false", "enabled=false&agent=a+b"),
    ],
)
async def test_a_list_is_searched_by_its_form_and_the_address_says_by_what(
    service: Service, page: Page, view: str, chosen: str, asked: str
) -> None:
    await page.open(f"{service.base_url}/#/{view}")
    await page.until(one("form.filters"))

    await page.do(
        f"{one('[name=agent]')}.value = ' a b ';"
        f" {one('form select')}.value = {chosen!r};"
        f" {one('form select')}.dispatchEvent(new Event('change'))"
    )

    await page.until(f"location.hash === '#/{view}?{asked}'")
    await page.until(f"{one('[name=agent]')}?.value === 'a b'")
    assert await page.do(f"{one('form select')}.value") == chosen
