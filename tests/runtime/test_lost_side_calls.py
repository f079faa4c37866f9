"""Models that were asked beside a conversation by a worker that died: in the run's usage, once."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from milepost.core.agents import Compression
from milepost.core.events import (
    Event,
    MemorySummarizing,
    MemoryTrimmed,
    RunCancelled,
    RunCompleted,
    RunResumed,
    RunRetrying,
    SideCallAborted,
    ToolCallScreening,
    ToolResultCompressing,
)
from milepost.core.guardrails import Coherence, Guardrails
from milepost.core.usage import UNKNOWN, Usage
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Script, Scripted, calling, saying
from milepost.runtime.ending import end_run
from milepost.runtime.lost_side_calls import LostSideCalls
from milepost.store import queue, usage
from milepost.store.records import NewRun
from milepost.store.usage import UsageFilter
from tests.runtime.talking import TELLING, Talk, talked
from tests.runtime.tools import look_up
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Workshop, of

ANSWERED = Usage(input_tokens=10, output_tokens=5, model_calls=1, unpriced_calls=1)
SMALL = "small/summary-1"
YES = '{"coherent": true, "reason": "asked for"}'
COMPRESSING = ToolResultCompressing("call_1_0", SMALL, 9)
COMPRESSED = SideCallAborted("call_1_0/compressed", SMALL, UNKNOWN)
DIED = RunResumed(2, "wrk_2", "crash")


def lost(*log: Event) -> list[SideCallAborted]:
    calls = LostSideCalls()
    for event in log:
        calls.feed(event)
    return calls.told()


def test_what_a_dead_worker_had_asked_is_told_until_somebody_has_written_that_down() -> None:
    assert lost(COMPRESSING, DIED) == [COMPRESSED]
    assert lost(COMPRESSING, DIED, DIED) == [COMPRESSED]
    assert lost(COMPRESSING, DIED, COMPRESSED, DIED) == []


def test_what_came_to_its_end_is_not_lost() -> None:
    begun = MemorySummarizing("sum_1", "1.0", "2.1", 4, SMALL)

    assert lost(begun, MemoryTrimmed("sum_1", "1.0", "2.1", 4, SMALL), DIED) == []


def test_who_hands_a_run_back_has_told_of_what_was_sent() -> None:
    assert lost(COMPRESSING, RunRetrying("drain"), RunResumed(2, "wrk_2", "drain")) == []


def test_only_a_model_that_was_to_judge_a_call_is_lost() -> None:
    assert lost(ToolCallScreening("call_1_0"), DIED) == []
    assert lost(ToolCallScreening("call_1_0", SMALL), DIED) == [
        SideCallAborted("call_1_0/coherence", SMALL, UNKNOWN)
    ]


async def die(shop: Workshop, model: Held, drive: Any) -> None:
    """Let the worker die that waits for the model, and the run be queued again."""
    dying = asyncio.create_task(drive.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    await shop.store.write(queue.dismiss_others("nobody"))
    await shop.store.write(queue.sweep())
    dying.cancel()
    await asyncio.wait({dying})


async def stranded(shop: Workshop, asks: Mapping[str, Any]) -> NewRun:
    """Return a run whose worker died as a small model was asked about its call."""
    own, small = Scripted([calling(("look_up", {}))]), Held()
    means = replace(shop.means(own, look_up), providers=Catalog({"test": own, "small": small}))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(look_up, **asks), means)
    await die(shop, small, driven)
    return run


def shortened(model: str) -> dict[str, Any]:
    return {"compression": Compression(model, threshold_chars=1)}


def judged(model: str) -> dict[str, Any]:
    return {"guardrails": Guardrails(coherence=Coherence(model, tools=("look_*",)))}


async def assert_counted(shop: Workshop, ended: RunCancelled | RunCompleted) -> None:
    """Assert that the run and its bill by model agree."""
    billed = await shop.store.read(usage.grouped(TENANT, ["model"], UsageFilter()))
    total = Usage()
    for group in billed:
        total += group.usage
    assert ended.usage == total


@pytest.mark.parametrize(
    ("asks", "then", "subject"),
    [
        (shortened, [saying("Brief."), saying("Seen.")], "compressed"),
        (judged, [saying(YES), saying("Seen.")], "coherence"),
    ],
)
async def test_a_model_that_a_dead_worker_had_asked_beside_is_counted_by_the_next(
    shop: Workshop, asks: Any, then: list[Script], subject: str
) -> None:
    run = await stranded(shop, asks(SMALL))

    await shop.go_on(then, look_up, agent=shop.agent(look_up, **asks("test/model")))

    log = await shop.log(run.id)
    assert of(log, SideCallAborted) == [SideCallAborted(f"call_1_0/{subject}", SMALL, UNKNOWN)]
    [ended] = of(log, RunCompleted)
    assert ended.usage == ANSWERED + ANSWERED + ANSWERED + UNKNOWN
    await assert_counted(shop, ended)


async def test_a_summary_that_a_dead_worker_had_asked_for_is_counted_by_the_next(
    shop: Workshop,
) -> None:
    talk = Talk(shop, TELLING)
    await talked(talk, "abc")
    talk.scribe = scribe = Held()
    run = await shop.queue("d", session_id=talk.session_id)
    means = talk.means(Scripted([]))
    await die(shop, scribe, await shop.driving(await shop.claim(), talk.agent, means))

    talk.tells("They said a and b.")
    means = talk.means(Scripted([saying("d!")]))
    driven = await shop.driving(await shop.claim(), talk.agent, means)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    [told] = of(log, SideCallAborted)
    assert (told.model, told.usage) == ("scribe/small", UNKNOWN)
    assert of(log, RunCompleted)[0].usage == ANSWERED + ANSWERED + UNKNOWN


@pytest.mark.parametrize(("asks", "subject"), [(shortened, "compressed"), (judged, "coherence")])
async def test_a_model_that_a_dead_worker_had_asked_beside_is_counted_where_nobody_takes_the_run(
    shop: Workshop, asks: Any, subject: str
) -> None:
    run = await stranded(shop, asks(SMALL))

    row = await shop.row(run.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    log = await shop.log(run.id)
    [ended] = of(log, RunCancelled)
    assert of(log, SideCallAborted) == [SideCallAborted(f"call_1_0/{subject}", SMALL, UNKNOWN)]
    assert ended.usage == ANSWERED + UNKNOWN
    await assert_counted(shop, ended)
