"""What becomes of those whom the service talks to: a model, a receiver, a collector, Temporal."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.benchmarks.outages.outage import Besides
from tests.benchmarks.outages.site import STAND_IN, Site
from tests.benchmarks.outages.waiting import until

AWAY_S = 2.0
ARRIVAL_S_MAX = 60.0


async def model_down(at: Site) -> Besides:
    """Have nobody answer at the model's address for a while."""
    await at.near.to_model.fail("cut", AWAY_S, reset=False)
    return {}


@asynccontextmanager
async def stood_in_for(at: Site) -> AsyncIterator[None]:
    """Have the clients ask an agent whose model has another to stand in for it."""
    before, at.crowd.agent = at.crowd.agent, STAND_IN
    yield
    at.crowd.agent = before


async def receiver_down(at: Site) -> Besides:
    """Have nobody take webhooks for a while; wait until all that was missed has arrived."""
    began_s = time.monotonic()
    await at.near.to_receiver.fail("cut", AWAY_S, reset=False)
    missed = [
        run_id
        for run_id, ended_s in dict(at.crowd.ended).items()
        if ended_s > began_s and run_id not in at.near.arrived
    ]
    try:
        await until(lambda: at.near.arrived.keys() >= set(missed), ARRIVAL_S_MAX)
    except TimeoutError:
        lost = set(missed) - at.near.arrived.keys()
        at.found.append(f"no webhook told within {ARRIVAL_S_MAX:.0f} s of {sorted(lost)}")
        return {}
    late = [at.near.arrived[run_id] - at.crowd.ended[run_id] for run_id in missed]
    return {"from a run's end to its message, the last of them": max(late)} if late else {}


async def collector_down(at: Site) -> Besides:
    """Have nobody take spans for a while, and look whether the database has them."""
    began_s = time.monotonic()
    await at.near.to_collector.fail("cut", AWAY_S, reset=False)
    at.near.collector.arrived.clear()
    back_s = time.monotonic()
    await until(at.near.collector.arrived.is_set, ARRIVAL_S_MAX)
    again_s = time.monotonic() - back_s
    for run_id, ended_s in dict(at.crowd.ended).items():
        if began_s < ended_s < back_s:
            trace = await at.doors.get(f"/v1/traces/{run_id}")
            if not trace["spans"]:
                at.found.append(f"{run_id}: its trace is empty")
    return {"until spans came again": again_s}


async def temporal_down(at: Site) -> Besides:
    """Kill Temporal, and start it a while later."""
    assert at.near.temporal
    began_s = time.monotonic()
    at.near.temporal.kill()
    await asyncio.sleep(AWAY_S)
    await at.near.temporal.start()
    return {"Temporal was away": time.monotonic() - began_s}
