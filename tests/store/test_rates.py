"""Counts that all processes share: exact whoever counts at the same moment, on both databases."""

import asyncio

import pytest
from sqlalchemy import func, select, update

from milepost.core.effects import CountCall
from milepost.core.messages import ToolCall
from milepost.core.policy import Counted
from milepost.runtime.stored_rates import StoredRates
from milepost.store import rates, schema, sessions
from milepost.store.address import PostgresAddress
from milepost.store.dialect import now_ms, number
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.postgres_session import connect
from milepost.store.rates import KEPT_MS, PURGE_MAX, Counting, Tally
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.conftest import opened, serving, waiting_for_locks
from tests.store.making import TENANT, an_id, held

HOUR_MS = 3_600_000
AT_ONCE = 50
_AGE = tuple(
    Statement(update(table).values(until_ms=table.c.until_ms - number("by_ms")))
    for table in (schema.rate_marks, schema.rate_counters)
)
_LEFT = tuple(
    Statement(select(func.count()).select_from(table))
    for table in (schema.rate_marks, schema.rate_counters)
)


def a_tally(key: str, *, most: int = 1_000) -> Tally:
    return Tally("often", key, HOUR_MS, most)


async def counted(store: Store, key: str, call_id: str, *, tenant: str = TENANT) -> int:
    """Count a call."""
    call = Counting(tenant, "run_1", call_id, [a_tally(key)])
    return (await store.write(rates.count([call])))[0]["often"]


async def age(store: Store, by_ms: int) -> None:
    """Let time pass for all that is counted."""
    await store.write(_aged(by_ms))


def _aged(by_ms: int) -> Work[None]:
    for statement in _AGE:
        yield statement(by_ms=by_ms)


async def left(store: Store) -> tuple[int, int]:
    """Return how many marks and counters there are."""
    return await store.read(_left())


def _left() -> Work[tuple[int, int]]:
    ((marks,),), ((counters,),) = yield tuple(statement() for statement in _LEFT)
    return marks, counters


async def test_calls_at_once_are_each_another_one(store: Store) -> None:
    key = an_id("key")

    counts = await asyncio.gather(*(counted(store, key, f"call_{i}") for i in range(AT_ONCE)))

    assert sorted(counts) == list(range(1, AT_ONCE + 1))


async def test_processes_that_share_a_database_share_their_counts(
    postgres_address: PostgresAddress,
) -> None:
    key = an_id("key")
    async with opened(postgres_address) as one, opened(postgres_address) as other:
        stores = (Store(one), Store(other))
        counts = await asyncio.gather(
            *(counted(stores[place % 2], key, f"call_{place}") for place in range(AT_ONCE))
        )

    assert sorted(counts) == list(range(1, AT_ONCE + 1))


async def test_a_call_that_is_asked_about_again_is_the_same_one(store: Store) -> None:
    key = an_id("key")
    first = [await counted(store, key, call_id) for call_id in ("a", "b", "c")]

    again = [await counted(store, key, call_id) for call_id in ("c", "a", "b")]

    assert (first, again) == ([1, 2, 3], [3, 1, 2])


async def test_what_lapsed_is_counted_no_more(store: Store) -> None:
    key = an_id("key")
    await counted(store, key, "a")
    await age(store, HOUR_MS)

    assert await counted(store, key, "b") == 1
    assert await store.read(rates.foretell(TENANT, [a_tally(key)])) == {"often": 2}


async def test_what_other_tenants_do_is_not_counted(store: Store) -> None:
    key = an_id("key")
    await counted(store, key, "a", tenant="globex")

    assert await counted(store, key, "a") == 1


async def test_only_as_much_is_counted_as_matters(store: Store) -> None:
    key = an_id("key")
    for place in range(5):
        await counted(store, key, str(place))

    some = await store.write(
        rates.count([Counting(TENANT, "run_1", "new", [a_tally(key, most=3)])])
    )

    assert some == [{"often": 3}]
    assert await store.read(rates.foretell(TENANT, [a_tally(key, most=3)])) == {"often": 3}


async def test_foretelling_counts_nothing(store: Store) -> None:
    key = an_id("key")

    told = [await store.read(rates.foretell(TENANT, [a_tally(key)])) for _ in range(3)]

    assert told == [{"often": 1}] * 3


@pytest.mark.parametrize("many", [3, PURGE_MAX + 3])
async def test_what_is_past_is_purged_marks_before_their_counters(store: Store, many: int) -> None:
    key = an_id("key")
    await store.write(_marked(key, many))
    await age(store, HOUR_MS + KEPT_MS + 60_000)
    await counted(store, an_id("key"), "fresh")
    now = await store.read(_now())

    purged = []
    while done := await store.write(rates.purge(now)):
        purged.append(done)

    assert sum(purged) == many + 1
    assert purged[0] <= PURGE_MAX + 1
    assert await left(store) == (1, 1)


def _marked(key: str, many: int) -> Work[None]:
    for place in range(many):
        call = Counting(TENANT, "run_1", f"call_{place}", [a_tally(key, most=1)])
        yield from rates.count([call])


def _now() -> Work[int]:
    ((now,),) = yield Statement(select(now_ms()))()
    return int(now)


async def test_a_call_that_comes_while_its_counter_is_purged_is_counted(store: Store) -> None:
    key = an_id("key")
    await counted(store, key, "a")
    await age(store, HOUR_MS + KEPT_MS + 60_000)
    now = await store.read(_now())

    await asyncio.gather(
        *(counted(store, key, f"call_{i}") for i in range(10)), store.write(rates.purge(now))
    )

    assert await counted(store, key, "last") == 11


async def test_calls_of_one_group_are_counted_one_after_the_other_each_in_its_own_tallies(
    store: Store,
) -> None:
    one, other = sorted((an_id("key"), an_id("key")))
    both = [Tally("one", one, HOUR_MS, 1_000), Tally("other", other, HOUR_MS, 1_000)]

    counts = await store.write(
        rates.count(
            [
                Counting(TENANT, "run_1", "a", both[::-1]),
                Counting(TENANT, "run_1", "b", both[1:]),
                Counting("globex", "run_1", "a", both[:1]),
                Counting(TENANT, "run_1", "a", both[:1]),
                Counting(TENANT, "run_2", "a", both),
            ]
        )
    )

    assert counts == [
        {"one": 1, "other": 1},
        {"other": 2},
        {"one": 1},
        {"one": 1},
        {"one": 2, "other": 3},
    ]


async def test_calls_that_wait_for_their_counter_leave_others_their_connections(
    postgres_address: PostgresAddress,
) -> None:
    engine = PostgresEngine(postgres_address.url, pool_max=3)
    await engine.open()
    # Who loses patience with the lock does not come back, or a connection would be free after all.
    async with serving(Store(engine, waits_s=(60.0,))) as store:
        claim = await held(store)
        await ask(store, claim, "first")
        url = postgres_address.url
        with connect(url) as watching, connect(url) as rival, rival.transaction():
            rival.execute("SELECT 1 FROM rate_counters FOR UPDATE")
            tasks = [asyncio.create_task(ask(store, claim, f"call_{i}")) for i in range(9)]
            while not await asyncio.to_thread(waiting_for_locks, watching):
                pass
            await store.read(sessions.find(TENANT, claim.session_id))

            assert waiting_for_locks(watching) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()


async def ask(store: Store, claim: Claim, call_id: str) -> int:
    """Count a call as a run does."""
    effect = CountCall(ToolCall(call_id, "pay", {}), (Counted("often", "tenant", 60.0, 1_000),))
    return (await StoredRates(store).count(claim, effect))["often"]
