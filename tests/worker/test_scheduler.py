"""The scheduler: lets schedules come when they are due, and tells whom that concerns."""

import asyncio
from typing import Any

import orjson
import pytest

from milepost.core.codec import decode
from milepost.core.events import InputMessage, RunQueued
from milepost.live.frames import rfc3339
from milepost.live.hub import QUEUE_BELL, SCHEDULES_BELL, session_bell
from milepost.store import agents, runs, schedules
from milepost.store.records import Page, RunFilter
from milepost.store.runs import RunRow
from milepost.store.schedules import ScheduleRow
from milepost.worker import scheduler as scheduler_module
from milepost.worker.scheduler import Scheduler
from tests.runtime.workshop import Workshop
from tests.store.making import TENANT, a_finish, a_run, a_worker, claims, events, queued
from tests.store.making_schedules import HOUR_MS, NOWHERE, a_schedule, a_wish
from tests.worker.running import running

DAY_MS = 24 * HOUR_MS


@pytest.fixture
def scheduler(shop: Workshop) -> Scheduler:
    return Scheduler(shop.ports, queue_max=100)


@pytest.fixture(autouse=True)
async def clerk(shop: Workshop) -> agents.AgentRow:
    """The agent that the schedules name."""
    return await shop.store.write(
        agents.create(TENANT, "clerk", "{}", agent_id=shop.ports.new_id("agt"), now_ms=1)
    )


async def kept(shop: Workshop, **changes: Any) -> ScheduleRow:
    """Keep a schedule that is due."""
    row = a_schedule(**{"next_ms": shop.clock() - 1, **changes})
    return await shop.store.write(schedules.create(row))


async def found(shop: Workshop, row: ScheduleRow) -> ScheduleRow:
    return await shop.store.read(schedules.find(TENANT, row.id))


async def made(shop: Workshop) -> list[RunRow]:
    return await shop.store.read(runs.search(TENANT, RunFilter(), Page(100, ascending=True)))


async def first_event(shop: Workshop, run: RunRow) -> RunQueued:
    first = (await events(shop.store, run.id))[0]
    event = decode(first.type, first.data)
    assert isinstance(event, RunQueued)
    return event


def counted(shop: Workshop, result: str) -> bool:
    line = f'milepost_schedules_came_total{{status="{result}"}} 1.0'
    return line in shop.ports.metrics.render({}).decode()


async def test_what_is_due_becomes_a_run_and_whoever_takes_runs_is_told(
    shop: Workshop, scheduler: Scheduler
) -> None:
    row = await kept(shop)

    with shop.hub.bell(QUEUE_BELL) as rung:
        await scheduler.tend()
        assert rung.is_set()

    assert [run.status for run in await made(shop)] == ["queued"]
    assert counted(shop, "started")
    after = await found(shop, row)
    assert after.next_ms is not None
    assert shop.clock() < after.next_ms <= shop.clock() + HOUR_MS
    assert after.next_ms % HOUR_MS == 0


async def test_what_is_not_due_waits_for_its_time(shop: Workshop, scheduler: Scheduler) -> None:
    await kept(shop, next_ms=shop.clock() + 600)

    wait_s = await scheduler.tend()

    assert 0 < wait_s <= 0.6
    assert await made(shop) == []


async def test_where_nothing_comes_soon_it_looks_again_in_a_while(
    shop: Workshop, scheduler: Scheduler
) -> None:
    await kept(shop, next_ms=shop.clock() + DAY_MS)

    assert await scheduler.tend() == scheduler_module.POLL_S


async def test_the_run_is_what_was_asked_for(
    shop: Workshop, scheduler: Scheduler, clerk: agents.AgentRow
) -> None:
    wish = a_wish(metadata={"team": "a"}, priority=7, deadline_s=60)
    told = RunQueued("clerk", "", 0, "", (InputMessage("user", "hello"),), user="ann", cache=False)
    row = await kept(
        shop, user="ann", run=wish, queued_event=orjson.dumps(told).decode(), scopes='["admin"]'
    )

    await scheduler.tend()

    (run,) = await made(shop)
    assert (run.user, run.agent_id, run.agent_version) == ("ann", clerk.id, 1)
    metadata = orjson.loads(run.metadata)
    assert metadata.pop("scheduled_for").endswith("Z")
    assert metadata == {"team": "a", "schedule_id": row.id}
    assert run.deadline_ms == run.created_ms + 60_000
    first = await first_event(shop, run)
    assert (first.agent, first.agent_id, first.agent_version) == ("clerk", clerk.id, 1)
    assert first.input == (InputMessage("user", "hello"),)
    assert (first.user, first.session_id, first.cache) == ("ann", run.session_id, False)
    assert (first.reason, first.deadline_ms) == ("ready", run.deadline_ms)
    (claim,) = await claims(shop.store, await a_worker(shop.store))
    assert (claim.lane, claim.scopes, claim.made_by) == (7, '["admin"]', "local")


async def test_what_was_missed_is_made_up_for_by_one_run_for_the_last_of_the_times(
    shop: Workshop, scheduler: Scheduler
) -> None:
    now = shop.clock()
    last = now - now % HOUR_MS
    row = await kept(shop, next_ms=last - 5 * HOUR_MS)

    await scheduler.tend()

    (run,) = await made(shop)
    assert orjson.loads(run.metadata)["scheduled_for"] == rfc3339(last)
    assert (await found(shop, row)).next_ms == last + HOUR_MS


async def test_of_what_was_missed_the_last_time_says_whether_it_is_too_late(
    shop: Workshop, scheduler: Scheduler
) -> None:
    last = shop.clock() - shop.clock() % HOUR_MS
    in_time = await kept(shop, next_ms=last - 5 * HOUR_MS, late_max_ms=HOUR_MS)
    too_late = await kept(shop, cron="0 0 1 1 *", next_ms=last - 5 * HOUR_MS, late_max_ms=HOUR_MS)

    await scheduler.tend()

    (run,) = await made(shop)
    assert orjson.loads(run.metadata)["schedule_id"] == in_time.id
    assert counted(shop, "late")
    last_told = (await found(shop, too_late)).last
    assert last_told is not None
    assert orjson.loads(last_told)["result"] == "late"


async def test_what_two_processes_see_at_once_comes_once(shop: Workshop) -> None:
    rows = [await kept(shop) for _ in range(3)]

    await asyncio.gather(*(Scheduler(shop.ports, queue_max=100).tend() for _ in range(2)))

    found_in = [orjson.loads(run.metadata)["schedule_id"] for run in await made(shop)]
    assert sorted(found_in) == sorted(row.id for row in rows)


async def test_all_that_are_due_come_however_many_there_are(
    shop: Workshop, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "COMING_MAX", 2)
    for _ in range(5):
        await kept(shop)

    waits = [await scheduler.tend() for _ in range(4)]

    assert waits == [0, 0, 0, scheduler_module.POLL_S]
    assert len(await made(shop)) == 5


async def test_one_that_cannot_come_now_leaves_the_others_for_the_next_look(
    shop: Workshop,
) -> None:
    await queued(shop.store, a_run())
    scheduler = Scheduler(shop.ports, queue_max=2)
    rows = [await kept(shop) for _ in range(2)]

    assert await scheduler.tend() == scheduler_module.POLL_S

    came = [row.id for row in rows if (await found(shop, row)).last is not None]
    assert len(came) == 1
    for claim in await claims(shop.store, await a_worker(shop.store)):
        await shop.store.append(a_finish(claim))
    await scheduler.tend()
    assert all([(await found(shop, row)).last for row in rows])


async def test_where_there_is_no_room_no_other_is_tried(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    await queued(shop.store, a_run())
    for _ in range(3):
        await kept(shop)

    await Scheduler(shop.ports, queue_max=1).tend()

    assert caplog.text.count("what is due waits") == 1


async def test_one_that_fails_keeps_none_of_the_others_from_their_time(
    shop: Workshop, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "COMING_MAX", 2)
    now = shop.clock()
    await kept(shop, next_ms=now - 2, run="{}")
    row = await kept(shop, next_ms=now - 1)

    wait_s = await scheduler.tend()

    (run,) = await made(shop)
    assert orjson.loads(run.metadata)["schedule_id"] == row.id
    assert wait_s == scheduler_module.POLL_S, "what fails is not tried again at once"


async def test_one_whose_zone_is_not_known_any_more_comes_this_once_and_says_so(
    shop: Workshop, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    row = await kept(shop, timezone=NOWHERE)

    await scheduler.tend()

    assert len(await made(shop)) == 1
    assert (await found(shop, row)).next_ms is None
    assert row.id in caplog.text
    assert NOWHERE in caplog.text


async def test_whoever_follows_its_session_is_told(shop: Workshop, scheduler: Scheduler) -> None:
    before = await queued(shop.store, a_run(user=None))
    await kept(shop, run=a_wish(session_id=before.session_id))

    with shop.hub.bell(session_bell(before.session_id)) as rung:
        await scheduler.tend()
        assert rung.is_set()

    first, second = await made(shop)
    assert first.session_id == second.session_id
    assert (await first_event(shop, second)).session_id == before.session_id


@pytest.mark.parametrize(("scopes", "user"), [('["admin"]', "ann"), ('["runs:write"]', None)])
async def test_in_a_session_of_somebody_it_is_for_them_if_its_maker_may_act_for_others(
    shop: Workshop, scheduler: Scheduler, scopes: str, user: str | None
) -> None:
    before = await queued(shop.store, a_run(user="ann"))
    await kept(shop, scopes=scopes, run=a_wish(session_id=before.session_id))

    await scheduler.tend()

    _, run = await made(shop)
    assert run.user == user
    assert (await first_event(shop, run)).user == user


async def test_a_refusal_is_counted_and_said(
    shop: Workshop, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    row = await kept(shop, made_by="key_gone")

    await scheduler.tend()

    assert counted(shop, "refused")
    assert row.id in caplog.text
    assert "invalid_key" in caplog.text


async def test_it_wakes_when_a_schedule_is_new(shop: Workshop) -> None:
    scheduler = Scheduler(shop.ports, queue_max=100, poll_s=DAY_MS)
    with shop.hub.bell(QUEUE_BELL) as queue_rung:
        async with running(scheduler):
            await kept(shop)
            shop.hub.ring(SCHEDULES_BELL)
            await queue_rung.wait()

    assert len(await made(shop)) == 1


class Looking(Scheduler):
    """A scheduler that knows how often it has looked."""

    looks = 0

    async def tend(self) -> float:
        self.looks += 1
        return await super().tend()


async def test_it_rests_until_it_is_told_of_another(shop: Workshop) -> None:
    scheduler = Looking(shop.ports, queue_max=100, poll_s=60.0)
    with shop.hub.bell(QUEUE_BELL) as queue_rung:
        async with running(scheduler):
            await kept(shop)
            shop.hub.ring(SCHEDULES_BELL)
            await queue_rung.wait()
            for _ in range(20):
                await made(shop)

    assert scheduler.looks <= 4


async def test_it_finds_by_itself_what_comes(shop: Workshop) -> None:
    scheduler = Scheduler(shop.ports, queue_max=100, poll_s=0.01)
    with shop.hub.bell(QUEUE_BELL) as queue_rung:
        async with running(scheduler):
            await kept(shop, next_ms=shop.clock() + 30)
            await queue_rung.wait()

    assert len(await made(shop)) == 1
