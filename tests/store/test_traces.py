"""Traces: a run's spans, and runs by what their spans say."""

from dataclasses import replace
from typing import Any

import pytest

from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import runs, traces, usage
from milepost.store.records import Change, Claim, Page, RunFilter, UsageRow
from milepost.store.store import Store
from milepost.store.traces import TraceFilter, TraceRow
from milepost.store.usage import Account, Taken
from tests.store.making import NOW_MS, TENANT, a_finish, a_run, an_append, an_entry, held

SPAN = Span(
    "", 2, "a" * 32, "b" * 16, None, "invoke_agent", "invoke_agent clerk", NOW_MS + 100,
    NOW_MS + 200, "ok",
)  # fmt: skip


def a_span(claim: Claim, **changes: Any) -> Span:
    return replace(SPAN, run_id=claim.run_id, **changes)


async def a_good_run(store: Store) -> Claim:
    """Ann's: one model call, one tool call, a second in all."""
    claim = await held(store, a_run(user="ann", metadata='{"team":"red"}'))
    used = Usage(10, 20, model_calls=1, cost_nanos=500)
    row = UsageRow(3, claim.session_id, "clerk", "demo/one", "ann", "{}", NOW_MS, used)
    spans = (
        a_span(claim),
        a_span(claim, seq=3, kind="chat", model="demo/one"),
        a_span(claim, seq=4, kind="execute_tool", tool="add", start_ms=NOW_MS + 150),
    )
    await store.append(an_append(claim, spans=spans, usage=(row, replace(row, seq=4))))
    done = Change("completed", outcome='{"output":{}}', ended_ms=NOW_MS + 1_100)
    await store.append(a_finish(claim, head=3, change=done))
    return claim


async def a_failed_run(store: Store) -> Claim:
    """Another agent's: it failed after two seconds, and a tool call of it had."""
    claim = await held(store, a_run(agent="other", agent_id="agt_2"))
    failed = a_span(
        claim, seq=3, kind="execute_tool", tool="send", status="error", error="Mailbox 100% FULL"
    )
    await store.append(an_append(claim, spans=(failed,)))
    outcome = '{"error":{"code":"provider_error","message":"Out of \\"credit\\""}}'
    change = Change("failed", outcome=outcome, ended_ms=NOW_MS + 2_100)
    await store.append(a_finish(claim, head=3, change=change))
    return claim


async def a_running_run(store: Store) -> Claim:
    """One without any span yet."""
    return await held(store)


async def test_spans_are_read_as_they_were_written_in_the_order_they_began(store: Store) -> None:
    claim = await held(store)
    late = a_span(claim, seq=3, start_ms=9, attributes={"l": ("a", "b"), "n": 1, "x": 1.5})
    early = a_span(claim, seq=4, start_ms=8, parent_id="c" * 16, tool="add", error="boom")

    await store.append(an_append(claim, spans=(late, early)))

    assert await store.read(traces.spans(TENANT, claim.run_id)) == [early, late]
    assert await store.read(traces.spans("other", claim.run_id)) == []


async def test_a_trace_adds_up_what_its_run_did(store: Store) -> None:
    claim = await a_good_run(store)

    (found,) = await store.read(traces.search(TENANT, TraceFilter(), Page(10)))

    run = await store.read(runs.find(TENANT, claim.run_id))
    used = Usage(20, 40, model_calls=2, cost_nanos=1_000)
    assert found == TraceRow(run, NOW_MS + 100, spans=3, tool_calls=1, errors=0, usage=used)
    assert found.duration_ms == 1_000


async def test_what_was_taken_beside_a_run_s_log_is_in_the_sum_of_none_of_its_traces(
    store: Store,
) -> None:
    claim = await a_good_run(store)
    looked = Usage(7, cost_nanos=1_000, model_calls=1)
    account = Account(TENANT, "ann", claim.run_id, claim.session_id, "clerk")
    await store.write(usage.add([Taken(account, "demo/vectors", looked, 1, NOW_MS)]))

    [listed] = await store.read(traces.search(TENANT, TraceFilter(), Page(10)))
    dear = await store.read(traces.search(TENANT, TraceFilter(cost_min_nanos=1_001), Page(10)))

    assert listed.usage == await store.read(usage.total(TENANT, claim.run_id))
    assert (listed.usage.cost_nanos, dear) == (1_000, [])


async def test_a_run_without_spans_has_a_trace_of_nothing(store: Store) -> None:
    claim = await a_running_run(store)

    (found,) = await store.read(traces.search(TENANT, TraceFilter(), Page(10)))

    run = await store.read(runs.find(TENANT, claim.run_id))
    assert found == TraceRow(run, NOW_MS, spans=0, tool_calls=0, errors=0, usage=Usage())
    assert found.duration_ms is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (TraceFilter(), "gfr"),
        (TraceFilter(RunFilter(status="failed")), "f"),
        (TraceFilter(RunFilter(agent="clerk")), "gr"),
        (TraceFilter(RunFilter(user="ann")), "g"),
        (TraceFilter(RunFilter(metadata={"team": "red"})), "g"),
        (TraceFilter(RunFilter(created_after_ms=NOW_MS)), ""),
        (TraceFilter(tool="add"), "g"),
        (TraceFilter(tool="send"), "f"),
        (TraceFilter(model="demo/one"), "g"),
        (TraceFilter(model="demo/one", tool="send"), ""),
        (TraceFilter(duration_min_ms=1_000), "gf"),
        (TraceFilter(duration_min_ms=1_001), "f"),
        (TraceFilter(duration_min_ms=2_001), ""),
        (TraceFilter(cost_min_nanos=1_000), "g"),
        (TraceFilter(cost_min_nanos=1_001), ""),
        (TraceFilter(errors_only=True), "f"),
        (TraceFilter(error="mailbox"), "f"),
        (TraceFilter(error="100% full"), "f"),
        (TraceFilter(error="100_ full"), ""),
        (TraceFilter(error="out of"), "f"),
        (TraceFilter(error="nothing such"), ""),
    ],
)
async def test_a_search_finds_what_was_asked_for(
    store: Store, wanted: TraceFilter, found: str
) -> None:
    good, failed, running = (
        await a_good_run(store),
        await a_failed_run(store),
        await a_running_run(store),
    )

    rows = await store.read(traces.search(TENANT, wanted, Page(10, ascending=True)))

    names = {good.run_id: "g", failed.run_id: "f", running.run_id: "r"}
    assert "".join(names[row.run.id] for row in rows) == found


async def test_a_completed_run_with_a_failed_call_has_errors(store: Store) -> None:
    claim = await held(store)
    failed = a_span(claim, seq=3, kind="execute_tool", tool="send", status="error", error="full")
    await store.append(an_append(claim, spans=(failed,)))
    await store.append(a_finish(claim, head=3))

    (found,) = await store.read(traces.search(TENANT, TraceFilter(errors_only=True), Page(10)))

    assert (found.run.status, found.errors) == ("completed", 1)


async def test_a_run_is_as_long_as_from_its_own_first_span(store: Store) -> None:
    for late_ms in (0, 500):
        claim = await held(store)
        await store.append(an_append(claim, spans=(a_span(claim, start_ms=NOW_MS + late_ms),)))
        done = Change("completed", outcome="{}", ended_ms=NOW_MS + 1_000)
        await store.append(a_finish(claim, head=3, change=done))

    rows = await store.read(traces.search(TENANT, TraceFilter(duration_min_ms=501), Page(9)))

    assert [row.duration_ms for row in rows] == [1_000]


async def test_what_a_run_said_is_its_own_and_nothing_else_that_it_did(store: Store) -> None:
    mine, other = await held(store), await held(store)
    for claim, kind in ((mine, "message.completed"), (other, "message.started")):
        await store.append(an_append(claim, an_entry(kind), an_entry("artifact.created")))

    said = await store.read(traces.said(TENANT, mine.run_id))

    assert [each.type for each in said] == ["message.completed"]
    assert await store.read(traces.said("other", mine.run_id)) == []


@pytest.mark.parametrize("ascending", [True, False])
async def test_pages_of_traces_go_on_where_the_last_ended(store: Store, *, ascending: bool) -> None:
    made = [(await held(store)).run_id for _ in range(4)]
    ordered = sorted(made, reverse=not ascending)

    first = await store.read(traces.search(TENANT, TraceFilter(), Page(1, None, ascending)))
    rest = await store.read(traces.search(TENANT, TraceFilter(), Page(9, ordered[0], ascending)))

    assert [row.run.id for row in first] == ordered[:2]
    assert [row.run.id for row in rest] == ordered[1:]


async def test_another_tenant_s_traces_are_not_found(store: Store) -> None:
    await a_good_run(store)

    assert await store.read(traces.search("other", TraceFilter(), Page(10))) == []
