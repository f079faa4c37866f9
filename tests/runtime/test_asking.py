"""A run that asks people: it waits in nobody's hands, and misses no answer."""

import asyncio

import pytest

from milepost.core.canonical import call_digest
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    PolicyDecided,
    RunResumed,
    ToolCallCompleted,
    ToolCallDenied,
)
from milepost.core.policy import Policy
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store.approvals import Edit
from milepost.tools import tool
from tests.runtime.tools import look_up, pay
from tests.runtime.workshop import (
    ASK,
    Workshop,
    deciding,
    in_background,
    of,
    putting,
)


async def test_a_run_that_waits_for_a_person_is_held_by_nobody(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)

    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    [asked] = await shop.pending()
    assert (asked.tool, asked.preview, asked.reason) == ("pay", "pay(cents=5)", "policy: ask *")
    assert (await shop.types(run.id))[-2:] == ["approval.requested", "run.waiting"]
    assert (await shop.row(run.id)).status == "waiting"
    assert shop.hub.listened == []


async def test_a_question_stands_behind_the_ruling_that_it_follows_from(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)

    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    *_, judged, asked, _waiting = await shop.log(run.id)
    assert judged == PolicyDecided("call_1_0", "ask", "policy: ask *")
    assert isinstance(asked, ApprovalRequested)


async def test_an_approved_call_is_made(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    [asked] = await shop.pending()
    await shop.decide(asked)
    model = Scripted([saying("Paid.")])
    await shop.go_on(model, pay, agent=agent)

    assert model.requests[0].messages[-1].content == "paid 5"
    log = await shop.log(run.id)
    assert of(log, RunResumed)[0].why == "approval"
    assert of(log, ApprovalDecided)[0].by == "ann"


async def test_a_result_stands_although_its_tool_is_gone_when_the_run_goes_on(
    shop: Workshop,
) -> None:
    agent = shop.agent(look_up, pay, policy=Policy(ask=("pay",), allow=("*",)))
    run = await shop.queue()
    asked_for = calling(("look_up", {}), ("pay", {"cents": 5}))
    await shop.go_on([asked_for], look_up, pay, agent=agent)

    [asked] = await shop.pending()
    await shop.decide(asked)
    model = Scripted([saying("Paid.")])
    await shop.go_on(model, pay, agent=agent)

    assert [message.content for message in model.requests[0].messages[-2:]] == ["seen", "paid 5"]
    assert len(of(await shop.log(run.id), ToolCallCompleted)) == 2


async def test_a_denied_call_is_explained_and_not_asked_about_again(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    [asked] = await shop.pending()
    await shop.decide(asked, "deny")
    model = Scripted([calling(("pay", {"cents": 5})), saying("Then not.")])
    await shop.go_on(model, pay, agent=agent)

    denials = of(await shop.log(run.id), ToolCallDenied)
    assert [event.by for event in denials] == ["ann", "an earlier answer in this run"]
    assert model.requests[0].messages[-1].content == "Tool 'pay' denied by ann: so be it"
    assert await shop.pending() == []


async def test_an_edited_call_is_made_as_it_was_edited(shop: Workshop) -> None:
    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)

    [asked] = await shop.pending()
    edit = Edit('{"cents":4}', call_digest("pay", {"cents": 4}), "pay(cents=4)")
    await shop.decide(asked, edit=edit)
    await shop.go_on([saying("Paid.")], pay, agent=agent)

    assert of(await shop.log(run.id), ToolCallCompleted)[0].result == "paid 4"


async def test_a_decision_is_read_while_a_sibling_still_runs(shop: Workshop) -> None:
    release = asyncio.Event()

    @tool(effect="read")
    async def linger() -> str:
        """Linger."""
        await release.wait()
        return "lingered"

    @tool(requires_approval=True)
    def gated() -> str:
        """Do it, and let the other one go."""
        release.set()
        return "did"

    run = await shop.queue()
    model = Scripted([calling(("linger", {}), ("gated", {})), saying("Both.")])
    driven = await shop.driving(
        await shop.claim(), shop.agent(linger, gated), shop.means(model, linger, gated)
    )

    async with in_background(driven):
        await shop.seen(run.id, "approval.requested")
        [asked] = await shop.pending()
        await shop.decide(asked)

    assert "run.waiting" not in await shop.types(run.id)
    assert [message.content for message in model.requests[1].messages[-2:]] == ["lingered", "did"]


@pytest.mark.parametrize("look", range(1, 7))
async def test_a_decision_is_not_missed_whenever_it_comes(shop: Workshop, look: int) -> None:
    """Also between the worker's last look into its inbox and the change of status to waiting."""
    agent = shop.agent(pay, look_up, policy=ASK)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}), ("look_up", {}))], pay, look_up, agent=agent)
    first, second = await shop.pending()
    await shop.decide(first)
    claim = await shop.claim()
    model = Scripted([saying("Both.")])

    shop.clock.interrupt(look, lambda: shop.at_once(deciding(second)))
    await shop.go_on(model, pay, look_up, agent=agent, claim=claim)
    if (await shop.row(run.id)).status == "queued":  # It was parked before: then it is woken.
        await shop.go_on(model, pay, look_up, agent=agent)

    assert (await shop.row(run.id)).status == "completed"
    assert len(of(await shop.log(run.id), ToolCallCompleted)) == 2
    assert await shop.inbox(run.id) == []


@pytest.mark.parametrize("look", range(1, 12))
async def test_a_cancellation_is_not_missed_whenever_it_comes(shop: Workshop, look: int) -> None:
    run = await shop.queue()
    claim = await shop.claim()
    asked = {"by": "ann", "reason": None}

    shop.clock.interrupt(look, lambda: shop.at_once(putting(run.id, "cancel", asked, "cancel")))
    model = Scripted([calling(("look_up", {})), saying("Seen.")])
    await shop.go_on(model, look_up, claim=claim)

    row = await shop.row(run.id)
    assert row.status == "cancelled"
    assert await shop.inbox(run.id) == []
    assert (await shop.types(run.id))[-1] == "run.cancelled"
