"""One seed from its beginning to its verdict."""

import logging
import random as shared_random
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.store.schema import ENDED
from tests.simulation.clients import Clients
from tests.simulation.database import database
from tests.simulation.invariants import verdict
from tests.simulation.schedules import Planners, routines
from tests.simulation.wishes import wishes
from tests.simulation.world import Outcome, World

LASTS_S = 240.0
HOSTS = (1, 2, 2, 3, 3)


def simulate(seed: int) -> Outcome:
    """Play the seed; the same one is the same in every process."""
    shared_random.seed(seed)  # the code's own jitter
    base = database()
    world = World(seed, base)
    with base.began(world.now_ms, world.watch), _alarmed(world):
        clients = _begin(world)
        world.loop.run()
        if world.loop.crash is not None:
            world.violate(f"the loop broke: {world.loop.crash!r}")
        if world.violation is None and (wrong := verdict(world, clients)):
            world.violate(wrong)
    return Outcome(
        seed,
        world.violation,
        world.trace,
        dict(world.weather.befell),
        dict(world.watch.counted),
        world.loop.time(),
        world.loop.steps,
    )


def _begin(world: World) -> Clients:
    clients = Clients(world, wishes(world, world.storm.ends_s))
    planned = routines(world, clients.wishes)
    world.has_schedules = bool(planned)
    for _ in range(world.random.choice(HOSTS)):
        world.open_host()
    world.storm.start()
    world.watch.on_news = clients.hear
    world.on_stall = clients.lose_patience
    world.is_wanted = lambda: clients.busy
    clients.start()
    Planners(world, clients, planned).start()
    outside = world.loop.context_of(world.loop.world)
    world.loop.call_at(world.storm.ends_s, _clear, world, context=outside)
    world.loop.call_at(LASTS_S, _give_up, world, clients, context=outside)
    return clients


def _clear(world: World) -> None:
    world.weather.clear()
    world.tell("the weather clears")
    for host in list(world.hosts):
        host.engine.away_until_s = 0.0
        host.main.fuse = 0
    if not any(host.is_up for host in world.hosts):
        world.open_host()


def _give_up(world: World, clients: Clients) -> None:
    world.violate(f"not over after {LASTS_S:g} s: {_unfinished(world, clients)}")


def _unfinished(world: World, clients: Clients) -> str:
    left = [
        f"{seen.id} is {seen.status} of {seen.owner}"
        for seen in world.watch.runs.values()
        if seen.status not in ENDED
    ]
    return f"{left}, {clients.busy} clients busy"


class _Alarm(logging.Handler):
    """Takes every exception that the code did not expect for a violation."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of it, unless it is one of a teardown."""
        if not self._world.loop.over:
            self._world.violate(f"logged: {record.getMessage()}")


_LOGGERS = [logging.getLogger(f"milepost.{name}") for name in ("worker", "sweeper", "schedules")]
_QUIET = logging.getLogger("milepost")


@contextmanager
def _alarmed(world: World) -> Iterator[None]:
    alarm, level = _Alarm(world), _QUIET.level
    _QUIET.setLevel(logging.ERROR)
    for each in _LOGGERS:
        each.addHandler(alarm)
    try:
        yield
    finally:
        _QUIET.setLevel(level)
        for each in _LOGGERS:
            each.removeHandler(alarm)
