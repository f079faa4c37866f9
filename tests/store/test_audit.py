"""The audit trail: an act and its row are written together or not at all."""

import pytest

from milepost.core.errors import NotFoundError
from milepost.store import audit, secrets
from milepost.store.audit import AuditFilter, AuditRow
from milepost.store.records import Page
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.making import TENANT, an_id


def an_act(**changes: str | int) -> AuditRow:
    fields = {
        "tenant": TENANT,
        "actor": "ann",
        "action": "key.create",
        "target": "key_1",
        "details": '{"a":"b"}',
        "time_ms": 5,
    }
    return AuditRow(id=an_id("aud"), **{**fields, **changes})  # type: ignore[arg-type]  # mixed


async def test_an_act_is_listed_as_it_was_written(store: Store) -> None:
    act = an_act()
    await store.write(audit.add(act))
    await store.write(audit.add(an_act(tenant="other")))

    assert await store.read(audit.search(TENANT, AuditFilter(), Page(10))) == [act]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AuditFilter(actor="ann"), "a"),
        (AuditFilter(action="key.revoke"), "b"),
        (AuditFilter(target="key_1"), "ba"),
        (AuditFilter(after_ms=5), "b"),
        (AuditFilter(before_ms=6), "a"),
    ],
)
async def test_a_search_finds_what_was_asked_for(
    store: Store, wanted: AuditFilter, found: str
) -> None:
    a, b = an_act(), an_act(actor="bob", action="key.revoke", time_ms=6)
    for act in (a, b):
        await store.write(audit.add(act))

    rows = await store.read(audit.search(TENANT, wanted, Page(10)))

    assert "".join({a.id: "a", b.id: "b"}[row.id] for row in rows) == found


async def test_pages_of_acts_go_on_where_the_last_ended(store: Store) -> None:
    acts = [an_act() for _ in range(3)]
    for act in acts:
        await store.write(audit.add(act))

    rows = await store.read(audit.search(TENANT, AuditFilter(), Page(9, after=acts[1].id)))

    assert rows == [acts[0]]


async def test_an_act_that_did_not_happen_leaves_no_row(store: Store) -> None:
    def deletion() -> Work[None]:
        yield from audit.add(an_act(action="secret.delete"))
        yield from secrets.delete(TENANT, "none")

    with pytest.raises(NotFoundError):
        await store.write(deletion())

    assert await store.read(audit.search(TENANT, AuditFilter(), Page(10))) == []
