"""Batches for the store's tests, with everything filled in."""

from dataclasses import replace
from typing import Any

import orjson

from milepost.core.codec import encode
from milepost.core.events import RunQueued
from milepost.store.batch_turns import Item, Offer
from milepost.store.batches import BatchRow, NewBatch
from milepost.store.dialect import rows_of
from milepost.store.records import NewRun
from tests.store.making import NOW_MS, TENANT, a_run, an_id


def a_batch(total: int, **changes: Any) -> NewBatch:
    """Return a batch of so many items."""
    batch = NewBatch(
        id=an_id("bat"),
        tenant=TENANT,
        agent_id="agt_1",
        agent="clerk",
        agent_version=1,
        user=None,
        concurrency=2,
        lane=0,
        deadline_after_ms=None,
        metadata="{}",
        scopes="[]",
        trace_parent=None,
        queued_event=encode(RunQueued("clerk", "agt_1", 1, "", ())).decode(),
        total=total,
        created_ms=NOW_MS,
    )
    return replace(batch, **changes)


def said(place: int) -> str:
    """Return the input of the item at this place."""
    return f'[{{"role":"user","content":"{place}"}}]'


def chunk(first: int, count: int) -> str:
    """Return so many items as the store takes them."""
    return rows_of(
        {"place": place, "custom_id": f"c{place}", "input": said(place), "metadata": None}
        for place in range(first, first + count)
    )


def begun(_: BatchRow, item: Item, ids: tuple[str, str], now_ms: int) -> NewRun:
    """Return the run of an item, with its input where a test finds it."""
    labels = orjson.dumps({"i": item.input}).decode()
    return a_run(id=ids[0], session_id=ids[1], metadata=labels, created_ms=now_ms)


def an_offer(most: int = 10) -> Offer:
    """Return ids for so many runs."""
    return Offer([(an_id("run"), an_id("ses")) for _ in range(most)], begun, lambda: NOW_MS)
