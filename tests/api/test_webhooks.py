"""Webhooks through the API: how they are kept, and what arrives at a real receiver."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from milepost.api.webhooks import WEBHOOKS_MAX
from tests.api.asking import decide, ended, parked, started
from tests.api.making import a_webhook, made, refusal
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.stubs.webhook_receiver import Receiver, receiver

PUBLIC = "https://agents.example/milepost"


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    """Where messages arrive."""
    async with receiver() as there:
        yield there


@pytest.fixture
async def telling(database_url: str) -> AsyncIterator[Service]:
    """A service that may send to this machine, on each database."""
    settings = settings_for(database_url, egress_allow="127.0.0.1", public_url=PUBLIC)
    async with serving(settings) as service:
        yield service


@pytest.fixture
async def client(telling: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with telling.client() as client:
        yield client


async def hooked(client: httpx2.AsyncClient, there: Receiver, **changes: Any) -> dict[str, Any]:
    """Make a webhook."""
    return await made(client, "/v1/webhooks", a_webhook(url=there.url, **changes))


async def settled(client: httpx2.AsyncClient, delivery: dict[str, Any]) -> dict[str, Any]:
    """Return the delivery once its last attempt is written down."""
    path = f"/v1/webhooks/{delivery['webhook_id']}/deliveries/{delivery['id']}"
    while True:  # Each look takes the time of a request; the test has a limit.
        shown: dict[str, Any] = (await client.get(path)).json()
        if shown["status"] not in {"sending", "pending"} or shown["failures"]:
            return shown


async def test_a_question_and_its_answer_arrive_signed(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there, events=["approval.*"])
    approval = await parked(client)

    asked = await there.next()
    await decide(client, approval, "approve", comment="fine")
    answered = await there.next()

    assert (asked.type, answered.type) == ("approval.requested", "approval.decided")
    assert asked.signed_with(hook["secret"]) == answered.signed_with(hook["secret"]) == [True]
    assert (asked.body["id"], asked.body["tenant"]) == (asked.id, "default")
    said = asked.body["data"]
    assert (said["run_id"], said["run"]["agent"]) == (approval["run_id"], "demo")
    assert said["approval"] == approval
    assert set(said["links"]) == {"approve", "deny"}
    assert answered.body["data"]["decision"] == "approve"
    assert answered.body["data"]["approval"]["status"] == "approved"
    assert "links" not in answered.body["data"]


async def test_a_runs_life_arrives_with_the_numbers_of_its_log(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    await hooked(client, there, events=["run.*"])
    run_id = await started(client, "What is 2 + 3?")
    await ended(client, run_id)

    arrived = [await there.next() for _ in range(3)]

    log = (
        await client.get(f"/v1/runs/{run_id}/events", headers={"accept": "application/json"})
    ).json()["data"]
    by_seq = {event["seq"]: event for event in log}
    for message in arrived:
        data = message.body["data"]
        assert message.type == by_seq[data["seq"]]["type"]
        assert message.body["timestamp"] == by_seq[data["seq"]]["time"]
        assert by_seq[data["seq"]]["data"].items() <= data.items()
    assert {m.type for m in arrived} == {"run.queued", "run.started", "run.completed"}


async def test_a_run_that_is_cancelled_while_it_waits_is_told(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    approval = await parked(client)
    await hooked(client, there, events=["run.cancelled", "approval.withdrawn"])

    await client.post(f"/v1/runs/{approval['run_id']}/cancel", json={"reason": "typo"})

    arrived = {(await there.next()).type for _ in range(2)}
    assert arrived == {"run.cancelled", "approval.withdrawn"}


async def test_what_is_too_large_is_left_out_and_says_where_it_is(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    await hooked(client, there, events=["run.queued"])
    run_id = await started(client, "x" * 200_000)

    message = await there.next()

    assert len(message.raw) < 65_536
    left_out = message.body["data"]["input"]
    assert left_out["left_out_bytes"] > 200_000
    assert left_out["url"] == f"{PUBLIC}/v1/runs/{run_id}/events?after=0"
    assert message.body["data"]["agent"] == "demo"


async def test_a_secret_is_shown_once_and_stored_sealed(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)

    shown = await client.get(f"/v1/webhooks/{hook['id']}")

    assert hook["secret"].startswith("whsec_")
    assert "secret" not in shown.json()
    assert {**shown.json(), "secret": hook["secret"]} == hook


async def test_the_same_request_makes_one_webhook_and_shows_its_secret_once(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    body, key = a_webhook(url=there.url), {"idempotency-key": "k1"}

    first = await client.post("/v1/webhooks", json=body, headers=key)
    again = await client.post("/v1/webhooks", json=body, headers=key)

    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {**first.json(), "secret": None}
    assert first.headers["cache-control"] == "no-store"


async def test_a_rotation_that_meant_a_version_is_repeated_under_its_key(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    path = f"/v1/webhooks/{(await hooked(client, there))['id']}/secret"
    headers = {"idempotency-key": "k1", "if-match": '"1"'}

    first, again = [await client.post(path, headers=headers) for _ in range(2)]

    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {**first.json(), "secret": None}


async def test_a_repeated_rotation_that_names_no_version_is_refused_all_the_same(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    path, key = f"/v1/webhooks/{(await hooked(client, there))['id']}/secret", "k1"
    await client.post(path, headers={"idempotency-key": key})

    again = await client.post(path, headers={"idempotency-key": key, "if-match": "{}"})

    assert refusal(again) == (412, "precondition_failed")


async def test_what_was_sent_is_told_again_though_its_webhook_is_gone_by_now(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    path, key = f"/v1/webhooks/{(await hooked(client, there))['id']}", {"idempotency-key": "k1"}
    there.answers = [500, 410]
    tested = await client.post(f"{path}/test", headers=key)
    failed = await settled(client, tested.json())
    redelivery = f"{path}/deliveries/{failed['id']}/redeliver"
    await client.post(redelivery, headers=key)
    while (await client.get(path)).json()["enabled"]:
        pass

    again = [await client.post(each, headers=key) for each in (f"{path}/test", redelivery)]

    for answer in again:
        assert (answer.status_code, answer.json()["status"]) == (202, "dead")
        assert answer.headers["idempotency-replayed"] == "true"
    assert refusal(await client.post(f"{path}/test")) == (409, "webhook_disabled")


async def test_a_webhook_is_told_again_though_its_address_may_not_be_reached_by_now(
    database_url: str, there: Receiver
) -> None:
    body, key = a_webhook(url=there.url), {"idempotency-key": "k1"}
    async with (
        serving(settings_for(database_url, egress_allow="127.0.0.1")) as service,
        service.client() as client,
    ):
        first = await client.post("/v1/webhooks", json=body, headers=key)
    async with serving(settings_for(database_url)) as service, service.client() as client:
        again = await client.post("/v1/webhooks", json=body, headers=key)

    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert again.json() == {**first.json(), "secret": None}


async def test_a_rotated_secret_signs_beside_the_former_one(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    path = f"/v1/webhooks/{hook['id']}"

    rotated = await made(client, f"{path}/secret", {})
    await made(client, f"{path}/test", {})
    message = await there.next()
    at_once = await made(client, f"{path}/secret", {"overlap_s": 0})
    await made(client, f"{path}/test", {})
    later = await there.next()

    assert message.signed_with(hook["secret"], rotated["secret"]) == [True, True]
    assert rotated["former_secret_until"] is not None
    assert later.signed_with(hook["secret"], rotated["secret"]) == [False, False]
    assert later.signed_with(at_once["secret"]) == [True]
    assert at_once["former_secret_until"] is None


async def test_a_test_is_sent_whatever_the_webhook_wants_and_stands_in_its_list(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there, events=["run.failed"])
    there.answers, there.says = [200], "thanks"

    answer = await client.post(f"/v1/webhooks/{hook['id']}/test")
    message = await there.next()
    shown = await settled(client, answer.json())

    assert (answer.status_code, message.type) == (202, "webhook.test")
    assert answer.headers["location"].endswith(message.id)
    assert (shown["status"], shown["next_attempt_at"]) == ("delivered", None)
    (attempt,) = shown["attempts"]
    assert (attempt["response_status"], attempt["response_excerpt"]) == (200, "thanks")
    assert attempt["latency_ms"] >= 0
    listed = (await client.get(f"/v1/webhooks/{hook['id']}/deliveries")).json()
    assert [each["id"] for each in listed["data"]] == [message.id]
    dead = await client.get(f"/v1/webhooks/{hook['id']}/deliveries?status=dead")
    assert dead.json()["data"] == []


async def test_what_failed_can_be_sent_again_at_once_under_its_id(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    there.answers = [500]
    sent = await made(client, f"/v1/webhooks/{hook['id']}/test", {})
    first = await there.next()
    failed = await settled(client, sent)

    answer = await client.post(
        f"/v1/webhooks/{hook['id']}/deliveries/{sent['id']}/redeliver",
        headers={"idempotency-key": "again"},
    )
    again = await there.next()

    assert (failed["status"], failed["failures"]) == ("pending", 1)
    assert failed["next_attempt_at"] is not None
    assert (answer.status_code, again.id) == (202, first.id)


async def test_an_address_inside_is_refused_when_the_webhook_is_made_or_changed(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)

    for url in (
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:8000/",
        "http://10.0.0.8/hook",
        "http://0x7f000002/",
        "ftp://example.com/",
        "https://user:pass@127.0.0.1/",
        "nonsense",
        "http://",
    ):
        made_at = await client.post("/v1/webhooks", json=a_webhook(url=url))
        moved = await client.patch(f"/v1/webhooks/{hook['id']}", json={"url": url})
        for answer in (made_at, moved):
            assert refusal(answer) == (422, "url_not_allowed"), url
            assert answer.json()["errors"][0]["pointer"] == "/url"


async def test_a_glob_that_fits_nothing_is_refused(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    answer = await client.post(
        "/v1/webhooks", json=a_webhook(url=there.url, events=["run.*", "runs.*"])
    )

    assert refusal(answer) == (422, "unknown_event")
    assert answer.json()["errors"][0]["pointer"] == "/events/1"


async def test_a_webhook_is_changed_by_the_version_that_was_read(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    path, old = f"/v1/webhooks/{hook['id']}", {"if-match": '"1"'}

    changed = await client.patch(path, json={"description": "x", "approver": "ann"}, headers=old)
    late = [
        await client.patch(path, json={"description": "y"}, headers=old),
        await client.post(f"{path}/secret", headers=old),
        await client.delete(path, headers=old),
    ]

    assert (changed.headers["etag"], changed.json()["approver"]) == ('"2"', "ann")
    assert changed.json()["url"] == there.url
    assert {refusal(answer) for answer in late} == {(412, "precondition_failed")}


async def test_a_disabled_webhook_is_sent_nothing(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there, events=["*"])
    path = f"/v1/webhooks/{hook['id']}"

    await client.patch(path, json={"enabled": False})
    await ended(client, await started(client, "What is 2 + 3?"))
    refused = await client.post(f"{path}/test")
    await client.patch(path, json={"enabled": True})
    await made(client, f"{path}/test", {})

    assert refusal(refused) == (409, "webhook_disabled")
    assert (await there.next()).type == "webhook.test"


async def test_what_answers_410_is_disabled_and_says_why(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    there.answers = [410]

    sent = await made(client, f"/v1/webhooks/{hook['id']}/test", {})
    shown = await settled(client, sent)

    assert shown["status"] == "dead"
    listed = (await client.get("/v1/webhooks?enabled=false")).json()["data"]
    assert [(each["id"], each["disabled_reason"]) for each in listed] == [
        (hook["id"], "it answered 410 Gone")
    ]


async def test_why_a_webhook_is_disabled_is_said_until_somebody_enables_it(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    path = f"/v1/webhooks/{hook['id']}"
    there.answers = [410]
    await settled(client, await made(client, f"{path}/test", {}))

    renamed = await client.patch(path, json={"description": "the old desk"})
    enabled = await client.patch(path, json={"enabled": True})
    disabled = await client.patch(path, json={"enabled": False})

    shown = [answer.json() for answer in (renamed, enabled, disabled)]
    assert [(each["enabled"], each["disabled_reason"]) for each in shown] == [
        (False, "it answered 410 Gone"),
        (True, None),
        (False, None),
    ]


async def test_a_webhook_that_is_gone_has_no_deliveries(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    path = f"/v1/webhooks/{hook['id']}"
    sent = await made(client, f"{path}/test", {})

    gone = await client.delete(path)

    assert gone.status_code == 204
    for url in (path, f"{path}/deliveries", f"{path}/deliveries/{sent['id']}"):
        assert refusal(await client.get(url)) == (404, "webhook_not_found")


async def test_what_is_done_to_webhooks_is_audited_without_their_secrets(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there)
    path = f"/v1/webhooks/{hook['id']}"
    await client.patch(path, json={"description": "x"})
    await client.post(f"{path}/secret")
    await client.delete(path)

    trail = await client.get(f"/v1/audit?target={hook['id']}&order=asc")

    assert [act["action"] for act in trail.json()["data"]] == [
        "webhook.created",
        "webhook.changed",
        "webhook.secret_rotated",
        "webhook.deleted",
    ]
    assert "whsec_" not in trail.text


async def test_the_audit_trail_says_as_whom_the_links_of_a_changed_webhook_decide(
    client: httpx2.AsyncClient, there: Receiver
) -> None:
    hook = await hooked(client, there, approver="ann")
    path = f"/v1/webhooks/{hook['id']}"
    await client.patch(path, json={"approver": "bob"})
    await client.patch(path, json={"approval_links": False})

    trail = await client.get(f"/v1/audit?target={hook['id']}&order=asc")

    said = [act["details"] for act in trail.json()["data"]]
    assert [(each["approver"], each["approval_links"]) for each in said] == [
        ("ann", True),
        ("bob", True),
        ("bob", False),
    ]


async def test_there_are_only_so_many_webhooks(client: httpx2.AsyncClient, there: Receiver) -> None:
    for _ in range(WEBHOOKS_MAX):
        await hooked(client, there)

    answer = await client.post("/v1/webhooks", json=a_webhook(url=there.url))

    assert refusal(answer) == (409, "too_many_webhooks")


async def test_messages_go_to_the_tenant_they_are_about(
    keyed: KeyedService, there: Receiver
) -> None:
    """The service of two tenants may not reach the receiver: what it tried says for whom."""
    hooks = [
        await made(client, "/v1/webhooks", a_webhook(events=["run.queued"]))
        for client in (keyed.acme, keyed.globex)
    ]
    await keyed.acme.post("/v1/agents", json={"name": "a", "model": "demo/offline"})
    run = await made(keyed.acme, "/v1/runs?wait=20", {"agent": "a", "input": "hello"})

    seen = []
    for client, hook in zip((keyed.acme, keyed.globex), hooks, strict=True):
        listed = await client.get(f"/v1/webhooks/{hook['id']}/deliveries")
        while client is keyed.acme and not listed.json()["data"]:
            listed = await client.get(f"/v1/webhooks/{hook['id']}/deliveries")
        seen.append([each["run_id"] for each in listed.json()["data"]])
    assert seen == [[run["id"]], []]


async def test_without_a_secret_key_webhooks_sign_and_carry_no_links(
    sqlite_database_url: str, there: Receiver
) -> None:
    settings = settings_for(
        sqlite_database_url, egress_allow="127.0.0.1", secret_key=None, public_url=PUBLIC
    )
    async with serving(settings) as service, service.client() as client:
        hook = await hooked(client, there, events=["approval.requested"])
        await parked(client)

        message = await there.next()

    assert message.signed_with(hook["secret"]) == [True]
    assert "links" not in message.body["data"]


@pytest.mark.parametrize(
    ("secret_key", "why"),
    [("quite another key than before", "with this MILEPOST_SECRET_KEY"), (None, "there is no key")],
)
async def test_a_webhook_whose_secret_nobody_can_read_is_told_again_once_that_is_rotated(
    database_url: str, there: Receiver, secret_key: str | None, why: str
) -> None:
    settings = settings_for(database_url, egress_allow="127.0.0.1")
    async with serving(settings) as service, service.client() as client:
        hook = await hooked(client, there)
    path = f"/v1/webhooks/{hook['id']}"

    settings = settings_for(database_url, egress_allow="127.0.0.1", secret_key=secret_key)
    async with serving(settings) as service, service.client() as client:
        unread = await settled(client, await made(client, f"{path}/test", {}))
        rotated = await made(client, f"{path}/secret", {})
        await made(client, f"{path}/test", {})

        assert why in unread["attempts"][0]["error"]
        assert unread["next_attempt_at"] is not None
        assert (await there.next()).signed_with(rotated["secret"]) == [True]
