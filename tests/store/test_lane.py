"""Group commit: what shares a group, in which order, and how each learns its own fate."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from milepost.core.errors import ConflictError
from milepost.store.engine import DatabaseUnavailableError, Engine
from milepost.store.lane import AWAY_MAX, GROUP_MAX, Lane
from milepost.store.work import Work
from tests.store.breaking import BreakingEngine


class Groups:
    """Makes work that writes nothing, and remembers what was asked together."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.refused: set[str] = set()
        self.spoiled: set[str] = set()
        self.broken = False

    def __call__(self, items: Sequence[str]) -> Work[list[str]]:
        yield ()
        self.written.append(list(items))
        if self.broken or self.spoiled.intersection(items):
            raise ZeroDivisionError
        if bad := self.refused.intersection(items):
            raise ConflictError(f"{sorted(bad)} is refused")
        return [item.upper() for item in items]


def first_letter(item: str) -> Sequence[object]:
    return (item[0],)


@contextlib.asynccontextmanager
async def served(lane: Lane[str, str]) -> AsyncIterator[None]:
    serving = asyncio.create_task(lane.run())
    yield
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def test_what_waits_is_written_together(engine: Engine) -> None:
    groups = Groups()
    lane = Lane(engine, groups, first_letter)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(lane.submit(item)) for item in "abc"]
        async with served(lane):
            answers = await asyncio.gather(*asked)

    assert answers == ["A", "B", "C"]
    assert groups.written == [["a", "b", "c"]]


async def test_items_that_share_a_key_are_written_one_after_the_other(engine: Engine) -> None:
    groups = Groups()
    lane = Lane(engine, groups, first_letter)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(lane.submit(item)) for item in ("a1", "b1", "a2", "c1", "a3")]
        async with served(lane):
            await asyncio.gather(*asked)

    assert groups.written == [["a1", "b1", "c1"], ["a2"], ["a3"]]


async def test_a_group_has_a_bound(engine: Engine) -> None:
    groups = Groups()
    lane = Lane(engine, groups, lambda item: (item,))
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(lane.submit(str(n))) for n in range(GROUP_MAX + 1)]
        async with served(lane):
            await asyncio.gather(*asked)

    assert [len(group) for group in groups.written] == [GROUP_MAX, 1]


async def test_who_spoils_a_group_is_refused_alone(engine: Engine) -> None:
    groups = Groups()
    groups.refused = {"b"}
    lane = Lane(engine, groups, first_letter)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(settled(lane, item)) for item in "abc"]
        async with served(lane):
            answers = await asyncio.gather(*asked)

    assert [answers[0], answers[2]] == ["A", "C"]
    assert isinstance(answers[1], ConflictError)


async def test_what_cannot_be_written_at_all_fails_alone(engine: Engine) -> None:
    groups = Groups()
    groups.spoiled = {"b"}
    lane = Lane(engine, groups, first_letter)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(settled(lane, item)) for item in "abc"]
        async with served(lane):
            answers = await asyncio.gather(*asked)

    assert [answers[0], answers[2]] == ["A", "C"]
    assert isinstance(answers[1], ZeroDivisionError)


async def test_a_database_that_is_away_is_not_asked_for_each_of_a_group(engine: Engine) -> None:
    """Each would wait for it as long as the group did, and whoever comes next behind them all."""
    breaking = BreakingEngine(engine)
    breaking.absences = 10**9
    lane = Lane(breaking, Groups(), first_letter)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(settled(lane, item)) for item in "abcdefgh"]
        async with served(lane):
            answers = await asyncio.gather(*asked)

    assert {type(answer) for answer in answers} == {DatabaseUnavailableError}
    assert {str(answer) for answer in answers} == {"the database is away"}
    assert breaking.asked == 1 + AWAY_MAX


async def test_whether_a_group_could_be_written_is_told(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    breaking.absences = 1
    told: list[str | None] = []
    lane = Lane(
        breaking, Groups(), first_letter, lambda error: told.append(str(error) if error else None)
    )
    async with served(lane):
        await settled(lane, "a")
        await lane.submit("b")

    assert told == ["the database is away", None]


async def test_a_programming_error_reaches_everyone_and_the_lane_goes_on(engine: Engine) -> None:
    groups = Groups()
    groups.broken = True
    lane = Lane(engine, groups, first_letter)
    async with served(lane):
        answers = await asyncio.gather(settled(lane, "a"), settled(lane, "b"))
        groups.broken = False

        again = await lane.submit("a")

    assert [type(answer) for answer in answers] == [ZeroDivisionError, ZeroDivisionError]
    assert again == "A"


async def test_who_gave_up_waiting_does_not_hold_up_the_others(engine: Engine) -> None:
    groups = Groups()
    lane = Lane(engine, groups, first_letter)
    async with asyncio.TaskGroup() as tasks:
        impatient = tasks.create_task(lane.submit("a"))
        patient = tasks.create_task(lane.submit("b"))
        await asyncio.sleep(0)
        impatient.cancel()
        async with served(lane):
            assert await patient == "B"


@pytest.mark.parametrize("items", [("a",), ("a", "b"), ("a1", "a2")])
async def test_when_the_lane_ends_everyone_is_told(engine: Engine, items: Sequence[str]) -> None:
    writing = asyncio.Event()

    class Stuck:
        """An engine whose write does not come back."""

        dialect = engine.dialect
        read = engine.read
        close = engine.close

        async def write_each(self, _work: Work[object], _told: object) -> None:
            writing.set()
            await asyncio.Event().wait()

    lane: Lane[str, str] = Lane(Stuck(), Groups(), first_letter)  # type: ignore[arg-type]  # never returns
    serving = asyncio.create_task(lane.run())
    asked = [asyncio.create_task(lane.submit(item)) for item in items]
    await writing.wait()

    serving.cancel()

    done, pending = await asyncio.wait([serving, *asked], timeout=5)
    assert pending == set()
    assert all(task.cancelled() for task in done)


async def settled(lane: Lane[str, str], item: str) -> str | Exception:
    try:
        return await lane.submit(item)
    except (ConflictError, DatabaseUnavailableError, ZeroDivisionError) as error:
        return error


@pytest.mark.parametrize("items", ["a", "ab"])
async def test_a_lane_whose_connection_breaks_as_it_ends_is_over(
    engine: Engine, items: Sequence[str]
) -> None:
    """It may have heard of the connection alone; nobody would tell it again."""
    line = BreakingEngine(engine)
    line.heard = 0
    lane = Lane(line, Groups(), first_letter)
    asked = [asyncio.create_task(lane.submit(item)) for item in items]
    serving = asyncio.create_task(lane.run())
    await line.silent.wait()
    serving.cancel()
    ended, _ = await asyncio.wait({serving}, timeout=10)

    assert ended
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * len(items)


async def test_a_group_without_a_result_for_each_fails_and_is_told_to_nobody(
    engine: Engine,
) -> None:
    def one_for_all(_: Sequence[str]) -> Work[list[str]]:
        yield ()
        return ["one", "two", "three"]

    lane = Lane(engine, one_for_all, first_letter)
    async with served(lane):
        with pytest.raises(AssertionError, match="a result for each"):
            await asyncio.wait_for(lane.submit("a"), 10)
