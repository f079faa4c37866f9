"""Actions that wait for a yes: one in a conversation, answered once, by the database's clock."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import update

from milepost.core.pending import args_digest
from milepost.store import conversations, pending, schema
from milepost.store.address import PostgresAddress
from milepost.store.conversations import ScopeKey
from milepost.store.pending import NewPending, PendingRow
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.conftest import opened, serving
from tests.store.making import NOW_MS, TENANT, a_finish, an_id, held

SCOPE = ScopeKey(TENANT, "sms", "c1", "ann")
BY = "channel:sms:ann"


def an_action(claim: Claim, **changes: Any) -> NewPending:
    """Return what a call of the run puts off."""
    action = NewPending(
        id=an_id("pnd"),
        scope=SCOPE,
        run_id=claim.run_id,
        call_id="call_1_0",
        kind="refund",
        preview="Refund A1",
        args='{"order":"A1"}',
        digest=args_digest({"order": "A1"}),
        user_prompt="Refund A1?",
        ttl_ms=60_000,
    )
    return replace(action, **changes)


async def waiting(store: Store, **changes: Any) -> PendingRow:
    """Put something off, and return it."""
    claim = await held(store)
    assert await store.stash(an_action(claim, **changes), claim.epoch) == "kept"
    row = await store.pending_in(changes.get("scope", SCOPE))
    assert row is not None
    return row


def changed(pending_id: str, **values: Any) -> Work[None]:
    table = schema.pending_actions
    yield Statement(update(table).where(table.c.id == pending_id).values(values))()


async def answered(store: Store, row: PendingRow) -> PendingRow | None:
    return await store.write(pending.answer(row, "confirmed", by=BY, executed_by="run_9"))


async def test_dc3_what_is_put_off_is_kept_as_it_was(store: Store) -> None:
    row = await waiting(store)

    assert (row.kind, row.preview, row.args) == ("refund", "Refund A1", '{"order":"A1"}')
    assert (row.tenant, row.channel, row.conversation, row.user) == (TENANT, "sms", "c1", "ann")
    assert (row.status, row.answered_by, row.executed_by) == ("pending", None, None)
    assert row.expires_ms - row.requested_ms == 60_000
    assert row.is_intact


async def test_an_action_has_all_of_its_time_by_a_clock_that_moves_at_every_look(
    postgres_address: PostgresAddress,
) -> None:
    with psycopg.connect(postgres_address.url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE looks")
        connection.execute(
            "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
            f" 'SELECT to_timestamp({4 * NOW_MS // 1000} + nextval(''looks'') / 1000.0)'"
        )
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    async with opened(postgres_address) as engine, serving(Store(engine)) as store:
        claim = await held(store)
        action = an_action(claim)

        for times in ("put off once", "and made again"):
            assert await store.stash(action, claim.epoch) == "kept", times
            row = await store.pending_in(SCOPE)
            assert row is not None
            assert row.expires_ms - row.requested_ms == 60_000


async def test_dc8_a_second_action_is_not_kept_before_the_first_is_over(store: Store) -> None:
    first = await waiting(store)
    other = await held(store)

    taken = await store.stash(an_action(other), other.epoch)
    elsewhere = replace(SCOPE, conversation="c2")
    beside = await store.stash(an_action(other, scope=elsewhere), other.epoch)
    await store.write(changed(first.id, expires_ms=1))
    later = await store.stash(an_action(other, call_id="call_2_0"), other.epoch)

    assert (taken, beside, later) == ("taken", "kept", "kept")
    before = await store.read(pending.find(TENANT, first.id))
    assert before is not None
    assert before.status == "expired"


async def test_of_many_that_put_off_at_once_one_is_kept(store: Store) -> None:
    claims = [await held(store) for _ in range(6)]

    kept = await asyncio.gather(*(store.stash(an_action(each), each.epoch) for each in claims))

    assert sorted(kept) == ["kept", *["taken"] * 5]


async def test_a_call_that_is_made_again_puts_the_same_off_and_its_last_attempt_counts(
    store: Store,
) -> None:
    elsewhere = replace(SCOPE, conversation="c2")
    beside = await waiting(store, scope=elsewhere)
    claim = await held(store)
    action = an_action(claim)
    await store.stash(action, claim.epoch)

    again = await store.stash(replace(action, preview="Refund A2", ttl_ms=5_000), claim.epoch)

    row = await store.pending_in(SCOPE)
    assert again == "kept"
    assert row is not None
    assert (row.id, row.preview) == (action.id, "Refund A2")
    assert await store.pending_in(elsewhere) == beside


async def test_a_call_that_is_made_again_after_its_answer_puts_nothing_off(store: Store) -> None:
    claim = await held(store)
    action = an_action(claim)
    await store.stash(action, claim.epoch)
    row = await store.pending_in(SCOPE)
    assert row is not None
    await answered(store, row)

    assert await store.stash(action, claim.epoch) == "answered"
    assert await store.pending_in(SCOPE) is None


async def test_whoever_lost_the_run_puts_nothing_off(store: Store) -> None:
    claim, other = await held(store), await held(store)
    assert other.epoch == claim.epoch

    old = await store.stash(an_action(claim), claim.epoch - 1)
    await store.append(a_finish(claim))
    over = await store.stash(an_action(claim), claim.epoch)

    assert (old, over) == ("fenced", "fenced")


async def test_dc6_only_what_is_pending_in_time_and_unchanged_is_answered(store: Store) -> None:
    first = await waiting(store)
    stale = replace(first, digest="sha256:0")

    assert await answered(store, stale) is None
    assert await answered(store, replace(first, tenant="globex")) is None
    assert (await answered(store, first)) is not None
    assert await answered(store, first) is None
    second = await waiting(store)
    await store.write(changed(second.id, expires_ms=1))
    assert await answered(store, second) is None


async def test_an_action_is_found_answered_and_tightened_beside_others(store: Store) -> None:
    elsewhere = replace(SCOPE, conversation="c2")
    first, other = await waiting(store), await waiting(store, scope=elsewhere)

    await store.write(pending.tighten(TENANT, first.id, 10_000))
    await answered(store, first)

    assert await store.read(pending.find(TENANT, other.id)) == other
    assert await store.pending_in(elsewhere) == other


async def test_what_was_answered_stays_so_when_its_time_is_over(store: Store) -> None:
    first, late = await waiting(store), await waiting(store, scope=replace(SCOPE, channel="web"))
    await answered(store, first)
    for each in (first, late):
        await store.write(changed(each.id, expires_ms=1))

    await store.write(pending.expire_in(SCOPE))

    rows = [await store.read(pending.find(TENANT, each.id)) for each in (first, late)]
    assert [row and row.status for row in rows] == ["confirmed", "pending"]


async def test_dc7_of_many_answers_at_once_one_counts(store: Store) -> None:
    row = await waiting(store)

    answers = await asyncio.gather(*(answered(store, row) for _ in range(12)))

    assert sum(each is not None for each in answers) == 1


async def test_an_answer_that_races_the_clock_is_either_in_time_or_too_late(store: Store) -> None:
    outcomes = set()
    for ttl_ms in (5, 10, 20, 40):
        row = await waiting(store, ttl_ms=10_000)
        await store.write(pending.tighten(TENANT, row.id, ttl_ms))
        confirmed, _ = await asyncio.gather(
            answered(store, row), store.write(pending.expire_in(SCOPE))
        )
        kept = await store.read(pending.find(TENANT, row.id))
        assert kept is not None
        await store.write(changed(row.id, expires_ms=1))
        await store.write(pending.expire_in(SCOPE))
        assert (kept.status == "confirmed") is (confirmed is not None)
        outcomes.add(kept.status)

    assert outcomes <= {"confirmed", "expired", "pending"}


async def test_dc16_tightening_only_shortens(store: Store) -> None:
    row = await waiting(store)

    shorter = await store.write(pending.tighten(TENANT, row.id, 10_000))
    longer = await store.write(pending.tighten(TENANT, row.id, 50_000))

    assert shorter is not None
    assert longer is not None
    assert shorter.expires_ms < row.expires_ms
    assert longer.expires_ms == shorter.expires_ms
    assert shorter.status == "pending"


async def test_dc16_tightening_neither_finds_another_nor_brings_one_back(store: Store) -> None:
    row = await waiting(store)
    await answered(store, row)

    assert await store.write(pending.tighten(TENANT, row.id, 10_000)) is None
    assert await store.write(pending.tighten(TENANT, "pnd_none", 10_000)) is None
    assert await store.write(pending.tighten("globex", row.id, 10_000)) is None
    assert await store.pending_in(SCOPE) is None


async def test_a_conversation_goes_on_apart_from_all_others(store: Store) -> None:
    others = [
        replace(SCOPE, **{name: "another"})
        for name in ("tenant", "channel", "conversation", "user")
    ]
    for number, scope in enumerate((SCOPE, *others)):
        row, is_new = await store.write(conversations.enter(scope, f"ses_{number}", NOW_MS))
        assert (row.session_id, is_new) == (f"ses_{number}", True)

    await store.write(conversations.go_on(SCOPE, "ses_9", "clerk", NOW_MS))
    await store.write(conversations.show(SCOPE, "pnd_1", "sha256:1"))

    found = [await store.read(conversations.find(scope)) for scope in (SCOPE, *others)]
    assert found == [
        conversations.ConversationRow("ses_9", "clerk", "pnd_1", "sha256:1"),
        *(conversations.ConversationRow(f"ses_{n}", None, None, None) for n in range(1, 5)),
    ]


async def test_what_a_message_did_is_told_of_no_other(store: Store) -> None:
    done = conversations.Delivery("ann", "h1", "started", "ses_1", "run_1", 3, None)
    elsewhere = replace(SCOPE, conversation="c2")
    places = [(SCOPE, "m1"), (SCOPE, "m2"), (elsewhere, "m1")]
    for scope, message_id in places:
        await store.write(conversations.take(scope, message_id, "h1", NOW_MS))

    await store.write(conversations.note(SCOPE, "m1", done))

    first, *rest = [
        await store.write(conversations.take(scope, message_id, "h1", NOW_MS))
        for scope, message_id in places
    ]
    assert first == done
    assert [each and each.run_id for each in rest] == [None, None]


async def test_a_message_is_taken_in_once_and_says_the_same_again(store: Store) -> None:
    done = conversations.Delivery("ann", "h1", "started", "ses_1", "run_1", 3, None)

    def taken() -> Work[conversations.Delivery | None]:
        before = yield from conversations.take(SCOPE, "m1", "h1", NOW_MS)
        if before is None:
            yield from conversations.note(SCOPE, "m1", done)
        return before

    answers = await asyncio.gather(*(store.write(taken()) for _ in range(8)))

    assert [each for each in answers if each is not None] == [done] * 7


async def test_a_message_that_was_not_finished_may_come_again(store: Store) -> None:
    def broken() -> Work[None]:
        yield from conversations.take(SCOPE, "m1", "h1", NOW_MS)
        raise RuntimeError("in the middle of it")

    with pytest.raises(RuntimeError):
        await store.write(broken())

    assert await store.write(conversations.take(SCOPE, "m1", "h1", NOW_MS)) is None


async def test_messages_are_forgotten_when_nobody_delivers_them_again(store: Store) -> None:
    old, new = NOW_MS, NOW_MS + conversations.KEPT_MS
    await store.write(conversations.take(SCOPE, "m1", "h1", old))
    await store.write(conversations.take(SCOPE, "m2", "h1", new))

    forgotten = await store.write(conversations.purge(new + 1))

    assert forgotten == 1
    assert await store.write(conversations.take(SCOPE, "m2", "h1", new)) is not None
