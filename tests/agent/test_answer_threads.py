"""Threads in which people are waited for: one for each, within a bound, and none for long."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from milepost.agent.answer_threads import AnswerThreads, start_thread

FAR_S = 30.0


def held(go: threading.Event, begun: Callable[[], object]) -> Callable[[], tuple[str, bool]]:
    """Return work that says when it has begun, and ends when it may."""

    def work() -> tuple[str, bool]:
        begun()
        go.wait(FAR_S)
        thread = threading.current_thread()
        return thread.name, thread.daemon

    return work


async def test_every_question_has_a_thread_of_its_own_which_ends_with_it() -> None:
    threads, go = AnswerThreads(3), threading.Event()
    all_begun = threading.Barrier(4)

    calls = [threads.call(held(go, lambda: all_begun.wait(FAR_S))) for _ in range(3)]
    await asyncio.to_thread(all_begun.wait, FAR_S)
    go.set()
    done = [await call.future for call in calls]

    assert done == [(("milepost-approval", True), None)] * 3
    for thread in threading.enumerate():
        if thread.name == "milepost-approval":
            await asyncio.to_thread(thread.join, FAR_S)
            assert not thread.is_alive()


async def test_beyond_the_bound_a_question_waits_its_turn() -> None:
    threads, go, order = AnswerThreads(1), threading.Event(), list[str]()
    first = threads.call(held(go, lambda: order.append("first")))
    others = [threads.call(partial(order.append, name)) for name in ("second", "third")]

    assert [first.started, *(each.started for each in others)] == [True, False, False]
    go.set()
    await asyncio.wait_for(asyncio.gather(*(each.future for each in others)), FAR_S)

    assert order == ["first", "second", "third"]


async def test_a_question_that_waits_its_turn_can_be_taken_back() -> None:
    threads, go, order = AnswerThreads(1), threading.Event(), list[str]()
    first = threads.call(held(go, lambda: order.append("first")))
    second = threads.call(partial(order.append, "second"))

    second.future.cancel()
    await asyncio.sleep(0)

    assert (second.started, threads.waiting) == (False, 0)
    go.set()
    await asyncio.wait_for(first.future, FAR_S)
    await asyncio.wait_for(threads.call(partial(order.append, "third")).future, FAR_S)
    assert order == ["first", "third"]


async def test_a_question_is_taken_back_at_once() -> None:
    threads, go, order = AnswerThreads(1), threading.Event(), list[str]()
    threads.call(held(go, lambda: order.append("first")))
    second, third = (threads.call(partial(order.append, each)) for each in ("second", "third"))

    # The loop comes to nothing before the thread goes on.
    second.future.cancel()
    go.set()
    await asyncio.wait_for(third.future, FAR_S)

    assert order == ["first", "third"]


async def test_what_is_raised_is_handed_over_and_the_place_is_free_again() -> None:
    threads = AnswerThreads(1)

    def fail() -> None:
        raise SystemExit(1)

    outcomes = [await threads.call(fail).future for _ in range(2)]

    assert [(value, type(error)) for value, error in outcomes] == [(None, SystemExit)] * 2


async def test_where_the_system_gives_no_thread_the_place_stays_free() -> None:
    given: list[Callable[[], None]] = []

    def start(work: Callable[[], None]) -> None:
        given.append(work)
        if len(given) == 1:
            raise RuntimeError("can't start new thread")
        start_thread(work)

    threads = AnswerThreads(1, start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threads.call(lambda: None)

    assert await asyncio.wait_for(threads.call(lambda: "here").future, FAR_S) == ("here", None)


def test_an_answer_after_its_loop_is_gone_reaches_nobody() -> None:
    threads, go, begun = AnswerThreads(1), threading.Event(), threading.Event()

    async def ask() -> None:
        threads.call(held(go, begun.set))
        await asyncio.to_thread(begun.wait, FAR_S)

    asyncio.run(ask())
    [thread] = [each for each in threading.enumerate() if each.name == "milepost-approval"]
    go.set()
    thread.join(FAR_S)

    assert not thread.is_alive()
