"""Batches through the client, against a real service and against one that breaks off."""

import asyncio

import pytest

from milepost.client import BatchProgress, BlockingMilepost, Milepost
from milepost.core.errors import ApiError
from tests.client.conftest import EAGER
from tests.client.scripted_server import ScriptedServer, answer, scripted, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAIL = "Send an email to ann@example.com saying hello"
COUNTS = {"total": 2, "queued": 1, "completed": 1}


def frame(seq: int, kind: str = "batch.progress", done: int = 1) -> bytes:
    data = f'{{"status":"running","counts":{{"total":2}},"done":{done},"usage":{{}}}}'
    said = f'{{"type":"{kind}","seq":{seq},"time":"t","batch_id":"bat_1","data":{data}}}'
    return f"id: {seq}\nevent: {kind}\ndata: {said}\n\n".encode()


async def test_a_batch_is_made_followed_and_read(milepost: Milepost) -> None:
    items = [f"What is {n} + 1?" for n in range(3)]
    batch = await milepost.batches.create("demo", items, concurrency=2, metadata={"team": "a"})

    seen = [progress async for progress in milepost.batches.stream(batch.id)]
    results = [result async for result in milepost.batches.results(batch.id)]

    assert (batch.status, batch.total, batch.ended) == ("running", 3, False)
    assert (seen[-1].type, seen[-1].done, seen[-1].total) == ("batch.completed", 3, 3)
    assert [result.text for result in results] == [f"{n} + 1 = {n + 1}." for n in range(3)]
    assert [result.index for result in results] == [0, 1, 2]
    assert (await milepost.batches.get(batch.id)).counts["completed"] == 3
    found = await milepost.batches.list(metadata={"team": "a"}, status="completed")
    assert [each.id for each in found.items] == [batch.id]


async def test_an_upload_has_many_items_and_is_waited_for(milepost: Milepost) -> None:
    items = (
        {"input": "hello", "custom_id": f"c{n}", "metadata": {"n": str(n)}} for n in range(150)
    )
    batch = await milepost.batches.upload("demo", items, concurrency=5, metadata={"team": "b"})

    ended = await milepost.batches.wait(batch.id, timeout_s=60)
    results = [result async for result in milepost.batches.results(batch.id, done=True)]

    assert (ended.status, ended.done, ended.metadata) == ("completed", 150, {"team": "b"})
    assert [result.custom_id for result in results] == [f"c{n}" for n in range(150)]


async def test_a_batch_is_cancelled_and_erased(milepost: Milepost) -> None:
    batch = await milepost.batches.create("demo", [MAIL])
    async for progress in milepost.batches.stream(batch.id):
        if progress.counts["waiting"]:
            break

    with pytest.raises(TimeoutError):
        await milepost.batches.wait(batch.id, timeout_s=0.05)
    await milepost.batches.cancel(batch.id, "enough")
    ended = await milepost.batches.wait(batch.id, timeout_s=60)
    await milepost.batches.delete(batch.id)

    assert (ended.status, ended.raw["cancel_reason"]) == ("cancelled", "enough")
    with pytest.raises(ApiError) as caught:
        await milepost.batches.get(batch.id)
    assert caught.value.code == "batch_not_found"


def made_and_read(base_url: str) -> list[str | None]:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        batch = milepost.batches.create("demo", ["What is 1 + 1?"] * 2)
        assert [each.type for each in milepost.batches.stream(batch.id)][-1] == "batch.completed"
        assert milepost.batches.wait(batch.id).done == 2
        return [result.text for result in milepost.batches.results(batch.id)]


async def test_it_works_without_an_event_loop(base_url: str) -> None:
    assert await asyncio.to_thread(made_and_read, base_url) == ["1 + 1 = 2."] * 2


async def followed(server: ScriptedServer) -> list[BatchProgress]:
    async with Milepost(server.base_url, patience=EAGER) as client:
        return [progress async for progress in client.batches.stream("bat_1")]


async def test_a_broken_stream_is_mended_with_the_last_id() -> None:
    away = b'event: stream.reconnect\ndata: {"type":"x","data":{"after_ms":1}}\n\n'
    script = [
        stream(frame(3), away),
        stream(frame(3), frame(5)[:-9]),
        stream(frame(5, "batch.completed")),
    ]

    async with scripted(script) as server:
        seen = await followed(server)

    assert [(each.id, each.type) for each in seen] == [
        ("3", "batch.progress"),
        ("5", "batch.completed"),
    ]
    assert [asked.headers.get("last-event-id") for asked in server.asked] == [None, "3", "3"]


async def test_a_batch_that_was_over_already_has_nothing_more_to_tell() -> None:
    async with scripted([stream(frame(3)), answer("204 No Content")]) as server:
        seen = await followed(server)

    assert [each.id for each in seen] == ["3"]


async def test_an_upload_is_repeated_with_the_same_key_and_body() -> None:
    busy = answer("503 Busy", {"code": "queue_full", "retryable": True}, retry_after="0")
    made = answer("202 Accepted", {"id": "bat_1", "counts": COUNTS})

    async with (
        scripted([busy, made]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        batch = await client.batches.upload("demo", ["hello", "bye"], metadata={"team": "a"})

    first, second = server.asked
    assert batch.total == 2
    assert first.body == second.body == b'{"input":"hello"}\n{"input":"bye"}\n'
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.headers["content-type"] == "application/x-ndjson"
    assert first.line == "POST /v1/batches?agent=demo&metadata%5Bteam%5D=a HTTP/1.1"
