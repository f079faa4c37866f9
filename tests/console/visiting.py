"""What tests do with the console in a browser."""

from tests.api.serving import KeyedService, Service
from tests.console.browser import Page

HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"


def one(selector: str) -> str:
    """Return the first element of this kind, as a script."""
    return f"document.querySelector({selector!r})"


async def refused(page: Page, words: str) -> None:
    """Wait until the page tells of a refusal in these words."""
    await page.until(f"document.querySelector('div.trouble')?.innerText.includes({words!r})")


async def start(page: Page, service: Service, text: str) -> None:
    """Start a run of the demo agent by the form."""
    await page.open(f"{service.base_url}/#/start")
    await page.until(f"{one('form.stack textarea')} && {one('form.stack input')}.value === 'demo'")
    await page.do(f"{one('textarea')}.value = {text!r}; {one('button.main')}.click()")


async def unlock(page: Page, key: str) -> None:
    """Give the page the key that it asks for."""
    await page.until(one("input[type=password]"))
    await page.do(f"{one('input[type=password]')}.value = {key!r}; {one('main button')}.click()")


async def a_key(keyed: KeyedService, name: str, *scopes: str) -> str:
    """Return a new key for this person."""
    body = {"name": name, "subject": name, "scopes": scopes}
    made = await keyed.acme.post("/v1/keys", json=body)
    key: str = made.json()["key"]
    return key
