"""Rules besides an agent's own: of its tenant, of its session, and what people granted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import orjson
import pytest

from milepost.core.canonical import call_digest
from milepost.core.effects import CountCall
from milepost.core.events import (
    ApprovalRequested,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallDenied,
)
from milepost.core.policy import NOTHING_STANDS, Policy, Rate, Rule
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.definitions import encode_definition
from milepost.runtime.means import Means
from milepost.runtime.policy_spec import show_policy
from milepost.runtime.stored_rates import StoredRates
from milepost.runtime.tenant_permissions import TenantPermissions
from milepost.runtime.tenant_policies import FRESH_MS, TenantPolicies
from milepost.store import agents, grants, policies, queue, runs
from milepost.store import permissions as tool_permissions
from milepost.store.grants import GrantFilter, GrantRow
from milepost.store.policies import TENANT as WHOLE_TENANT
from milepost.store.records import Claim, Page, RunFilter
from milepost.tools import tool
from tests.runtime.tools import listening, pay
from tests.runtime.workshop import ASK, TENANT, TIMEOUT_S, Workshop, in_background, of

PAY_5 = calling(("pay", {"cents": 5}))


async def keep(shop: Workshop, scope: str, policy: Policy) -> None:
    """Put a policy into force, as the API does."""
    before = await shop.store.read(policies.get(TENANT, scope))
    said = orjson.dumps(show_policy(policy)).decode()
    await shop.store.write(policies.replace(before, said))


async def grant(shop: Workshop, session_id: str, *, digest: str | None, ttl_ms: int) -> None:
    now = shop.clock()
    row = GrantRow(
        shop.new_id("gra"), TENANT, session_id, "pay", digest, "apr_1", "ann", now, now + ttl_ms
    )
    await shop.store.write(grants.add(row))


async def permit(shop: Workshop, permissions: Mapping[str, list[str]]) -> None:
    """Narrow to whom tools are permitted, as another process does."""
    before = await shop.store.read(tool_permissions.get(TENANT))
    said = orjson.dumps(permissions).decode()
    await shop.store.write(tool_permissions.replace(before, said, shop.clock()))


def permitting(shop: Workshop, means: Means) -> Means:
    """Return the means, with the tenant's own map of permissions."""
    return replace(means, permissions_of=TenantPermissions(shop.store, clock=shop.clock).of)


async def test_a_tenants_rules_hold_for_every_agent(shop: Workshop) -> None:
    await keep(shop, WHOLE_TENANT, Policy(deny=(Rule("pay", reason="the books are closed"),)))
    run = await shop.queue()

    await shop.go_on([PAY_5, saying("No.")], pay, agent=shop.agent(pay))

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.by == "policy"
    assert denied.reason == "tenant's policy: deny pay: the books are closed"


async def test_a_sessions_rules_hold_for_no_other(shop: Workshop) -> None:
    agent = shop.agent(pay)
    first = await shop.queue()
    await keep(shop, first.session_id, Policy(deny=("pay",)))
    await shop.go_on([PAY_5, saying("No.")], pay, agent=agent)
    second = await shop.queue()
    await shop.go_on([PAY_5, saying("Paid.")], pay, agent=agent)

    assert len(of(await shop.log(first.id), ToolCallDenied)) == 1
    assert len(of(await shop.log(second.id), ToolCallCompleted)) == 1


async def test_a_rule_that_came_while_a_person_thought_is_judged_by_too(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([PAY_5], pay, agent=agent)
    [asked] = await shop.pending()

    await shop.decide(asked)
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))
    await shop.go_on([saying("No.")], pay, agent=agent)

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.reason == "tenant's policy: deny pay"


async def approved_beside_a_call_that_runs(
    shop: Workshop, before: Callable[[], Awaitable[None]]
) -> ToolCallDenied:
    """Say yes to a call while another of its step is running; return why it was not made."""
    go = asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Keep the run from waiting."""
        await go.wait()
        return "held"

    agent = shop.agent(pay, hold, policy=Policy(ask=("pay",), allow=("*",)))
    run = await shop.queue()
    model = Scripted([calling(("pay", {"cents": 5}), ("hold", {})), saying("No.")])
    means = permitting(shop, shop.means(model, pay, hold))
    driven = await shop.driving(await shop.claim(), agent, means)
    async with in_background(driven):
        await shop.seen(run.id, "approval.requested")
        [asked] = await shop.pending()

        await before()
        await shop.decide(asked)
        go.set()

    denied: ToolCallDenied
    [denied] = of(await shop.log(run.id), ToolCallDenied)
    return denied


async def test_a_yes_that_comes_while_the_run_goes_on_is_judged_by_rules_that_came_elsewhere(
    shop: Workshop,
) -> None:
    forbid = partial(keep, shop, WHOLE_TENANT, Policy(deny=("pay",)))

    denied = await approved_beside_a_call_that_runs(shop, forbid)

    assert denied.reason == "tenant's policy: deny pay"


async def test_a_yes_that_comes_while_the_run_goes_on_opens_nothing_that_is_not_permitted_any_more(
    shop: Workshop,
) -> None:
    denied = await approved_beside_a_call_that_runs(shop, partial(permit, shop, {"pay": ["ann"]}))

    assert denied.by == "permission"


async def test_what_is_known_of_permissions_is_looked_at_anew_behind_a_yes(shop: Workshop) -> None:
    """What this process knows may be of before the map was narrowed in another one."""
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    means = permitting(shop, shop.means([PAY_5, saying("No.")], pay))
    await asyncio.wait_for((await shop.driving(await shop.claim(), agent, means)).run(), TIMEOUT_S)
    [asked] = await shop.pending()

    await permit(shop, {"pay": []})
    await shop.decide(asked)
    await asyncio.wait_for((await shop.driving(await shop.claim(), agent, means)).run(), TIMEOUT_S)

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.by == "permission"


async def test_a_call_of_a_later_step_is_judged_by_permissions_of_then(shop: Workshop) -> None:
    @tool(effect="read")
    async def narrow() -> str:
        """Have an administrator take a permission back, as long ago as it takes to be heard."""
        await permit(shop, {"pay": []})
        shop.clock.ahead_ms += FRESH_MS
        return "narrowed"

    agent = shop.agent(pay, narrow)
    run = await shop.queue()
    model = Scripted([calling(("narrow", {})), PAY_5, saying("No.")])
    means = permitting(shop, shop.means(model, pay, narrow))
    await asyncio.wait_for((await shop.driving(await shop.claim(), agent, means)).run(), TIMEOUT_S)

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.by == "permission"


async def test_whoever_takes_a_run_over_judges_its_calls_by_rules_that_came_elsewhere(
    shop: Workshop,
) -> None:
    """What this process knows of the rules may be of before the run's last worker died."""
    agent = shop.agent(pay, policy=Policy(ask=(Rule("pay", rate=Rate(1, 3600)),), allow=("*",)))
    run = await shop.queue()
    means = shop.means([PAY_5, saying("No.")], pay)
    dying = replace(means, rates=Dying(shop.store))
    driven = await shop.driving(await shop.claim(), agent, dying)
    with pytest.raises(OSError, match="it dies"):
        await driven.run()

    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))
    again = await shop.driving(await shop.take_over(), agent, means)
    await asyncio.wait_for(again.run(), TIMEOUT_S)

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.reason == "tenant's policy: deny pay"


async def test_what_was_granted_for_the_session_is_not_asked_again(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await grant(shop, run.session_id, digest=None, ttl_ms=3_600_000)

    await shop.go_on([PAY_5, saying("Paid.")], pay, agent=agent)

    log = await shop.log(run.id)
    assert of(log, ApprovalRequested) == []
    assert len(of(log, ToolCallCompleted)) == 1


async def test_a_grant_may_be_for_the_same_arguments_alone(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    same = call_digest("pay", {"cents": 4})
    await grant(shop, run.session_id, digest=same, ttl_ms=3_600_000)

    await shop.go_on([calling(("pay", {"cents": 4}), ("pay", {"cents": 5}))], pay, agent=agent)

    log = await shop.log(run.id)
    assert [asked.arguments for asked in of(log, ApprovalRequested)] == [{"cents": 5}]
    assert len(of(log, ToolCallCompleted)) == 1


async def test_an_expired_grant_grants_nothing(shop: Workshop) -> None:
    run = await shop.queue()
    await grant(shop, run.session_id, digest=None, ttl_ms=-100_000_000_000_000)

    await shop.go_on([PAY_5], pay, agent=shop.agent(pay, policy=ASK))

    assert len(of(await shop.log(run.id), ApprovalRequested)) == 1


async def test_a_deny_goes_before_a_grant(shop: Workshop) -> None:
    run = await shop.queue()
    await grant(shop, run.session_id, digest=None, ttl_ms=3_600_000)
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    await shop.go_on([PAY_5, saying("No.")], pay, agent=shop.agent(pay, policy=ASK))

    assert len(of(await shop.log(run.id), ToolCallDenied)) == 1


async def test_more_calls_than_a_rule_allows_in_a_time_are_asked_about(shop: Workshop) -> None:
    often = Rule("pay", rate=Rate(2, 3600), reason="that is a lot")
    agent = shop.agent(pay, policy=Policy(ask=(often,), allow=("*",)))
    calls = calling(*(("pay", {"cents": cents}) for cents in (1, 2, 3)))

    first = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 9})), saying("One.")], pay, agent=agent)
    second = await shop.queue()
    await shop.go_on(Scripted([calls]), pay, agent=agent)

    assert of(await shop.log(first.id), ApprovalRequested) == []
    asked = of(await shop.log(second.id), ApprovalRequested)
    assert [each.arguments for each in asked] == [{"cents": 2}, {"cents": 3}]
    assert asked[0].policy == "policy: ask pay more than 2 in 3600 s: that is a lot"


async def test_of_many_calls_at_once_exactly_so_many_run_as_the_rule_lets_through(
    shop: Workshop,
) -> None:
    often = Rule("pay", rate=Rate(3, 3600))
    agent = shop.agent(pay, policy=Policy(ask=(often,), allow=("*",)))
    many = [calling(*(("pay", {"cents": 100 * run + i}) for i in range(25))) for run in range(2)]
    ids = [(await shop.queue()).id for _ in many]
    worker = await shop.worker()
    claims = await shop.store.write(queue.claim(worker, 2, shop.new_id("apd"), shop.clock()))

    await asyncio.gather(
        *(
            shop.go_on([calls], pay, agent=agent, claim=claim)
            for claim, calls in zip(claims, many, strict=True)
        )
    )

    logs = [await shop.log(run_id) for run_id in ids]
    assert sum(len(of(log, ToolCallCompleted)) for log in logs) == 3
    assert sum(len(of(log, ApprovalRequested)) for log in logs) == 47


async def test_a_call_is_counted_once_however_often_its_worker_dies(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=Policy(ask=(Rule("pay", rate=Rate(1, 3600)),), allow=("*",)))
    run = await shop.queue()
    claim, dying = await shop.claim(), Dying(shop.store)
    means = replace(shop.means([PAY_5], pay), rates=dying)
    driven = await shop.driving(claim, agent, means)
    with pytest.raises(OSError, match="it dies"):
        await driven.run()
    assert dying.counted == 1

    await shop.go_on([saying("Paid.")], pay, agent=agent, claim=await shop.take_over())

    log = await shop.log(run.id)
    assert of(log, ApprovalRequested) == []
    assert [list(each.counts.values()) for each in of(log, ToolCallCounted)] == [[1]]


class Dying(StoredRates):
    """Counts, and is gone before anybody learns of it."""

    counted = 0

    async def count(self, claim: Claim, effect: CountCall) -> Mapping[str, int]:
        """Count the call, and die."""
        await super().count(claim, effect)
        self.counted += 1
        raise OSError("it dies")


async def test_a_grant_that_was_taken_back_while_a_run_waits_opens_nothing(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await grant(shop, run.session_id, digest=None, ttl_ms=3_600_000)
    await shop.go_on([PAY_5, saying("Paid.")], pay, agent=agent)
    [row] = await shop.store.read(grants.search(TENANT, GrantFilter(), Page(10)))
    await shop.store.write(grants.revoke(TENANT, row.id, "ann", shop.clock()))
    later = await shop.queue(session_id=run.session_id)

    await shop.go_on([PAY_5], pay, agent=agent)

    assert len(of(await shop.log(later.id), ApprovalRequested)) == 1


async def test_a_rule_with_a_rate_that_came_while_a_person_thought_counts_what_was_approved(
    shop: Workshop,
) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([PAY_5], pay, agent=agent)
    [asked] = await shop.pending()
    await shop.decide(asked)
    await keep(shop, WHOLE_TENANT, Policy(deny=(Rule("pay", rate=Rate(0, 3600)),)))

    await shop.go_on([saying("No.")], pay, agent=agent)

    [denied] = of(await shop.log(run.id), ToolCallDenied)
    assert denied.reason == "tenant's policy: deny pay more than 0 in 3600 s"


async def test_a_sessions_rules_hold_for_what_its_runs_have_other_agents_do(
    shop: Workshop,
) -> None:
    scribe = replace(shop.agent(pay), id="agt_2", name="scribe")
    definition = encode_definition(scribe)
    await shop.store.write(
        agents.create(TENANT, "scribe", definition, agent_id="agt_2", now_ms=shop.clock())
    )
    run = await shop.queue()
    await keep(shop, run.session_id, Policy(deny=("pay",), allow=("*",)))
    lead = replace(shop.agent(), tools=("agent:scribe",))
    await shop.go_on([calling(("agent:scribe", {"input": "Pay."}))], pay, agent=lead)

    await shop.go_on([PAY_5, saying("No.")], pay, agent=scribe)

    [child] = await shop.store.read(
        runs.search(TENANT, RunFilter(parent_run_id=run.id), Page(limit=10))
    )
    [denied] = of(await shop.log(child.id), ToolCallDenied)
    assert denied.reason == "session's policy: deny pay"


# --- What is known of them ---


async def test_a_change_made_elsewhere_is_seen_within_a_second(shop: Workshop) -> None:
    known = TenantPolicies(shop.store, clock=shop.clock)
    assert await known.of(TENANT, "ses_1") is NOTHING_STANDS
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    shop.clock.ahead_ms += FRESH_MS

    assert (await known.of(TENANT, "ses_1")).tenant == Policy(deny=("pay",))


async def test_a_fresh_look_sees_what_was_changed_just_now(shop: Workshop) -> None:
    known = TenantPolicies(shop.store, clock=shop.clock)
    assert await known.of(TENANT, "ses_1") is NOTHING_STANDS
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    assert (await known.of(TENANT, "ses_1", fresh=True)).tenant == Policy(deny=("pay",))


async def test_what_a_fresh_look_has_seen_is_seen_from_then_on(shop: Workshop) -> None:
    known = TenantPolicies(shop.store, clock=lambda: 1)
    assert await known.of(TENANT, "ses_1") is NOTHING_STANDS
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    fresh = await known.of(TENANT, "ses_1", fresh=True)

    assert await known.of(TENANT, "ses_1") is fresh


async def test_a_clock_that_is_set_back_keeps_no_old_rules_in_force(shop: Workshop) -> None:
    shop.clock.ahead_ms = 3_600_000
    known = TenantPolicies(shop.store, clock=shop.clock)
    await known.of(TENANT, "ses_1")
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    shop.clock.ahead_ms = 0

    assert (await known.of(TENANT, "ses_1")).tenant == Policy(deny=("pay",))


async def test_rules_that_did_not_change_are_the_same_object(shop: Workshop) -> None:
    known = TenantPolicies(shop.store, clock=shop.clock)
    await keep(shop, WHOLE_TENANT, Policy(deny=("pay",)))

    first = await known.of(TENANT, "ses_1")
    shop.clock.ahead_ms += FRESH_MS

    assert await known.of(TENANT, "ses_1") is first


async def test_rules_that_cannot_be_read_take_no_result_from_a_tool(shop: Workshop) -> None:
    """As those of a later version may be: what was done before they came is known even so."""
    begun, stopped = asyncio.Event(), asyncio.Event()
    listen = listening(stopped)

    @tool(effect="read")
    async def look() -> str:
        """Come back under rules that nobody here can read."""
        await begun.wait()
        before = await shop.store.read(policies.get(TENANT, WHOLE_TENANT))
        await shop.store.write(policies.replace(before, '{"deny": [{"whom": "all"}]}'))
        shop.clock.ahead_ms += FRESH_MS
        return "seen"

    @tool
    async def charge() -> str:
        """Charge, and be done when all others are."""
        begun.set()
        await stopped.wait()
        return "charged"

    run = await shop.queue()

    with pytest.raises(KeyError):
        await shop.go_on(
            [calling(("look", {}), ("listen", {}), ("charge", {}))], look, listen, charge
        )

    completed = of(await shop.log(run.id), ToolCallCompleted)
    assert [event.result for event in completed] == ["seen", "charged"]
