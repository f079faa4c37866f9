"""A log in memory keeps a store's promises to whoever drives a run."""

import asyncio

import pytest

from milepost.agent.run_log import RunLog
from milepost.core.errors import FencedError
from milepost.core.events import RunStarted, StepStarted
from milepost.store.records import Append, Change, Claim, Entry, InboxMovedError

CLAIM = Claim("run_1", "local", "ses_1", "", 0, None, 0, 0, 0, 0, "{}", None, None)
STEP = Entry(StepStarted.type, 1, '{"index":1}')


def an_append(**fields: object) -> Append:
    """Return an append that follows the first event in the first epoch."""
    known: dict[str, object] = {
        "run_id": "run_1", "tenant": "local", "session_id": "ses_1", "epoch": 1, "head": 1,
        "append_id": "apd_1", "entries": (STEP,), "inbox_seen": 0,
    }  # fmt: skip
    return Append(**{**known, **fields})  # type: ignore[arg-type]  # those of an append


async def begun() -> RunLog:
    log = RunLog()
    await log.begin(1, RunStarted(1, "in process"))
    return log


async def test_events_are_numbered_from_one_without_a_gap() -> None:
    log = await begun()

    await log.append(an_append())
    await log.append(an_append(head=2))

    assert [entry.seq for entry in await log.entries("local", "run_1", 3)] == [1, 2, 3]
    assert len(await log.entries("local", "run_1", 2)) == 2


@pytest.mark.parametrize("stale", [{"head": 0}, {"epoch": 0}])
async def test_who_is_behind_or_had_the_run_before_writes_nothing(stale: dict[str, int]) -> None:
    log = await begun()

    with pytest.raises(FencedError):
        await log.append(an_append(**stale))

    assert log.head == 1


async def test_a_run_is_not_let_go_while_something_came_in_that_nobody_read() -> None:
    log = await begun()
    log.deliver("cancel", {"by": "caller"})

    with pytest.raises(InboxMovedError):
        await log.append(an_append(change=Change("waiting")))
    assert await log.append(an_append(change=Change("waiting"), inbox_seen=1)) == (1, ())
    assert [letter.kind for letter in (await log.inbox("local", "run_1", 0))[1]] == ["cancel"]


async def test_no_question_is_taken_back_while_something_came_in_that_nobody_read() -> None:
    """It may be the answer."""
    log = await begun()
    log.deliver("approval", {"approval_id": "apr_1"})

    with pytest.raises(InboxMovedError):
        await log.append(an_append(withdrawn=("apr_1",)))
    assert await log.append(an_append(withdrawn=("apr_1",), inbox_seen=1)) == (1, ())


async def test_no_call_is_skipped_while_something_came_in_that_nobody_read() -> None:
    """It may be what the client brought of it."""
    log = await begun()
    log.deliver("tool_result", {"call_id": "call_1_0", "result": "a cat"})

    with pytest.raises(InboxMovedError):
        await log.append(an_append(skips=True))
    assert await log.append(an_append(skips=True, inbox_seen=1)) == (1, ())


async def test_a_claim_brings_the_log_and_how_much_came_in() -> None:
    log = await begun()
    log.deliver("cancel", {"by": "caller"})

    claim = log.claim(CLAIM)

    assert (claim.epoch, claim.head, claim.inbox_seq) == (1, 1, 1)
    assert claim.entries == tuple(log.log)


async def test_mail_is_waited_for_within_bounds() -> None:
    log = await begun()

    await asyncio.wait_for(log.mail(0.01), 5)
    asyncio.get_running_loop().call_soon(log.deliver, "cancel", {})
    await asyncio.wait_for(log.mail(None), 5)
