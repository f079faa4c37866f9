"""Forks of sessions: what they share, how deep they may be, and that nobody takes it from them."""

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.window import Place
from milepost.store import session_forks, sessions
from milepost.store.records import NewRun, Page
from milepost.store.session_forks import DEPTH_MAX, TURN_MAX
from milepost.store.sessions import NewSession, SessionFilter, SessionRow, Stretch
from milepost.store.store import Store
from tests.store.making import (
    TENANT,
    a_finish,
    a_run,
    a_worker,
    an_id,
    behind,
    claims,
    queued,
)

END = TURN_MAX + 1


async def talked(store: Store, turns: int) -> NewRun:
    """Return the first run of a session in which so many have ended."""
    first = await queued(store)
    for turn in range(turns):
        if turn:
            await queued(store, behind(first))
        (claim,) = await claims(store, await a_worker(store))
        await store.append(a_finish(claim))
    return first


async def forked(
    store: Store, parent_id: str, at: Place | None, tenant: str = TENANT
) -> SessionRow:
    new = NewSession(an_id("ses"), tenant, "ann", "Other", "{}", created_ms=5, ttl_ms=10)
    return await store.write(session_forks.fork(new, parent_id, at))


async def test_a_fork_numbers_its_turns_on_from_where_it_begins(store: Store) -> None:
    first = await talked(store, 3)

    fork = await forked(store, first.session_id, Place(2, 1))
    await queued(store, a_run(session_id=fork.id, session_is_new=False))
    (claim,) = await claims(store, await a_worker(store))
    await store.append(a_finish(claim))

    assert (fork.turns, fork.forked_from, fork.forked_turn, fork.forked_index) == (
        2, first.session_id, 2, 1,
    )  # fmt: skip
    assert (fork.user, fork.title, fork.expires_ms) == ("ann", "Other", 15)
    (turn,) = await store.read(sessions.turns(TENANT, fork.id, Page(9)))
    assert (turn.number, turn.run_id) == (3, claim.run_id)


async def test_a_forks_past_is_a_part_of_the_other_and_what_came_since(store: Store) -> None:
    first = await talked(store, 3)

    fork = await forked(store, first.session_id, Place(2, 1))

    assert await store.read(session_forks.lineage(fork)) == [
        Stretch(first.session_id, 0, 3, 1),
        Stretch(fork.id, 2, END),
    ]


async def test_a_session_that_is_no_fork_is_its_own_past(store: Store) -> None:
    first = await talked(store, 1)
    row = await store.read(sessions.find(TENANT, first.session_id))

    assert await store.read(session_forks.lineage(row)) == [Stretch(row.id, 0, END)]


@pytest.mark.parametrize(
    ("at", "shared"),
    [
        (Place(4, 0), [(0, 3, 1), (2, 5, 0)]),
        (Place(2, 0), [(0, 3, 0)]),
        (Place(2, 1), [(0, 3, 1)]),
        (Place(1, 5), [(0, 2, 5)]),
        (None, []),
    ],
)
async def test_a_fork_of_a_fork_may_begin_before_it(
    store: Store, at: Place | None, shared: list[tuple[int, int, int]]
) -> None:
    first = await talked(store, 2)
    fork = await forked(store, first.session_id, Place(2, 1))

    second = await forked(store, fork.id, at)

    found = await store.read(session_forks.lineage(second))
    assert [(each.after, each.before, each.end) for each in found[:-1]] == shared
    assert found[-1] == Stretch(second.id, at.turn if at else 0, END)


async def test_only_so_many_forks_may_lie_one_upon_the_other(store: Store) -> None:
    parent_id = (await talked(store, 1)).session_id
    for _ in range(DEPTH_MAX):
        parent_id = (await forked(store, parent_id, Place(1, 0))).id

    with pytest.raises(ConflictError) as caught:
        await forked(store, parent_id, Place(1, 0))

    assert caught.value.code == "fork_too_deep"
    deepest = await store.read(sessions.find(TENANT, parent_id))
    assert len(await store.read(session_forks.lineage(deepest))) == 2


async def test_a_session_with_forks_is_not_erased_before_them(store: Store) -> None:
    first = await talked(store, 1)
    fork = await forked(store, first.session_id, Place(1, 0))

    with pytest.raises(ConflictError, match=fork.id) as caught:
        await store.write(sessions.delete(TENANT, first.session_id))
    await store.write(sessions.delete(TENANT, fork.id))
    await store.write(sessions.delete(TENANT, first.session_id))

    assert caught.value.code == "session_has_forks"
    assert await store.read(sessions.search(TENANT, SessionFilter(), Page(9))) == []


async def test_another_tenants_session_cannot_be_forked(store: Store) -> None:
    first = await talked(store, 1)

    for parent_id in (first.session_id, "ses_0"):
        with pytest.raises(NotFoundError) as caught:
            await forked(store, parent_id, Place(1, 0), tenant="other")
        assert caught.value.code == "session_not_found"


async def test_forks_are_found_by_what_they_were_forked_from(store: Store) -> None:
    first = await talked(store, 1)
    fork = await forked(store, first.session_id, Place(1, 0))
    await forked(store, fork.id, Place(1, 0))

    wanted = SessionFilter(forked_from=first.session_id)

    assert await store.read(sessions.search(TENANT, wanted, Page(9))) == [fork]
