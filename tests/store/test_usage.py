"""Usage: what model calls took, added up by whatever one asks for."""

from dataclasses import fields

import pytest

from milepost.core.errors import InvalidError
from milepost.core.usage import Usage
from milepost.store import usage
from milepost.store.records import Claim, UsageRow
from milepost.store.store import Store
from milepost.store.usage import UsageFilter, UsageGroup
from tests.store.making import TENANT, a_run, an_append, held

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
ONE = Usage(*range(1, len(fields(Usage)) + 1))
ALL = UsageFilter()


class Calls:
    """Two runs: ann's with two model calls on two days, and nobody's with one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def made(self) -> tuple[Claim, Claim]:
        anns = await held(self._store, a_run(user="ann", metadata='{"team":"red"}'))
        nobodys = await held(self._store, a_run(agent="other"))
        await self._append(anns, 3, "clerk", "demo/one", DAY_MS - 1)
        await self._append(anns, 4, "clerk", "demo/two", DAY_MS + HOUR_MS)
        await self._append(nobodys, 3, "other", "demo/one", DAY_MS)
        return anns, nobodys

    async def _append(self, claim: Claim, seq: int, agent: str, model: str, time_ms: int) -> None:
        row = UsageRow(
            seq, claim.session_id, agent, model, claim.user, claim.metadata, time_ms, ONE
        )
        await self._store.append(an_append(claim, head=seq - 1, usage=(row,)))


@pytest.fixture
async def calls(store: Store) -> tuple[Claim, Claim]:
    """The claims of two runs with some calls."""
    return await Calls(store).made()


def times(count: int) -> Usage:
    """Return the usage of so many model calls."""
    return sum((ONE for _ in range(count - 1)), start=ONE)


async def test_a_run_s_calls_add_up(store: Store, calls: tuple[Claim, Claim]) -> None:
    assert await store.read(usage.total(TENANT, calls[0].run_id)) == times(2)
    assert await store.read(usage.total(TENANT, calls[1].run_id)) == ONE


async def test_a_run_without_calls_has_used_nothing(store: Store) -> None:
    assert await store.read(usage.total(TENANT, "run_none")) == Usage()


async def test_sums_beyond_32_bits_are_exact(store: Store) -> None:
    claim = await held(store)
    big = Usage(cost_nanos=2**61)
    row = UsageRow(3, claim.session_id, "clerk", "demo/one", None, "{}", 1, big)

    await store.append(an_append(claim, usage=(row,)))

    assert await store.read(usage.total(TENANT, claim.run_id)) == big


@pytest.mark.parametrize(
    ("group_by", "found"),
    [
        ([], {(): (2, 3)}),
        (["day"], {("1970-01-01",): (1, 1), ("1970-01-02",): (2, 2)}),
        (
            ["hour"],
            {
                ("1970-01-01T23:00Z",): (1, 1),
                ("1970-01-02T00:00Z",): (1, 1),
                ("1970-01-02T01:00Z",): (1, 1),
            },
        ),
        (["agent"], {("clerk",): (1, 2), ("other",): (1, 1)}),
        (["model"], {("demo/one",): (2, 2), ("demo/two",): (1, 1)}),
        (["user"], {("ann",): (1, 2), (None,): (1, 1)}),
        (["tenant"], {(TENANT,): (2, 3)}),
        (["metadata.team"], {("red",): (1, 2), (None,): (1, 1)}),
        (
            ["metadata.team", "metadata.none", "day"],
            {
                ("red", None, "1970-01-01"): (1, 1),
                ("red", None, "1970-01-02"): (1, 1),
                (None, None, "1970-01-02"): (1, 1),
            },
        ),
    ],
)
async def test_usage_is_grouped_by_what_was_asked_for(
    store: Store,
    calls: tuple[Claim, Claim],
    group_by: list[str],
    found: dict[tuple[str | None, ...], tuple[int, int]],
) -> None:
    groups = await store.read(usage.grouped(TENANT, group_by, ALL))

    assert groups == [
        UsageGroup(key, runs, times(calls_made)) for key, (runs, calls_made) in found.items()
    ]


async def test_usage_is_grouped_by_session(store: Store, calls: tuple[Claim, Claim]) -> None:
    groups = await store.read(usage.grouped(TENANT, ["session"], ALL))

    assert [group.key for group in groups] == [(claim.session_id,) for claim in calls]


@pytest.mark.parametrize(
    ("wanted", "calls_counted"),
    [
        (UsageFilter(agent="clerk"), 2),
        (UsageFilter(user="ann"), 2),
        (UsageFilter(model="demo/one"), 2),
        (UsageFilter(metadata={"team": "red"}), 2),
        (UsageFilter(from_ms=DAY_MS), 2),
        (UsageFilter(until_ms=DAY_MS), 1),
        (UsageFilter(from_ms=DAY_MS, until_ms=DAY_MS + 1), 1),
    ],
)
async def test_only_what_was_asked_for_is_counted(
    store: Store, calls: tuple[Claim, Claim], wanted: UsageFilter, calls_counted: int
) -> None:
    (group,) = await store.read(usage.grouped(TENANT, [], wanted))

    assert group.usage == times(calls_counted)


async def test_the_usage_of_a_session_or_a_run_can_be_asked_for(
    store: Store, calls: tuple[Claim, Claim]
) -> None:
    claim, _ = calls

    for wanted in (UsageFilter(session_id=claim.session_id), UsageFilter(run_id=claim.run_id)):
        (group,) = await store.read(usage.grouped(TENANT, [], wanted))
        assert group.usage == times(2)


async def test_another_tenant_s_usage_is_not_counted(
    store: Store, calls: tuple[Claim, Claim]
) -> None:
    assert await store.read(usage.total("other", calls[0].run_id)) == Usage()
    assert await store.read(usage.grouped("other", ["day"], ALL)) == []


async def test_groups_of_nothing_are_none(store: Store) -> None:
    assert await store.read(usage.grouped(TENANT, ["day"], ALL)) == []
    assert await store.read(usage.grouped(TENANT, [], ALL)) == [UsageGroup((), 0, Usage())]


async def test_what_cannot_be_grouped_by_or_filtered_is_refused(store: Store) -> None:
    for work in (
        usage.grouped(TENANT, ["day", "colour"], ALL),
        usage.grouped(TENANT, ["tool"], ALL),
        usage.grouped(TENANT, [], UsageFilter(tool="add")),
    ):
        with pytest.raises(InvalidError):
            await store.read(work)
