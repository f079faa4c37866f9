"""How a client takes what servers say when they cannot go on."""

from typing import get_args

import orjson
import pytest

from milepost.client import Event, Milepost, Patience
from milepost.client.following import TERMINAL
from milepost.core.errors import ApiError, UnavailableError
from milepost.core.events import Terminal
from tests.client.conftest import EAGER
from tests.client.scripted_server import ScriptedServer, answer, frame, scripted, stream

PROBLEM = {"code": "run_not_found", "detail": "there is no run run_1", "retryable": False}
STARTED = frame("run.started", {"attempt": 1}, seq=1)
COMPLETED = frame("run.completed", {"output": {}}, seq=2)


async def followed(server: ScriptedServer, patience: Patience = EAGER) -> list[Event]:
    async with Milepost(server.base_url, patience=patience) as client:
        return [event async for event in client.runs.stream("run_1")]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def places(server: ScriptedServer) -> list[str | None]:
    """Return from where each connection was to go on."""
    return [asked.headers.get("last-event-id") for asked in server.asked]


def test_what_ends_a_run_is_what_the_service_ends_it_with() -> None:
    assert {kind.type for kind in get_args(Terminal)} == TERMINAL


async def test_it_comes_back_with_the_last_id_that_it_saw() -> None:
    delta = {"message_id": "msg_1", "offset": 0, "text": "half"}
    written = frame("message.delta", delta, place="1~msg_1:4")

    async with scripted([stream(STARTED, written), stream(COMPLETED)]) as server:
        events = await followed(server)

    assert types(events) == ["run.started", "message.delta", "run.completed"]
    assert places(server) == [None, "1~msg_1:4"]


async def test_half_a_frame_is_no_event() -> None:
    async with scripted([stream(STARTED, COMPLETED[:-20]), stream(COMPLETED)]) as server:
        events = await followed(server)

    assert types(events) == ["run.started", "run.completed"]
    assert places(server) == [None, "1"]


async def test_it_logs_the_first_of_the_failures_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted([None, None, stream(STARTED), stream(COMPLETED)]) as server:
        await followed(server)

    [told] = caplog.records
    assert (told.name, told.levelname) == ("milepost.client", "WARNING")


@pytest.mark.parametrize(
    ("farewell", "data"),
    [("stream.reconnect", {"after_ms": 5}), ("stream.lagged", {"resume_after": 1})],
)
async def test_a_server_that_sends_its_clients_away_is_obeyed_in_silence(
    farewell: str, data: dict[str, object]
) -> None:
    away = stream(STARTED, frame(farewell, data))

    async with scripted([away, stream(COMPLETED)]) as server:
        events = await followed(server)

    assert types(events) == ["run.started", "run.completed"]
    assert places(server) == [None, "1"]


async def test_it_waits_as_long_as_the_stream_asked_for() -> None:
    async with scripted([stream(b"retry: 120\n" + STARTED), stream(COMPLETED)]) as server:
        await followed(server, Patience(wait_s=0.0))

    first, second = server.asked
    assert second.at_s - first.at_s >= 0.12


async def test_it_waits_as_long_as_a_draining_server_asks_for() -> None:
    away = stream(STARTED, frame("stream.reconnect", {"after_ms": 120}))

    async with scripted([away, stream(COMPLETED)]) as server:
        await followed(server, Patience(wait_s=0.0))

    first, second = server.asked
    assert second.at_s - first.at_s >= 0.12


async def test_nothing_more_to_come_ends_it() -> None:
    async with scripted([stream(STARTED), answer("204 No Content")]) as server:
        events = await followed(server)

    assert types(events) == ["run.started"]


async def test_it_gives_up_after_so_many_failures_in_a_row() -> None:
    async with scripted([stream(STARTED), None, stream(STARTED)]) as server:
        with pytest.raises(UnavailableError, match="is the server running there"):
            await followed(server, Patience(tries_max=3, wait_s=0.0))

    assert len(server.asked) == 3


async def test_an_event_makes_it_patient_anew() -> None:
    steps = [stream(frame("step.started", {"index": n}, seq=n)) for n in range(1, 6)]
    last = stream(frame("run.completed", {}, seq=6))
    script = [each for step in steps for each in (step, None)]

    async with scripted([*script, last]) as server:
        events = await followed(server, Patience(tries_max=3, wait_s=0.0))

    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]


async def test_a_refusal_is_an_error_at_once() -> None:
    async with scripted([answer("404 Not Found", PROBLEM)]) as server:
        with pytest.raises(ApiError, match="there is no run run_1") as caught:
            await followed(server)

    assert (caught.value.code, caught.value.status) == ("run_not_found", 404)
    assert len(server.asked) == 1


async def test_a_server_that_is_busy_is_asked_again() -> None:
    busy = answer("503 Busy", {"code": "queue_full", "retryable": True}, retry_after="0")

    async with scripted([busy, stream(COMPLETED)]) as server:
        events = await followed(server)

    assert types(events) == ["run.completed"]


async def test_an_error_inside_the_stream_is_raised() -> None:
    async with scripted([stream(STARTED, frame("error", PROBLEM))]) as server:
        with pytest.raises(ApiError, match="there is no run run_1"):
            await followed(server)


async def test_what_is_no_stream_at_all_is_somebody_elses_and_is_asked_for_once() -> None:
    page = answer("200 OK", {"hello": "world"})

    async with scripted([page, page]) as server:
        with pytest.raises(ApiError, match=r"is no Milepost server: .*hello"):
            await followed(server)

    assert len(server.asked) == 1


async def test_a_frame_without_data_is_no_event() -> None:
    async with scripted([stream(b"id: 7\n\n", b"retry: 5\n\n", COMPLETED)]) as server:
        assert types(await followed(server)) == ["run.completed"]


async def test_a_filter_still_lets_it_see_the_end() -> None:
    called = frame("tool_call.started", {"attempt": 1, "call_id": "c"}, seq=1)

    async with (
        scripted([stream(called, COMPLETED)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        events = [event async for event in client.runs.stream("run_1", types=["tool_call.*"])]

    assert types(events) == ["tool_call.started"]
    assert len(server.asked) == 1
    assert "run.completed" in server.asked[0].line


async def test_it_leaves_where_the_run_begins_to_wait() -> None:
    waiting = frame("run.waiting", {"for": "approval"}, seq=1)

    async with (
        scripted([stream(waiting)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        events = [event async for event in client.runs.stream("run_1", until_waiting=True)]

    assert types(events) == ["run.waiting"]
    assert "until=waiting" in server.asked[0].line


async def test_an_event_may_be_large() -> None:
    large = frame("message.completed", {"message_id": "m", "content": "x" * 3_000_000}, seq=1)

    async with scripted([stream(large, COMPLETED)]) as server:
        events = await followed(server)

    assert len(events[0].data["content"]) == 3_000_000


async def session_followed(server: ScriptedServer) -> list[Event]:
    async with Milepost(server.base_url, patience=EAGER) as client:
        return [event async for event in client.sessions.stream("ses_1", until_idle=True)]


def of_run(run_id: str, kind: str, seq: int) -> bytes:
    """Return a frame of a session's stream."""
    body = orjson.dumps({"type": kind, "run_id": run_id, "data": {}, "seq": seq, "time": "now"})
    return f"id: {run_id}.{seq}\nevent: {kind}\ndata: {body.decode()}\n\n".encode()


IDLE = b'event: stream.idle\ndata: {"type":"stream.idle","session_id":"ses_1","data":{}}\n\n'


async def test_a_session_is_followed_from_run_to_run_until_it_is_idle() -> None:
    first = stream(of_run("run_1", "run.started", 1), of_run("run_1", "run.completed", 2))
    second = stream(of_run("run_2", "run.started", 1))
    third = stream(of_run("run_2", "run.started", 1), of_run("run_2", "run.completed", 2), IDLE)

    async with scripted([first, second, third]) as server:
        events = await session_followed(server)

    assert [(event.run_id, event.seq) for event in events] == [
        ("run_1", 1), ("run_1", 2), ("run_2", 1), ("run_2", 2),
    ]  # fmt: skip
    assert places(server) == [None, "run_1.2", "run_2.1"]


async def test_a_session_that_is_at_rest_has_nothing_to_tell() -> None:
    async with scripted([answer("204 No Content")]) as server:
        assert await session_followed(server) == []
