"""Sessions' terms: for how long they are kept, that they are archived, and what is found by it."""

from typing import Any

import pytest
from sqlalchemy import Table, func, insert, select

from milepost.core.errors import ConflictError
from milepost.store import schema, sessions
from milepost.store.records import NewRun, Page
from milepost.store.sessions import NewSession, SessionEdit, SessionFilter, SessionRow
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.making import NOW_MS, TENANT, a_finish, a_run, an_id, held

TTL_MS = 90_000


async def a_session(store: Store, title: str | None = "Talk", **terms: Any) -> SessionRow:
    new = NewSession(an_id("ses"), TENANT, "ann", title, "{}", created_ms=5, **terms)
    return await store.write(sessions.create(new))


async def edited(store: Store, row: SessionRow, now_ms: int, **terms: Any) -> SessionRow:
    edit = SessionEdit(row.title, row.metadata, **terms)
    return await store.write(sessions.change(TENANT, row.id, edit, now_ms=now_ms))


async def test_a_session_without_a_time_to_live_never_expires(store: Store) -> None:
    made = await a_session(store)

    await store.append(a_finish(await held(store, a_run_in(made))))

    found = await store.read(sessions.find(TENANT, made.id))
    assert (found.turns, found.ttl_ms, found.expires_ms, found.keep_ms) == (1, None, None, None)


def a_run_in(session: SessionRow) -> NewRun:
    return a_run(session_id=session.id, session_is_new=False)


async def test_a_time_to_live_begins_anew_with_the_end_of_each_run(store: Store) -> None:
    made = await a_session(store, ttl_ms=TTL_MS)

    await store.append(a_finish(await held(store, a_run_in(made))))

    found = await store.read(sessions.find(TENANT, made.id))
    assert (made.expires_ms, found.expires_ms) == (5 + TTL_MS, NOW_MS + TTL_MS)


async def test_a_time_to_live_begins_anew_with_a_change(store: Store) -> None:
    made = await a_session(store, ttl_ms=TTL_MS, keep_ms=7)

    later = await edited(store, made, 1_000, ttl_ms=10)
    never = await edited(store, made, 2_000)

    assert (later.expires_ms, later.keep_ms) == (1_010, None)
    assert (never.ttl_ms, never.expires_ms) == (None, None)


async def test_an_archived_session_takes_no_runs(store: Store) -> None:
    made = await a_session(store)
    await edited(store, made, 6, archived_ms=6)

    with pytest.raises(ConflictError, match="is archived") as caught:
        await store.create(a_run_in(made))

    assert caught.value.code == "session_archived"


async def test_a_session_out_of_the_archive_takes_runs_again(store: Store) -> None:
    made = await a_session(store)
    await edited(store, made, 6, archived_ms=6)
    await edited(store, made, 7)

    created = await store.create(a_run_in(made))

    assert created.status == "queued"


async def test_a_run_that_is_in_it_already_ends_in_an_archived_session(store: Store) -> None:
    made = await a_session(store)
    claim = await held(store, a_run_in(made))
    await edited(store, made, 6, archived_ms=6)

    await store.append(a_finish(claim))

    found = await store.read(sessions.find(TENANT, made.id))
    assert (found.turns, found.archived_ms) == (1, 6)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (SessionFilter(title="ord"), "ba"),
        (SessionFilter(title="ORDER 7"), "a"),
        (SessionFilter(title="8%"), "b"),
        (SessionFilter(title="r_er"), ""),
        (SessionFilter(archived=True), "b"),
        (SessionFilter(archived=False), "ca"),
        (SessionFilter(archived=False, title="order"), "a"),
        (SessionFilter(user="ann"), "cba"),
        (SessionFilter(forked_from="ses_0"), ""),
    ],
)
async def test_a_search_looks_at_titles_and_at_the_archive(
    store: Store, wanted: SessionFilter, found: str
) -> None:
    a = await a_session(store, "Order 7")
    b = await a_session(store, "an order of 8%")
    c = await a_session(store, None)
    await edited(store, b, 6, archived_ms=6)

    rows = await store.read(sessions.search(TENANT, wanted, Page(10)))

    assert "".join({a.id: "a", b.id: "b", c.id: "c"}[row.id] for row in rows) == found


def pinned(session_id: str) -> Work[None]:
    """Leave a pin and a summary in the session."""
    pin = {"tenant": TENANT, "session_id": session_id, "turn": 1, "message_index": 0}
    yield Statement(insert(schema.pins).values(**pin))()
    summary = {
        "id": f"sum_{session_id}", "tenant": TENANT, "session_id": session_id, "run_id": "run_1",
        "from_turn": 1, "from_index": 0, "through_turn": 2, "through_index": 1,
    }  # fmt: skip
    yield Statement(insert(schema.summaries).values(**summary))()


def of_session(table: Table, session_id: str) -> Work[int]:
    """Return how many rows the session has there."""
    query = select(func.count()).select_from(table).where(table.c.session_id == session_id)
    ((count,),) = yield Statement(query)()
    return int(count)


async def test_summaries_and_pins_go_with_their_session(store: Store) -> None:
    gone, kept = await a_session(store), await a_session(store)
    for each in (gone, kept):
        await store.write(pinned(each.id))

    await store.write(sessions.delete(TENANT, gone.id))

    for table in (schema.pins, schema.summaries):
        assert await store.read(of_session(table, gone.id)) == 0
        assert await store.read(of_session(table, kept.id)) == 1
