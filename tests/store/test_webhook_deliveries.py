"""Deliveries: who gets one, who may send it, and what is written down of that."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import outbox, webhook_deliveries, webhooks
from milepost.store.store import Store
from milepost.store.webhook_deliveries import ATTEMPTS_KEPT, KEPT_MS, Attempt, DeliveryRow
from milepost.store.webhooks import WebhookRow
from tests.store.making import NOW_MS, TENANT, finished
from tests.store.making_webhooks import (
    WHOLE,
    as_the_version_before,
    deliveries,
    hooked,
    one_due,
    put,
)

LEASE_MS = 60_000


async def claimed(
    store: Store, row: WebhookRow, limit: int = 10, now_ms: int = NOW_MS
) -> list[DeliveryRow]:
    work = webhook_deliveries.claim({row.id: limit}, lease_ms=LEASE_MS, now_ms=now_ms)
    return await store.write(work)


def came(status: int = 500, at_ms: int = NOW_MS, **changes: Any) -> Attempt:
    return Attempt(at_ms, 12, status, **changes)


async def ready(store: Store, *busy: str, now_ms: int = NOW_MS) -> list[str]:
    found = await store.read(webhook_deliveries.ready(busy, now_ms))
    return sorted(each.webhook_id for each in found)


async def test_each_webhook_gets_what_it_wants(store: Store) -> None:
    ends = await hooked(store, events='["run.completed","run.failed"]')
    everything = await hooked(store)
    await finished(store)

    fanned = await store.write(webhook_deliveries.fan_out(NOW_MS))

    assert (fanned.taken, fanned.dead) == (3, 0)
    assert [each.type for each in await deliveries(store, ends)] == ["run.completed"]
    assert len(await deliveries(store, everything)) == 3
    assert not await store.read(outbox.waits())


async def test_what_is_said_again_after_it_was_taken_out_is_told_once_and_stops_nothing(
    store: Store,
) -> None:
    row = await hooked(store)
    await put(store)
    await store.write(webhook_deliveries.fan_out(NOW_MS))
    await put(store)
    await put(store, data='{"another":"one"}')

    await store.write(webhook_deliveries.fan_out(NOW_MS))

    told = [each.data for each in await deliveries(store, row)]
    assert sorted(map(str, told)) == ['{"another":"one"}', "{}"]
    assert not await store.read(outbox.waits())


async def test_a_webhook_gets_nothing_that_happened_before_it_was_there(store: Store) -> None:
    await hooked(store)
    await put(store)
    late = await hooked(store, created_ms=NOW_MS + 1)

    await store.write(webhook_deliveries.fan_out(NOW_MS + 2))

    assert await deliveries(store, late) == []


async def test_a_webhook_gets_nothing_that_happened_while_it_was_disabled(store: Store) -> None:
    other, row = await hooked(store), await hooked(store, enabled=0)
    await put(store)

    edit = webhooks.WebhookEdit(row.url, row.events, None, 1, 1, None, "{}")
    await store.write(webhooks.change(row, edit, now_ms=NOW_MS, expected_version=1))
    await store.write(webhook_deliveries.fan_out(NOW_MS))

    assert await deliveries(store, row) == []
    assert len(await deliveries(store, other)) == 1


async def test_a_webhook_is_told_of_what_happened_where_a_clock_is_slow(store: Store) -> None:
    row = await hooked(store, created_ms=NOW_MS + 600_000)

    await finished(store)

    await store.write(webhook_deliveries.fan_out(NOW_MS))
    assert len(await deliveries(store, row)) == 3


async def test_a_late_webhook_gets_nothing_of_before_where_a_clock_is_fast(store: Store) -> None:
    await hooked(store)
    await finished(store)
    late = await hooked(store, created_ms=NOW_MS - 600_000)

    await store.write(webhook_deliveries.fan_out(NOW_MS))

    assert await deliveries(store, late) == []


async def test_what_the_version_before_has_put_goes_by_the_time(store: Store) -> None:
    early = await hooked(store)
    await put(store)
    await store.write(as_the_version_before())
    late = await hooked(store, created_ms=NOW_MS + 1)

    await store.write(webhook_deliveries.fan_out(NOW_MS + 2))

    assert len(await deliveries(store, early)) == 1
    assert await deliveries(store, late) == []


async def test_a_webhook_gets_nothing_of_another_tenant(store: Store) -> None:
    mine, theirs = await hooked(store), await hooked(store, tenant="globex")
    await put(store)

    await store.write(webhook_deliveries.fan_out(NOW_MS))

    assert len(await deliveries(store, mine)) == 1
    assert await deliveries(store, theirs) == []


async def test_two_that_empty_the_outbox_together_make_each_delivery_once(store: Store) -> None:
    row = await hooked(store)
    for n in range(20):
        await put(store, now_ms=NOW_MS + n)

    await asyncio.gather(*(store.write(webhook_deliveries.fan_out(NOW_MS)) for _ in range(4)))

    assert len(await deliveries(store, row)) == 20


async def test_what_too_many_wait_before_is_dead_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "PENDING_MAX", 2)
    row = await hooked(store)
    for n in range(3):
        await put(store, now_ms=NOW_MS + n)

    fanned = await store.write(webhook_deliveries.fan_out(NOW_MS))

    assert (fanned.taken, fanned.dead) == (3, 1)
    statuses = sorted(each.status for each in await deliveries(store, row))
    assert statuses == ["dead", "pending", "pending"]
    (dead,) = [each for each in await deliveries(store, row) if each.status == "dead"]
    assert orjson.loads(dead.attempts)[0]["error"] == webhook_deliveries.TOO_MANY


async def test_what_is_over_keeps_nothing_from_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "PENDING_MAX", 2)
    row = await hooked(store)
    for _ in range(2):
        await one_due(store, row)
    for each in await claimed(store, row):
        await store.write(webhook_deliveries.delivered(each, came(200)))

    assert (await one_due(store, row, NOW_MS + 1)).status == "pending"


async def test_a_claimed_delivery_is_nobody_elses_until_the_lease_lapses(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)

    (mine,) = await claimed(store, row)

    assert await claimed(store, row, now_ms=NOW_MS + LEASE_MS - 1) == []
    assert await ready(store, now_ms=NOW_MS + LEASE_MS - 1) == []
    (again,) = await claimed(store, row, now_ms=NOW_MS + LEASE_MS)
    assert (again.id, again.claims) == (mine.id, 2)


async def test_no_delivery_is_claimed_twice(store: Store) -> None:
    row = await hooked(store)
    for n in range(20):
        await put(store, now_ms=NOW_MS + n)
    await store.write(webhook_deliveries.fan_out(NOW_MS + 20))

    batches = await asyncio.gather(*(claimed(store, row, 5, NOW_MS + 20) for _ in range(6)))

    taken = [each.id for batch in batches for each in batch]
    assert len(taken) == len(set(taken)) == 20


async def test_a_claim_takes_no_more_than_there_is_room_for(store: Store) -> None:
    row = await hooked(store)
    for n in range(5):
        await one_due(store, row, NOW_MS + n)

    assert len(await claimed(store, row, 3, NOW_MS + 5)) == 3
    assert len(await claimed(store, row, 3, NOW_MS + 5)) == 2


async def test_what_arrived_is_over(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (mine,) = await claimed(store, row)

    assert await store.write(webhook_deliveries.delivered(mine, came(204)))

    (shown,) = await deliveries(store, row)
    assert (shown.status, shown.ended_ms, shown.is_being_sent) == ("delivered", NOW_MS + 12, False)
    assert await ready(store, now_ms=NOW_MS + 10 * LEASE_MS) == []


async def test_what_is_over_is_neither_sent_again_nor_over_once_more(store: Store) -> None:
    row = await hooked(store)
    for _ in range(2):
        await one_due(store, row)
    arrived, lost = await claimed(store, row)
    await store.write(webhook_deliveries.delivered(arrived, came(204)))
    await store.write(webhook_deliveries.failed(lost, came(500), None))

    again = await claimed(store, row, now_ms=NOW_MS + 10 * LEASE_MS)
    told = [
        await store.write(webhook_deliveries.failed(arrived, came(500), 0)),
        await store.write(webhook_deliveries.delivered(lost, came(204))),
    ]

    assert (again, told) == ([], [False, False])
    ends = {each.id: each.status for each in await deliveries(store, row)}
    assert ends == {arrived.id: "delivered", lost.id: "dead"}


async def test_what_failed_is_due_again_later(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (mine,) = await claimed(store, row)

    await store.write(webhook_deliveries.failed(mine, came(503), 5_000))

    (shown,) = await deliveries(store, row)
    assert (shown.status, shown.failures, shown.due_ms) == ("pending", 1, NOW_MS + 12 + 5_000)
    assert await ready(store, now_ms=NOW_MS + 5_011) == []
    assert await ready(store, now_ms=NOW_MS + 5_012) == [row.id]


async def test_a_sender_whose_claim_has_lapsed_writes_nothing_down(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (late,) = await claimed(store, row)
    (mine,) = await claimed(store, row, now_ms=NOW_MS + LEASE_MS)

    assert not await store.write(webhook_deliveries.failed(late, came(500), None))
    assert await store.write(webhook_deliveries.delivered(mine, came(200)))

    (shown,) = await deliveries(store, row)
    assert (shown.status, len(orjson.loads(shown.attempts))) == ("delivered", 1)


async def test_only_the_last_attempts_are_kept(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    for n in range(ATTEMPTS_KEPT + 3):
        (mine,) = await claimed(store, row, now_ms=NOW_MS + n * LEASE_MS)
        await store.write(webhook_deliveries.failed(mine, came(500 + n), 0))

    (shown,) = await deliveries(store, row)

    kept = [each["status"] for each in orjson.loads(shown.attempts)]
    assert kept == list(range(503, 503 + ATTEMPTS_KEPT))


async def test_a_disabled_webhook_is_sent_nothing(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)

    await store.write(webhooks.disable(TENANT, row.id, "it answered 410 Gone", NOW_MS))

    assert await ready(store) == []
    found = await store.read(webhooks.find(TENANT, row.id))
    assert (found.enabled, found.disabled_reason, found.version) == (0, "it answered 410 Gone", 2)


async def test_only_who_has_something_due_is_looked_after(store: Store) -> None:
    due, later, told = [await hooked(store) for _ in range(3)]
    await one_due(store, due)
    await hooked(store)
    await claimed(store, later)
    (mine,) = await claimed(store, told)
    await store.write(webhook_deliveries.delivered(mine, came(200)))

    assert await ready(store) == [due.id]
    assert await ready(store, now_ms=NOW_MS + LEASE_MS) == [due.id, later.id]


async def test_a_busy_webhook_is_left_alone(store: Store) -> None:
    one, other = await hooked(store), await hooked(store)
    await one_due(store, one)

    assert await ready(store) == [one.id, other.id]
    assert await ready(store, one.id) == [other.id]


async def test_a_dead_delivery_can_be_sent_again(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (mine,) = await claimed(store, row)
    await store.write(webhook_deliveries.failed(mine, came(500), None))
    dead = await store.read(webhook_deliveries.find(TENANT, row.id, mine.id))

    again = await store.write(webhook_deliveries.redeliver(dead, NOW_MS + 99))

    assert dead.status == "dead"
    assert (again.id, again.status, again.failures, again.due_ms) == (
        mine.id, "pending", 0, NOW_MS + 99,
    )  # fmt: skip
    assert again.ended_ms is None


async def test_a_delivery_that_waits_for_its_retry_is_sent_at_once(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (mine,) = await claimed(store, row)
    await store.write(webhook_deliveries.failed(mine, came(500), 3_600_000))

    again = await store.write(webhook_deliveries.redeliver(mine, NOW_MS + 99))

    assert again.due_ms == NOW_MS + 99


@pytest.mark.parametrize("wait_ms", [None, 3_600_000])
async def test_one_delivery_is_sent_again_and_no_other(store: Store, wait_ms: int | None) -> None:
    rows = [await hooked(store) for _ in range(2)]
    await one_due(store, rows[0])
    mine, other = [each for row in rows for each in await claimed(store, row)]
    for each in (mine, other):
        await store.write(webhook_deliveries.failed(each, came(500), wait_ms))
    before = await deliveries(store, rows[1])

    again = await store.write(webhook_deliveries.redeliver(mine, NOW_MS + 99))

    assert await deliveries(store, rows[0]) == [again]
    assert await deliveries(store, rows[1]) == before


async def test_a_delivery_that_is_about_to_be_sent_is_not_sent_again(store: Store) -> None:
    row = await hooked(store)
    due = await one_due(store, row)

    with pytest.raises(ConflictError, match="on its way"):
        await store.write(webhook_deliveries.redeliver(due, NOW_MS))


async def test_a_delivery_that_is_being_sent_is_not_sent_again(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    (mine,) = await claimed(store, row)

    with pytest.raises(ConflictError) as refused:
        await store.write(webhook_deliveries.redeliver(mine, NOW_MS))

    assert mine.is_being_sent
    assert refused.value.code == "delivery_pending"


async def test_old_deliveries_are_forgotten(store: Store) -> None:
    row = await hooked(store)
    await one_due(store, row)
    young = await one_due(store, row, NOW_MS + 1)

    assert await store.write(webhook_deliveries.purge(NOW_MS + KEPT_MS + 1)) == 1

    assert [each.id for each in await deliveries(store, row)] == [young.id]


async def test_a_webhook_goes_with_its_deliveries(store: Store) -> None:
    row, other = await hooked(store), await hooked(store)
    sent = await one_due(store, row)

    await store.write(webhooks.delete(TENANT, row.id))

    for look in (
        webhooks.find(TENANT, row.id),
        webhook_deliveries.find(TENANT, row.id, sent.id),
    ):
        with pytest.raises(NotFoundError):
            await store.read(look)
    assert len(await deliveries(store, other)) == 1


async def test_a_webhook_is_changed_as_it_was_read_or_not_at_all(store: Store) -> None:
    row = await hooked(store)
    edit = webhooks.WebhookEdit("https://other.example", '["run.*"]', "x", 1, 0, "ann", "{}")

    changed = await store.write(webhooks.change(row, edit, now_ms=NOW_MS + 1, expected_version=1))

    assert (changed.url, changed.approver, changed.version) == ("https://other.example", "ann", 2)
    for work in (
        webhooks.change(row, edit, now_ms=NOW_MS, expected_version=1),
        webhooks.rotate(row, "whsec_", until_ms=0, now_ms=NOW_MS, expected_version=1),
        webhooks.delete(TENANT, row.id, expected_version=1),
    ):
        with pytest.raises(ConflictError, match="version 2, not 1"):
            await store.write(work)


async def test_a_rotated_webhook_keeps_the_former_secret_for_a_while(store: Store) -> None:
    row = await hooked(store)

    rotated = await store.write(
        webhooks.rotate(row, "whsec_bmV3", until_ms=NOW_MS + 9, now_ms=NOW_MS, expected_version=1)
    )

    assert rotated.secret == "whsec_bmV3"
    assert (rotated.secret_before, rotated.secret_before_until_ms) == (row.secret, NOW_MS + 9)


async def test_what_is_done_to_one_webhook_is_done_to_no_other(store: Store) -> None:
    others = [await hooked(store), await hooked(store, tenant="globex")]
    changed, disabled, rotated, deleted = [await hooked(store) for _ in range(4)]
    edit = webhooks.WebhookEdit("https://other.example", '["run.*"]', "x", 1, 0, "ann", "{}")

    await store.write(webhooks.change(changed, edit, now_ms=NOW_MS + 1, expected_version=1))
    await store.write(webhooks.disable(TENANT, disabled.id, "it answered 410 Gone", NOW_MS + 1))
    await store.write(
        webhooks.rotate(rotated, "whsec_bmV3", until_ms=0, now_ms=NOW_MS + 1, expected_version=1)
    )
    await store.write(webhooks.delete(TENANT, deleted.id, expected_version=1))

    for other in others:
        assert await store.read(webhooks.find(other.tenant, other.id)) == other
    found = await store.read(webhooks.all_of(TENANT))
    assert [(each.id, each.version) for each in found] == [
        (others[0].id, 1), (changed.id, 2), (disabled.id, 2), (rotated.id, 2),
    ]  # fmt: skip
    listed = await store.read(webhooks.search(TENANT, webhooks.WebhookFilter(), WHOLE))
    assert listed == found


async def test_another_tenant_neither_sees_nor_changes_a_webhook(store: Store) -> None:
    row = await hooked(store)
    foreign = replace(row, tenant="globex")
    edit = webhooks.WebhookEdit("https://other.example", '["run.*"]', "x", 1, 0, "ann", "{}")

    for work in (
        webhooks.find("globex", row.id),
        webhooks.change(foreign, edit, now_ms=NOW_MS, expected_version=1),
        webhooks.rotate(foreign, "whsec_", until_ms=0, now_ms=NOW_MS, expected_version=1),
        webhooks.delete("globex", row.id),
    ):
        with pytest.raises(NotFoundError):
            await store.write(work)
    await store.write(webhooks.disable("globex", row.id, "it answered 410 Gone", NOW_MS))

    assert await store.read(webhooks.find(TENANT, row.id)) == row
    assert await store.read(webhooks.all_of("globex")) == []


async def test_a_webhook_that_was_disabled_keeps_the_first_reason(store: Store) -> None:
    row = await hooked(store)
    await store.write(webhooks.disable(TENANT, row.id, "it answered 410 Gone", NOW_MS))

    await store.write(webhooks.disable(TENANT, row.id, "another", NOW_MS + 1))

    found = await store.read(webhooks.find(TENANT, row.id))
    assert (found.disabled_reason, found.version) == ("it answered 410 Gone", 2)
