"""The client without an event loop does what the one with does."""

import asyncio
import gc
import threading
from collections import UserDict
from collections.abc import AsyncGenerator, ItemsView

import pytest

from milepost.client import BlockingMilepost
from milepost.client.blocking import _Stream
from milepost.core.errors import ApiError
from tests.client.conftest import EAGER
from tests.forks import in_a_fork

pytestmark = pytest.mark.asyncio(loop_scope="module")


def started_and_watched(base_url: str) -> list[str]:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("demo", "What is 17 + 25?")
        types = [event.type for event in milepost.runs.stream(run.id)]
        assert milepost.runs.wait(run.id).text == "17 + 25 = 42."
        assert milepost.runs.list(limit=1).items[0].id == run.id
        return types


async def test_it_starts_and_watches_a_run(base_url: str) -> None:
    types = await asyncio.to_thread(started_and_watched, base_url)

    assert (types[0], types[-1]) == ("run.queued", "run.completed")


async def test_it_works_inside_a_running_loop_too(base_url: str) -> None:
    types = started_and_watched(base_url)

    assert types[-1] == "run.completed"


async def test_it_keeps_schedules(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        schedule = milepost.schedules.create("0 0 1 1 *", {"agent": "demo", "input": "hello"})
        paused = milepost.schedules.update(schedule.id, if_still=1, enabled=False)
        listed = milepost.schedules.list(enabled=False)
        milepost.schedules.delete(schedule.id, if_still=paused.version)

        assert listed.items == (paused,)
        with pytest.raises(ApiError, match="no schedule"):
            milepost.schedules.get(schedule.id)


def looked(base_url: str) -> str:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("parrot", "call look {}")
        for event in milepost.runs.stream(run.id, until_waiting=True):
            if event.type == "tool_call.started":
                milepost.runs.tool_results(run.id, {event.data["call_id"]: "a cat"})
        return milepost.runs.wait(run.id).text or ""


async def test_it_brings_what_came_of_a_call_that_is_the_client_s_own(base_url: str) -> None:
    # In a thread: the model that the test stands in for answers on this loop.
    assert (await asyncio.to_thread(looked, base_url)).strip() == "said: a cat"


async def test_a_stream_may_be_left(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("demo", "Who are you?")

        for event in milepost.runs.stream(run.id):
            if event.type == "run.started":
                break

        assert milepost.runs.wait(run.id).status == "completed"


async def test_a_stream_may_be_left_after_its_client_was_closed(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("demo", "Who are you?")
        events = milepost.runs.stream(run.id)
        next(events)

    with pytest.raises(RuntimeError, match="was closed"):
        next(events)
    assert list(events) == []


async def test_a_stream_may_be_forgotten_with_its_client(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("demo", "Who are you?")
        events = milepost.runs.stream(run.id)
        next(events)

    del events  # What went wrong in its clean-up would fail the test as a warning.
    gc.collect()


class Collecting(UserDict[str, str]):
    """Has garbage looked for where it is read: on the client's own thread."""

    def items(self) -> ItemsView[str, str]:
        gc.collect()
        return super().items()


async def test_a_stream_that_is_garbage_may_be_found_on_the_clients_own_thread(
    base_url: str,
) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        run = milepost.runs.create("demo", "Who are you?")
        events = milepost.runs.stream(run.id)
        next(events)
        circle: list[object] = [events]
        circle.append(circle)
        del events, circle

        found = milepost.runs.list(metadata=Collecting(team="none"))

    assert found.items == ()


def followed_without_end(
    milepost: BlockingMilepost, run_id: str, waits: threading.Event, ended: list[BaseException]
) -> None:
    try:
        for event in milepost.runs.stream(run_id):
            if event.type == "run.waiting":
                waits.set()
    except RuntimeError as error:
        ended.append(error)


async def test_closing_it_ends_a_stream_that_another_thread_waits_for(base_url: str) -> None:
    waits, ended = threading.Event(), list[BaseException]()
    milepost = BlockingMilepost(base_url, patience=EAGER)
    run = milepost.runs.create("demo", "Send an email to ann@example.com saying hello")
    follower = threading.Thread(
        target=followed_without_end, args=(milepost, run.id, waits, ended), daemon=True
    )
    follower.start()
    waits.wait()

    milepost.close()
    follower.join()

    assert [str(error) for error in ended] == ["this client was closed; make a new one"]


async def test_closing_it_tells_a_thread_that_waits_for_an_answer() -> None:
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        milepost = BlockingMilepost(f"http://127.0.0.1:{port}", patience=EAGER)
        waiting = asyncio.create_task(asyncio.to_thread(milepost.runs.get, "run_1"))
        await asked.wait()
        await asyncio.to_thread(milepost.close)

        with pytest.raises(RuntimeError, match="was closed; make a new one"):
            await waiting


def asked_without_end(milepost: BlockingMilepost, begun: threading.Event) -> None:
    while True:
        begun.set()
        milepost.runs.list(limit=1)


async def test_who_asks_while_it_is_closed_is_told_so_and_not_left_waiting(base_url: str) -> None:
    milepost, begun = BlockingMilepost(base_url, patience=EAGER), threading.Event()
    asking = [asyncio.to_thread(asked_without_end, milepost, begun) for _ in range(4)]
    told = asyncio.gather(*asking, return_exceptions=True)
    await asyncio.to_thread(begun.wait)

    await asyncio.to_thread(milepost.close)

    assert {str(each) for each in await told} == {"this client was closed; make a new one"}


async def test_it_may_be_closed_twice(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        milepost.close()

    with pytest.raises(RuntimeError, match="was closed"):
        milepost.runs.list()


async def test_errors_come_through(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost, pytest.raises(ApiError) as caught:
        milepost.runs.get("run_none")

    assert caught.value.status == 404


async def test_closing_it_leaves_no_thread(base_url: str) -> None:
    before = threading.active_count()

    with BlockingMilepost(base_url, patience=EAGER):
        pass

    assert threading.active_count() == before


async def test_who_was_interrupted_is_not_told_of_the_close_as_well() -> None:
    """Nobody asks such a task what became of it: it would complain to the screen."""
    stream = _Stream(nothing_ever())
    watching = asyncio.create_task(stream.next())
    await asyncio.sleep(0)

    watching.cancel()
    await stream.close()

    with pytest.raises(asyncio.CancelledError):
        await watching


async def nothing_ever() -> AsyncGenerator[int, None]:
    await asyncio.Event().wait()
    yield 1


def refused(milepost: BlockingMilepost) -> str:
    with milepost, pytest.raises(RuntimeError) as caught:
        milepost.runs.list()
    with pytest.raises(RuntimeError):
        next(milepost.runs.stream("run_1"))
    return str(caught.value)


async def test_a_fork_is_told_to_make_a_client_of_its_own_and_does_not_hang(base_url: str) -> None:
    with BlockingMilepost(base_url, patience=EAGER) as milepost:
        milepost.runs.list()

        said = in_a_fork(lambda: refused(milepost))

        assert said == "this client was made before its process forked; make a new one in the fork"
        milepost.runs.list()
