"""What becomes of Postgres, of Redis, and of the way to Postgres."""

import asyncio
import signal
import time
from contextlib import ExitStack

import psycopg
import redis.asyncio

from tests import devservices
from tests.benchmarks.outages.outage import Besides
from tests.benchmarks.outages.site import COMMON_WAY, LONE_WAY, Site
from tests.deploy.backups import PostgresBackups
from tests.full_disk import full_disk
from tests.torture.fleet import Member
from tests.torture.ground import url_of
from tests.torture.proxy import Fault
from tests.torture.servers import ServerProcess

AWAY_S = 2.0
CUT_OFF_S = 4.0
CONNECTIONS_MAX = 1_000


async def postgres_restarted(at: Site) -> Besides:
    """End Postgres without a checkpoint, and start it at once."""
    assert at.ground.database
    return {"Postgres was away": await _away(at.ground.database, signal.SIGQUIT, 0.0)}


async def postgres_refused(at: Site) -> Besides:
    """Break all connections to Postgres, and refuse new ones."""
    return await _all_ways(at, "cut")


async def postgres_cut_off(at: Site) -> Besides:
    """Let nothing through to Postgres and nothing back, and then break what waits."""
    return await _all_ways(at, "blackhole")


async def postgres_late(at: Site) -> Besides:
    """Delay whatever goes to Postgres and comes from it."""
    return await _all_ways(at, "slow")


async def worker_cut_off(at: Site) -> Besides:
    """Let nothing through between one worker and Postgres, for twice its lease."""
    await at.busy(*(member for member in at.workers() if member.network == LONE_WAY))
    await at.ground.networks[LONE_WAY].fail("blackhole", CUT_OFF_S, reset=True)
    return {}


async def postgres_full(at: Site) -> Besides:
    """Take all the connections that Postgres has to give."""
    with ExitStack() as taken:
        await asyncio.to_thread(_take_all, at.ground.url, taken)
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(taken.close)
    return {}


async def sqlite_full(at: Site) -> Besides:
    """Leave the file of the one process no room for a while."""
    [member] = at.fleet.members
    assert member.child
    with full_disk(member.child.pid):
        await asyncio.sleep(AWAY_S)
    return {}


async def redis_killed(at: Site) -> Besides:
    """Kill Redis, and start it a while later."""
    assert at.ground.redis
    return {"Redis was away": await _away(at.ground.redis, signal.SIGKILL, AWAY_S)}


async def redis_replaced(at: Site) -> Besides:
    """Kill Redis, and have another, an empty one, take its address at once."""
    assert at.ground.redis
    return {"no Redis was there": await _away(at.ground.redis, signal.SIGKILL, 0.0)}


async def redis_flushed(at: Site) -> Besides:
    """Make Redis forget everything."""
    assert at.ground.redis
    async with redis.asyncio.Redis.from_url(at.ground.redis.url) as client:
        await client.flushall()
    return {}


async def restored(at: Site) -> Besides:
    """Copy the database while it is in use, and bring a service up on the copy."""
    name = f"restored_{time.monotonic_ns()}"
    empty_url = f"{at.ground.url.rpartition('/')[0]}/{name}"
    backups = PostgresBackups(at.ground.url, empty_url, at.folder)
    await asyncio.to_thread(_create, at.ground.url, name)
    began_s = time.monotonic()
    await asyncio.to_thread(backups.make)
    copied_s = time.monotonic()
    await asyncio.to_thread(backups.restore)
    await _serve_once(at, empty_url)
    return {
        "to copy the database in use": copied_s - began_s,
        "from the copy to the first answer": time.monotonic() - copied_s,
    }


async def _serve_once(at: Site, database_url: str) -> None:
    """Start an API on a database, ask it for the runs, and end it."""
    original, port = at.apis()[0], str(devservices._free_port())
    own = {"MILEPOST_DATABASE_URL": database_url, "MILEPOST_PORT": port, "MILEPOST_SLOTS": "0"}
    member = Member("restored", original.arguments, {**original.environment, **own})
    await at.fleet.start(member)
    assert member.child
    assert member.life
    try:
        async with at.doors.http.get(f"{url_of(member)}/v1/runs?limit=1") as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["data"], "the copy has no runs"
    finally:
        member.life.killed_s = time.time()
        member.child.signal(signal.SIGKILL)
        await member.child.ended


def _create(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())


async def _all_ways(at: Site, fault: Fault) -> Besides:
    ways = [at.ground.networks[name] for name in (LONE_WAY, COMMON_WAY)]
    await asyncio.gather(*(way.fail(fault, AWAY_S, reset=fault == "blackhole") for way in ways))
    return {}


async def _away(server: ServerProcess, number: signal.Signals, seconds: float) -> float:
    began_s = time.monotonic()
    await server.crash(number)
    await asyncio.sleep(seconds)
    await server.start()
    return time.monotonic() - began_s


def _take_all(url: str, taken: ExitStack) -> None:
    for _ in range(CONNECTIONS_MAX):
        try:
            taken.enter_context(psycopg.connect(url))
        except psycopg.OperationalError:
            return
