"""Who is frozen in a transaction for whose locks many wait: they get them, and lose no patience.

Who waits for a lock gives up after three seconds, and so much is lost then that the server ends
such a transaction sooner.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from milepost.store import batch_turns, batches, children, erasures, queue, runs, sessions
from milepost.store.address import PostgresAddress
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.erasures import NewErasure
from milepost.store.records import AuditRow
from milepost.store.runs import Letter
from milepost.store.sessions import NewSession
from milepost.store.store import Store
from milepost.store.thread import PostgresThreadStore
from milepost.store.work import Work
from tests.store.conftest import opened, serving
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_run,
    a_worker,
    an_id,
    claims,
    finished,
    held,
    letters,
    queued,
)
from tests.store.making_batches import a_batch, an_offer, chunk


@pytest.fixture
async def store(postgres_address: PostgresAddress) -> AsyncIterator[Store]:
    """A store on Postgres: on SQLite there is no second process."""
    async with opened(postgres_address) as engine, serving(Store(engine)) as store:
        yield store


@pytest.fixture
def rival(postgres_address: PostgresAddress) -> Iterator[PostgresThreadStore]:
    """Another process."""
    thread = PostgresThreadStore(postgres_address.url)
    yield thread
    thread.close()


async def freeze(
    store: Store, work: Work[Any], statements: int, meanwhile: Callable[[], Any]
) -> None:
    """Do work, and stand still behind so many statements until something else has been done."""
    with pytest.raises(DatabaseUnavailableError, match="idle-in-transaction"):
        await store.write(_freezing(work, statements, meanwhile))


def _freezing(work: Work[Any], statements: int, meanwhile: Callable[[], Any]) -> Work[Any]:
    sent: Any = None
    while True:
        try:
            asked = work.send(sent)
        except StopIteration as finish:
            return finish.value
        sent = yield asked
        statements -= 1
        if not statements:
            meanwhile()


def an_erasure(user: str) -> Work[Any]:
    wanted = NewErasure(an_id("era"), TENANT, "owner", "key_1", user, NOW_MS)
    act = AuditRow(an_id("aud"), TENANT, "key_1", "user.erasing", wanted.id, "{}", NOW_MS)
    return erasures.begin(wanted, act)


def a_session(user: str) -> NewSession:
    return NewSession(an_id("ses"), TENANT, user, None, "{}", NOW_MS)


async def test_whoever_begins_to_erase_a_user_keeps_nobody_from_what_is_for_others(
    store: Store, rival: PostgresThreadStore
) -> None:
    new = a_session("bob")

    await freeze(store, an_erasure("ann"), 1, lambda: rival.write(sessions.create(new)))

    assert (await store.read(sessions.find(TENANT, new.id))).user == "bob"


async def test_a_pump_that_stands_still_leaves_its_batch_to_the_others(
    store: Store, rival: PostgresThreadStore
) -> None:
    row = await store.write(batches.create(a_batch(3), [chunk(0, 3)]))

    def turn() -> Work[batch_turns.Turn | None]:
        return batch_turns.turn(TENANT, row.id, an_offer())

    turns: list[batch_turns.Turn | None] = []
    await freeze(store, turn(), 1, lambda: turns.append(rival.write(turn())))

    assert [each.begun for each in turns if each] == [row.concurrency]


async def test_a_child_that_tells_of_its_end_keeps_nothing_else_from_its_parent(
    store: Store, rival: PostgresThreadStore
) -> None:
    parent = await held(store)
    child = await finished(store, a_run(parent_run_id=parent.run_id, parent_call_id="call_1"))
    over = await store.read(runs.find(TENANT, child.run_id))
    letter = Letter("steer", "{}", "steer", NOW_MS)

    def tell_something_else() -> None:
        rival.write(runs.deliver(TENANT, parent.run_id, letter))

    await freeze(store, children.tell(over, NOW_MS), 2, tell_something_else)

    assert [each.kind for each in await letters(store, parent.run_id)] == ["steer"]


async def test_a_worker_that_claims_keeps_no_run_from_those_who_could_drive_it(
    store: Store, rival: PostgresThreadStore
) -> None:
    run, frozen, other = await queued(store), await a_worker(store), await a_worker(store)
    letter = Letter("steer", "{}", "steer", NOW_MS)

    def tell() -> None:
        """Wait for the lock: whoever else claims passes the run over."""
        rival.write(runs.deliver(TENANT, run.id, letter))

    await freeze(store, queue.claim(frozen, 1, an_id("append"), NOW_MS), 1, tell)

    assert [claim.run_id for claim in await claims(store, other)] == [run.id]


async def test_a_sweep_keeps_no_run_of_the_dead_from_another_sweep(
    store: Store, rival: PostgresThreadStore
) -> None:
    dead = await held(store)
    await store.write(queue.dismiss_others("nobody"))
    letter = Letter("steer", "{}", "steer", NOW_MS)

    def tell() -> None:
        """Wait for the lock: another sweep passes the run over."""
        rival.write(runs.deliver(TENANT, dead.run_id, letter))

    await freeze(store, queue.sweep(), 2, tell)

    assert await store.write(queue.sweep()) == [dead.run_id]
