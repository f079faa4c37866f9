"""Runs under budgets: what they may not begin, what counts of what they did, and who is told."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from milepost.core.agents import Agent, Compression
from milepost.core.errors import FencedError, ProviderError
from milepost.core.events import (
    BudgetExceeded,
    BudgetWarning,
    ChildRunStarted,
    MessageAborted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunIncomplete,
    ToolCallCompleted,
    ToolCallFailed,
    ToolResultCompressed,
)
from milepost.core.model import CacheHit, FellBack, Finished, Provider, Spent, TextDelta
from milepost.core.usage import Usage
from milepost.providers.fallback import Fallback
from milepost.providers.payload import TOKENS_MAX
from milepost.providers.price_file import DOLLARS_MAX
from milepost.providers.pricing import Pricing
from milepost.providers.scripted import Script, Scripted, calling, saying
from milepost.providers.tariff import CALL_NANOS_MAX, Tariff, plain_tariff
from milepost.runtime.budgets import FRESH_MS, TenantBudgets
from milepost.runtime.definitions import encode_definition
from milepost.runtime.demands import ANSWER_TOKENS
from milepost.runtime.drive import Drive
from milepost.store import agents, runs
from milepost.store import budgets as kept_budgets
from milepost.store.amounts import Amounts
from milepost.store.budgets import BudgetEdit, BudgetRow
from milepost.store.records import Page, RunFilter
from milepost.store.store import Store
from milepost.store.usage import Account
from milepost.tools import tool
from tests.runtime.tools import add, fail
from tests.runtime.workshop import (
    AT_ONCE,
    TENANT,
    TIMEOUT_S,
    Held,
    Turns,
    Workshop,
    in_background,
    of,
    used_up,
)
from tests.store.breaking import BreakingEngine
from tests.store.budgeting import a_call_of, counters, kept, place_in, reserving
from tests.store.conftest import serving

CUT = ProviderError("the stream broke", code="provider_stream_cut")
SILENT = ProviderError("late", code="provider_timeout", retryable=True)
REFUSED = ProviderError("no such model", code="provider_refused", status=400)
PRICED = Pricing(own={"test/model": plain_tariff(Decimal(1), Decimal(2), None, None)})
DEAREST = Decimal(DOLLARS_MAX)
HOUR_MS = 3_600_000


async def driven(
    shop: Workshop,
    model: Provider | Iterable[Script],
    *tools: Callable[..., Any],
    agent: Agent | None = None,
    pricing: Pricing = PRICED,
    **run: Any,
) -> str:
    """Drive a run under the tenant's budgets to where it is let go; return its id."""
    wanted = await shop.queue(**run)
    means = shop.means(model, *tools, budgets=budgets_of(shop), pricing=pricing)
    drive = await shop.driving(await shop.claim(), agent or shop.agent(*tools), means)
    await asyncio.wait_for(drive.run(), TIMEOUT_S)
    return wanted.id


def budgets_of(shop: Workshop, **changes: Any) -> TenantBudgets:
    return TenantBudgets(shop.store, clock=shop.clock, new_id=shop.new_id, **changes)


async def spent(shop: Workshop, budget: BudgetRow) -> Amounts:
    """Return how much is spent of what the budget bounds; of that nothing may be reserved."""
    (counter,) = await counters(shop.store, budget)
    assert counter.reserved == Amounts()
    pairs = zip(counter.spent, budget.bounds, strict=True)
    return Amounts(*(0 if bound is None else much for much, bound in pairs))


# --- At the limit ---


async def test_a_run_that_may_make_no_more_model_calls_ends_incomplete(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=1)
    model = Scripted([calling(("add", {"a": 2, "b": 3})), saying("It is 5.")])

    run_id = await driven(shop, model, add)

    log = await shop.log(run_id)
    assert of(log, BudgetExceeded) == [BudgetExceeded(budget.id, "model_calls", 1, 1)]
    [ended] = of(log, RunIncomplete)
    assert ended.reason == "budget"
    assert ended.usage.model_calls == len(model.requests) == 1
    [aborted] = of(log, MessageAborted)
    assert aborted.error.code == "budget_exceeded"
    assert budget.id in aborted.error.message


async def test_a_budget_that_begins_anew_says_when(shop: Workshop) -> None:
    await kept(shop.store, period="hour", model_calls=0)

    run_id = await driven(shop, [saying("Hello.")])

    [exceeded] = of(await shop.log(run_id), BudgetExceeded)
    assert 0 < exceeded.resets_at_ms - shop.clock() <= HOUR_MS
    assert exceeded.resets_at_ms % HOUR_MS == 0


async def test_in_the_next_period_runs_go_on(shop: Workshop) -> None:
    await kept(shop.store, period="hour", model_calls=1)
    outcomes = []

    for ahead_ms in (0, 0, HOUR_MS):
        shop.clock.ahead_ms += ahead_ms
        run_id = await driven(shop, [saying("Hello.")])
        outcomes.append((await shop.row(run_id)).status)

    assert outcomes == ["completed", "incomplete", "completed"]


async def test_a_tool_that_may_not_be_called_any_more_is_not_called(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, tool_calls=1)
    calls = calling(*(("add", {"a": index, "b": 1}) for index in range(3)))

    run_id = await driven(shop, [calls], add)

    log = await shop.log(run_id)
    assert len(of(log, ToolCallCompleted)) == 1
    assert {failed.error.code for failed in of(log, ToolCallFailed)} == {"budget_exceeded"}
    assert of(log, BudgetExceeded) == [BudgetExceeded(budget.id, "tool_calls", 1, 1)]
    [ended] = of(log, RunIncomplete)
    assert ended.reason == "budget"
    assert await spent(shop, budget) == Amounts(tool_calls=1)


async def test_no_call_begins_when_no_time_is_left(shop: Workshop) -> None:
    await kept(shop.store, model_calls=None, active_ms=0)

    run_id = await driven(shop, [saying("Hello.")])

    [exceeded] = of(await shop.log(run_id), BudgetExceeded)
    assert (exceeded.limit, exceeded.of) == ("active_s", 0)


async def test_the_time_that_calls_take_is_counted(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, active_ms=HOUR_MS)

    @tool
    def tarry() -> str:
        """Take a while."""
        shop.clock.ahead_ms += 5_000
        return "done"

    await driven(shop, [calling(("tarry", {})), saying("Done.")], tarry)

    (counter,) = await counters(shop.store, budget)
    assert 5_000 <= counter.spent.active_ms < 60_000


# --- Tokens and money ---


async def test_an_answer_has_no_more_room_than_its_budget_has(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, tokens=500)
    model = Scripted([saying("Hello.", usage=Usage(input_tokens=90, output_tokens=10))])

    await driven(shop, model)

    [request] = model.requests
    assert request.tokens_max is not None
    assert 400 < request.tokens_max < 500
    assert await spent(shop, budget) == Amounts(tokens=100)


async def test_where_tokens_cost_nothing_an_answer_has_the_room_that_it_always_has(
    shop: Workshop,
) -> None:
    await kept(shop.store, model_calls=9)
    model = Scripted([saying("Hello.")])

    await driven(shop, model)

    assert model.requests[0].tokens_max is None


async def test_a_budget_in_money_rations_by_price(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, cost_nanos=2_000_000_000)
    limits = replace(AT_ONCE, max_output_tokens=123)
    model = Scripted([saying("Hello."), saying("Hello.")])

    await driven(shop, model)
    await driven(shop, model, agent=shop.agent(limits=limits))

    assert [request.tokens_max for request in model.requests] == [ANSWER_TOKENS, 123]
    assert (await spent(shop, budget)).cost_nanos == 2 * (10 * 1_000 + 5 * 2_000)


async def test_without_a_price_no_budget_in_money_can_be_kept(shop: Workshop) -> None:
    await kept(shop.store, model_calls=None, cost_nanos=10**9)
    model = Scripted([saying("Hello.")])

    run_id = await driven(shop, model, pricing=Pricing())

    [failed] = of(await shop.log(run_id), RunFailed)
    assert failed.error.code == "unpriced_model"
    assert "prices file" in failed.error.message
    assert model.requests == []


async def test_a_model_without_a_price_may_not_even_be_fallen_back_to(shop: Workshop) -> None:
    await kept(shop.store, model_calls=None, cost_nanos=10**9)
    agent = replace(shop.agent(), fallbacks=("test/unheard-of",))

    run_id = await driven(shop, [saying("Hello.")], agent=agent)

    [failed] = of(await shop.log(run_id), RunFailed)
    assert "test/unheard-of" in failed.error.message


async def test_nor_may_it_where_the_run_itself_has_a_bound_in_money(shop: Workshop) -> None:
    bounded = replace(AT_ONCE, max_cost_usd_micros=10**9)
    agent = replace(shop.agent(limits=bounded), fallbacks=("test/unheard-of",))
    model = Scripted([saying("Hello.")])

    run_id = await driven(shop, model, agent=agent)

    [failed] = of(await shop.log(run_id), RunFailed)
    assert failed.error.code == "unpriced_model"
    assert "test/unheard-of" in failed.error.message
    assert model.requests == []


async def test_no_model_without_a_price_shortens_anything_for_a_run_with_a_bound_in_money(
    shop: Workshop,
) -> None:
    agent = shop.agent(
        report,
        limits=replace(AT_ONCE, max_cost_usd_micros=10**9),
        compression=Compression("test/unheard-of", 2_000),
    )
    model = Scripted([calling(("report", {})), saying("There.")])

    run_id = await driven(shop, model, report, agent=agent)

    [cut] = of(await shop.log(run_id), ToolResultCompressed)
    assert "test/unheard-of" in cut.fallback
    assert (await shop.row(run_id)).status == "completed"
    assert len(model.requests) == 2


async def test_a_model_without_a_price_is_no_matter_where_no_money_is_counted(
    shop: Workshop,
) -> None:
    await kept(shop.store, tokens=10_000)

    run_id = await driven(shop, [saying("Hello.")], pricing=Pricing())

    assert (await shop.row(run_id)).status == "completed"


# --- While others are at it ---


async def test_a_call_waits_for_what_others_may_not_need(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, tokens=4_500)
    model = Held(rest=saying("Hello."))
    budgets = budgets_of(shop)
    first, second = await shop.queue(), None

    async def driving(run_model: Provider) -> Drive:
        means = shop.means(run_model, budgets=budgets, pricing=PRICED)
        return await shop.driving(await shop.claim(), shop.agent(), means)

    async with in_background(await driving(model)):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        second = await shop.queue()
        asked = Scripted([saying("Hello.")])
        async with in_background(await driving(asked)):
            await shop.seen(second.id, "message.started")
            model.go.set()

    rows = [await shop.row(run.id) for run in (first, second)]
    assert [row.status for row in rows] == ["completed"] * 2
    assert asked.requests[0].tokens_max == ANSWER_TOKENS
    assert (await spent(shop, budget)).tokens == 2 * 15


@pytest.mark.parametrize("behind", [0, 2])
async def test_a_call_does_not_wait_for_ever_for_what_others_hold(
    shop: Workshop, behind: int
) -> None:
    budget = await kept(shop.store, model_calls=1)
    await shop.queue()
    holder = await shop.claim()
    await shop.store.write(reserving(a_call_of(holder), place_in(budget)))
    budgets, model = budgets_of(shop, wait_s=0.2), Scripted([])
    waiting, drives = [], []
    for _ in range(behind + 1):
        waiting.append(await shop.queue())
        means = shop.means(model, budgets=budgets)
        drives.append(await shop.driving(await shop.claim(), shop.agent(), means))

    await asyncio.wait_for(asyncio.gather(*(drive.run() for drive in drives)), TIMEOUT_S)

    exceeded = [each for run in waiting for each in of(await shop.log(run.id), BudgetExceeded)]
    assert exceeded == [BudgetExceeded(budget.id, "model_calls", 0, 1)] * (behind + 1)
    assert model.requests == []


# --- What counts ---


async def test_what_the_cache_answers_is_not_billed(shop: Workshop) -> None:
    budget = await kept(shop.store, tokens=10_000)
    saved = Usage(saved_input_tokens=90, saved_output_tokens=10)
    cached: Script = [CacheHit(1.0), TextDelta("Hello."), Spent(saved), Finished("stop")]

    await driven(shop, [cached])

    assert await spent(shop, budget) == Amounts()


async def test_a_call_that_its_vendor_refused_is_not_billed(shop: Workshop) -> None:
    budget = await kept(shop.store)

    await driven(shop, [REFUSED])

    assert await spent(shop, budget) == Amounts()


async def test_a_call_that_broke_off_counts_with_all_that_was_reserved(shop: Workshop) -> None:
    budget = await kept(shop.store, tokens=100_000)
    agent = shop.agent(limits=replace(AT_ONCE, max_output_tokens=200))

    await driven(shop, [[TextDelta("Well, "), CUT]], agent=agent)

    counted = await spent(shop, budget)
    assert counted.model_calls == 1
    assert counted.tokens >= 200


async def test_what_a_fallback_took_counts_beside_the_call_that_broke_off(shop: Workshop) -> None:
    budget = await kept(shop.store, tokens=100_000, cost_nanos=10**12, model_calls=9)
    agent = shop.agent(limits=replace(AT_ONCE, max_output_tokens=200))
    at_work = FellBack("test/model", "test/model", "provider_stream_cut", "cut", at_work=True)
    took = Usage(input_tokens=7_000, output_tokens=90)
    answered: Script = [at_work, at_work, TextDelta("Hi"), Spent(took), Finished("stop")]

    run_id = await driven(shop, [answered], agent=agent)

    [ended] = of(await shop.log(run_id), RunCompleted)
    counted = await spent(shop, budget)
    assert counted.model_calls == ended.usage.model_calls + ended.usage.unknown_calls == 3
    assert counted.tokens >= 7_090 + 2 * 200
    assert counted.cost_nanos >= ended.usage.cost_nanos + 2 * 200 * 2_000


async def test_a_reply_that_took_as_much_as_can_be_said_ends_its_run(shop: Workshop) -> None:
    budget = await kept(shop.store, cost_nanos=10**12)
    dear = Pricing(own={"test/model": plain_tariff(DEAREST, DEAREST, None, None)})
    much = Usage(TOKENS_MAX, TOKENS_MAX)

    run_id = await driven(shop, [[TextDelta("Hi"), Spent(much), Finished("stop")]], pricing=dear)

    assert (await shop.row(run_id)).status == "completed"
    assert (await spent(shop, budget)).cost_nanos == CALL_NANOS_MAX


async def test_a_cancelled_call_counts_with_all_that_was_reserved(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=1)
    model = Held()
    run = await shop.queue()
    means = shop.means(model, budgets=budgets_of(shop))
    drive = await shop.driving(await shop.claim(), shop.agent(), means)

    async with in_background(drive):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    assert (await shop.row(run.id)).status == "cancelled"
    assert await spent(shop, budget) == Amounts(model_calls=1)


async def test_a_cancelled_call_beside_the_conversation_counts_as_often_as_in_the_run(
    shop: Workshop,
) -> None:
    budget = await kept(shop.store, model_calls=9)
    model = Turns(Scripted([calling(("add", {"a": 1, "b": 2}))]), small := Held())
    agent = shop.agent(add, compression=Compression("test/model", threshold_chars=0))
    run = await shop.queue()
    means = shop.means(model, add, budgets=budgets_of(shop))
    drive = await shop.driving(await shop.claim(), agent, means)

    async with in_background(drive):
        await asyncio.wait_for(small.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    [ended] = of(await shop.log(run.id), RunCancelled)
    assert (ended.usage.model_calls, ended.usage.unknown_calls) == (1, 1)
    assert await spent(shop, budget) == Amounts(model_calls=2)


async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_counts_with_nothing(
    shop: Workshop,
) -> None:
    budget = await kept(shop.store, tokens=100_000, model_calls=9)
    model = await used_up()
    run = await shop.queue()
    means = shop.means(model, budgets=budgets_of(shop))
    drive = await shop.driving(await shop.claim(), shop.agent(), means)

    async with in_background(drive):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    assert await spent(shop, budget) == Amounts()


async def test_where_the_last_of_two_is_cancelled_each_counts_with_all_that_was_reserved(
    shop: Workshop,
) -> None:
    budget = await kept(shop.store, tokens=100_000, model_calls=9)
    last = Held(Spent(Usage()))
    model = Fallback([("v/0", Scripted([SILENT])), ("v/1", last)])
    run = await shop.queue()
    means = shop.means(model, budgets=budgets_of(shop))
    agent = shop.agent(limits=replace(AT_ONCE, max_output_tokens=200))
    drive = await shop.driving(await shop.claim(), agent, means)

    async with in_background(drive):
        await asyncio.wait_for(last.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    counted = await spent(shop, budget)
    assert counted.model_calls == 2
    assert counted.tokens >= 2 * 200


async def test_a_tool_that_failed_was_called(shop: Workshop) -> None:
    budget = await kept(shop.store, tool_calls=9)

    await driven(shop, [calling(("fail", {"why": "no"})), saying("Sorry.")], fail)

    assert await spent(shop, budget) == Amounts(model_calls=2, tool_calls=1)


async def test_a_dead_worker_s_call_does_not_count_against_its_successor(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=1)
    model = Held()
    run = await shop.queue()
    means = shop.means(model, budgets=budgets_of(shop))
    dying = await shop.driving(await shop.claim(), shop.agent(), means)
    dead = asyncio.create_task(dying.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    successor = await shop.take_over()

    means = shop.means([saying("Hello.")], budgets=budgets_of(shop))
    drive = await shop.driving(successor, shop.agent(), means)
    await asyncio.wait_for(drive.run(), TIMEOUT_S)

    assert (await shop.row(run.id)).status == "completed"
    assert await spent(shop, budget) == Amounts(model_calls=1)
    dead.cancel()
    await asyncio.wait({dead})
    assert await spent(shop, budget) == Amounts(model_calls=1)


async def test_who_lost_the_run_while_it_reserved_makes_no_call(shop: Workshop) -> None:
    await kept(shop.store, model_calls=None, cost_nanos=10**9)
    model = Scripted([saying("Hello.")])

    def lapse(_: datetime) -> bool:
        shop.lease.lapsed = True
        return False

    rates = plain_tariff(Decimal(1), Decimal(2), None, None).always
    pricing = Pricing(own={"test/model": Tariff(rates, ((lapse, rates),))})

    with pytest.raises(FencedError):
        await driven(shop, model, pricing=pricing)

    assert model.requests == []


async def test_who_has_reserved_waits_for_a_lease_that_is_only_late(shop: Workshop) -> None:
    """As it is after an outage, through which whoever reserves has waited."""
    await kept(shop.store, model_calls=None, cost_nanos=10**9)
    lapsed = asyncio.Event()

    def lapse(_: datetime) -> bool:
        shop.lease.lapsed = True
        shop.lease.asked.clear()
        lapsed.set()
        return False

    rates = plain_tariff(Decimal(1), Decimal(2), None, None).always
    pricing = Pricing(own={"test/model": Tariff(rates, ((lapse, rates),))})
    run = await shop.queue()
    means = shop.means(
        [saying("Hello.")], budgets=budgets_of(shop), pricing=pricing, lease_wait_s=TIMEOUT_S
    )
    drive = await shop.driving(await shop.claim(), shop.agent(), means)

    async with in_background(drive):
        await asyncio.wait_for(lapsed.wait(), TIMEOUT_S)
        await asyncio.wait_for(shop.lease.asked.wait(), TIMEOUT_S)
        shop.lease.lapsed = False

    assert (await shop.row(run.id)).status == "completed"


# --- Whose budget ---


async def test_each_user_spends_for_itself_and_nobody_s_runs_together(shop: Workshop) -> None:
    budget = await kept(shop.store, scope="user", model_calls=1)

    statuses = [
        (await shop.row(await driven(shop, [saying("Hello.")], user=user))).status
        for user in ("ann", "bob", None, "ann", None)
    ]

    assert statuses == ["completed"] * 3 + ["incomplete"] * 2
    assert {each.key.scope_value for each in await counters(shop.store, budget)} == {
        "ann", "bob", "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "value", "hits"),
    [
        ("user", "ann", True),
        ("user", "bob", False),
        ("agent", "clerk", True),
        ("agent", "agt_1", True),
        ("agent", "other", False),
        ("session", "ses_ann", True),
        ("session", "ses_bob", False),
        ("session", None, True),
        ("tenant", None, True),
    ],
)
async def test_a_budget_holds_for_whom_it_names(
    shop: Workshop, scope: str, value: str | None, hits: bool
) -> None:
    await kept(shop.store, scope=scope, scope_value=value, model_calls=0)

    run_id = await driven(
        shop, [saying("Hello.")], user="ann", session_id="ses_ann", session_is_new=True
    )

    assert (await shop.row(run_id)).status == ("incomplete" if hits else "completed")


# --- Agents that call agents ---

SCRIBE = Agent("agt_2", 1, "scribe", "test/model", tools=("agent:scribe",))
ASK = calling(("agent:scribe", {"input": "Write it down."}))


async def asking(shop: Workshop, **run: Any) -> str:
    """Drive a run to where it has asked another agent, and return its id."""
    work = agents.create(
        TENANT, "scribe", encode_definition(SCRIBE), agent_id="agt_2", now_ms=shop.clock()
    )
    await shop.store.write(work)
    lead = replace(shop.agent(), tools=("agent:scribe",))
    return await driven(shop, [ASK], agent=lead, **run)


async def asked(shop: Workshop, session_id: str, deep: int = 1) -> None:
    """Have an agent in the session ask another, and so on, the last of which says something."""
    await asking(shop, session_id=session_id, session_is_new=True)
    for said in (*[ASK] * (deep - 1), saying("Written.")):
        means = shop.means([said], budgets=budgets_of(shop), pricing=PRICED)
        drive = await shop.driving(await shop.claim(), SCRIBE, means)
        await asyncio.wait_for(drive.run(), TIMEOUT_S)


@pytest.mark.parametrize("value", [None, "ses_ann"])
@pytest.mark.parametrize("deep", [1, 3])
async def test_what_a_run_has_others_do_counts_in_its_session(
    shop: Workshop, value: str | None, deep: int
) -> None:
    budget = await kept(shop.store, scope="session", scope_value=value, model_calls=9)

    await asked(shop, "ses_ann", deep)

    [counter] = await counters(shop.store, budget)
    assert (counter.key.scope_value, counter.spent.model_calls) == ("ses_ann", deep + 1)


@pytest.mark.parametrize("value", [None, "ses_ann"])
@pytest.mark.parametrize("deep", [1, 3])
async def test_what_a_run_looks_for_counts_in_the_session_that_had_it_asked(
    shop: Workshop, value: str | None, deep: int
) -> None:
    await asked(shop, "ses_ann", deep)
    budget = await kept(shop.store, scope="session", scope_value=value, tokens=99)
    found = await shop.store.read(runs.search(TENANT, RunFilter(), Page(10)))
    [below] = [row for row in found if not any(row.id == each.parent_run_id for each in found)]
    account = Account(TENANT, None, below.id, below.session_id, below.agent, below.agent_id)

    await budgets_of(shop).charge(account, Usage(input_tokens=7))

    [counter] = await counters(shop.store, budget)
    assert (counter.key.scope_value, counter.spent.tokens) == ("ses_ann", 7)


async def test_a_call_of_an_agent_is_a_call_of_a_tool(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, tool_calls=9)

    await asked(shop, "ses_ann", deep=3)

    assert await spent(shop, budget) == Amounts(tool_calls=3)


async def test_an_agent_that_may_not_be_called_any_more_starts_no_run(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, tool_calls=0)

    run_id = await asking(shop)

    log = await shop.log(run_id)
    assert of(log, BudgetExceeded) == [BudgetExceeded(budget.id, "tool_calls", 0, 0)]
    assert not of(log, ChildRunStarted)
    [ended] = of(log, RunIncomplete)
    assert ended.reason == "budget"


async def test_the_tightest_of_several_budgets_holds(shop: Workshop) -> None:
    await kept(shop.store, model_calls=9)
    narrow = await kept(shop.store, scope="agent", model_calls=0)

    run_id = await driven(shop, [saying("Hello.")])

    [exceeded] = of(await shop.log(run_id), BudgetExceeded)
    assert exceeded.budget == narrow.id


async def test_another_tenant_s_budget_binds_nobody_here(shop: Workshop) -> None:
    await kept(shop.store, tenant="globex", model_calls=0)

    run_id = await driven(shop, [saying("Hello.")])

    assert (await shop.row(run_id)).status == "completed"


# --- Who is told ---


async def test_the_run_that_spends_much_of_a_budget_is_told_once(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=5)

    logs = [await shop.log(await driven(shop, [saying("Hello.")])) for _ in range(5)]

    warned = BudgetWarning(budget.id, "model_calls", 4, 5)
    assert [of(log, BudgetWarning) for log in logs] == [[], [], [], [warned], []]
    assert [len(of(log, RunCompleted)) for log in logs] == [1] * 5


async def test_a_warning_comes_at_the_share_that_the_budget_names(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=None, cost_nanos=1_000_000_000, warn_at=0.00001)

    log = await shop.log(await driven(shop, [saying("Hello.")]))

    assert of(log, BudgetWarning) == [BudgetWarning(budget.id, "cost_usd_micros", 20, 1_000_000)]


async def test_who_nears_a_bound_that_was_raised_is_told_anew(shop: Workshop) -> None:
    row = await kept(shop.store, model_calls=5)
    told = [await warned_in_a_run(shop) for _ in range(4)]
    edit = BudgetEdit(row.bounds._replace(model_calls=10), 0.8, "{}")
    await shop.store.write(kept_budgets.change(TENANT, row.id, edit, now_ms=1, expected_version=1))

    told += [await warned_in_a_run(shop) for _ in range(5)]

    warned = [BudgetWarning(row.id, "model_calls", *each) for each in ((4, 5), (8, 10))]
    assert told == [[], [], [], [warned[0]], [], [], [], [warned[1]], []]


async def warned_in_a_run(shop: Workshop) -> list[BudgetWarning]:
    """Return what a run is warned of that makes one model call."""
    return of(await shop.log(await driven(shop, [saying("Hello.")])), BudgetWarning)


# --- Summaries ---


@tool
def report() -> str:
    """Report."""
    return "The parcel lies in the depot. " * 100


async def test_a_summary_is_a_model_call_too(shop: Workshop) -> None:
    budget = await kept(shop.store, tokens=100_000, model_calls=3, warn_at=0.5)
    model = Scripted([calling(("report", {})), saying("In the depot."), saying("There.")])
    agent = shop.agent(report, compression=Compression("test/model", 2_000))

    run_id = await driven(shop, model, report, agent=agent)

    log = await shop.log(run_id)
    assert await spent(shop, budget) == Amounts(tokens=45, model_calls=3)
    kinds = [event.type for event in log]
    assert kinds.index("budget.warning") == kinds.index("tool_result.compressed") + 1


async def test_a_summary_that_nothing_is_left_for_is_cut_instead(shop: Workshop) -> None:
    budget = await kept(shop.store, model_calls=1)
    agent = shop.agent(report, compression=Compression("test/model", 2_000))

    run_id = await driven(shop, [calling(("report", {}))], report, agent=agent)

    log = await shop.log(run_id)
    [cut] = of(log, ToolResultCompressed)
    assert budget.id in cut.fallback
    assert cut.usage == Usage()
    [ended] = of(log, RunIncomplete)
    assert ended.reason == "budget"


# --- What it costs ---


async def test_a_run_without_budgets_looks_for_them_now_and_then(shop: Workshop) -> None:
    breaking = BreakingEngine(shop.store.engine)
    async with serving(Store(breaking)) as store:
        budgets = TenantBudgets(store, clock=shop.clock, new_id=shop.new_id)

        for ahead_ms in (0, 0, 0, FRESH_MS, 0):
            shop.clock.ahead_ms += ahead_ms
            assert await budgets.of(TENANT) == ()

    assert breaking.asked == 2


async def test_a_new_budget_is_seen_here_at_once_and_elsewhere_soon(shop: Workshop) -> None:
    here, elsewhere = budgets_of(shop), budgets_of(shop)
    for budgets in (here, elsewhere):
        await budgets.of(TENANT)
    row = await kept(shop.store)

    here.forget(TENANT)

    assert await here.of(TENANT) == (row,)
    assert await elsewhere.of(TENANT) == ()
    shop.clock.ahead_ms += FRESH_MS
    assert await elsewhere.of(TENANT) == (row,)


async def test_a_bound_that_was_raised_holds_for_the_next_call(shop: Workshop) -> None:
    row = await kept(shop.store, model_calls=0)
    budgets = budgets_of(shop)
    await budgets.of(TENANT)
    edit = BudgetEdit(row.bounds._replace(model_calls=1), 0.8, "{}")
    await shop.store.write(kept_budgets.change(TENANT, row.id, edit, now_ms=1, expected_version=1))

    await shop.queue()
    means = shop.means([saying("Hello.")], budgets=budgets)
    drive = await shop.driving(await shop.claim(), shop.agent(), means)
    await asyncio.wait_for(drive.run(), TIMEOUT_S)

    assert (await spent(shop, row)).model_calls == 1
