"""Sessions: conversations, their history, and what is left when one is erased."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import approvals, log, runs, sessions, traces, usage
from milepost.store.approvals import Decision
from milepost.store.records import Claim, LogEntry, NewRun, Page, RunFilter, UsageRow
from milepost.store.sessions import NewSession, SessionEdit, SessionFilter, SessionRow, Turn
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    a_worker,
    an_append,
    an_approval,
    an_id,
    behind,
    claims,
    events,
    finished,
    held,
    letters,
    queued,
    waiting,
)


async def a_session(store: Store, *, user: str | None = None, metadata: str = "{}") -> SessionRow:
    new = NewSession(an_id("ses"), TENANT, user, "Talk", metadata, created_ms=5)
    return await store.write(sessions.create(new))


async def test_a_session_is_found_as_it_was_begun(store: Store) -> None:
    made = await a_session(store, user="ann", metadata='{"team":"red"}')

    found = await store.read(sessions.find(TENANT, made.id))

    assert found == made
    assert found == SessionRow(
        made.id, TENANT, "ann", "Talk", '{"team":"red"}', version=1, turns=0, created_ms=5,
        updated_ms=5,
    )  # fmt: skip


async def test_a_run_may_join_a_session_that_was_begun(store: Store) -> None:
    made = await a_session(store)

    created = await store.create(a_run(session_id=made.id, session_is_new=False))

    assert created.status == "queued"


async def test_a_session_that_a_run_began_is_found(store: Store) -> None:
    run = await queued(store, a_run(user="ann"))

    found = await store.read(sessions.find(TENANT, run.session_id))

    assert (found.user, found.title, found.metadata) == ("ann", None, "{}")


async def test_another_tenant_s_session_looks_as_if_it_were_not_there(store: Store) -> None:
    made = await a_session(store)

    for work in (
        sessions.find("other", made.id),
        sessions.change("other", made.id, SessionEdit("x", "{}"), now_ms=6),
        sessions.delete("other", made.id),
    ):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "session_not_found"
    assert await store.read(sessions.search("other", SessionFilter(), Page(10))) == []
    assert await store.read(sessions.find(TENANT, made.id)) == made


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (SessionFilter(), "ba"),
        (SessionFilter(user="ann"), "a"),
        (SessionFilter(metadata={"team": "red"}), "b"),
        (SessionFilter(user="ann", metadata={"team": "red"}), ""),
        (SessionFilter(created_after_ms=4, created_before_ms=6), "ba"),
        (SessionFilter(created_after_ms=5), ""),
        (SessionFilter(created_before_ms=5), ""),
    ],
)
async def test_a_search_finds_what_was_asked_for(
    store: Store, wanted: SessionFilter, found: str
) -> None:
    a = await a_session(store, user="ann")
    b = await a_session(store, user="bob", metadata='{"team":"red"}')

    rows = await store.read(sessions.search(TENANT, wanted, Page(10)))

    assert "".join({a.id: "a", b.id: "b"}[row.id] for row in rows) == found


async def test_a_session_says_what_it_was_made_for(store: Store) -> None:
    chat = await queued(store)
    child = await queued(store, a_run(parent_run_id=chat.id, parent_call_id="call_1_0"))
    trial = await queued(store, a_run(is_trial=True))
    # Whatever happens later in a chat, it stays one.
    await queued(store, behind(chat, is_trial=True))

    found = {
        kind: await store.read(sessions.search(TENANT, SessionFilter(kind=kind), Page(9)))
        for kind in ("chat", "child", "trial")
    }

    assert {kind: [row.id for row in rows] for kind, rows in found.items()} == {
        "chat": [chat.session_id],
        "child": [child.session_id],
        "trial": [trial.session_id],
    }
    assert len(await store.read(sessions.search(TENANT, SessionFilter(), Page(9)))) == 3


async def test_pages_of_sessions_go_on_where_the_last_ended(store: Store) -> None:
    made = [await a_session(store) for _ in range(3)]

    first = await store.read(sessions.search(TENANT, SessionFilter(), Page(1)))
    rest = await store.read(sessions.search(TENANT, SessionFilter(), Page(9, after=made[2].id)))

    assert first == [made[2], made[1]]
    assert rest == [made[1], made[0]]


async def test_a_changed_session_has_the_next_version(store: Store) -> None:
    made = await a_session(store)

    changed = await store.write(
        sessions.change(TENANT, made.id, SessionEdit(None, '{"a":"b"}'), now_ms=6)
    )

    assert (changed.title, changed.metadata) == (None, '{"a":"b"}')
    assert (changed.version, changed.created_ms, changed.updated_ms) == (2, 5, 6)
    assert await store.read(sessions.find(TENANT, made.id)) == changed


async def test_a_change_of_what_is_no_longer_so_is_refused(store: Store) -> None:
    made = await a_session(store)
    edit = SessionEdit("New", "{}")
    await store.write(sessions.change(TENANT, made.id, edit, now_ms=6, expected_version=1))

    for work in (
        sessions.change(TENANT, made.id, edit, now_ms=7, expected_version=1),
        sessions.delete(TENANT, made.id, expected_version=1),
    ):
        with pytest.raises(ConflictError, match="at version 2, not 1") as caught:
            await store.write(work)
        assert caught.value.code == "precondition_failed"


async def test_an_ended_run_counts_as_a_turn_and_leaves_the_version(store: Store) -> None:
    claim = await finished(store)

    found = await store.read(sessions.find(TENANT, claim.session_id))

    assert (found.turns, found.version, found.updated_ms) == (1, 1, NOW_MS)


# --- History --------------------------------------------------------------------------------


async def turns(store: Store, count: int) -> Sequence[NewRun]:
    """Return the runs of a session, all ended but the last, which is queued."""
    made = [await queued(store)]
    for _ in range(count):
        await store.append(a_finish(await taken(store, made[-1])))
        made.append(await queued(store, behind(made[0])))
    return made


async def taken(store: Store, run: NewRun) -> Claim:
    (claim,) = await claims(store, await a_worker(store))
    assert claim.run_id == run.id
    return claim


@pytest.mark.parametrize(
    ("through", "limit", "found"),
    [(3, 9, [0, 1, 2]), (2, 9, [0, 1]), (0, 9, []), (3, 2, [1, 2]), (2, 1, [1])],
)
async def test_history_is_the_last_ended_runs_in_their_order(
    store: Store, through: int, limit: int, found: list[int]
) -> None:
    made = await turns(store, 3)

    ids = await store.read(sessions.history(TENANT, made[0].session_id, through, limit=limit))

    assert ids == [made[index].id for index in found]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (Page(9, ascending=True), [1, 2, 3]),
        (Page(9), [3, 2, 1]),
        (Page(1), [3, 2]),
        (Page(1, after="1", ascending=True), [2, 3]),
        (Page(9, after="3"), [2, 1]),
        (Page(9, after="3", ascending=True), []),
    ],
)
async def test_turns_are_the_ended_runs_and_the_one_under_way(
    store: Store, page: Page, found: list[int]
) -> None:
    made = await turns(store, 2)
    await queued(store, behind(made[0]))  # blocked: whose turn it will be is open

    rows = await store.read(sessions.turns(TENANT, made[0].session_id, page))

    assert rows == [Turn(number, made[number - 1].id, number < 3) for number in found]
    assert await store.read(sessions.turns("other", made[0].session_id, page)) == []


async def test_history_shows_nothing_to_another_tenant(store: Store) -> None:
    claim = await finished(store)

    assert await store.read(sessions.history("other", claim.session_id, 9, limit=9)) == []


async def test_logs_of_several_runs_are_read_at_once(store: Store) -> None:
    one, other = await finished(store), await finished(store)

    rows = await store.read(sessions.logs([one.run_id, other.run_id]))

    for claim in (one, other):
        of_run = [LogEntry(*row[1:]) for row in rows if row[0] == claim.run_id]
        assert of_run == await events(store, claim.run_id)


# --- Erasing --------------------------------------------------------------------------------


async def a_full_session(store: Store) -> Claim:
    """Return the claim of a run that has a row in every table, and is over."""
    claim = await held(store, a_run(user="ann"))
    asked = an_approval(claim)
    span = Span(claim.run_id, 3, "t", "s", None, "execute_tool", "add", 1, 2, "ok", tool="add")
    used = UsageRow(3, claim.session_id, "clerk", "demo/one", "ann", "{}", NOW_MS, Usage(7))
    await store.append(an_append(claim, spans=(span,), usage=(used,), approvals=(asked,)))
    decision = Decision("approve", "bob")
    await store.write(approvals.decide(TENANT, asked.id, decision, NOW_MS))
    await store.append(a_finish(claim, head=3, inbox_seen=1))
    return claim


async def test_an_erased_session_leaves_nothing_but_the_bill(store: Store) -> None:
    claim = await a_full_session(store)
    kept = await a_full_session(store)

    await store.write(sessions.delete(TENANT, claim.session_id))

    with pytest.raises(NotFoundError):
        await store.read(sessions.find(TENANT, claim.session_id))
    wanted = RunFilter(session_id=claim.session_id)
    assert await store.read(runs.search(TENANT, wanted, Page(10))) == []
    assert await store.read(log.read_all(TENANT, claim.run_id)) == []
    assert await letters(store, claim.run_id) == []
    assert await store.read(traces.spans(TENANT, claim.run_id)) == []
    found = await store.read(approvals.search(TENANT, approvals.ApprovalFilter(), Page(10)))
    assert [row.run_id for row in found] == [kept.run_id]
    assert await store.read(usage.total(TENANT, claim.run_id)) == Usage(7)
    assert len(await events(store, kept.run_id)) == 4


@pytest.mark.parametrize("make", [queued, held, waiting])
async def test_a_session_with_a_run_that_is_not_over_is_not_erased(
    store: Store, make: Callable[[Store, NewRun], Awaitable[object]]
) -> None:
    run = a_run()
    await finished(store, run)
    await make(store, behind(run))

    with pytest.raises(ConflictError) as caught:
        await store.write(sessions.delete(TENANT, run.session_id))

    assert caught.value.code == "session_busy"
    assert len(await events(store, run.id)) == 3


async def a_run_below(store: Store, above: Claim, **changes: Any) -> Claim:
    """Return the claim of a run that another has started, in a session of its own, and is over."""
    run = a_run(parent_run_id=above.run_id, parent_call_id="call_1_0")
    return await finished(store, run, **changes)


async def test_the_sessions_of_runs_below_go_with_that_of_the_uppermost(store: Store) -> None:
    top, other = await finished(store), await finished(store)
    child, kept = await a_run_below(store, top), await a_run_below(store, other)
    below = await a_run_below(store, child)

    gone = await store.write(sessions.delete(TENANT, top.session_id))

    assert gone == [top.session_id, child.session_id, below.session_id]
    left = await store.read(sessions.search(TENANT, SessionFilter(), Page(10)))
    assert {row.id for row in left} == {other.session_id, kept.session_id}
    assert await store.read(log.read_all(TENANT, below.run_id)) == []
    assert len(await events(store, kept.run_id)) == 3


async def test_a_session_in_which_somebody_went_on_is_his_with_all_below_it(store: Store) -> None:
    top = await finished(store)
    child = await a_run_below(store, top)
    his = await finished(store, a_run(session_id=child.session_id, session_is_new=False))
    below = [await a_run_below(store, each) for each in (child, his)]

    gone = await store.write(sessions.delete(TENANT, top.session_id))

    assert gone == [top.session_id]
    for kept in (child, his, *below):
        assert len(await events(store, kept.run_id)) == 3


async def test_a_session_below_which_a_run_is_not_over_is_not_erased(store: Store) -> None:
    top = await finished(store)
    child = await a_run_below(store, top)
    run = await queued(store, a_run(parent_run_id=child.run_id, parent_call_id="call_1_0"))

    with pytest.raises(ConflictError, match=run.id) as caught:
        await store.write(sessions.delete(TENANT, top.session_id))

    assert caught.value.code == "session_busy"
    assert len(await events(store, top.run_id)) == 3


async def test_a_session_without_runs_is_erased(store: Store) -> None:
    made = await a_session(store)

    await store.write(sessions.delete(TENANT, made.id, expected_version=1))

    assert await store.read(sessions.search(TENANT, SessionFilter(), Page(10))) == []
    with pytest.raises(NotFoundError):
        await store.create(a_run(session_id=made.id, session_is_new=False))
