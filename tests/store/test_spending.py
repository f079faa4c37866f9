"""Spending in groups: what each is given, and what one that waits for a lock keeps from others."""

import asyncio

import psycopg
import pytest

from milepost.store import sessions
from milepost.store.address import PostgresAddress
from milepost.store.amounts import Amounts, Bounds
from milepost.store.engine import Engine
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.postgres_session import connect
from milepost.store.spending import Charge, Crossing, Reserve, Settle, Shortage, spend
from milepost.store.store import Store
from tests.store.breaking import BreakingEngine
from tests.store.budgeting import CALL, a_call_of, counted, counters, kept, place_in
from tests.store.conftest import serving, waiting_for_locks
from tests.store.making import TENANT, a_run, held

THE_SERVER_ENDS_WHO_IS_SILENT = "3s"  # It does after one, and else after five.


async def test_of_a_group_each_is_given_what_those_before_it_leave(store: Store) -> None:
    budget, claim = await kept(store, tokens=100, model_calls=None), await held(store)
    place = place_in(budget)
    first, second, third = (a_call_of(claim) for _ in range(3))

    def half(unspent: Bounds) -> Amounts:
        assert unspent.tokens is not None
        return Amounts(tokens=unspent.tokens // 2)

    assert await store.reserve(first, [place], half) == Amounts(tokens=50)
    outcomes = await store.write(
        spend(
            [
                Reserve(second, [place], half),
                Settle(first, [place], Amounts(tokens=80)),
                Reserve(third, [place], half),
                Charge(TENANT, [place], Amounts(tokens=5)),
            ]
        )
    )

    granted, warned, short, nothing = outcomes
    assert (granted, nothing) == (Amounts(tokens=50), None)
    assert warned == (Crossing(budget.id, "tokens", 80, 100),)
    assert isinstance(short, Shortage)
    assert (short.spent, short.reserved, short.wanted) == (80, 50, 10)
    (counter,) = await counters(store, budget)
    assert (counter.spent, counter.reserved) == (Amounts(tokens=85), Amounts(tokens=50))


async def test_many_that_spend_at_once_take_together_what_there_is(store: Store) -> None:
    budget, claim = await kept(store, model_calls=5), await held(store)
    place = place_in(budget)
    calls = [a_call_of(claim) for _ in range(20)]

    granted = await asyncio.gather(
        *(store.reserve(call, [place], lambda _: CALL) for call in calls)
    )
    await asyncio.gather(*(store.settle(call, [place], CALL) for call in calls))
    await store.charge(TENANT, [place], CALL)

    assert granted.count(CALL) == 5
    assert await counted(store, budget) == (6, 0)


@pytest.mark.parametrize("breaks", [1, 2])
async def test_what_is_charged_is_counted_once_though_the_answers_were_lost(
    engine: Engine, breaks: int
) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0.0,))) as store:
        budget, claim = await kept(store), await held(store)
        place = place_in(budget)

        breaking.breaks = breaks
        await asyncio.gather(
            store.reserve(a_call_of(claim), [place], lambda _: CALL),
            store.charge(TENANT, [place], CALL),
            return_exceptions=True,
        )

        assert await counted(store, budget) == (1, 1)


async def test_a_group_of_several_tenants_leaves_each_its_own(store: Store) -> None:
    mine, theirs = await kept(store), await kept(store, tenant="globex")
    claims = [await held(store, a_run(tenant=tenant)) for tenant in (TENANT, "globex")]
    places = [place_in(mine), place_in(theirs)]

    await store.write(spend([Reserve(a_call_of(each), places, lambda _: CALL) for each in claims]))

    assert await counted(store, mine) == (0, 1)
    assert await counted(store, theirs) == (0, 1)


async def test_calls_that_wait_for_a_counter_leave_others_their_connections(
    postgres_address: PostgresAddress,
) -> None:
    engine = PostgresEngine(postgres_address.url, pool_max=3)
    await engine.open()
    # Who loses patience with the lock does not come back, or a connection would be free after all.
    async with serving(Store(engine, waits_s=(60.0,))) as store:
        budget, claim = await kept(store), await held(store)
        place = place_in(budget)
        await store.reserve(a_call_of(claim), [place], lambda _: CALL)
        url = postgres_address.url
        with connect(url) as watching, connect(url) as rival, rival.transaction():
            rival.execute("SELECT 1 FROM budget_counters FOR UPDATE")
            tasks = [
                asyncio.create_task(store.reserve(a_call_of(claim), [place], lambda _: CALL))
                for _ in range(9)
            ]
            while not await asyncio.to_thread(waiting_for_locks, watching):
                pass
            await store.read(sessions.find(TENANT, claim.session_id))

            assert waiting_for_locks(watching) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()


async def test_who_is_frozen_with_a_counter_in_hand_loses_it_soon(
    postgres_address: PostgresAddress,
) -> None:
    engine = PostgresEngine(postgres_address.url)
    await engine.open()
    async with serving(Store(engine, waits_s=(0.0,))) as store:
        budget, claim = await kept(store), await held(store)
        place = place_in(budget)
        taken_by_others: list[bool] = []
        await store.reserve(a_call_of(claim), [place], lambda _: CALL)

        def freeze(_: Bounds) -> Amounts:
            if not taken_by_others:
                taken_by_others.append(_is_lockable(postgres_address))
            return CALL

        assert await store.reserve(a_call_of(claim), [place], freeze) == CALL

        assert taken_by_others == [True]
        assert await counted(store, budget) == (0, 2)
    await engine.close()


def _is_lockable(address: PostgresAddress) -> bool:
    """Say whether the counters are another's to lock before long."""
    with connect(address.url) as rival:
        rival.execute(f"SET lock_timeout = '{THE_SERVER_ENDS_WHO_IS_SILENT}'".encode())
        try:
            rival.execute("SELECT 1 FROM budget_counters FOR UPDATE")
        except psycopg.errors.LockNotAvailable:
            return False
        return True
