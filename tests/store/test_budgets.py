"""Budgets as they are declared: a tenant's own, changed version by version."""

from dataclasses import replace

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import agents, budgets
from milepost.store.amounts import COUNT_MAX, NOTHING, Amounts, Bounds
from milepost.store.budgets import BudgetEdit, BudgetFilter
from milepost.store.records import Page
from milepost.store.store import Store
from tests.store.budgeting import a_call_of, counters, kept, place_in, reserving, settling
from tests.store.making import NOW_MS, TENANT, a_run, an_id, held, queued

EDIT = BudgetEdit(Bounds(tokens=7), 0.5, '{"team":"b"}')


async def test_a_budget_is_found_as_it_was_kept(store: Store) -> None:
    row = await kept(
        store, scope="user", scope_value="ann", period="day", cost_nanos=5, warn_at=0.3
    )

    assert await store.read(budgets.find(TENANT, row.id)) == row
    assert row.bounds == Bounds(model_calls=3, cost_nanos=5)


async def test_a_changed_budget_is_its_next_version(store: Store) -> None:
    row = await kept(store)

    await store.write(budgets.change(TENANT, row.id, EDIT, now_ms=NOW_MS + 1, expected_version=1))

    changed = replace(
        row, model_calls=None, tokens=7, warn_at=0.5, metadata='{"team":"b"}', version=2,
        updated_ms=NOW_MS + 1,
    )  # fmt: skip
    assert await store.read(budgets.find(TENANT, row.id)) == changed


async def test_a_version_that_has_moved_is_neither_changed_nor_deleted(store: Store) -> None:
    row = await kept(store)
    await store.write(budgets.change(TENANT, row.id, EDIT, now_ms=1, expected_version=1))

    for work in (
        budgets.change(TENANT, row.id, EDIT, now_ms=2, expected_version=1),
        budgets.delete(TENANT, row.id, expected_version=1),
    ):
        with pytest.raises(ConflictError, match="at version 2, not 1") as caught:
            await store.write(work)
        assert caught.value.code == "precondition_failed"


async def test_a_deleted_budget_is_gone_with_what_was_spent_of_it(store: Store) -> None:
    row, other = await kept(store), await kept(store)
    call = a_call_of(await held(store))
    await store.write(reserving(call, place_in(row), place_in(other)))

    await store.write(budgets.delete(TENANT, row.id))

    assert await store.read(budgets.all_of(TENANT)) == (other,)
    assert await counters(store, row) == []
    assert len(await counters(store, other)) == 1


async def test_what_a_budget_names_is_looked_for_with_its_own_tenant(store: Store) -> None:
    run = a_run()
    await queued(store, run)
    agent = await store.write(
        agents.create(TENANT, "clerk", "{}", agent_id=an_id("agt"), now_ms=NOW_MS)
    )
    named = [("session", run.session_id), ("agent", agent.name), ("agent", agent.id)]
    for scope, value in (*named, ("session", "ses_none"), ("agent", "none")):
        for tenant in (TENANT, "other"):
            await kept(store, tenant=tenant, scope=scope, scope_value=value)

    theirs = {row.id: row for row in await store.read(budgets.all_of(TENANT))}

    found = await store.read(budgets.named(TENANT))
    assert [(theirs[each].scope, theirs[each].scope_value) for each in sorted(found)] == named
    assert await store.read(budgets.named("other")) == frozenset()


async def test_a_counter_that_is_full_counts_no_further(store: Store) -> None:
    row = await kept(store, model_calls=None, cost_nanos=5)
    place, claim = place_in(row), await held(store)

    for _ in range(2):
        call = a_call_of(claim)
        await store.write(reserving(call, place, takes=NOTHING))
        await store.write(settling(call, place, billed=Amounts(cost_nanos=COUNT_MAX - 1)))

    (counter,) = await counters(store, row)
    assert counter.spent == Amounts(cost_nanos=COUNT_MAX)


async def test_budgets_are_listed_by_what_they_are_about(store: Store) -> None:
    first = await kept(store, metadata='{"team":"a"}')
    ann = await kept(store, scope="user", scope_value="ann")
    everyone = await kept(store, scope="user")

    async def found(wanted: BudgetFilter) -> list[str]:
        rows = await store.read(budgets.search(TENANT, wanted, Page(limit=10)))
        return [row.id for row in rows]

    assert await found(BudgetFilter()) == [everyone.id, ann.id, first.id]
    assert await found(BudgetFilter(scope="user")) == [everyone.id, ann.id]
    assert await found(BudgetFilter(scope_value="ann")) == [ann.id]
    assert await found(BudgetFilter(metadata={"team": "a"})) == [first.id]


async def test_another_tenant_s_budget_does_not_exist(store: Store) -> None:
    row = await kept(store)

    for work in (
        budgets.find("globex", row.id),
        budgets.change("globex", row.id, EDIT, now_ms=1, expected_version=1),
        budgets.delete("globex", row.id),
    ):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "budget_not_found"
    assert await store.read(budgets.all_of("globex")) == ()
