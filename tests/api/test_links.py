"""Links that answer approvals: what opening one does, what its button does, and what voids it."""

import base64
import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from sqlalchemy import update

from milepost.runtime.clock import now_ms
from milepost.runtime.links import NONCE_MS
from milepost.store import schema
from milepost.store.dialect import number, text
from milepost.store.work import Statement, Work
from tests.api.asking import DEMO, decide, ended, events, parked
from tests.api.making import a_webhook, made
from tests.api.serving import Service, serving, settings_for
from tests.store.making import being_erased
from tests.stubs.webhook_receiver import Receiver, receiver

ORIGIN = "https://agents.example"
_A = schema.approvals.c


@dataclass
class Person:
    """Somebody with a browser and no key, who reads what a webhook was told."""

    client: httpx2.AsyncClient
    there: Receiver
    service: Service
    browser: httpx2.AsyncClient

    async def asked(self) -> dict[str, str]:
        """Return the paths of the links in the next question."""
        message = await self.there.of_type("approval.requested")
        links: dict[str, str] = message.body["data"]["links"]
        assert all(link.startswith(ORIGIN + "/") for link in links.values())
        return {name: link.removeprefix(ORIGIN) for name, link in links.items()}

    async def open(self, path: str) -> httpx2.Response:
        """Open a link."""
        return await self.browser.get(path)

    async def press(self, path: str, page: httpx2.Response, **more: str) -> httpx2.Response:
        """Press the button of a link's page, as a browser does."""
        headers = {"origin": "null", "sec-fetch-site": "same-origin"}
        return await self.browser.post(
            path, data={"nonce": nonce_of(page), **more}, headers=headers
        )

    async def shown(self, approval: dict[str, Any]) -> dict[str, Any]:
        """Return the approval as it is now."""
        shown: dict[str, Any] = (await self.client.get(f"/v1/approvals/{approval['id']}")).json()
        return shown


def nonce_of(page: httpx2.Response) -> str:
    """Return what the page's button sends along."""
    found = re.search(r'name="nonce" value="([^"]+)"', page.text)
    assert found, page.text
    return html.unescape(found[1])


def title_of(page: httpx2.Response) -> str:
    """Return what the page says above all."""
    found = re.search(r"<h1>(.*)</h1>", page.text)
    assert found, page.text
    return html.unescape(found[1])


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    async with receiver() as there:
        yield there


@pytest.fixture
async def person(database_url: str, there: Receiver) -> AsyncIterator[Person]:
    """A person, a service, and a webhook that tells the person."""
    settings = settings_for(database_url, egress_allow="127.0.0.1", public_url=ORIGIN)
    async with serving(settings) as service, service.client() as client, service.client() as web:
        await made(client, "/v1/webhooks", a_webhook(url=there.url, events=["approval.*"]))
        yield Person(client, there, service, web)


async def changed(person: Person, approval: dict[str, Any], **columns: Any) -> None:
    """Change the approval's row, as time or an editor would."""

    def work() -> Work[None]:
        named = {
            name: number(name) if isinstance(v, int) else text(name) for name, v in columns.items()
        }
        one = _A.id == text("approval_id")
        yield Statement(update(schema.approvals).where(one).values(**named))(
            approval_id=approval["id"], **columns
        )

    await person.service.app._parts.ports.store.write(work())


async def test_the_page_shows_what_would_be_decided(person: Person) -> None:
    approval = await parked(person.client)

    page = await person.open((await person.asked())["approve"])

    assert (page.status_code, title_of(page)) == (200, "Approve this call?")
    shown = html.unescape(page.text)
    for said in (
        approval["preview"],
        approval["reason"],
        approval["expires_at"],
        "ann@example.com",
    ):
        assert said in shown
    assert approval["digest"] in shown


async def test_the_page_runs_nothing_loads_nothing_and_is_kept_nowhere(person: Person) -> None:
    await parked(person.client)

    page = await person.open((await person.asked())["approve"])

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-robots-tag"] == "noindex, nofollow"
    assert page.headers["x-frame-options"] == "DENY"
    assert "<script" not in page.text
    assert "src=" not in page.text


async def test_the_button_approves_exactly_once_and_the_call_runs(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)

    first = await person.press(path, page, comment="as agreed")
    again = await person.press(path, page, comment="as agreed")

    assert (first.status_code, title_of(first)) == (200, "Approved")
    assert (again.status_code, title_of(again)) == (200, "Approved")
    run = await ended(person.client, approval["run_id"])
    assert run["status"] == "completed"
    (decided,) = [
        event["data"]
        for event in await events(person.client, approval["run_id"])
        if event["type"] == "approval.decided"
    ]
    assert (decided["decision"], decided["comment"]) == ("approve", "as agreed")
    assert decided["by"].startswith("link:whk_")


async def test_the_other_link_denies(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["deny"]

    page = await person.press(path, await person.open(path), comment="not to her")

    assert title_of(page) == "Denied"
    assert (await person.shown(approval))["comment"] == "not to her"


async def test_whoever_only_opens_links_decides_nothing(person: Person) -> None:
    approval = await parked(person.client)
    links = await person.asked()

    for _ in range(5):
        for path in links.values():
            for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
                await person.browser.request(method, path)
    blind = [await person.browser.post(path) for path in links.values()]
    empty = [await person.browser.post(path, data={"nonce": ""}) for path in links.values()]

    assert {answer.status_code for answer in blind} == {415}
    assert {(answer.status_code, title_of(answer)) for answer in empty} == {
        (403, "This page is too old")
    }
    assert (await person.shown(approval))["status"] == "pending"


async def test_another_sites_page_decides_nothing(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    form = {"nonce": nonce_of(await person.open(path))}

    answers = [
        await person.browser.post(path, data=form, headers=headers)
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null", "sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        )
    ]

    assert {(answer.status_code, title_of(answer)) for answer in answers} == {
        (403, "This did not come from our page")
    }
    assert (await person.shown(approval))["status"] == "pending"


async def test_the_page_of_one_link_does_not_open_another(person: Person) -> None:
    approval = await parked(person.client)
    links = await person.asked()

    page = await person.press(links["approve"], await person.open(links["deny"]))

    assert title_of(page) == "This page is too old"
    assert (await person.shown(approval))["status"] == "pending"


async def test_a_page_that_was_open_for_long_decides_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    links = person.service.app._parts.links
    token = path.rpartition("/")[2]

    old = links.nonce(token, now_ms() - NONCE_MS)
    page = await person.browser.post(path, data={"nonce": old})

    assert title_of(page) == "This page is too old"
    assert (await person.shown(approval))["status"] == "pending"


async def test_a_link_that_was_tampered_with_is_not_valid(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["deny"]
    said, _, signed = path.rpartition("/")[2].partition(".")
    claims = orjson.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
    forged = base64.urlsafe_b64encode(orjson.dumps({**claims, "decision": "approve"})).decode()
    tokens = [
        f"/approve/{forged.rstrip('=')}.{signed}",
        f"/approve/{said}.{signed}",  # The signed answer is the other one.
        f"/deny/{said}.{signed.swapcase()}",
        f"/deny/{said}.",
        "/deny/nonsense",
        "/deny/é",
    ]

    pages = [await person.open(each) for each in tokens]
    posts = [await person.browser.post(each, data={"nonce": "x.1.y"}) for each in tokens]

    told = {(page.status_code, title_of(page)) for page in (*pages, *posts)}
    assert told == {(404, "This link is not valid")}
    assert (await person.shown(approval))["status"] == "pending"


async def test_a_link_of_an_installation_with_another_key_is_not_valid(
    person: Person, tmp_path: Path
) -> None:
    await parked(person.client)
    path = (await person.asked())["approve"]
    other = settings_for(
        f"sqlite:///{tmp_path}/other.db",
        secret_key="another key, and just as long",
        public_url=ORIGIN,
    )

    async with serving(other) as service, service.client() as browser:
        page = await browser.get(path)

    assert page.status_code == 404


async def test_a_link_is_void_once_somebody_has_decided(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await decide(person.client, approval, "deny")

    pressed, opened = await person.press(path, page), await person.open(path)

    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (409, "Already denied")
    assert (await person.shown(approval))["decision"] == "deny"


async def test_a_link_is_void_once_the_call_was_edited(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await changed(person, approval, digest="sha256:another")

    pressed, opened = await person.press(path, page), await person.open(path)

    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (409, "The call was edited meanwhile")
    assert (await person.shown(approval))["status"] == "pending"


async def test_a_link_is_void_once_its_time_is_up(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await changed(person, approval, expires_ms=1)

    pressed, opened = await person.press(path, page), await person.open(path)

    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (410, "This link has expired")
    assert (await person.shown(approval))["decision"] is None


async def test_a_link_is_void_once_its_run_is_over(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await person.client.post(f"/v1/runs/{approval['run_id']}/cancel", json={})
    await ended(person.client, approval["run_id"])

    pressed, opened = await person.press(path, page), await person.open(path)

    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (410, "Nothing is left to decide")


async def test_links_are_void_once_their_webhook_is_disabled_or_gone(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    (hook,) = (await person.client.get("/v1/webhooks")).json()["data"]
    one = f"/v1/webhooks/{hook['id']}"

    told = []
    for change in ({"enabled": False}, {"enabled": True, "approval_links": False}):
        await person.client.patch(one, json=change)
        told += [await person.press(path, page), await person.open(path)]
    await person.client.delete(one)
    told += [await person.press(path, page), await person.open(path)]

    assert {(each.status_code, title_of(each)) for each in told} == {
        (410, "This link was taken back")
    }
    assert (await person.shown(approval))["status"] == "pending"


async def test_a_link_of_an_erased_session_is_void(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await person.client.post(f"/v1/runs/{approval['run_id']}/cancel", json={})
    await ended(person.client, approval["run_id"])
    gone = await person.client.delete(f"/v1/sessions/{approval['session_id']}")

    pressed, opened = await person.press(path, page), await person.open(path)

    assert gone.status_code == 204
    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (410, "Nothing is left to decide")


async def test_what_a_model_wrote_is_shown_as_text(person: Person) -> None:
    mail = 'Send a mail to ann@example.com about <script>alert(1)</script> saying "><img src=x>'
    await parked(person.client, mail)

    page = await person.open((await person.asked())["approve"])

    assert "<script" not in page.text
    assert "<img" not in page.text
    assert "&lt;script&gt;" in page.text


@pytest.mark.parametrize(
    "unseen",
    ["\u202e", "\u200b", "\u2066", "\u3164", "\u034f", "\ufe0f", "\U000e0041", "\u0085", "\u2028"],
)
async def test_nothing_that_a_model_wrote_hides_on_the_page(person: Person, unseen: str) -> None:
    mail = {"to": f"ann@example.com{unseen}", "subject": "lunch", "body": "hello"}
    approval = await parked(person.client)
    edited = {"arguments": orjson.dumps(mail).decode(), "preview": f"send_email(to='{unseen}')"}
    path = (await person.asked())["approve"]
    await changed(person, approval, **edited)

    page = await person.open(path)

    told = "".join(f"\\u{unit}" for unit in unseen.encode("utf-16-be").hex(" ", 2).split())
    assert page.status_code == 200
    assert unseen not in page.text
    assert f"&quot;ann@example.com{told}&quot;" in page.text
    assert f"to=&#x27;{told}&#x27;" in page.text


async def test_all_of_a_long_call_is_on_the_page(person: Person) -> None:
    approval = await parked(person.client)
    mail = {"to": "ann@example.com", "subject": "lunch", "body": "hello " * 10_000 + "and pay Eve"}
    path = (await person.asked())["approve"]
    await changed(person, approval, arguments=orjson.dumps(mail).decode())

    page = await person.open(path)

    assert page.status_code == 200
    assert "hello and pay Eve&quot;" in page.text


async def test_who_decided_by_a_link_is_written_down_with_what_was_seen(person: Person) -> None:
    approval = await parked(person.client)
    (hook,) = (await person.client.get("/v1/webhooks")).json()["data"]
    path = (await person.asked())["approve"]
    await person.press(path, await person.open(path))

    trail = await person.client.get(f"/v1/audit?action=approval.decided&target={approval['id']}")

    (act,) = trail.json()["data"]
    assert act["actor"] == f"link:{hook['id']}"
    assert act["details"]["seen"]["digest"] == approval["digest"]


async def test_a_link_with_an_approver_decides_under_that_name(person: Person) -> None:
    (hook,) = (await person.client.get("/v1/webhooks")).json()["data"]
    await person.client.patch(f"/v1/webhooks/{hook['id']}", json={"approver": "ann"})
    approval = await parked(person.client)
    path = (await person.asked())["approve"]

    page = await person.open(path)
    await person.press(path, page)

    assert "You decide as ann." in page.text
    assert (await person.shown(approval))["decided_by"] == "user:ann"


async def test_a_link_of_somebody_who_is_being_erased_says_why_it_decides_nothing(
    person: Person,
) -> None:
    (hook,) = (await person.client.get("/v1/webhooks")).json()["data"]
    await person.client.patch(f"/v1/webhooks/{hook['id']}", json={"approver": "ann"})
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await person.service.app._parts.ports.store.write(being_erased("default", "ann"))

    pressed = await person.press(path, page)

    assert (pressed.status_code, title_of(pressed)) == (409, "You are being erased here")
    assert (await person.shown(approval))["status"] == "pending"


async def test_links_are_offered_only_to_those_whom_the_terms_leave_the_answer(
    person: Person,
) -> None:
    rule = {"tool": "send_email", "approvers": ["user:ann"]}
    await made(person.client, "/v1/agents", {**DEMO, "name": "strict", "policy": {"ask": [rule]}})
    (hook,) = (await person.client.get("/v1/webhooks")).json()["data"]

    offered = []
    for approver in (None, "bob", "ann"):
        await person.client.patch(f"/v1/webhooks/{hook['id']}", json={"approver": approver})
        await parked(person.client, agent="strict")
        message = await person.there.of_type("approval.requested")
        offered.append("links" in message.body["data"])

    assert offered == [False, False, True]


async def test_an_anonymous_link_does_not_answer_what_the_asker_may_not(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    page = await person.open(path)
    await changed(person, approval, terms='{"self_approval":false}')

    pressed, opened = await person.press(path, page), await person.open(path)

    for told in (pressed, opened):
        assert (told.status_code, title_of(told)) == (403, "This link may not decide this")
    assert (await person.shown(approval))["status"] == "pending"


async def test_links_of_one_webhook_are_one_voice_among_several(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["approve"]
    await changed(person, approval, required=2)

    votes = [await person.press(path, await person.open(path)) for _ in range(2)]
    still = await person.shown(approval)
    await decide(person.client, approval, "approve", digest=approval["digest"])

    assert {title_of(vote) for vote in votes} == {"Your vote was counted"}
    assert still["status"] == "pending"
    assert (await person.shown(approval))["status"] == "approved"


async def test_a_comment_that_is_too_long_is_refused(person: Person) -> None:
    approval = await parked(person.client)
    path = (await person.asked())["deny"]

    answer = await person.press(path, await person.open(path), comment="x" * 1_001)

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/comment")
    assert (await person.shown(approval))["status"] == "pending"
