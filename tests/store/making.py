"""What the store's tests put into it: runs, claims and appends with everything filled in."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from milepost.providers.cache_key import owner_key
from milepost.store import erasures, log, queue, runs
from milepost.store.erasures import NewErasure
from milepost.store.records import (
    Append,
    AuditRow,
    Change,
    Claim,
    Entry,
    InboxMessage,
    LogEntry,
    NewApproval,
    NewRun,
)
from milepost.store.store import Store
from milepost.store.work import Work

TENANT = "acme"
TTL_MS = 60_000
NOW_MS = 1_700_000_000_000

_numbers = itertools.count(1)


def an_id(prefix: str) -> str:
    """Return an id that sorts behind every earlier one, and before all that were made in our time.

    Those begin with 018, and more than 19,000 are made in one process.
    """
    return f"{prefix}_{next(_numbers):08}"


def being_erased(tenant: str, user: str) -> Work[None]:
    """Begin to erase a user, in a process that is slow at it."""
    wanted = NewErasure(an_id("era"), tenant, owner_key(tenant, user), "key_1", user, NOW_MS)
    act = AuditRow(an_id("aud"), tenant, "key_1", "user.erasing", wanted.id, "{}", NOW_MS)
    row = yield from erasures.begin(wanted, act)
    yield from erasures.advance(row)


def an_entry(type_name: str = "step.started", **data: Any) -> Entry:
    """Return an event; no test of the store looks into it."""
    return Entry(type_name, NOW_MS, str(data) if data else "{}")


def a_run(**changes: Any) -> NewRun:
    """Return a run to be queued in a session of its own."""
    run = NewRun(
        id=an_id("run"),
        tenant=TENANT,
        session_id=an_id("ses"),
        session_is_new=True,
        agent_id="agt_1",
        agent="clerk",
        agent_version=1,
        user=None,
        metadata="{}",
        lane=0,
        created_ms=NOW_MS,
        scheduled_ms=None,
        deadline_ms=None,
        trace_parent=None,
        queued=an_entry("run.queued"),
    )
    return replace(run, **changes)


def behind(run: NewRun, **changes: Any) -> NewRun:
    """Return another run for the same session."""
    return a_run(session_id=run.session_id, session_is_new=False, **changes)


def an_append(claim: Claim, *entries: Entry, **changes: Any) -> Append:
    """Return the holder's next append."""
    item = Append(
        run_id=claim.run_id,
        tenant=claim.tenant,
        session_id=claim.session_id,
        epoch=claim.epoch,
        head=claim.head,
        append_id=an_id("append"),
        entries=entries or (an_entry(),),
        inbox_seen=claim.inbox_seq,
    )
    return replace(item, **changes)


def a_park(claim: Claim, **changes: Any) -> Append:
    """Return the append with which the holder lets its run wait."""
    return an_append(
        claim,
        an_entry("run.waiting"),
        **{"change": Change("waiting", waiting_for='{"cause":"approval"}'), **changes},
    )


def a_finish(claim: Claim, status: str = "completed", **changes: Any) -> Append:
    """Return the append with which the holder ends its run."""
    change = Change(status, outcome="{}", ended_ms=NOW_MS)
    return an_append(claim, an_entry(f"run.{status}"), **{"change": change, **changes})


def an_approval(claim: Claim, **changes: Any) -> NewApproval:
    """Return a question that a holder asks, open for a long time."""
    asked = NewApproval(
        id=an_id("apr"),
        run_id=claim.run_id,
        session_id=claim.session_id,
        agent="clerk",
        user=None,
        call_id="call_1_0",
        tool="send_email",
        arguments='{"to":"a@b.c"}',
        digest="sha256:1",
        preview="send_email(to='a@b.c')",
        reason="policy: ask send_*",
        created_ms=NOW_MS,
        expires_ms=4 * NOW_MS,
    )
    return replace(asked, **changes)


async def queued(store: Store, run: NewRun | None = None) -> NewRun:
    """Create a run."""
    run = run or a_run()
    await store.create(run)
    return run


async def a_worker(store: Store, *, ttl_ms: int = TTL_MS) -> str:
    """Register a worker."""
    worker = an_id("worker")
    await store.write(queue.register(worker, ttl_ms))
    return worker


async def claims(store: Store, worker: str, limit: int = queue.CLAIM_MAX) -> list[Claim]:
    """Claim what is ready."""
    return await store.write(queue.claim(worker, limit, an_id("append"), NOW_MS))


async def held(store: Store, run: NewRun | None = None) -> Claim:
    """Create a run and claim it for a new worker."""
    run = await queued(store, run)
    taken = {claim.run_id: claim for claim in await claims(store, await a_worker(store))}
    return taken[run.id]


async def next_claim(store: Store) -> Claim:
    """Claim the one run that is ready for a new worker."""
    (claim,) = await claims(store, await a_worker(store))
    return claim


async def lost(store: Store, claim: Claim) -> Claim:
    """Let the holder's lease lapse, sweep, and return the claim of its successor."""
    row = await store.read(runs.find(claim.tenant, claim.run_id))
    assert row.status == "running"
    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())
    return await next_claim(store)


async def waiting(store: Store, run: NewRun | None = None, **changes: Any) -> Claim:
    """Create a run that waits; return the claim that its worker had."""
    claim = await held(store, run)
    await store.append(a_park(claim, **changes))
    return claim


async def asking(store: Store, **changes: Any) -> NewApproval:
    """Create a run that waits for an approval; return the question."""
    claim = await held(store)
    asked = an_approval(claim, **changes)
    await store.append(a_park(claim, approvals=(asked,)))
    return asked


async def finished(store: Store, run: NewRun | None = None, **changes: Any) -> Claim:
    """Create a run that ended; return the claim that its worker had."""
    claim = await held(store, run)
    await store.append(a_finish(claim, **changes))
    return claim


async def status(store: Store, run_id: str) -> str:
    """Return the run's status."""
    return (await store.read(runs.find(TENANT, run_id))).status


async def letters(store: Store, run_id: str, after: int = 0) -> list[InboxMessage]:
    """Return what lies in the run's inbox."""
    _, found = await store.read(log.inbox(TENANT, run_id, after))
    return found


async def events(store: Store, run_id: str) -> list[LogEntry]:
    """Return the run's log, having checked that it has no gap."""
    entries = await store.read(log.read_all(TENANT, run_id))
    assert_gapless(entries)
    return entries


def assert_gapless(entries: Sequence[LogEntry]) -> None:
    """Check that `seq` is 1..N."""
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))


def types(entries: Sequence[LogEntry]) -> list[str]:
    """Return the names of the events."""
    return [entry.type for entry in entries]


async def session_of(store: Store, turns: int) -> tuple[str, list[str]]:
    """Make a session of so many turns; return it and its runs."""
    first = a_run()
    runs = [await finished(store, first)]
    runs += [await finished(store, behind(first)) for _ in range(turns - 1)]
    return first.session_id, [claim.run_id for claim in runs]
