"""Forks in the store: both first events, the row, and the audit trail, in one transaction."""

from dataclasses import replace

import pytest

from milepost.core.errors import NotFoundError
from milepost.store import audit, log, runs
from milepost.store.audit import AuditFilter, AuditRow
from milepost.store.records import Fork, NewRun, Page, Request, RunFilter
from milepost.store.removals import remove_runs
from milepost.store.store import Store
from tests.store.making import NOW_MS, TENANT, a_run, a_worker, an_entry, an_id, claims, finished

PAGE = Page(limit=10)


def a_fork(of: str, at_seq: int = 4) -> NewRun:
    act = AuditRow(an_id("aud"), TENANT, "key_1", "run.forked", of, "{}", NOW_MS)
    return a_run(fork=Fork(of, at_seq, an_entry("run.forked"), act))


@pytest.fixture(autouse=True)
async def sources(store: Store) -> None:
    """Have the runs that there are forks of."""
    for run_id in ("run_0", "run_9"):
        await finished(store, a_run(id=run_id))


async def test_a_run_that_is_gone_has_no_forks(store: Store) -> None:
    await store.write(remove_runs(TENANT, ["run_0"]))

    with pytest.raises(NotFoundError, match="there is no run run_0"):
        await store.create(a_fork("run_0"))


async def test_another_tenants_run_has_no_forks_here(store: Store) -> None:
    with pytest.raises(NotFoundError, match="there is no run run_0"):
        await store.create(replace(a_fork("run_0"), tenant="globex"))


async def test_a_fork_begins_with_what_it_goes_on_from(store: Store) -> None:
    wanted = a_fork("run_0")
    await store.create(wanted)

    row = await store.read(runs.find(TENANT, wanted.id))
    entries = await store.read(log.read_all(TENANT, wanted.id))
    acts = await store.read(audit.search(TENANT, AuditFilter(action="run.forked"), PAGE))

    assert (row.forked_from, row.forked_seq) == ("run_0", 4)
    assert [(entry.seq, entry.type) for entry in entries] == [(1, "run.queued"), (2, "run.forked")]
    assert [act.target for act in acts] == ["run_0"]


async def test_whoever_takes_a_fork_is_given_both(store: Store) -> None:
    wanted = a_fork("run_0")
    await store.create(wanted)

    [claim] = await claims(store, await a_worker(store))

    assert claim.head == 3
    assert claim.entries is not None
    assert [entry.type for entry in claim.entries] == ["run.queued", "run.forked", "run.started"]


async def test_the_forks_of_a_run_are_found(store: Store) -> None:
    other, first, second = a_fork("run_9"), a_fork("run_0"), a_fork("run_0", 5)
    for each in (other, first, second, a_run()):
        await store.create(each)

    found = await store.read(runs.search(TENANT, RunFilter(forked_from="run_0"), PAGE))

    assert {row.id for row in found} == {first.id, second.id}


async def test_a_fork_that_is_asked_for_again_is_the_same(store: Store) -> None:
    request = Request("POST /v1/runs/run_0/fork", "key", "hash")
    first = a_run(fork=a_fork("run_0").fork, request=request)
    again = a_run(fork=a_fork("run_0").fork, request=request)

    made = [await store.create(each) for each in (first, again)]

    acts = await store.read(audit.search(TENANT, AuditFilter(action="run.forked"), PAGE))
    assert [each.run_id for each in made] == [first.id, first.id]
    assert len(acts) == 1
