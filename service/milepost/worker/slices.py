"""How a run stands when a worker has let go of it, for who has to say when it is delivered again.

The times are for what nobody tells of: whoever makes a run ready rings, and it is told at once.
"""

from milepost.dispatch.port import Slice
from milepost.runtime.journal import Ports
from milepost.store import queue
from milepost.store.queue import Standing

LOOK_S_MIN = 1.0
DRIVEN_S = 30.0
PARKED_S_MAX = 3_600.0
MARGIN_S = 5.0


async def slice_of(ports: Ports, run_id: str) -> Slice:
    """Return how the run stands; one that was erased is over."""
    standing = await ports.store.read(queue.standing(run_id))
    if standing is None or standing.over:
        return Slice(over=True, again_s=0)
    return Slice(over=False, again_s=_again_s(standing, ports.clock()))


def _again_s(standing: Standing, now_ms: int) -> float:
    match standing.status:
        case "queued":
            return max(standing.ready_in_ms / 1000, LOOK_S_MIN)
        case "running":
            return DRIVEN_S
        case _ if standing.wake_at_ms is None:
            return PARKED_S_MAX
        case _:
            # At its time, somebody else ends it or queues it.
            due_s = (standing.wake_at_ms - now_ms) / 1000 + MARGIN_S
            return min(max(due_s, LOOK_S_MIN), PARKED_S_MAX)
