"""Idempotency keys: the first request's resource answers the others, for a day."""

from dataclasses import replace

import pytest

from milepost.store import idempotency
from milepost.store.idempotency import TTL_MS, Asked, RequestConflictError
from milepost.store.records import Request
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.making import NOW_MS, TENANT

FIRST = Asked(TENANT, Request("POST /v1/agents", "key-1", "hash"), "agt_1", NOW_MS)
AGAIN = replace(FIRST, resource_id="agt_2", time_ms=NOW_MS + TTL_MS)


async def test_who_is_first_keeps_the_key_and_who_repeats_gets_its_resource(store: Store) -> None:
    first = await store.write(idempotency.remember(FIRST))
    again = await store.write(idempotency.remember(AGAIN))

    assert (first, again) == (None, "agt_1")
    assert await store.write(idempotency.recall(AGAIN)) == "agt_1"


async def test_a_key_that_was_never_used_recalls_nothing(store: Store) -> None:
    assert await store.write(idempotency.recall(FIRST)) is None


async def test_a_key_may_not_have_two_uses(store: Store) -> None:
    await store.write(idempotency.remember(FIRST))
    other = replace(AGAIN, request=replace(AGAIN.request, hash="other"))

    for work in (idempotency.remember(other), idempotency.recall(other)):
        with pytest.raises(RequestConflictError, match="key-1"):
            await store.write(work)


@pytest.mark.parametrize(
    "other",
    [
        replace(AGAIN, tenant="other"),
        replace(AGAIN, request=replace(AGAIN.request, scope="POST /v1/sessions")),
        replace(AGAIN, request=replace(AGAIN.request, key="key-2")),
    ],
)
async def test_a_key_is_one_tenant_s_and_one_path_s(store: Store, other: Asked) -> None:
    await store.write(idempotency.remember(FIRST))

    assert await store.write(idempotency.remember(other)) is None


async def test_a_key_is_free_again_after_a_day(store: Store) -> None:
    await store.write(idempotency.remember(FIRST))
    next_day = replace(AGAIN, time_ms=NOW_MS + TTL_MS + 1)

    assert await store.write(idempotency.remember(next_day)) is None
    assert await store.write(idempotency.recall(next_day)) == "agt_2"


async def test_a_key_is_not_kept_when_its_effect_fails(store: Store) -> None:
    def failing() -> Work[None]:
        yield from idempotency.remember(FIRST)
        raise RequestConflictError("no effect")

    with pytest.raises(RequestConflictError):
        await store.write(failing())

    assert await store.write(idempotency.remember(AGAIN)) is None


async def test_keys_that_count_no_longer_are_purged(store: Store) -> None:
    await store.write(idempotency.remember(FIRST))
    young = replace(FIRST, request=replace(FIRST.request, key="key-2"), time_ms=NOW_MS + 1)
    await store.write(idempotency.remember(young))

    purged = await store.write(idempotency.purge(NOW_MS + TTL_MS + 1))

    assert purged == 1
    assert await store.write(idempotency.recall(replace(FIRST, time_ms=NOW_MS))) is None
    assert await store.write(idempotency.recall(young)) == "agt_1"
