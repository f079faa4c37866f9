"""The log: who may append, what is written along, and how it is read."""

from collections.abc import Callable

import pytest

from milepost.core.errors import FencedError
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import approvals, log, queue, runs, traces, usage
from milepost.store.log import GroupSplitError
from milepost.store.records import Append, Change, InboxMovedError, LogEntry, UsageRow
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_park,
    a_run,
    an_append,
    an_approval,
    an_entry,
    behind,
    events,
    finished,
    held,
    letters,
    lost,
    next_claim,
    queued,
    status,
    types,
    waiting,
)

LETTER = runs.Letter("approval", "{}", "approval", NOW_MS)


async def test_events_are_numbered_on_from_the_claim(store: Store) -> None:
    claim = await held(store)

    await store.append(an_append(claim, an_entry("step.started"), an_entry("step.completed")))
    await store.append(an_append(claim, head=claim.head + 2))

    assert types(await events(store, claim.run_id)) == [
        "run.queued", "run.started", "step.started", "step.completed", "step.started",
    ]  # fmt: skip


async def test_an_event_is_read_as_it_was_written(store: Store) -> None:
    claim = await held(store)
    entry = an_entry("message.completed", text='quote " slash \\ snowman ☃ and \x01')

    await store.append(an_append(claim, entry))

    (read,) = await store.read(log.read(TENANT, claim.run_id, after=2))
    assert read == LogEntry(3, entry.type, entry.time_ms, entry.data)


async def test_who_lost_its_lease_cannot_append(store: Store) -> None:
    claim = await held(store)
    successor = await lost(store, claim)

    for item in (
        an_append(claim),
        an_append(claim, head=successor.head),  # it looked at the newest log
        a_park(claim, head=successor.head),
        a_finish(claim, head=successor.head),
    ):
        with pytest.raises(FencedError):
            await store.append(item)
    assert len(await events(store, claim.run_id)) == successor.head
    assert await status(store, claim.run_id) == "running"


async def test_who_was_swept_and_not_replaced_cannot_append_either(store: Store) -> None:
    claim = await held(store)
    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())

    for item in (an_append(claim), a_park(claim), a_finish(claim)):
        with pytest.raises(FencedError):
            await store.append(item)


async def test_nothing_is_appended_after_the_last_event(store: Store) -> None:
    claim = await finished(store)

    for head in (claim.head, claim.head + 1):
        for item in (an_append(claim, head=head), a_finish(claim, head=head)):
            with pytest.raises(FencedError):
                await store.append(item)
    assert len(await events(store, claim.run_id)) == 3


async def test_another_tenant_cannot_append(store: Store) -> None:
    claim = await held(store)

    with pytest.raises(FencedError):
        await store.append(an_append(claim, tenant="other"))

    assert len(await events(store, claim.run_id)) == 2


async def test_an_append_of_a_run_that_never_was_is_fenced(store: Store) -> None:
    claim = await held(store)

    with pytest.raises(FencedError):
        await store.append(an_append(claim, run_id="run_none"))


async def test_an_append_without_events_is_fenced_too(store: Store) -> None:
    claim = await held(store)
    await lost(store, claim)
    await store.write(runs.deliver(TENANT, claim.run_id, LETTER))
    empty = an_append(claim, entries=(), inbox_seen=1, inbox_consumed=True)

    with pytest.raises(FencedError):
        await store.append(empty)

    assert len(await letters(store, claim.run_id)) == 1


async def test_one_misfit_of_a_group_writes_nothing_of_it(store: Store) -> None:
    good, bad = await held(store), await held(store)

    for misfit in (an_append(bad, epoch=9), a_park(bad, inbox_seen=9)):
        with pytest.raises(GroupSplitError):
            await store.write(log.append([an_append(good), misfit]))

    assert len(await events(store, good.run_id)) == 2


# --- Changes of status ----------------------------------------------------------------------


async def test_a_run_that_waits_has_no_worker_and_says_for_what(store: Store) -> None:
    claim = await waiting(store)

    row = await store.read(runs.find(TENANT, claim.run_id))

    assert (row.status, row.waiting_for) == ("waiting", '{"cause":"approval"}')
    assert await store.write(queue.sweep()) == []


async def test_a_run_that_ends_says_how_and_when(store: Store) -> None:
    claim = await held(store)
    change = Change("failed", outcome='{"error":{}}', ended_ms=77)

    await store.append(a_finish(claim, change=change))

    row = await store.read(runs.find(TENANT, claim.run_id))
    assert (row.status, row.outcome, row.ended_ms) == ("failed", '{"error":{}}', 77)


@pytest.mark.parametrize("make", [a_park, a_finish])
async def test_a_run_with_an_unread_letter_cannot_let_go(
    store: Store, make: Callable[..., Append]
) -> None:
    claim = await held(store)
    await store.write(runs.deliver(TENANT, claim.run_id, LETTER))

    with pytest.raises(InboxMovedError):
        await store.append(make(claim))
    await store.append(make(claim, inbox_seen=1))

    assert len(await events(store, claim.run_id)) == 3


async def test_an_append_tells_that_a_letter_came_in(store: Store) -> None:
    claim = await held(store)
    before, _ = await store.append(an_append(claim))
    await store.write(runs.deliver(TENANT, claim.run_id, LETTER))

    after, _ = await store.append(an_append(claim, head=3))

    assert (before, after) == (0, 1)


async def test_letters_that_were_read_are_taken_out_and_later_ones_stay(store: Store) -> None:
    claim = await held(store)
    for _ in range(3):
        await store.write(runs.deliver(TENANT, claim.run_id, LETTER))

    await store.append(an_append(claim, inbox_seen=2, inbox_consumed=True))

    assert [letter.seq for letter in await letters(store, claim.run_id)] == [3]
    assert (await store.read(log.inbox(TENANT, claim.run_id, 2)))[0] == 3


async def test_letters_of_other_runs_stay(store: Store) -> None:
    claim, other = await held(store), await held(store)
    await store.write(runs.deliver(TENANT, other.run_id, LETTER))

    await store.append(an_append(claim, inbox_seen=9, inbox_consumed=True))

    assert len(await letters(store, other.run_id)) == 1


async def test_the_oldest_blocked_run_follows_and_only_in_its_own_session(store: Store) -> None:
    run, other = a_run(), a_run()
    claim = await held(store, run)
    await held(store, other)
    second, third = await queued(store, behind(run)), await queued(store, behind(run))
    elsewhere = await queued(store, behind(other))

    _, freed = await store.append(a_finish(claim))

    assert freed == (second.id,)
    assert await status(store, third.id) == await status(store, elsewhere.id) == "blocked"


async def test_a_run_handed_back_is_queued_and_says_why_it_went_on(store: Store) -> None:
    claim = await held(store)
    back = Change("queued", resume_why="drain")

    await store.append(an_append(claim, an_entry("run.retrying"), change=back))

    again = await next_claim(store)
    resumed = (await events(store, claim.run_id))[-1]
    assert (again.run_id, again.epoch, again.head) == (claim.run_id, 2, 4)
    assert (resumed.type, '"drain"' in resumed.data) == ("run.resumed", True)


# --- What is written along ------------------------------------------------------------------


def a_span(run_id: str, seq: int) -> Span:
    return Span(
        run_id, seq, "t" * 32, "s" * 16, None, "chat", "chat demo", 1, 2, "error", "boom",
        model="demo/one", attributes={"n": 1, "x": 0.5, "b": True, "t": "ü", "l": ("a", "b")},
    )  # fmt: skip


async def test_spans_usage_and_questions_are_written_with_their_events(store: Store) -> None:
    claim = await held(store)
    span = a_span(claim.run_id, 3)
    used = Usage(*range(1, 12))
    row = UsageRow(3, claim.session_id, "clerk", "demo/one", "ann", "{}", NOW_MS, used)
    asked = an_approval(claim)

    await store.append(an_append(claim, spans=(span,), usage=(row,), approvals=(asked,)))

    assert await store.read(traces.spans(TENANT, claim.run_id)) == [span]
    assert await store.read(usage.total(TENANT, claim.run_id)) == used
    found = await store.read(approvals.find(TENANT, asked.id))
    assert (found.status, found.required, found.digest) == ("pending", 1, asked.digest)


async def test_nothing_of_a_fenced_append_is_written(store: Store) -> None:
    claim = await held(store)
    await lost(store, claim)
    row = UsageRow(3, claim.session_id, "clerk", "demo/one", None, "{}", NOW_MS, Usage(1))

    with pytest.raises(FencedError):
        await store.append(an_append(claim, spans=(a_span(claim.run_id, 3),), usage=(row,)))

    assert await store.read(traces.spans(TENANT, claim.run_id)) == []
    assert await store.read(usage.total(TENANT, claim.run_id)) == Usage()


async def test_a_question_falls_away_with_its_run(store: Store) -> None:
    claim = await held(store)
    asked = an_approval(claim)
    await store.append(an_append(claim, approvals=(asked,)))

    await store.append(a_finish(claim, head=3))

    row = await store.read(approvals.find(TENANT, asked.id))
    assert (row.status, row.decided_ms) == ("withdrawn", NOW_MS)


# --- Reading --------------------------------------------------------------------------------


async def test_a_stretch_of_the_log_is_read(store: Store) -> None:
    claim = await held(store)
    await store.append(an_append(claim, *(an_entry() for _ in range(8))))

    async def seqs(**stretch: int) -> list[int]:
        entries = await store.read(log.read(TENANT, claim.run_id, **stretch))
        return [entry.seq for entry in entries]

    assert await seqs() == list(range(1, 11))
    assert await seqs(after=3, through=5) == [4, 5]
    assert await seqs(after=3, limit=3) == [4, 5, 6]
    assert await seqs(after=10) == []


async def test_a_log_is_read_by_its_own_tenant_only(store: Store) -> None:
    claim = await held(store)

    assert await store.read(log.read("other", claim.run_id)) == []
    assert await store.read(log.head("other", claim.run_id)) == 0
    assert await store.read(log.inbox("other", claim.run_id, 0)) == (0, [])


async def test_the_ends_of_logs_are_told_one_by_one_and_together(store: Store) -> None:
    one, other = await held(store), await finished(store)

    assert await store.read(log.head(TENANT, other.run_id)) == 3
    assert await store.read(log.heads([one.run_id, other.run_id, "run_none"])) == {
        one.run_id: 2,
        other.run_id: 3,
    }


async def test_only_the_very_append_that_was_written_has_landed(store: Store) -> None:
    claim = await held(store)
    item = an_append(claim)
    await store.append(item)

    assert await store.read(log.landed(item))
    assert not await store.read(log.landed(an_append(claim)))
    assert not await store.read(log.landed(an_append(claim, head=3)))
