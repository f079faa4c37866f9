"""What tool calls came to, added up by whatever one asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from milepost.core.errors import InvalidError
from milepost.core.spans import CACHE_HIT, CHUNKS, COERCED, ERROR_TYPE, Span
from milepost.core.usage import Usage
from milepost.store import retention, tool_usage, usage
from milepost.store.records import Claim, UsageRow
from milepost.store.store import Store
from milepost.store.tool_usage import ToolGroup
from milepost.store.usage import UsageFilter
from tests.store.making import NOW_MS, TENANT, a_finish, a_run, an_append, held

DAY_MS = 86_400_000
ALL = UsageFilter()
OK = Span(
    "", 90, "t", "s", None, "execute_tool", "add", DAY_MS, DAY_MS + 7, "ok", tool="add"
)  # fmt: skip
FAILED = replace(OK, status="error", error="boom", attributes={ERROR_TYPE: "tool_failed"})
CHAT = replace(OK, seq=91, kind="chat", tool=None, model="demo/one", start_ms=1)
ONE = ToolGroup((), 1, 1, duration_ms=7, p50_ms=7, p95_ms=7)
LOST = replace(ONE, failures=1, failures_by_code={"tool_failed": 1})
BOTH = replace(LOST, runs=2, calls=2, duration_ms=14)


async def ran(store: Store, claim: Claim, *spans: Span) -> None:
    """Let a run have these spans."""
    own = tuple(replace(span, run_id=claim.run_id) for span in spans)
    await store.append(an_append(claim, spans=own))


@pytest.fixture
async def calls(store: Store) -> tuple[Claim, Claim]:
    """The claims of two runs with a call each: ann's, and nobody's, which failed."""
    anns = await held(store, a_run(user="ann", metadata='{"team":"red"}'))
    nobodys = await held(store, a_run(agent="other"))
    await ran(store, anns, OK, CHAT)
    await ran(store, nobodys, FAILED, CHAT)
    return anns, nobodys


async def groups(store: Store, *group_by: str, **wanted: Any) -> list[ToolGroup]:
    return await store.read(tool_usage.grouped(TENANT, group_by, UsageFilter(**wanted)))


async def the_group(store: Store, *spans: Span) -> ToolGroup:
    """Return what these spans of a run add up to."""
    numbered = (replace(span, seq=seq) for seq, span in enumerate(spans, start=90))
    await ran(store, await held(store), *numbered)
    (group,) = await groups(store)
    return group


def keyed(group: ToolGroup, *key: str | None) -> ToolGroup:
    return replace(group, key=key)


async def test_what_tool_calls_came_to_goes_with_the_traces_and_what_models_took_stays(
    store: Store,
) -> None:
    claim = await held(store)
    took = UsageRow(1, claim.session_id, "clerk", "demo/one", None, "{}", DAY_MS, Usage(7, 5))
    await store.append(a_finish(claim, usage=(took,), spans=(replace(OK, run_id=claim.run_id),)))
    assert await groups(store) == [ONE]

    await store.write(retention.wear(TENANT, "traces", None, 2 * NOW_MS))

    assert await groups(store) == [ToolGroup(())]
    assert await store.read(usage.total(TENANT, claim.run_id)) == Usage(7, 5)


@pytest.mark.parametrize(
    ("group_by", "found"),
    [
        ([], [BOTH]),
        (["tool"], [keyed(BOTH, "add")]),
        (["tool", "agent"], [keyed(ONE, "add", "clerk"), keyed(LOST, "add", "other")]),
        (["user"], [keyed(ONE, "ann"), keyed(LOST, None)]),
        (["day", "tenant"], [keyed(BOTH, "1970-01-02", TENANT)]),
        (["hour"], [keyed(BOTH, "1970-01-02T00:00Z")]),
        (["metadata.team"], [keyed(ONE, "red"), keyed(LOST, None)]),
    ],
)
async def test_tool_calls_are_counted_with_their_failures(
    store: Store, calls: tuple[Claim, Claim], group_by: Sequence[str], found: list[ToolGroup]
) -> None:
    assert await groups(store, *group_by) == found


@pytest.mark.parametrize(
    ("wanted", "calls_counted"),
    [
        ({"tool": "add"}, 2),
        ({"tool": "none"}, 0),
        ({"agent": "clerk"}, 1),
        ({"user": "ann"}, 1),
        ({"metadata": {"team": "red"}}, 1),
        ({"until_ms": DAY_MS}, 0),
        ({"from_ms": DAY_MS, "until_ms": DAY_MS + 1}, 2),
    ],
)
async def test_only_tool_calls_asked_for_are_counted(
    store: Store, calls: tuple[Claim, Claim], wanted: dict[str, Any], calls_counted: int
) -> None:
    (group,) = await groups(store, **wanted)

    assert group.calls == calls_counted


async def test_the_calls_of_a_session_or_a_run_can_be_asked_for(
    store: Store, calls: tuple[Claim, Claim]
) -> None:
    claim, _ = calls

    assert await groups(store, session_id=claim.session_id) == [ONE]
    assert await groups(store, run_id=claim.run_id) == [ONE]


async def test_half_of_the_calls_took_no_longer_than_the_median(store: Store) -> None:
    spans = [replace(OK, end_ms=DAY_MS + took) for took in (40, 10, 30, 20, *range(101, 117))]

    group = await the_group(store, *spans)

    assert (group.calls, group.p50_ms, group.p95_ms) == (20, 106, 115)


async def test_each_group_has_its_own_durations(store: Store) -> None:
    slow = replace(OK, tool="slow", end_ms=DAY_MS + 900, seq=92)
    await ran(store, await held(store), OK, slow)

    found = await groups(store, "tool")

    assert [(group.key, group.p50_ms) for group in found] == [(("add",), 7), (("slow",), 900)]


async def test_failures_are_counted_by_their_code(store: Store) -> None:
    late = replace(FAILED, attributes={ERROR_TYPE: "tool_timeout"})

    group = await the_group(store, FAILED, late, late, OK)

    assert group.failures == 3
    assert group.failures_by_code == {"tool_failed": 1, "tool_timeout": 2}


async def test_a_call_that_was_denied_did_not_run(store: Store) -> None:
    denied = replace(OK, kind="denial", end_ms=DAY_MS)

    group = await the_group(store, OK, denied, denied)

    assert group == replace(ONE, denied=2)


async def test_a_tool_that_was_only_denied_has_no_durations(store: Store) -> None:
    group = await the_group(store, replace(OK, kind="denial"))

    assert group == ToolGroup((), denied=1)


async def test_a_call_that_was_stopped_neither_failed_nor_succeeded(store: Store) -> None:
    group = await the_group(store, replace(OK, status="cancelled"))

    assert (group.calls, group.failures, group.cancelled) == (1, 0, 1)


async def test_calls_are_counted_that_were_mended_cached_or_spoke(store: Store) -> None:
    group = await the_group(
        store,
        replace(OK, attributes={COERCED: 3}),
        replace(OK, attributes={CACHE_HIT: True}),
        replace(OK, attributes={CHUNKS: 4}),
        replace(OK, attributes={CHUNKS: 5}),
    )

    assert (group.coerced, group.cached, group.chunks) == (1, 1, 9)


async def test_guardrails_and_policies_about_a_tool_are_no_calls_of_it(store: Store) -> None:
    group = await the_group(store, replace(OK, kind="guardrail"), replace(OK, kind="policy"))

    assert group == ToolGroup(())


async def test_another_tenant_s_calls_are_not_counted(
    store: Store, calls: tuple[Claim, Claim]
) -> None:
    assert await store.read(tool_usage.grouped("other", ["tool"], ALL)) == []


async def test_groups_of_no_calls_are_none(store: Store) -> None:
    assert await groups(store, "tool") == []
    assert await groups(store) == [ToolGroup(())]


async def test_what_calls_cannot_be_grouped_by_is_refused(store: Store) -> None:
    with pytest.raises(InvalidError):
        await groups(store, "model")
    with pytest.raises(InvalidError):
        await groups(store, model="demo/one")


async def test_more_groups_than_can_be_shown_are_refused(
    store: Store, calls: tuple[Claim, Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "GROUPS_MAX", 1)

    with pytest.raises(InvalidError, match="more than 1 groups"):
        await groups(store, "user")
