"""A run that is ended from outside: its log says what came in, and agrees with its approvals."""

import pytest

from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalWithdrawn,
    RunCancelled,
    RunCancelling,
)
from milepost.providers.scripted import calling
from milepost.runtime.ending import end_run
from milepost.store import approvals, sessions
from milepost.store.approvals import ApprovalRow
from milepost.store.runs import StaleError
from milepost.tools import tool
from tests.runtime.workshop import ASK, TENANT, Workshop, deciding, of, putting

CANCEL = {"by": "bob", "reason": None}


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def asking(shop: Workshop) -> ApprovalRow:
    """Return the question of a run that waits for a person."""
    agent = shop.agent(pay, policy=ASK)
    await shop.queue()
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    [asked] = await shop.pending()
    return asked


async def end(shop: Workshop, run_id: str) -> None:
    """Cancel the run as one does that no worker holds."""
    row = await shop.row(run_id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))


async def test_an_answer_that_no_worker_has_read_is_in_the_log_of_a_run_that_is_ended(
    shop: Workshop,
) -> None:
    asked = await asking(shop)
    await shop.decide(asked)

    await end(shop, asked.run_id)

    log = await shop.log(asked.run_id)
    assert [event.type for event in log[-2:]] == ["approval.decided", "run.cancelled"]
    assert of(log, ApprovalDecided)[0].decision == "approve"
    assert of(log, ApprovalWithdrawn) == []
    assert (await shop.store.read(approvals.find(TENANT, asked.id))).status == "approved"


async def test_a_question_that_nobody_answered_in_time_is_not_withdrawn_later(
    shop: Workshop,
) -> None:
    asked = await asking(shop)
    said = {"approval_id": asked.id, "call_id": asked.call_id}
    await shop.put(asked.run_id, "approval_expired", said, "approval")

    await end(shop, asked.run_id)

    log = await shop.log(asked.run_id)
    assert (len(of(log, ApprovalExpired)), of(log, ApprovalWithdrawn)) == (1, [])


async def test_letters_are_read_one_after_another(shop: Workshop) -> None:
    asked = await asking(shop)
    await shop.decide(asked, "deny")
    for _ in range(2):
        await shop.put(asked.run_id, "cancel", CANCEL, "cancel")

    await end(shop, asked.run_id)

    types = await shop.types(asked.run_id)
    assert types[-3:] == ["approval.decided", "run.cancelling", "run.cancelled"]
    assert len(of(await shop.log(asked.run_id), RunCancelling)) == 1


async def test_a_run_is_not_ended_over_a_letter_that_came_in_meanwhile(shop: Workshop) -> None:
    run = await shop.queue()
    shop.clock.interrupt(1, lambda: shop.at_once(putting(run.id, "cancel", CANCEL, "cancel")))

    with pytest.raises(StaleError):
        await end(shop, run.id)

    assert await shop.types(run.id) == ["run.queued"]
    assert len(await shop.inbox(run.id)) == 1


async def test_a_question_answered_while_its_run_is_being_ended_is_looked_at_again(
    shop: Workshop,
) -> None:
    asked = await asking(shop)
    shop.clock.interrupt(1, lambda: shop.at_once(deciding(asked)))

    with pytest.raises(StaleError):
        await end(shop, asked.run_id)
    await end(shop, asked.run_id)

    assert (await shop.types(asked.run_id))[-2:] == ["approval.decided", "run.cancelled"]


async def test_a_run_that_was_ended_and_erased_meanwhile_is_looked_at_again(
    shop: Workshop,
) -> None:
    run = await shop.queue()
    row = await shop.row(run.id)
    await end(shop, run.id)
    await shop.store.write(sessions.delete(TENANT, run.session_id))

    with pytest.raises(StaleError):
        await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))
