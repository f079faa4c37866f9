"""What befalls hosts: they die, stand still, are cut off from the database, or are sent home."""

import asyncio
from typing import TYPE_CHECKING

from milepost.store.lines import GRACE_MS
from tests.simulation.database import CLAIMS
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.world import World

LEASE_S = 3.0
CALLBACKS_MAX = 60
CALLBACKS_AFTER_MAX = 12
CALLBACKS_AFTER_CLAIM_MAX = 5
STRIKES_MAX = 3


class Storm:
    """A few misfortunes, at times that the seed knows."""

    def __init__(self, world: "World", ends_s: float) -> None:
        self._world = world
        self._random = world.random
        self.ends_s = ends_s
        self._kinds = (
            self._kill, self._kill, self._freeze, self._freeze, self._freeze, self._stall,
            self._deafen, self._deafen, self._cut_off, self._away, self._drain,
        )  # fmt: skip
        self._aim = self._random.choice((0.0, 0.03, 0.08, 0.15))
        self._strikes = 0
        self.still_until_s = 0.0

    def start(self) -> None:
        """Let them come."""
        for _ in range(self._random.choice((0, 1, 1, 2, 2, 3, 4))):
            at_s = self._random.random() * self.ends_s
            kind = self._random.choice(self._kinds)
            self._world.loop.spawn(self._world.loop.world, self._come(at_s, kind))

    async def _come(self, at_s: float, kind: object) -> None:
        await asyncio.sleep(at_s)
        up = [host for host in self._world.hosts if host.main.alive and not host.main.frozen]
        if not up or not self._world.weather.is_rough:
            return
        host = self._random.choice(up)
        assert callable(kind), "kinds are methods"
        if self._random.random() < 0.6:
            kind(host)
            return
        # In the middle of something: time goes on only when everybody waits.
        host.main.fuse = 1 + self._random.randrange(CALLBACKS_MAX)
        host.main.blow = lambda: kind(host)

    def strike(self, host: "Host", told: frozenset[str]) -> None:
        """Have something befall a host right after it has written something, now and then.

        Between a claim and the first look at what was claimed it is most delicate, and when a call
        is about to be made.
        """
        if self._strikes == STRIKES_MAX or not self._world.weather.is_rough:
            return
        claimed = not told.isdisjoint(CLAIMS)
        is_delicate = claimed or "tool_call.started" in told
        if self._random.random() >= self._aim * (3 if is_delicate else 1):
            return
        self._strikes += 1
        kind = self._random.choice(
            (self._kill, self._freeze, self._freeze, self._stall, self._deafen)
        )
        most = CALLBACKS_AFTER_CLAIM_MAX if claimed else CALLBACKS_AFTER_MAX
        host.main.fuse = 1 + self._random.randrange(most)
        host.main.blow = lambda: kind(host)

    def take_over(self, name: str) -> None:
        """Have a host that stands still wake while somebody else does its work."""
        for host in self._world.hosts:
            if host.name == name and host.main.frozen and self._random.random() < 0.6:
                self._later(self._random.random() ** 5 * 0.3, self._thaw, host.main)

    def _befall(self, host: "Host", what: str, *how: object) -> None:
        self._world.weather.befell[what] += 1
        self._world.tell(what, host.name, *how)

    def _later(self, after_s: float, what: object, *given: object) -> None:
        loop = self._world.loop
        loop.call_later(after_s, what, *given, context=loop.context_of(loop.world))

    def _kill(self, host: "Host") -> None:
        if not host.main.alive:
            return
        self._befall(host, "a host killed")
        self._world.close_host(host)
        self._later(self._random.random() * 2, self._world.open_host)

    def _freeze(self, host: "Host") -> None:
        """Stop all of it; now and then its lease's connection is back later than the rest."""
        for_s = self._length_s()
        self.still_until_s = max(self.still_until_s, self._world.loop.time() + for_s)
        more_s = 3 * self._random.random() if self._random.random() < 0.4 else 0.0
        self._befall(host, "a host frozen", f"{for_s:.3f}", f"its lease {more_s:.3f} longer")
        for process in (host.main, host.thread):
            self._world.loop.freeze(process)
        self._later(for_s, self._thaw, host.main)
        self._later(for_s + more_s, self._thaw, host.thread)

    def _stall(self, host: "Host") -> None:
        """Let the event loop stand still, while the lease's thread goes on.

        Now and then for so long that whoever wants its runs to stop has them ended by force.
        """
        for_s = self._length_s()
        if self._random.random() < 0.3:
            for_s = GRACE_MS / 1000 + 1 + 3 * self._random.random()
            self._world.on_stall(host.worker_id)
        self.still_until_s = max(self.still_until_s, self._world.loop.time() + for_s)
        self._befall(host, "an event loop stalled", f"{for_s:.3f}")
        self._world.loop.freeze(host.main)
        self._later(for_s, self._thaw, host.main)

    def _deafen(self, host: "Host") -> None:
        """Let the lease's connection hang, while the host goes on."""
        for_s = self._length_s()
        self._befall(host, "a lease's connection hung", f"{for_s:.3f}")
        self._world.loop.freeze(host.thread)
        self._later(for_s, self._thaw, host.thread)

    def _length_s(self) -> float:
        """Return how long a host stands still: a moment, or longer than a lease lasts."""
        chance, length_s = self._random.random(), self._random.random()
        if chance < 0.25:
            return length_s
        return LEASE_S - 1 + 2 * length_s if chance < 0.4 else LEASE_S + 1 + 4 * length_s

    def _thaw(self, process: Process) -> None:
        """Let it go on as if nothing had been."""
        if process.alive and process.frozen:
            self._world.tell("goes on", process.name)
            self._world.loop.thaw(process)

    def _cut_off(self, host: "Host") -> None:
        for_s = self._random.random() * 5
        self._befall(host, "a host cut off from the database", f"{for_s:.3f}")
        host.engine.away_until_s = self._world.loop.time() + for_s

    def _away(self, host: "Host") -> None:
        for_s = self._random.random() * 4
        self._befall(host, "the database away", f"{for_s:.3f}")
        self._world.weather.database_away_until_s = self._world.loop.time() + for_s

    def _drain(self, host: "Host") -> None:
        if host.is_draining:
            return
        self._befall(host, "a host sent home")
        host.drain()
        self._later(3.0, self._leave, host)
        self._later(self._random.random() * 2, self._world.open_host)

    def _leave(self, host: "Host") -> None:
        if host in self._world.hosts:
            self._world.close_host(host)
