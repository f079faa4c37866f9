"""A run that is ended from outside: its log says what came in, and agrees with its approvals."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import pytest

from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalWithdrawn,
    Event,
    MessageStarted,
    RunCancelled,
    RunCancelling,
    StepStarted,
)
from milepost.core.evolve import evolve
from milepost.core.spans import Span
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.providers.scripted import calling
from milepost.runtime.ending import end_run
from milepost.runtime.loading import load
from milepost.store import approvals, sessions, traces
from milepost.store.approvals import ApprovalRow
from milepost.store.runs import StaleError
from milepost.store.store import Store
from milepost.tools import tool
from tests.runtime.workshop import ASK, TENANT, Workshop, deciding, of, putting
from tests.store.breaking import BreakingEngine
from tests.store.conftest import serving

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


@pytest.mark.parametrize("followed", [True, False])
async def test_whoever_waits_for_a_run_hears_at_once_that_it_was_ended(
    shop: Workshop, *, followed: bool
) -> None:
    asked = await asking(shop)
    if followed:
        session_id = (await shop.row(asked.run_id)).session_id
        await shop.queue(session_id=session_id)
    with (
        shop.hub.listen(asked.run_id) as (tail, told),
        shop.hub.bell(inbox_bell(asked.run_id)) as worker_told,
        shop.hub.bell(QUEUE_BELL) as queue_told,
    ):
        await end(shop, asked.run_id)

        shown = tail.behind(len(await shop.log(asked.run_id)) - 1)
        assert shown is not None
        assert [frame.type for frame in shown] == ["run.cancelled"]
        assert (told.is_set(), worker_told.is_set()) == (True, True)
        assert queue_told.is_set() is followed


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


async def begun(shop: Workshop) -> None:
    """Have the one run that is ready begin a message."""
    journal = await load(await shop.claim(), shop.agent(), shop.means([]))
    events: list[Event] = [StepStarted(1), MessageStarted("msg_1", "test/model")]
    await journal.append(journal.stamp(*events), state=reduce(evolve, events, journal.state))


async def spans_of(shop: Workshop, run_id: str) -> list[Span]:
    """Return the run's spans that have ended."""
    return await shop.store.read(traces.spans(TENANT, run_id))


async def test_what_the_ending_cuts_off_is_in_the_trace_and_is_exported(shop: Workshop) -> None:
    exported: list[Span] = []
    run = await shop.queue(metadata='{"team":"red"}')
    await begun(shop)
    shop.ports = replace(shop.ports, export=exported.extend)

    await end(shop, run.id)

    stretch, chat = found = await spans_of(shop, run.id)
    assert (stretch.kind, chat.kind) == ("invoke_agent", "chat")
    assert {stretch.status, chat.status} == {"cancelled"}
    assert (chat.model, chat.parent_id) == ("test/model", stretch.span_id)
    assert stretch.attributes["gen_ai.provider.name"] == "test"
    assert stretch.attributes["milepost.metadata.team"] == "red"
    assert sorted(exported, key=lambda span: span.seq) == found


async def test_spans_of_a_trace_that_its_caller_does_not_want_are_kept_and_not_exported(
    shop: Workshop,
) -> None:
    exported: list[Span] = []
    run = await shop.queue(trace_parent=f"00-{'5' * 32}-{'6' * 16}-00")
    await load(await shop.claim(), shop.agent(), shop.means([]))
    shop.ports = replace(shop.ports, export=exported.extend)

    await end(shop, run.id)

    [stretch] = await spans_of(shop, run.id)
    assert stretch.trace_id == "5" * 32
    assert exported == []


async def test_spans_that_were_told_before_are_not_told_again(shop: Workshop) -> None:
    asked = await asking(shop)
    before = await spans_of(shop, asked.run_id)

    await end(shop, asked.run_id)

    assert await spans_of(shop, asked.run_id) == before
    assert [span.kind for span in before] == ["invoke_agent", "chat", "policy"]


async def test_a_child_has_ended_though_its_parent_could_not_be_told(shop: Workshop) -> None:
    """Nobody is to end it once more for that; the sweeper tells."""
    child = await shop.queue(parent_run_id="run_1", parent_call_id="call_1_0")
    await begun(shop)
    line = BreakingEngine(shop.store.engine)

    def cut(_: Sequence[Span]) -> None:
        line.absences = 1

    async with serving(Store(line, waits_s=(0,))) as store:
        shop.ports = replace(shop.ports, store=store, export=cut)
        await end(shop, child.id)

    assert line.absences == 0
    assert (await shop.row(child.id)).status == "cancelled"


async def test_a_run_that_is_ended_from_outside_is_counted_with_what_it_cuts_off(
    shop: Workshop,
) -> None:
    run = await shop.queue()
    await begun(shop)

    await end(shop, run.id)

    page = shop.metrics.render({}).decode().splitlines()
    assert 'milepost_runs_ended_total{status="cancelled"} 1.0' in page
    assert 'milepost_model_calls_total{status="cancelled"} 1.0' in page
    assert "milepost_appends_total 1.0" in page
