"""What becomes of Milepost's own processes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tests.benchmarks.outages.outage import Besides
from tests.benchmarks.outages.site import Site
from tests.torture.fleet import Member
from tests.torture.ground import url_of

FROZEN_S = 4.0
BLOCKED_S = 3.0
SKEW_S = 600.0
QUIET_S = 2.0
LOOK_S = 0.05


async def nothing(_: Site) -> Besides:
    """Break nothing: what all else is to be compared with."""
    await asyncio.sleep(QUIET_S)
    return {}


async def worker_killed(at: Site) -> Besides:
    """Kill the worker that drives most, and start another."""
    return await _killed(at, await at.busiest())


async def api_killed(at: Site) -> Besides:
    """Kill an API, and start another at its address."""
    member = at.chance.choice(at.apis())
    with _unasked(at, member):
        return await _killed(at, member)


async def worker_drained(at: Site) -> Besides:
    """End the worker that drives most as an orchestrator would, and start another."""
    return await _drained(at, await at.busiest())


async def api_drained(at: Site) -> Besides:
    """End an API as an orchestrator would, and start another."""
    member = at.chance.choice(at.apis())
    with _unasked(at, member):
        return await _drained(at, member)


async def all_killed(at: Site) -> Besides:
    """Kill the one process that is the whole service, and start it again."""
    [member] = at.fleet.members
    return await _killed(at, member)


async def worker_frozen(at: Site) -> Besides:
    """Let the worker that drives most stand still for twice its lease, and go on."""
    member = await at.busiest()
    await at.do_to(member, at.fleet.pause(member, FROZEN_S))
    return {}


async def loop_blocked(at: Site) -> Besides:
    """Have a tool keep the event loop of a worker to itself for longer than its lease."""
    dead = at.dead_workers()
    posted = {
        "agent": at.crowd.agent,
        "input": f'call block {{"block_ms": {round(BLOCKED_S * 1000)}}}',
        "metadata": {"key": _key(at, "block")},
    }
    run = await at.doors.post("/v1/runs", posted)
    await _until(at, run["id"], "completed")
    at.crowd.told["a worker was declared dead that lived"] += at.dead_workers() - dead
    return {}


async def killed_by_a_run(at: Site) -> Besides:
    """Post a run that kills whoever drives it, until it waits for an operator, who ends it."""
    posted = {
        "agent": at.crowd.agent,
        "input": "call die {}",
        "metadata": {"key": _key(at, "die")},
    }
    began_s = time.monotonic()
    run = await at.doors.post("/v1/runs", posted)
    await _until(at, run["id"], "waiting")
    took_s = time.monotonic() - began_s
    await at.doors.post(f"/v1/runs/{run['id']}/cancel", {"reason": "it is deadly"})
    # They ended by themselves, as they were meant to.
    at.fleet.surprises.clear()
    return {"until it waits for an operator": took_s}


@asynccontextmanager
async def wrong_clocks(at: Site) -> AsyncIterator[None]:
    """Have all workers but one believe that it is ten minutes earlier, or later."""
    wrong = at.workers()[1:]
    for number, member in enumerate(wrong):
        member.skew_s = SKEW_S if number % 2 else -SKEW_S
        await at.do_to(member, at.fleet.drain(member))
    yield
    for member in wrong:
        member.skew_s = 0.0
        await at.do_to(member, at.fleet.drain(member))


@contextmanager
def _unasked(at: Site, member: Member) -> Iterator[None]:
    """Send no client to a process that is not ready, as a balancer does."""
    urls = at.doors.urls
    at.doors.urls = [url for url in urls if url != url_of(member)]
    try:
        yield
    finally:
        at.doors.urls = urls


async def _killed(at: Site, member: Member) -> Besides:
    began_s = time.monotonic()
    await at.do_to(member, at.fleet.kill(member))
    return {"until another was ready in its place": time.monotonic() - began_s}


async def _drained(at: Site, member: Member) -> Besides:
    life = member.life
    assert life
    await at.do_to(member, at.fleet.drain(member))
    assert life.killed_s
    assert life.ended_s
    return {"from SIGTERM to its end": life.ended_s - life.killed_s}


async def _until(at: Site, run_id: str, status: str) -> None:
    asked = f"/v1/runs/{run_id}"
    while (await at.doors.get(asked))["status"] != status:  # noqa: ASYNC110 - we poll, on purpose
        await asyncio.sleep(LOOK_S)


def _key(at: Site, kind: str) -> str:
    return f"outages-{kind}-{at.plan.seed}-{time.monotonic_ns()}"
