"""The response that carries a stream: to clients that drain, lag, leave or stay."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from milepost.api import stream
from milepost.api.bounded_http import ABORT
from milepost.api.log_pages import PAGE_BYTES
from milepost.api.stream import (
    Streams,
    TailResponse,
)
from milepost.core.events import (
    StepStarted,
)
from milepost.live.hub import Hub
from tests.api.stream.reading import (
    TIMEOUT_S,
    long_results,
    tail_of,
)
from tests.api.stream.wire import SCOPE, Wire, responding
from tests.live.client import parsed
from tests.runtime.writing import Run


async def test_a_response_is_a_stream_that_nobody_on_the_way_may_keep(run: Run) -> None:
    await run.end()
    wire, streams = Wire(), Streams()

    response = TailResponse(tail_of(run), streams, {"Location": "/v1/runs/1"})
    await responding(response, wire)

    headers = dict(wire.messages[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"Location"] == b"/v1/runs/1"
    assert wire.done
    assert len(streams) == 0


async def test_a_draining_server_sends_its_clients_elsewhere(run: Run) -> None:
    wire, streams = Wire(), Streams()
    response = responding(TailResponse(tail_of(run), streams), wire)
    await wire.until(b"run.started")
    assert len(streams) == 1

    streams.drain()
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data) == ("stream.reconnect", {"after_ms": 500})
    assert last.id is None
    assert wire.done


async def test_whoever_comes_to_a_draining_server_gets_what_there_is_and_goes(run: Run) -> None:
    wire, streams = Wire(), Streams()
    streams.drain()

    await asyncio.wait_for(responding(TailResponse(tail_of(run), streams), wire), TIMEOUT_S)

    assert [sent.event for sent in parsed(wire.body)] == ["run.queued", "run.started",
                                                          "stream.reconnect"]  # fmt: skip


async def test_a_draining_server_does_not_wait_for_a_client_that_takes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FAREWELL_S", 0.01)
    wire, streams, aborted = Wire(), Streams(), asyncio.Event()
    wire.stuck_behind = lambda _: bool(wire.messages) and not aborted.is_set()
    asked = {**SCOPE, ABORT: aborted.set}
    response = TailResponse(tail_of(run), streams)
    task = asyncio.create_task(response(asked, wire.receive, wire.send))
    await asyncio.wait_for(wire.stuck.wait(), TIMEOUT_S)

    streams.drain()
    await asyncio.wait_for(task, TIMEOUT_S)

    assert aborted.is_set()
    assert wire.done
    assert len(streams) == 0


async def test_a_client_that_reads_too_slowly_is_told_where_to_come_back(run: Run) -> None:
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.started" in body
    task = responding(response, wire)
    await wire.until(b"run.started")

    await run.write(StepStarted(1))
    await asyncio.wait_for(task, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data) == ("stream.lagged", {"resume_after": 2})
    assert last.body["run_id"] == run.id
    assert wire.done


async def test_a_draining_server_hangs_up_once_on_a_client_that_takes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is just being offered its last word, since it reads too slowly."""
    monkeypatch.setattr(stream, "FAREWELL_S", 0)
    monkeypatch.setattr(stream, "LAST_WORD_S", 0.1)
    wire, streams, aborted = Wire(), Streams(), asyncio.Event()
    wire.takes_last_word = False
    wire.stuck_behind = lambda body: b"run.started" in body and not aborted.is_set()
    response = TailResponse(tail_of(run), streams)
    response.send_timeout_s = 0.01
    task = asyncio.create_task(response({**SCOPE, ABORT: aborted.set}, wire.receive, wire.send))
    await wire.until(b"run.started")
    await run.write(StepStarted(1))
    await asyncio.wait_for(wire.offered.wait(), TIMEOUT_S)

    streams.drain()
    await asyncio.wait_for(task, TIMEOUT_S)

    assert aborted.is_set()
    assert wire.done


async def test_a_client_that_takes_a_part_of_a_long_log_is_told_exactly_which(run: Run) -> None:
    await long_results(run, 60)
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: len(body) > 2 * PAGE_BYTES

    await asyncio.wait_for(responding(response, wire), TIMEOUT_S)

    *sent, last = parsed(wire.body)
    assert last.event == "stream.lagged"
    assert last.data == {"resume_after": sent[-1].seq}
    assert len(sent) < run.head


async def test_a_client_that_never_takes_the_last_byte_is_given_up(run: Run) -> None:
    await run.end()
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.completed" in body

    await asyncio.wait_for(responding(response, wire), TIMEOUT_S)

    assert wire.done


async def test_a_client_that_is_given_up_is_no_longer_listened_for(run: Run, hub: Hub) -> None:
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.started" in body
    task = responding(response, wire)
    await wire.until(b"run.started")
    assert hub.listeners == 1

    await run.write(StepStarted(1))
    await asyncio.wait_for(task, TIMEOUT_S)

    assert hub.listeners == 0


async def test_a_client_that_leaves_is_noticed(run: Run) -> None:
    wire, streams = Wire(), Streams()
    gone, released = asyncio.Event(), asyncio.Event()
    response = TailResponse(tail_of(run), streams)

    async def on_gone() -> None:
        gone.set()

    response.on_gone = on_gone
    response.release = released.set
    task = responding(response, wire)
    await wire.until(b"run.started")

    wire.gone.set()
    await asyncio.wait_for(task, TIMEOUT_S)

    assert gone.is_set()
    assert released.is_set()
    assert len(streams) == 0


async def test_a_client_that_takes_not_even_the_last_word_has_left(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be gone without a word: nobody would end what it has asked to be ended."""
    monkeypatch.setattr(stream, "LAST_WORD_S", 0.01)
    wire, gone, aborted = Wire(), asyncio.Event(), asyncio.Event()
    wire.takes_last_word = False
    wire.stuck_behind = lambda body: b"run.started" in body and not aborted.is_set()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01

    async def on_gone() -> None:
        gone.set()

    response.on_gone = on_gone
    task = asyncio.create_task(response({**SCOPE, ABORT: aborted.set}, wire.receive, wire.send))
    await wire.until(b"run.started")

    await run.write(StepStarted(1))
    await asyncio.wait_for(task, TIMEOUT_S)

    assert aborted.is_set()
    assert gone.is_set()


async def test_a_client_that_stayed_to_the_end_has_not_left(run: Run) -> None:
    await run.end()
    gone = asyncio.Event()
    response = TailResponse(tail_of(run), Streams())

    async def on_gone() -> None:
        gone.set()

    response.on_gone = on_gone
    await responding(response, Wire())

    assert not gone.is_set()


async def test_a_stream_that_fails_says_so_as_its_last_word(run: Run, tmp_path: Path) -> None:
    wire = Wire()
    response = responding(TailResponse(tail_of(run), Streams()), wire)
    await wire.until(b"run.started")

    with sqlite3.connect(tmp_path / "milepost.db") as broken:
        broken.execute("DROP TABLE events")
    broken.close()
    run.hub.hint(run.id, 9)
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert last.event == "error"
    assert (last.data["code"], last.data["request_id"]) == ("database_unavailable", "req_1")
    assert wire.done
