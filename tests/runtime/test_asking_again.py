"""What a run remembers of its questions: every no, however it came about, and never a yes."""

from collections.abc import Awaitable, Callable

import pytest

from milepost.core.events import ApprovalRequested, RunFailed, RunWaiting, ToolCallDenied
from milepost.core.policy import Policy, Rule, Terms
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store import approval_times, withdrawals
from milepost.store.approval_rows import ApprovalRow
from milepost.store.withdrawals import Withdrawal
from tests.runtime.tools import pay
from tests.runtime.workshop import ASK, TENANT, Workshop, of

HASTY = Policy(ask=(Rule("*", terms=Terms(ttl_s=0.0)),))

Silence = Callable[[Workshop, ApprovalRow], Awaitable[None]]


async def denying(shop: Workshop, asked: ApprovalRow) -> None:
    await shop.decide(asked, "deny")


async def expiring(shop: Workshop, _: ApprovalRow) -> None:
    await shop.store.write(approval_times.expire_due(shop.ports.clock(), 10))


async def withdrawing(shop: Workshop, asked: ApprovalRow) -> None:
    taking = Withdrawal("ann", "never mind")
    await shop.store.write(withdrawals.withdraw(TENANT, asked.id, taking, shop.ports.clock()))


@pytest.mark.parametrize(
    ("policy", "refuse", "by"),
    [(ASK, denying, "ann"), (HASTY, expiring, "expiry"), (ASK, withdrawing, "ann")],
)
async def test_a_no_is_remembered_within_the_run_however_it_came_about(
    shop: Workshop, policy: Policy, refuse: Silence, by: str
) -> None:
    agent = shop.agent(pay, policy=policy)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    [asked] = await shop.pending()

    await refuse(shop, asked)
    model = Scripted([calling(("pay", {"cents": 5})), saying("Then not.")])
    await shop.go_on(model, pay, agent=agent)

    log = await shop.log(run.id)
    assert [event.by for event in of(log, ToolCallDenied)] == [by, "an earlier answer in this run"]
    assert len(of(log, ApprovalRequested)) == 1
    assert await shop.pending() == []


async def test_a_no_to_some_arguments_is_none_to_others(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    [asked] = await shop.pending()

    await shop.decide(asked, "deny")
    await shop.go_on([calling(("pay", {"cents": 4}))], pay, agent=agent)

    [again] = await shop.pending()
    assert again.preview == "pay(cents=4)"


async def test_a_yes_is_never_remembered(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    [asked] = await shop.pending()

    await shop.decide(asked)
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    [again] = await shop.pending()
    assert (again.id != asked.id, again.digest) == (True, asked.digest)


async def test_the_questions_of_one_step_come_together_and_the_run_goes_on_with_the_last_answer(
    shop: Workshop,
) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    calls = [("pay", {"cents": cents}) for cents in (1, 2, 3)]
    await shop.go_on([calling(*calls)], pay, agent=agent)
    asked = sorted(await shop.pending(), key=lambda row: row.call_id)
    assert len(asked) == 3

    for row, answer in zip(asked[:2], ("approve", "deny"), strict=True):
        await shop.decide(row, answer)
    await shop.go_on([], pay, agent=agent)
    assert [row.id for row in await shop.pending()] == [asked[2].id]
    assert (await shop.row(run.id)).status == "waiting"
    await shop.decide(asked[2])
    model = Scripted([saying("Done.")])
    await shop.go_on(model, pay, agent=agent)

    said = [message.content for message in model.requests[0].messages[-3:]]
    assert said == ["paid 1", "Tool 'pay' denied by ann: so be it", "paid 3"]
    assert [event.pending for event in of(await shop.log(run.id), RunWaiting)] == [
        tuple(row.id for row in asked),
        (asked[2].id,),
    ]


async def test_silence_ends_the_run_where_the_rule_says_so(shop: Workshop) -> None:
    terms = Terms(ttl_s=0.0, on_timeout="fail")
    agent = shop.agent(pay, policy=Policy(ask=(Rule("*", terms=terms),)))
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    [asked] = await shop.pending()

    await expiring(shop, asked)
    await shop.go_on([], pay, agent=agent)

    [failed] = of(await shop.log(run.id), RunFailed)
    assert failed.error.code == "approval_expired"
