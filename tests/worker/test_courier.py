"""The courier: what it sends, when it sends it again, and what no death of it can lose."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from milepost.core.webhooks import RETRY_WAITS_MS
from milepost.live.hub import OUTBOX_BELL
from milepost.runtime.secrets import Vault
from milepost.runtime.webhook_secrets import kept
from milepost.store import sessions, webhook_deliveries, webhooks
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.store import Store
from milepost.store.webhook_deliveries import DeliveryRow
from milepost.store.webhooks import WebhookRow
from milepost.tools import egress
from milepost.tools.egress import open_egress
from milepost.worker import courier as couriers
from milepost.worker.courier import LEASE_MS, Courier
from tests.store.breaking import BreakingEngine
from tests.store.making import TENANT, asking, finished
from tests.store.making_webhooks import deliveries, hooked, put
from tests.stubs.web_server import web_server
from tests.stubs.webhook_receiver import Receiver, receiver
from tests.worker.running import running
from tests.worker.sending import Office, office, turn

TIMEOUT_S = 10


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    async with receiver() as there:
        yield there


@pytest.fixture
async def desk(store: Store, tmp_path: Path) -> AsyncIterator[Office]:
    """A post office on each database."""
    async with office(store, tmp_path / "artifacts") as desk:
        yield desk


def attempts(row: DeliveryRow) -> list[dict[str, Any]]:
    tried: list[dict[str, Any]] = orjson.loads(row.attempts)
    return tried


async def told(desk: Office, there: Receiver, count: int = 1, **changes: Any) -> WebhookRow:
    """Return a webhook with so many messages for it in the outbox."""
    row = await hooked(desk.store, url=there.url, **{"events": '["custom"]', **changes})
    for n in range(count):
        await put(desk.store, "custom", run_id=(await ran(desk)), data=f'{{"n":{n}}}')
    return row


async def ran(desk: Office) -> str:
    return (await finished(desk.store)).run_id


async def test_a_message_arrives_once_and_signed(desk: Office, there: Receiver) -> None:
    row = await told(desk, there)

    await turn(desk.courier())

    message = await there.next()
    assert message.signed_with(row.secret) == [True]
    assert message.headers["webhook-timestamp"] == str(desk.now_ms // 1000)
    assert message.headers["content-type"] == "application/json"
    delivery = await desk.one(row)
    assert (delivery.status, message.id) == ("delivered", delivery.id)
    assert attempts(delivery)[0]["status"] == 204
    assert await turn(desk.courier()) == []


async def test_a_sealed_secret_signs_too(desk: Office, there: Receiver) -> None:
    secret = "whsec_c2VhbGVkc2VhbGVkc2VhbGVkc2VhbGVk"
    sealed = kept(desk.vault, TENANT, "whk_1", secret)
    await told(desk, there, id="whk_1", secret=sealed)

    await turn(desk.courier())

    assert secret not in sealed
    assert (await there.next()).signed_with(secret) == [True]


async def test_two_secrets_sign_while_both_are_valid_and_then_one(
    desk: Office, there: Receiver
) -> None:
    row = await told(desk, there, 2)
    old, new = row.secret, "whsec_bmV3bmV3bmV3bmV3bmV3bmV3"
    until = desk.now_ms + 1_000
    work = webhooks.rotate(row, new, until_ms=until, now_ms=desk.now_ms, expected_version=1)
    await desk.store.write(work)

    first, second = await desk.courier().take()
    await desk.courier().send(first)
    desk.now_ms = until
    await desk.courier().send(second)

    assert (await there.next()).signed_with(new, old) == [True, True]
    assert (await there.next()).signed_with(new, old) == [True, False]


async def test_what_fails_is_sent_again_under_the_same_id_until_it_is_dead(
    desk: Office, there: Receiver
) -> None:
    there.answers = [500, 503, 404, 429, 302, 401, 500, 502]
    row = await told(desk, there)
    courier = desk.courier()
    await turn(courier)
    ids = {(await there.next()).id}

    for wait_ms in RETRY_WAITS_MS:
        desk.now_ms += wait_ms - 1
        assert await turn(courier) == []
        desk.now_ms += TIMEOUT_S * 1000
        assert len(await turn(courier)) == 1
        ids.add((await there.next()).id)

    delivery = await desk.one(row)
    assert ids == {delivery.id}
    assert (delivery.status, delivery.failures) == ("dead", 8)
    assert [each["status"] for each in attempts(delivery)][:4] == [500, 503, 404, 429]
    assert "a redirect, not followed" in attempts(delivery)[4]["error"]
    desk.now_ms += 10 * RETRY_WAITS_MS[-1]
    assert await turn(courier) == []
    page = desk.metrics.render({}).decode()
    assert f'milepost_webhook_deliveries_total{{status="failed"}} {len(RETRY_WAITS_MS)}.0' in page
    assert 'milepost_webhook_deliveries_total{status="dead"} 1.0' in page


async def test_webhooks_that_take_long_hide_no_others_however_many(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "READY_MAX", 2)
    monkeypatch.setattr(couriers, "IN_FLIGHT_TENANT_MAX", 1)
    for number in range(2):
        await hooked(desk.store, id=f"whk_{number}")
    other = await hooked(desk.store, id="whk_2", tenant="globex")
    for run_id in ("run_1", "run_2"):
        await put(desk.store, run_id=run_id)
    await put(desk.store, tenant="globex", run_id="run_3")
    courier = desk.courier()

    taken = [await courier.take() for _ in range(3)]

    assert other.id in [row.webhook_id for rows in taken for row in rows]


async def test_a_webhook_that_has_no_room_takes_nobody_s_place(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "READY_MAX", 1)
    monkeypatch.setattr(couriers, "IN_FLIGHT_WEBHOOK_MAX", 1)
    await hooked(desk.store, id="whk_0")
    for run_id in ("run_1", "run_2"):
        await put(desk.store, run_id=run_id)
    courier = desk.courier()
    assert len(await courier.take()) == 1
    assert await courier.take() == []

    other = await hooked(desk.store, id="whk_1", tenant="globex")
    await put(desk.store, tenant="globex", run_id="run_3")

    assert [row.webhook_id for row in await courier.take()] == [other.id]


async def test_what_came_of_sending_is_counted_when_it_is_written_down(
    desk: Office, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "PENDING_MAX", 3)
    there.answers = [204, 500, 410]
    await told(desk, there, 4)  # One too many: dead at once.
    courier = desk.courier()

    for row in await courier.take():
        await courier.send(row)

    page = desk.metrics.render({}).decode()
    assert 'milepost_webhook_deliveries_total{status="delivered"} 1.0' in page
    assert 'milepost_webhook_deliveries_total{status="failed"} 1.0' in page
    assert 'milepost_webhook_deliveries_total{status="dead"} 2.0' in page


async def test_an_attempt_that_another_has_followed_is_not_counted(
    desk: Office, there: Receiver
) -> None:
    await told(desk, there)
    late, courier = desk.courier(), desk.courier()
    (claimed,) = await late.take()
    desk.now_ms += LEASE_MS
    await turn(courier)

    await late.send(claimed)

    page = desk.metrics.render({}).decode()
    assert 'milepost_webhook_deliveries_total{status="delivered"} 1.0' in page


async def test_a_dead_delivery_arrives_when_it_is_sent_again(desk: Office, there: Receiver) -> None:
    there.answers = [500]
    row = await told(desk, there)
    await turn(desk.courier())
    first = await there.next()

    await desk.store.write(webhook_deliveries.redeliver(await desk.one(row), desk.now_ms))
    await turn(desk.courier())

    assert (await there.next()).id == first.id
    assert (await desk.one(row)).status == "delivered"


async def test_what_is_sent_again_before_its_last_retry_has_all_retries_before_it(
    desk: Office, there: Receiver
) -> None:
    there.answers = [500] * (len(RETRY_WAITS_MS) + 1)
    row, courier = await told(desk, there), desk.courier()
    await turn(courier)
    for wait_ms in RETRY_WAITS_MS[:-1]:
        desk.now_ms += wait_ms + TIMEOUT_S * 1000
        await turn(courier)

    await desk.store.write(webhook_deliveries.redeliver(await desk.one(row), desk.now_ms))
    await turn(courier)

    delivery = await desk.one(row)
    assert there.answers == []
    assert (delivery.status, delivery.failures) == ("pending", 1)


async def test_a_courier_that_dies_before_it_sends_loses_nothing(
    desk: Office, there: Receiver
) -> None:
    row = await told(desk, there)
    (claimed,) = await desk.courier().take()  # And it was never heard of again.

    desk.now_ms += LEASE_MS - 1
    assert await turn(desk.courier()) == []
    desk.now_ms += 1
    await turn(desk.courier())

    assert (await there.next()).id == claimed.id
    delivery = await desk.one(row)
    assert (delivery.status, delivery.claims, delivery.failures) == ("delivered", 2, 0)


async def test_a_courier_that_dies_before_it_writes_down_sends_the_same_id_again(
    desk: Office, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await told(desk, there)
    dying = desk.courier()
    (claimed,) = await dying.take()
    there.held = asyncio.Event()
    sending = asyncio.create_task(dying.send(claimed))
    first = await there.next()
    sending.cancel()
    there.held.set()

    desk.now_ms += LEASE_MS
    await turn(desk.courier())

    assert (await there.next()).id == first.id
    assert (await desk.one(row)).status == "delivered"


def over_a_line(desk: Office) -> BreakingEngine:
    """Have couriers reach the database over a line that can be broken."""
    line = BreakingEngine(desk.store.engine)
    desk.store = Store(line, waits_s=(0,))
    return line


async def test_an_outage_keeps_no_claimed_message_until_the_claim_lapses(
    desk: Office, there: Receiver
) -> None:
    row, line, courier = await told(desk, there), over_a_line(desk), desk.courier()
    (claimed,) = await courier.take()

    line.absences = 3
    await courier.send(claimed)

    assert (await there.next()).id == claimed.id
    assert (await desk.one(row)).status == "delivered"


async def test_an_outage_has_no_message_sent_twice(desk: Office, there: Receiver) -> None:
    row, line, courier = await told(desk, there), over_a_line(desk), desk.courier()
    (claimed,) = await courier.take()
    there.held = asyncio.Event()
    sending = asyncio.create_task(courier.send(claimed))
    await there.next()
    line.absences = 3
    there.held.set()
    await sending

    desk.now_ms += LEASE_MS

    assert await turn(desk.courier()) == []
    assert (await desk.one(row)).status == "delivered"


async def test_a_message_whose_claim_lapsed_in_an_outage_is_left_to_others(
    desk: Office, there: Receiver
) -> None:
    row, courier = await told(desk, there), desk.courier()
    (claimed,) = await courier.take()

    desk.now_ms += LEASE_MS
    await courier.send(claimed)

    assert there.arrived.empty()
    assert (await desk.one(row)).status == "pending"


async def test_messages_whose_claim_was_not_answered_are_sent_at_once(
    desk: Office, there: Receiver
) -> None:
    row, line, courier = await told(desk, there, 2), over_a_line(desk), desk.courier()
    await desk.store.write(webhook_deliveries.fan_out(desk.now_ms))
    line.breaks, line.absences_after = 1, 1
    for _ in range(2):
        with pytest.raises(DatabaseUnavailableError):
            await courier.take()

    desk.now_ms += 1
    taken = await courier.take()
    assert await courier.take() == [], "they are on their way"
    await asyncio.gather(*(courier.send(each) for each in taken))

    found = await deliveries(desk.store, row)
    assert {(each.status, each.claims) for each in found} == {("delivered", 1)}
    assert there.arrived.qsize() == len(found) == 2
    assert await turn(courier) == []


async def test_two_couriers_send_each_message_once(desk: Office, there: Receiver) -> None:
    row = await told(desk, there, 12)
    processes = [desk.courier() for _ in range(2)]

    while await asyncio.gather(*(turn(each) for each in processes)) != [[], []]:
        pass

    arrived = [there.arrived.get_nowait().id for _ in range(there.arrived.qsize())]
    assert len(arrived) == len(set(arrived)) == 12
    assert {each.status for each in await deliveries(desk.store, row)} == {"delivered"}


async def test_410_disables_the_webhook(desk: Office, there: Receiver) -> None:
    there.answers = [410]
    row = await told(desk, there, 6)

    await turn(desk.courier())

    found = await desk.store.read(webhooks.find(TENANT, row.id))
    assert (found.enabled, found.disabled_reason) == (0, "it answered 410 Gone")
    assert await turn(desk.courier()) == []
    assert "dead" in {each.status for each in await deliveries(desk.store, row)}


async def test_an_address_inside_is_judged_again_at_each_sending(
    desk: Office, there: Receiver
) -> None:
    row = await told(desk, there)

    async with open_egress() as strict:
        await turn(desk.courier(egress=strict))

    delivery = await desk.one(row)
    assert (delivery.status, delivery.failures) == ("pending", 1)
    assert "is at no public address" in attempts(delivery)[0]["error"]
    assert there.asked == []


async def test_a_name_that_leads_inside_by_now_is_not_followed(
    desk: Office, there: Receiver
) -> None:
    async def rebound(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    port = there.url.rpartition(":")[2]
    row = await told(desk, there)
    moved = webhooks.WebhookEdit(f"http://hooks.example:{port}", row.events, None, 1, 1, None, "{}")
    await desk.store.write(webhooks.change(row, moved, now_ms=desk.now_ms, expected_version=1))

    async with open_egress(resolve=rebound) as strict:
        await turn(desk.courier(egress=strict))

    assert "is at no public address" in attempts(await desk.one(row))[0]["error"]
    assert there.asked == []


async def test_a_slow_endpoint_holds_up_nobody_else(desk: Office, there: Receiver) -> None:
    slow = await told(desk, there, couriers.IN_FLIGHT_WEBHOOK_MAX + 3)
    there.held = asyncio.Event()
    courier = desk.courier()
    stuck = [asyncio.create_task(courier.send(row)) for row in await courier.take()]
    async with receiver() as quick:
        other = await told(desk, quick)

        assert len(stuck) == couriers.IN_FLIGHT_WEBHOOK_MAX
        (sent,) = await turn(courier)

        assert sent.webhook_id == other.id
        assert (await quick.next()).id == sent.id
    there.held.set()
    await asyncio.gather(*stuck)
    assert len(await turn(courier)) == 4
    assert slow.id


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(
    ("bound", "hooks"),
    [("IN_FLIGHT_MAX", 3), ("IN_FLIGHT_TENANT_MAX", 3), ("IN_FLIGHT_WEBHOOK_MAX", 1)],
)
async def test_only_so_many_are_on_their_way_at_once_and_all_arrive(
    desk: Office,
    there: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    hooks: int,
    most: int,
) -> None:
    monkeypatch.setattr(couriers, bound, most)
    for number in range(hooks):
        await hooked(desk.store, id=f"whk_{number}", url=there.url, events='["custom"]')
    for _ in range(6 // hooks):
        await put(desk.store, "custom", run_id=(await ran(desk)), data="{}")
    courier = desk.courier()

    first, *others = await courier.take()
    assert len(others) == most - 1
    assert await courier.take() == []
    await courier.send(first)
    [third] = await courier.take()
    await asyncio.gather(*map(courier.send, [*others, third]))
    while await turn(courier):
        pass

    arrived = {there.arrived.get_nowait().id for _ in range(there.arrived.qsize())}
    assert len(arrived) == 6


async def test_an_endpoint_that_does_not_answer_in_time_is_tried_again(
    desk: Office, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(couriers, "TIMEOUT_S", 0.05)
    there.held = asyncio.Event()
    row = await told(desk, there)

    await turn(desk.courier())
    there.held.set()

    delivery = await desk.one(row)
    assert (delivery.status, delivery.failures) == ("pending", 1)
    assert "did not answer within" in attempts(delivery)[0]["error"]


async def test_the_beginning_of_an_answer_is_kept_and_no_more(
    desk: Office, there: Receiver
) -> None:
    there.answers, there.says = [200], "x" * 5_000_000
    row = await told(desk, there)

    await turn(desk.courier())

    delivery = await desk.one(row)
    assert delivery.status == "delivered"
    assert attempts(delivery)[0]["excerpt"] == "x" * couriers.EXCERPT_BYTES


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize(("status", "becomes"), [(200, "delivered"), (410, "dead")])
async def test_an_answer_counts_though_its_body_breaks_off_or_never_ends(
    desk: Office, monkeypatch: pytest.MonkeyPatch, status: int, becomes: str, *, breaks: bool
) -> None:
    monkeypatch.setattr(egress, "CUT_S", 0.05)
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"content-length": "100"})
        await response.prepare(request)
        await response.write(b"so far")
        if breaks and request.transport is not None:
            request.transport.close()
        else:
            await over.wait()
        return response

    async with web_server(answer) as server:
        row = await told(desk, Receiver(f"{server.url}/hook"))
        await turn(desk.courier())
        over.set()

    delivery = await desk.one(row)
    [attempt] = attempts(delivery)
    assert delivery.status == becomes
    assert (attempt["status"], attempt["excerpt"]) == (status, "so far")
    hook = await desk.store.read(webhooks.find(row.tenant, row.id))
    assert bool(hook.enabled) == (status != 410)


async def test_what_was_erased_meanwhile_is_not_sent(desk: Office, there: Receiver) -> None:
    row = await hooked(desk.store, url=there.url)
    claim = await finished(desk.store)
    taken = await desk.courier().take()
    await desk.store.write(sessions.delete(TENANT, claim.session_id))

    await asyncio.gather(*(desk.courier().send(each) for each in taken))

    assert len(taken) == 3
    assert there.asked == []
    assert await deliveries(desk.store, row) == []


async def test_a_message_about_what_is_gone_is_dead_and_says_why(
    desk: Office, there: Receiver
) -> None:
    row = await hooked(desk.store, url=there.url, events='["custom"]')
    await put(desk.store, "custom", run_id="run_gone")

    await turn(desk.courier())

    delivery = await desk.one(row)
    assert (delivery.status, there.asked) == ("dead", [])
    assert attempts(delivery)[0]["error"] == "run run_gone was erased"


async def test_a_secret_that_cannot_be_read_is_a_failure_that_says_so(
    desk: Office, there: Receiver
) -> None:
    other = Vault("another key altogether, and as long")
    row = await told(desk, there, id="whk_1", secret=kept(other, TENANT, "whk_1", "whsec_eHg="))

    await turn(desk.courier())

    assert (
        "cannot be read with this MILEPOST_SECRET_KEY" in attempts(await desk.one(row))[0]["error"]
    )
    assert there.asked == []


async def test_a_question_carries_links_to_answer_it(desk: Office, there: Receiver) -> None:
    asked = await asking(desk.store)
    await hooked(desk.store, url=there.url)
    said = orjson.dumps({"approval_id": asked.id}).decode()
    await put(desk.store, run_id=asked.run_id, data=said)

    await turn(desk.courier())

    data = (await there.next()).body["data"]
    assert data["approval"]["id"] == asked.id
    assert data["run"]["id"] == asked.run_id
    assert data["links"]["approve"].startswith("https://agents.example/approve/")
    assert data["links"]["deny"].startswith("https://agents.example/deny/")


async def test_a_message_that_cannot_be_made_is_a_failure_that_says_so(
    desk: Office, there: Receiver
) -> None:
    row = await told(desk, there)
    asked = await hooked(desk.store, url=there.url, events='["approval.reminder"]')
    await put(desk.store, "approval.reminder", run_id=await ran(desk), data="{}")

    await turn(desk.courier())

    delivery = await desk.one(asked)
    assert (delivery.status, attempts(delivery)[0]["error"]) == ("pending", couriers.BROKEN)
    assert (await desk.one(row)).status == "delivered"


async def test_what_runs_sends_as_soon_as_the_bell_rings(desk: Office, there: Receiver) -> None:
    async with running(desk.courier(poll_s=600)):
        await told(desk, there, 9)
        desk.hub.ring(OUTBOX_BELL)

        arrived = {(await there.next()).id for _ in range(9)}

        assert len(arrived) == 9


async def test_what_breaks_off_one_turn_ends_nothing(
    desk: Office, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    courier: Courier = desk.courier(poll_s=0)
    takes, broken = courier.take, iter([True])

    async def take() -> list[DeliveryRow]:
        if next(broken, False):
            raise RuntimeError("a turn broke")
        return await takes()

    monkeypatch.setattr(courier, "take", take)
    async with running(courier):
        await told(desk, there)

        assert (await there.next()).type == "custom"
