"""The outbox: a message for webhooks is there exactly if what it tells of has happened."""

import pytest

from milepost.core.errors import FencedError
from milepost.store import outbox, runs, sessions, webhook_deliveries, webhooks
from milepost.store.records import Page
from milepost.store.runs import Ending, StaleError
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    an_append,
    an_entry,
    finished,
    held,
    lost,
    next_claim,
    queued,
)
from tests.store.making import waiting as a_waiting_run
from tests.store.making_webhooks import hooked, put, waiting


async def told(store: Store) -> list[tuple[str, int | None]]:
    """Return types and numbers of what is in the outbox."""
    return sorted((each.type, each.seq) for each in await waiting(store))


async def test_a_runs_life_is_told_event_by_event(store: Store) -> None:
    await hooked(store)

    await finished(store)

    assert await told(store) == [("run.completed", 3), ("run.queued", 1), ("run.started", 2)]


async def test_what_no_webhook_may_want_is_not_told(store: Store) -> None:
    await hooked(store)
    claim = await held(store)

    await store.append(an_append(claim, an_entry("step.started"), an_entry("message.started")))

    assert await told(store) == [("run.queued", 1), ("run.started", 2)]


async def test_each_event_of_one_append_has_its_own_number(store: Store) -> None:
    await hooked(store)
    claim = await held(store)
    entries = (an_entry("step.started"), an_entry("approval.requested"), an_entry("run.waiting"))

    await store.append(an_append(claim, *entries))

    assert (await told(store))[:1] == [("approval.requested", 4)]
    assert ("run.waiting", 5) in await told(store)


async def test_a_refused_append_tells_nothing(store: Store) -> None:
    claim = await held(store)
    await lost(store, claim)
    await hooked(store)

    with pytest.raises(FencedError):
        await store.append(a_finish(claim))

    assert await told(store) == []


async def test_a_run_that_is_taken_again_is_told(store: Store) -> None:
    claim = await held(store)
    await hooked(store)

    await lost(store, claim)

    assert await told(store) == [("run.resumed", 3)]


async def test_a_run_that_begins_is_told_by_its_own_log_though_another_s_is_longer(
    store: Store,
) -> None:
    await finished(store)
    run = await queued(store)
    await hooked(store)

    await next_claim(store)

    (begun,) = await waiting(store)
    assert (begun.id, begun.seq) == (f"{run.id}:2", 2)


async def test_a_run_that_is_ended_from_outside_is_told(store: Store) -> None:
    await hooked(store)
    claim = await a_waiting_run(store)
    row = await store.read(runs.find(TENANT, claim.run_id))

    await store.write(
        runs.end(row, Ending("cancelled", "{}", (an_entry("run.cancelled"),), 3), "a")
    )

    assert ("run.cancelled", 4) in await told(store)


async def test_an_ending_that_came_too_late_tells_nothing(store: Store) -> None:
    await hooked(store)
    claim = await a_waiting_run(store)
    row = await store.read(runs.find(TENANT, claim.run_id))
    before = await told(store)

    ending = Ending("cancelled", "{}", (an_entry("run.cancelled"),), 2)
    with pytest.raises(StaleError):
        await store.write(runs.end(row, ending, "a"))

    assert await told(store) == before


async def test_without_an_enabled_webhook_of_the_tenant_nothing_is_kept(store: Store) -> None:
    await hooked(store, enabled=0)
    await hooked(store, tenant="globex")

    await finished(store)
    await put(store)

    assert await waiting(store) == []


async def test_of_a_group_only_the_tenant_that_asked_is_told(store: Store) -> None:
    await hooked(store, tenant="globex")
    ours, theirs = a_run(), a_run(tenant="globex")

    for run in (ours, theirs):
        await queued(store, run)

    assert [each.run_id for each in await waiting(store)] == [theirs.id]


async def test_what_is_in_no_log_is_told_with_what_is_said_of_it(store: Store) -> None:
    await hooked(store)

    await put(store, data='{"approval_id":"apr_1"}')

    (each,) = await waiting(store)
    assert (each.type, each.seq, each.data) == (
        "approval.reminder",
        None,
        '{"approval_id":"apr_1"}',
    )


async def test_the_same_said_twice_at_once_is_told_once(store: Store) -> None:
    await hooked(store)

    for said in ("{}", "{}", '{"other":1}'):
        await put(store, data=said)

    assert len(await waiting(store)) == 2


async def test_nobody_takes_what_another_has_taken(store: Store) -> None:
    await hooked(store)
    for n in range(3):
        await put(store, now_ms=NOW_MS + n)

    first = await store.write(outbox.take(2))
    second = await store.write(outbox.take(2))

    assert (len(first), len(second)) == (2, 1)
    assert not await store.read(outbox.waits())


async def test_an_erased_session_leaves_nothing_to_tell(store: Store) -> None:
    row = await hooked(store)
    one, other = await finished(store), await finished(store)
    await store.write(webhook_deliveries.fan_out(NOW_MS))
    await put(store, run_id=one.run_id)

    await store.write(sessions.delete(TENANT, one.session_id))

    assert await waiting(store) == []
    kept = await store.read(webhook_deliveries.search(TENANT, row.id, _page()))
    assert {each.run_id for each in kept} == {other.run_id}


async def test_a_webhook_that_is_enabled_again_hears_of_what_comes(store: Store) -> None:
    row = await hooked(store, enabled=0)
    await queued(store)

    edit = webhooks.WebhookEdit(row.url, row.events, None, 1, 1, None, "{}")
    await store.write(webhooks.change(row, edit, now_ms=NOW_MS, expected_version=1))
    await next_claim(store)

    assert await told(store) == [("run.started", 2)]


def _page() -> Page:
    return Page(100)
