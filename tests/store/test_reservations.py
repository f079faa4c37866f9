"""Reservations: what calls under way may take, together never more than there is."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.store import budget_counters, budgets, reservations, sessions
from milepost.store.address import Address
from milepost.store.amounts import NOTHING, Amounts, Bounds
from milepost.store.budget_counters import KEPT_MS
from milepost.store.budgets import BudgetEdit, BudgetRow
from milepost.store.engine import Engine
from milepost.store.records import Claim, Page
from milepost.store.reservations import Holder
from milepost.store.spending import Crossing, Outcome, Shortage
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.breaking import BreakingEngine
from tests.store.budgeting import (
    CALL,
    DAY_MS,
    a_call_of,
    counted,
    counters,
    fitting,
    kept,
    place_in,
    reserving,
    settling,
)
from tests.store.conftest import opened, serving
from tests.store.making import TENANT, a_finish, held, lost


async def test_what_is_reserved_counts_before_it_is_spent(store: Store) -> None:
    budget, claim = await kept(store), await held(store)
    calls = [a_call_of(claim) for _ in range(4)]

    outcomes = [await store.write(reserving(call, place_in(budget))) for call in calls]

    assert outcomes[:3] == [CALL] * 3
    short = outcomes[3]
    assert isinstance(short, Shortage)
    assert (short.measure, short.wanted) == ("model_calls", 1)
    assert (short.spent, short.reserved, short.bound) == (0, 3, 3)
    assert await counted(store, budget) == (0, 3)


async def test_what_was_billed_takes_the_place_of_what_was_reserved(store: Store) -> None:
    budget, claim = await kept(store, tokens=1_000), await held(store)
    call, place = a_call_of(claim), place_in(budget)
    await store.write(reserving(call, place, takes=Amounts(tokens=900, model_calls=1)))

    await store.write(settling(call, place, billed=Amounts(tokens=120, model_calls=1)))

    (counter,) = await counters(store, budget)
    assert counter.spent == Amounts(tokens=120, model_calls=1)
    assert counter.reserved == NOTHING
    assert counter.left == Bounds(tokens=880, model_calls=2)


async def test_a_call_is_settled_once(store: Store) -> None:
    budget, call = await kept(store), a_call_of(await held(store))
    place = place_in(budget)
    await store.write(reserving(call, place))

    for _ in range(2):
        await store.write(settling(call, place))

    assert await counted(store, budget) == (1, 0)


async def test_who_reserves_again_for_the_same_call_is_told_what_it_has(store: Store) -> None:
    budget, call = await kept(store), a_call_of(await held(store))
    await store.write(reserving(call, place_in(budget)))

    again = await store.write(reserving(call, place_in(budget), takes=Amounts(model_calls=2)))

    assert again == CALL
    assert await counted(store, budget) == (0, 1)


async def test_all_budgets_give_or_none_does(store: Store) -> None:
    wide, narrow = await kept(store, model_calls=9), await kept(store, model_calls=0)
    call = a_call_of(await held(store))

    short = await store.write(reserving(call, place_in(wide), place_in(narrow)))

    assert isinstance(short, Shortage)
    assert short.counter.key.budget_id == narrow.id
    assert await counted(store, wide) == (0, 0)


async def test_each_user_has_a_counter_of_its_own(store: Store) -> None:
    budget, claim = await kept(store, scope="user", model_calls=1), await held(store)

    outcomes = [
        await store.write(reserving(a_call_of(claim), place_in(budget, user)))
        for user in ("ann", "bob", "ann")
    ]

    assert [isinstance(outcome, Shortage) for outcome in outcomes] == [False, False, True]
    named = {counter.key.scope_value for counter in await counters(store, budget)}
    assert named == {"ann", "bob"}


async def test_each_period_begins_with_nothing_spent(store: Store) -> None:
    budget, claim = await kept(store, period="day", model_calls=1), await held(store)
    today, tomorrow = (
        place_in(budget, start_ms=day * DAY_MS, resets_ms=(day + 1) * DAY_MS) for day in (1, 2)
    )
    call = a_call_of(claim)
    await store.write(reserving(call, today))
    await store.write(settling(call, today))

    assert await store.write(reserving(a_call_of(claim), tomorrow)) == CALL
    assert isinstance(await store.write(reserving(a_call_of(claim), today)), Shortage)


async def test_what_one_takes_is_counted_for_no_other_user_and_no_other_period(
    store: Store,
) -> None:
    budget, claim = await kept(store, scope="user", tokens=100, model_calls=None), await held(store)
    places = {
        10: place_in(budget, "ann"),
        20: place_in(budget, "bob"),
        30: place_in(budget, "ann", DAY_MS),
    }
    calls = {much: a_call_of(claim) for much in places}

    for much, place in places.items():
        await store.write(reserving(calls[much], place, takes=Amounts(tokens=much)))
    ann, bob = await counters(store, budget)
    assert (ann.reserved.tokens, bob.reserved.tokens) == (10, 20)
    for much, place in places.items():
        await store.write(settling(calls[much], place, billed=Amounts(tokens=much + 1)))

    found = [*await counters(store, budget), *await counters(store, budget, DAY_MS)]
    assert [each.spent.tokens for each in found] == [11, 21, 31]
    assert [each.reserved for each in found] == [NOTHING] * 3


async def test_a_call_may_ask_for_what_is_unspent_though_others_hold_some_of_it(
    store: Store,
) -> None:
    budget, claim = await kept(store, tokens=100, model_calls=None), await held(store)
    place, first = place_in(budget), a_call_of(claim)

    def fit(unspent: Bounds) -> Amounts:
        assert unspent.tokens is not None
        return Amounts(tokens=min(60, unspent.tokens))

    def taking(holder: Holder) -> Work[Outcome]:
        return fitting(holder, place, fit=fit)

    granted = await store.write(taking(first))
    short = await store.write(taking(a_call_of(claim)))
    await store.write(settling(first, place, billed=Amounts(tokens=70)))
    rest = await store.write(taking(a_call_of(claim)))
    gone = await store.write(taking(a_call_of(claim)))

    assert (granted, rest) == (Amounts(tokens=60), Amounts(tokens=30))
    assert isinstance(short, Shortage)
    assert (short.wanted, short.may_pass) == (60, True)
    assert isinstance(gone, Shortage)
    assert (gone.wanted, gone.may_pass) == (30, True)


async def test_a_shortage_of_what_is_spent_does_not_pass(store: Store) -> None:
    budget, claim = await kept(store, model_calls=1), await held(store)
    call, place = a_call_of(claim), place_in(budget)
    await store.write(reserving(call, place))
    await store.write(settling(call, place))

    short = await store.write(reserving(a_call_of(claim), place))

    assert isinstance(short, Shortage)
    assert not short.may_pass


async def test_a_call_is_not_refused_for_what_it_takes_nothing_of(store: Store) -> None:
    budget, claim = await kept(store, tokens=10), await held(store)
    call, place = a_call_of(claim), place_in(budget)
    await store.write(reserving(call, place, takes=Amounts(tokens=10)))
    await store.write(settling(call, place, billed=Amounts(tokens=99)))

    assert await store.write(reserving(a_call_of(claim), place, takes=CALL)) == CALL


async def test_a_changed_bound_holds_from_the_next_call_on(store: Store) -> None:
    budget, claim = await kept(store, model_calls=1), await held(store)
    await store.write(reserving(a_call_of(claim), place_in(budget)))
    edit = BudgetEdit(Bounds(model_calls=2), 0.8, "{}")

    await store.write(budgets.change(TENANT, budget.id, edit, now_ms=1, expected_version=1))

    assert await store.write(reserving(a_call_of(claim), place_in(budget))) == CALL
    assert isinstance(await store.write(reserving(a_call_of(claim), place_in(budget))), Shortage)


async def test_a_budget_that_is_gone_binds_nobody(store: Store) -> None:
    budget, claim = await kept(store, model_calls=0), await held(store)
    call, place = a_call_of(claim), place_in(budget)
    await store.write(budgets.delete(TENANT, budget.id))

    assert await store.write(reserving(call, place)) == CALL
    assert await store.write(settling(call, place)) == ()


async def test_another_tenant_s_budget_is_not_touched(store: Store) -> None:
    foreign, claim = await kept(store, tenant="globex", model_calls=0), await held(store)

    assert await store.write(reserving(a_call_of(claim), place_in(foreign))) == CALL

    assert await counters(store, foreign) == []


async def test_the_first_crossing_of_a_period_is_worth_a_warning_and_no_other(
    store: Store,
) -> None:
    budget, claim = await kept(store, model_calls=5, tool_calls=1), await held(store)
    place = place_in(budget)
    crossings = []

    for _ in range(5):
        call = a_call_of(claim)
        await store.write(reserving(call, place))
        crossings.append(await store.write(settling(call, place)))

    crossed = Crossing(budget.id, "model_calls", 4, 5)
    assert crossings == [(), (), (), (crossed,), ()]


async def test_a_second_bound_that_is_crossed_is_warned_of_too(store: Store) -> None:
    budget, claim = await kept(store, tokens=10, model_calls=1), await held(store)
    place, crossings = place_in(budget), []

    for takes in (CALL, Amounts(tokens=10)):
        call = a_call_of(claim)
        await store.write(reserving(call, place, takes=takes))
        crossings.append(await store.write(settling(call, place, billed=takes)))

    assert crossings == [
        (Crossing(budget.id, "model_calls", 1, 1),), (Crossing(budget.id, "tokens", 10, 10),),
    ]  # fmt: skip


# --- What nobody settled ---


async def test_a_dead_worker_s_reservations_are_given_back_with_its_run(store: Store) -> None:
    budget, claim = await kept(store), await held(store)
    for _ in range(3):
        await store.write(reserving(a_call_of(claim), place_in(budget)))
    successor = await lost(store, claim)
    mine = a_call_of(successor)
    assert isinstance(await store.write(reserving(mine, place_in(budget))), Shortage)

    assert await store.write(reservations.free(TENANT)) == 3

    assert await store.write(reserving(mine, place_in(budget))) == CALL
    assert await counted(store, budget) == (0, 1)


async def test_they_are_given_back_when_the_database_is_back(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        budget, claim = await kept(store), await held(store)
        await store.write(reserving(a_call_of(claim), place_in(budget)))
        await lost(store, claim)
        breaking.absences = 20

        freed = await store.free(TENANT)

        assert freed == 1
        assert await counted(store, budget) == (0, 0)


async def test_what_a_living_worker_reserved_is_not_given_back(store: Store) -> None:
    budget, claim = await kept(store), await held(store)
    await store.write(reserving(a_call_of(claim), place_in(budget)))

    assert await store.write(reservations.free()) == 0

    assert await counted(store, budget) == (0, 1)


async def test_of_the_living_and_the_dead_only_the_dead_lose_what_they_reserved(
    store: Store,
) -> None:
    budget = await kept(store, scope="user")
    living, dead = await held(store), await held(store)
    calls = {
        a_call_of(living): place_in(budget, "ann"),
        a_call_of(living): place_in(budget, "bob", DAY_MS),
    }
    await store.write(reserving(a_call_of(dead), place_in(budget, "bob")))
    for call, place in calls.items():
        await store.write(reserving(call, place))
    await store.append(a_finish(dead))

    assert await store.write(reservations.free()) == 1

    for call, place in calls.items():
        await store.write(settling(call, place))
    found = [*await counters(store, budget), *await counters(store, budget, DAY_MS)]
    spent = {(each.key.scope_value, each.key.period_start_ms): each.spent for each in found}
    assert spent == {("bob", 0): NOTHING, ("ann", 0): CALL, ("bob", DAY_MS): CALL}
    assert [each.reserved for each in found] == [NOTHING] * 3


async def test_what_was_left_behind_by_runs_of_all_tenants_is_found(store: Store) -> None:
    budget, other = await kept(store), await kept(store)
    claim = await held(store)
    place = place_in(budget), place_in(other)
    await store.write(reserving(a_call_of(claim), *place))
    await store.append(a_finish(claim))

    assert await store.write(reservations.free("globex")) == 0
    assert await store.write(reservations.free()) == 2
    assert await store.write(reservations.free()) == 0

    assert [await counted(store, each) for each in (budget, other)] == [(0, 0)] * 2


async def test_an_erased_run_leaves_no_reservation(store: Store) -> None:
    budget, claim = await kept(store), await held(store)
    await store.write(reserving(a_call_of(claim), place_in(budget)))
    await store.append(a_finish(claim))
    await store.write(sessions.delete(TENANT, claim.session_id))

    assert await store.write(reservations.free()) == 1

    assert await counted(store, budget) == (0, 0)


async def test_who_was_taken_over_settles_nothing(store: Store) -> None:
    budget, claim = await kept(store), await held(store)
    call, place = a_call_of(claim), place_in(budget)
    await store.write(reserving(call, place))
    await lost(store, claim)
    await store.write(reservations.free())

    assert await store.write(settling(call, place)) == ()

    assert await counted(store, budget) == (0, 0)


async def test_counters_of_periods_long_past_are_forgotten(store: Store) -> None:
    budget, claim = await kept(store, period="day"), await held(store)
    for day in (0, 1):
        place = place_in(budget, start_ms=day * DAY_MS, resets_ms=(day + 1) * DAY_MS)
        await store.write(reserving(a_call_of(claim), place))
    everlasting = await kept(store)
    await store.write(reserving(a_call_of(claim), place_in(everlasting)))

    assert await store.write(budget_counters.purge(2 * DAY_MS + KEPT_MS)) == 1

    assert await counters(store, budget, 0) == []
    assert len(await counters(store, budget, DAY_MS)) == 1
    assert len(await counters(store, everlasting)) == 1


async def test_counters_are_listed_by_page_and_found_by_value(store: Store) -> None:
    budget, claim = await kept(store, scope="user"), await held(store)
    for user in ("ann", "bob", "eve"):
        await store.write(reserving(a_call_of(claim), place_in(budget, user)))

    page = await store.read(budget_counters.present(TENANT, budget.id, 0, Page(limit=1)))
    found = await store.read(
        budget_counters.present(TENANT, budget.id, 0, Page(limit=9), scope_value="bob")
    )
    foreign = await store.read(budget_counters.present("globex", budget.id, 0, Page(limit=9)))

    assert [counter.key.scope_value for counter in page] == ["eve", "bob"]
    assert [counter.key.scope_value for counter in found] == ["bob"]
    assert foreign == []


# --- When the database is away ---


@pytest.mark.parametrize("breaks", [0, 1])
async def test_a_call_reserves_and_settles_once_though_the_database_was_away(
    engine: Engine, breaks: int
) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        budget, call = await kept(store), a_call_of(await held(store))
        place = place_in(budget)

        breaking.breaks, breaking.absences = breaks, 3
        granted = await store.reserve(call, [place], lambda _: CALL)
        breaking.breaks, breaking.absences = breaks, 3
        await store.settle(call, [place], CALL)
        breaking.absences = 3
        rows = await store.budgets(TENANT)

        assert granted == CALL
        assert await counted(store, budget) == (1, 0)
        assert rows == (budget,)


# --- Many at once ---


async def test_of_many_that_reserve_at_once_just_as_many_get_it_as_there_is(store: Store) -> None:
    budget, claim = await kept(store, model_calls=5), await held(store)
    wanted = [reserving(a_call_of(claim), place_in(budget)) for _ in range(20)]

    outcomes = await asyncio.gather(*map(store.write, wanted))

    assert outcomes.count(CALL) == 5
    assert await counted(store, budget) == (0, 5)


async def spend(store: Store, claim: Claim, rows: list[BudgetRow], tokens: int) -> int:
    """Make one call as runs do, which takes half of what it reserves; return how much."""
    call, places = a_call_of(claim), [place_in(row) for row in rows]
    granted = await store.write(reserving(call, *places, takes=Amounts(tokens=tokens)))
    if isinstance(granted, Shortage):
        return 0
    await store.write(settling(call, *places, billed=Amounts(tokens=tokens // 2)))
    return tokens // 2


@given(
    bounds=st.lists(st.integers(0, 60), min_size=3, max_size=3),
    calls=st.lists(
        st.tuples(st.integers(1, 25), st.sets(st.integers(0, 2), min_size=1)), max_size=10
    ),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_whoever_takes_what_at_once_no_bound_is_passed_and_nothing_stays_reserved(
    address: Address, bounds: list[int], calls: list[tuple[int, set[int]]]
) -> None:
    async with opened(address) as engine, serving(Store(engine)) as store:
        rows = [await kept(store, tokens=bound, model_calls=None) for bound in bounds]
        claim = await held(store)

        spent = await asyncio.gather(
            *(
                spend(store, claim, [rows[index] for index in chosen], tokens)
                for tokens, chosen in calls
            )
        )

        for index, row in enumerate(rows):
            mine = sum(
                much for much, (_, chosen) in zip(spent, calls, strict=True) if index in chosen
            )
            for counter in await counters(store, row):
                assert counter.spent.tokens == mine <= bounds[index]
                assert counter.reserved == NOTHING
